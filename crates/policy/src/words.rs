//! Words shared by policy and kernel: tiers, labels, caller classes, kinds of access.

use serde::{Deserialize, Serialize};

/// Isolation strength of a call. Ordered from weaker to stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Shown, never run.
    Instruction,
    /// A built-in driver, in Regent's own process.
    Host,
    /// A process under namespaces, Landlock, seccomp and limits.
    Process,
    /// A WASM component with fuel, epochs and a memory limit.
    Wasm,
    /// A separate virtual machine.
    Microvm,
}

/// The origin of a value. Ordered from the most trusted, so that `max` is the join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Integrity {
    /// Regent itself.
    System,
    /// The operator of Regent.
    Operator,
    /// The user of an agent.
    User,
    /// A skill with a verified signature.
    SignedSkill,
    /// The agent's own model.
    OwnModel,
    /// The output of a tool.
    Tool,
    /// A file of the workspace.
    File,
    /// The agent's memory.
    Memory,
    /// Another agent.
    Peer,
    /// The open network.
    Web,
}

/// How far a value may travel. Ordered, so that `max` is the join. Rules treat `Unknown` as `Private`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Confidentiality {
    /// For everyone.
    Public,
    /// For the organisation.
    Internal,
    /// For the people concerned.
    Private,
    /// Unlabelled; rules treat it as `Private`.
    Unknown,
    /// Personally identifiable information.
    Pii,
    /// Restricted by law or contract.
    Regulated,
    /// A secret.
    Secret,
    /// A credential.
    Credential,
}

impl Confidentiality {
    /// The level that rules compare: unlabelled counts as private.
    pub(crate) fn judged(self) -> Self {
        match self {
            Self::Unknown => Self::Private,
            Self::Public
            | Self::Internal
            | Self::Private
            | Self::Pii
            | Self::Regulated
            | Self::Secret
            | Self::Credential => self,
        }
    }
}

/// Origin and confidentiality of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Label {
    /// Its origin.
    pub integrity: Integrity,
    /// How far it may travel.
    pub confidentiality: Confidentiality,
}

impl Label {
    /// The label of a combined value: the less trusted origin, the stricter confidentiality.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        Self {
            integrity: self.integrity.max(other.integrity),
            confidentiality: self.confidentiality.max(other.confidentiality),
        }
    }
}

/// The class of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// A human operator.
    Operator,
    /// An agent.
    Agent,
    /// The kernel itself.
    Kernel,
    /// An external agent system.
    Peer,
    /// A program of the same organisation.
    Service,
}

/// The kind of access to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Reads content or attributes.
    Read,
    /// Creates, changes or renames.
    Write,
    /// Executes it.
    Execute,
    /// Removes it.
    Delete,
    /// Lists its entries.
    List,
}

/// Words in policy files: every variant with its spelling, so that loaders can list accepted values.
pub(crate) trait Word: Copy + 'static {
    /// Every variant and its spelling.
    const WORDS: &'static [(&'static str, Self)];

    /// The variant with this spelling.
    fn parse(text: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(word, _)| *word == text).map(|(_, value)| *value)
    }
}

macro_rules! words {
    ($kind:ty: $($word:literal => $variant:ident),+ $(,)?) => {
        impl Word for $kind {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant)),+];
        }

        impl $kind {
            /// Its spelling in policy files, the ledger and messages.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words!(Tier: "instruction" => Instruction, "host" => Host, "process" => Process, "wasm" => Wasm, "microvm" => Microvm);
words!(Integrity: "system" => System, "operator" => Operator, "user" => User, "signed_skill" => SignedSkill,
    "own_model" => OwnModel, "tool" => Tool, "file" => File, "memory" => Memory, "peer" => Peer, "web" => Web);
words!(Confidentiality: "public" => Public, "internal" => Internal, "private" => Private, "unknown" => Unknown,
    "pii" => Pii, "regulated" => Regulated, "secret" => Secret, "credential" => Credential);
words!(Class: "operator" => Operator, "agent" => Agent, "kernel" => Kernel,
    "peer" => Peer, "service" => Service);
words!(Access: "read" => Read, "write" => Write, "execute" => Execute, "delete" => Delete, "list" => List);

pub(crate) use words;

/// Every operation that a rule may name; an unknown one is a load error.
pub const OPS: &[&str] = &[
    "tool.run",
    "tool.elsewhere",
    "request.begin",
    "label.declassify",
    "model.infer",
    "memory.remember",
    "memory.recall",
    "vfs.open",
    "vfs.close",
    "vfs.read",
    "vfs.write",
    "vfs.stat",
    "vfs.list",
    "vfs.mount",
    "vfs.unmount",
    "agent.spawn",
    "agent.wait",
    "agent.exit",
    "agent.list",
    "pipe.open",
    "pipe.send",
    "pipe.recv",
    "signal.send",
    "signal.action",
    "signal.mask",
    "signal.pending",
    "policy.get",
    "policy.check",
    "approval.answer",
    "approval.list",
    "budget.set",
    "token.create",
    "token.list",
    "token.revoke",
    "token.rotate",
    "auth.whoami",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_spelled_as_serde_spells_them() {
        fn check<T: Word + Serialize + PartialEq + std::fmt::Debug>() {
            for (word, value) in T::WORDS {
                assert_eq!(serde_json::to_value(value).unwrap(), serde_json::json!(word));
                assert_eq!(T::parse(word), Some(*value));
            }
        }
        check::<Tier>();
        check::<Integrity>();
        check::<Confidentiality>();
        check::<Class>();
        check::<Access>();
    }

    #[test]
    fn joining_labels_keeps_the_worse_of_each() {
        let web = Label { integrity: Integrity::Web, confidentiality: Confidentiality::Public };
        let key = Label { integrity: Integrity::System, confidentiality: Confidentiality::Credential };
        let both = Label { integrity: Integrity::Web, confidentiality: Confidentiality::Credential };
        assert_eq!(web.join(key), both);
        assert_eq!(key.join(web), both);
        assert_eq!(both.join(both), both);
    }

    #[test]
    fn a_stronger_tier_is_greater() {
        assert!(Tier::Instruction < Tier::Host && Tier::Host < Tier::Process);
        assert!(Tier::Process < Tier::Wasm && Tier::Wasm < Tier::Microvm);
    }
}
