//! What can go wrong before a program has been confined and started.

use std::io;

use crate::spec::Floor;

/// Why a program was not run. Whatever happens after it has started is an [`crate::FinishedRun`], not an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The host gives less than the floor. Nothing was run.
    #[error("this host can't provide the required confinement ({needed}): {reason}")]
    Unavailable {
        /// What was asked for.
        needed: Floor,
        /// What is missing.
        reason: String,
        /// What the user can do about it, when we know.
        fix: Option<String>,
    },
    /// The memory limit would be held by less than is required. Nothing was run.
    #[error("the memory limit requires {needed}, but this host provides only {got}")]
    Memory {
        /// What was asked for.
        needed: &'static str,
        /// What there is.
        got: &'static str,
        /// What the user can do about it.
        fix: String,
    },
    /// The host has no network namespaces, so the egress proxy couldn't be the only way to the network. Nothing was run.
    #[error(
        "this host has no network namespaces, so a program with network access could bypass the egress proxy"
    )]
    NoEgressProxy {
        /// What the user can do about it, when we know.
        fix: Option<String>,
    },
    /// The specification contradicts itself or the host. Nothing was run.
    #[error("invalid sandbox specification: {0}")]
    Spec(String),
    /// A part of the workspace can't be scanned, so that nobody knows what would have to be guarded there. Nothing was run.
    #[error(
        "the sandbox can't find the files to guard in `{}`: {cause}. Make it readable: chmod u+rwx '{}'",
        .path.display(), .path.display()
    )]
    Unreadable {
        /// Where.
        path: std::path::PathBuf,
        /// The kernel's error.
        cause: io::Error,
    },
    /// A step of the confinement failed. Nothing was run.
    #[error("the sandbox could not be set up, step `{step}`{}: {cause}", place(.at))]
    Setup {
        /// The step that failed.
        step: SetupStep,
        /// The path it failed on, if there was one.
        at: Option<String>,
        /// The kernel's error.
        cause: io::Error,
    },
    /// The confinement stands, but the program cannot be started inside it.
    #[error("the program `{program}` cannot be started in the sandbox: {cause}")]
    Program {
        /// As it was asked for.
        program: String,
        /// The kernel's error, e.g. not found in the view.
        cause: io::Error,
    },
    /// A call on our own side of the wall failed.
    #[error("{doing} failed: {cause}")]
    Host {
        /// What we were doing.
        doing: &'static str,
        /// The kernel's error.
        cause: io::Error,
    },
}

impl SandboxError {
    pub(crate) fn host(doing: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::Host { doing, cause: errno.into() }
    }
}

fn place(at: &Option<String>) -> String {
    at.as_ref().map(|at| format!(" at `{at}`")).unwrap_or_default()
}

macro_rules! steps {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// The steps of a launch, in the order in which they are taken.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum SetupStep { $($(#[$doc])* $name,)* }

        impl SetupStep {
            const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The step's name in messages.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

steps! {
    /// Creating the process and its namespaces.
    Clone = "clone",
    /// Closing what must not be inherited.
    Descriptors = "descriptors",
    /// Joining the cgroup made for this run.
    Cgroup = "cgroup",
    /// Mapping the caller's uid and gid.
    Identity = "identity",
    /// Naming the host.
    Hostname = "hostname",
    /// Making and entering the empty root file system.
    Root = "root",
    /// A directory, file or link of the view.
    View = "view",
    /// A read-only or writable bind mount.
    Bind = "bind",
    /// The workspace is not the folder that was looked at before.
    Workspace = "workspace",
    /// The process file system.
    Proc = "proc",
    /// Protecting or hiding a path of the workspace.
    Guard = "guard",
    /// Leaving the host's root file system.
    Pivot = "pivot_root",
    /// Dropping every capability.
    Capabilities = "capabilities",
    /// Resource limits.
    Limits = "limits",
    /// Landlock rules.
    Landlock = "landlock",
    /// The system call filter.
    Seccomp = "seccomp",
    /// Handing over the calls that the supervisor performs.
    Supervision = "supervision",
    /// Creating the program's own process.
    Spawn = "spawn",
    /// The empty network.
    Network = "network",
    /// The egress proxy.
    EgressProxy = "egress_proxy",
    /// Standard input, output and error.
    Stdio = "stdio",
    /// Session, `umask`, `no_new_privs`.
    Session = "session",
    /// The working directory.
    WorkingDirectory = "cwd",
    /// Starting the program.
    Exec = "exec",
}

impl SetupStep {
    /// Whether failing here may mean that the host does not let us have namespaces at all.
    pub(crate) fn needs_namespaces(self) -> bool {
        matches!(
            self,
            Self::Clone
                | Self::Network
                | Self::Identity
                | Self::Hostname
                | Self::Root
                | Self::Bind
                | Self::Pivot
        )
    }

    pub(crate) fn from_wire(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

impl core::fmt::Display for SetupStep {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.as_str())
    }
}
