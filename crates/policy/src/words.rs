//! The words that policy and kernel share: tiers, labels, classes of caller, kinds of access.

use serde::{Deserialize, Serialize};

/// How strongly a call is confined. Ordered: weaker < stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Shown, never run.
    Instruction,
    /// One of our own drivers, in our own process.
    Host,
    /// A process under namespaces, Landlock, seccomp and limits.
    Process,
    /// A WASM component with fuel, epochs and a memory cap.
    Wasm,
    /// A virtual machine of its own.
    Microvm,
}

/// Where something came from. Ordered: the most trusted first, so that `max` is the join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Integrity {
    /// Regent itself.
    System,
    /// The person who runs Regent.
    Operator,
    /// The person whom an agent serves.
    User,
    /// A skill whose signature was checked.
    SignedSkill,
    /// The agent's own model.
    OwnModel,
    /// The output of a tool.
    Tool,
    /// A file of the workspace.
    File,
    /// Something remembered.
    Memory,
    /// Another agent.
    Peer,
    /// The open network.
    Web,
}

/// How far something may travel. Ordered, so that `max` is the join. Rules treat `Unknown` as `Private`.
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
    /// Nobody has said; rules see `Private`.
    Unknown,
    /// About identifiable people.
    Pii,
    /// Under a law or a contract.
    Regulated,
    /// A secret.
    Secret,
    /// Something that opens doors.
    Credential,
}

impl Confidentiality {
    /// What rules compare with: nobody having said counts as private.
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

/// Provenance and confidentiality of one piece of input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Label {
    /// Where it came from.
    pub integrity: Integrity,
    /// How far it may travel.
    pub confidentiality: Confidentiality,
}

impl Label {
    /// The label of something made of both: the less trusted origin, the stricter confidentiality.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        Self {
            integrity: self.integrity.max(other.integrity),
            confidentiality: self.confidentiality.max(other.confidentiality),
        }
    }
}

/// What kind of caller a principal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// A person.
    Operator,
    /// An agent.
    Agent,
    /// The kernel on its own account.
    Kernel,
    /// An agent system of somebody else.
    Peer,
    /// A program of our own organisation.
    Service,
}

/// What a call does with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Reads content or attributes.
    Read,
    /// Creates, changes or renames.
    Write,
    /// Runs it.
    Execute,
    /// Removes it.
    Delete,
    /// Lists what is in it.
    List,
}

/// Words that policy files spell: every variant with its spelling, so that loaders can say what they would accept.
pub(crate) trait Word: Copy + 'static {
    /// Every variant and how it is written.
    const WORDS: &'static [(&'static str, Self)];

    /// The variant that is written so.
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
            /// How policy files, the ledger and people write it.
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

/// Every operation that a rule may name; a rule that names another one is refused when its file loads.
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
    fn every_word_is_spelt_as_serde_spells_it() {
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
    fn joining_labels_keeps_the_worse_of_both() {
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
