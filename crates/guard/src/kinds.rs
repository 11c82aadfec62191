//! Kinds of guarded files, and sets of kinds.

/// Why a file is guarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GuardKind {
    /// Regent's own files: policy, ledger, skills, trust. No tool reaches them.
    Regent,
    /// Controls git, editors, shells or package managers: writing it runs code outside the sandbox. Agents can't write it.
    Control,
    /// Runs, or instructs another agent, without an explicit call: CI, hook managers, tool versions, agent instructions.
    RunsByItself,
    /// Runs when the project is built or tested.
    RunsOnBuild,
    /// Usually holds secrets of the project.
    Secret,
    /// Holds a user's keys, tokens or shell history.
    PersonalSecret,
}

impl GuardKind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::Regent,
        Self::Control,
        Self::RunsByItself,
        Self::RunsOnBuild,
        Self::Secret,
        Self::PersonalSecret,
    ];

    /// The name that policies, receipts and reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Regent => "regent",
            Self::Control => "control-files",
            Self::RunsByItself => "runs-by-itself",
            Self::RunsOnBuild => "runs-on-build",
            Self::Secret => "secrets",
            Self::PersonalSecret => "personal-secrets",
        }
    }

    /// The kind with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Kinds(u8);

impl Kinds {
    /// No kind.
    pub const NONE: Self = Self(0);
    /// Kinds that no process of an agent may write: Regent's own files and files that run code outside the sandbox.
    pub const UNWRITABLE: Self = Self(GuardKind::Regent.bit() | GuardKind::Control.bit());
    /// Kinds that a sandboxed program can't read: Regent's own files and secrets.
    pub const UNREADABLE: Self =
        Self(GuardKind::Regent.bit() | GuardKind::Secret.bit() | GuardKind::PersonalSecret.bit());
    /// Kinds that run later, with or without an explicit call.
    pub const RUN_LATER: Self =
        Self(GuardKind::Control.bit() | GuardKind::RunsByItself.bit() | GuardKind::RunsOnBuild.bit());

    /// Whether `kind` is in the set.
    pub fn contains(self, kind: GuardKind) -> bool {
        self.0 & kind.bit() != 0
    }

    /// Whether the sets have a kind in common.
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The set with `kind` added.
    #[must_use]
    pub fn with(self, kind: GuardKind) -> Self {
        Self(self.0 | kind.bit())
    }

    /// The kinds in the set.
    pub fn iter(self) -> impl Iterator<Item = GuardKind> {
        GuardKind::ALL.into_iter().filter(move |kind| self.contains(*kind))
    }
}

impl From<GuardKind> for Kinds {
    fn from(kind: GuardKind) -> Self {
        Self::NONE.with(kind)
    }
}

impl FromIterator<GuardKind> for Kinds {
    fn from_iter<I: IntoIterator<Item = GuardKind>>(kinds: I) -> Self {
        kinds.into_iter().fold(Self::NONE, Self::with)
    }
}
