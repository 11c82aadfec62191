//! Sandboxes for untrusted code: the process tier and the WASM tier (feature `wasm`). The microVM tier is a crate on top of this one.
//!
//! [`run`] starts a program in its own sandbox: namespaces, a minimal root file system, Landlock, seccomp, limits,
//! no direct network access, nothing inherited. [`probe()`] finds out what this host provides, [`Obtained`] says what a run got;
//! a run with less than the minimum of its [`Spec`] is refused.
//!
//! Limits of the process tier:
//! - The host's kernel is shared. Code that may attack the kernel belongs in a stronger tier.
//! - The workspace has no quota: each file is limited, not their sum. Temporary files are limited in total.
//! - Without a cgroup, Regent monitors the memory of a run instead of enforcing it: it kills a run over its limit within milliseconds, and
//!   doesn't count kernel buffers. Without a cgroup the kernel applies no limit on processes to root; [`Obtained`]
//!   says so.
//! - On the host, the program and the files that it creates belong to the caller's user, without privileges. An
//!   ordinary user's supplementary groups can't be dropped; they matter only for files in the view.
//! - A program can bind a socket to a guarded name, because nothing acts on a socket there; Regent moves it aside afterwards.
//! - The first process of a sandbox is a copy of the caller, protected from the program in four ways. Secrets that must not
//!   be copied belong in memory marked `MADV_DONTFORK`.
//! - The fallback has no private temporary folder, no `/proc`, no sockets, and so no egress proxy: it refuses a run that asks for network access.
//!
//! Read `child.rs` for what happens inside, `view.rs` for what is visible, `seccomp/lists.rs` for the allowed system calls.

mod bare;
mod cgroup;
mod child;
mod children;
mod egress_proxy;
mod ended;
mod error;
mod executor;
mod explain;
mod grants;
mod guest_thread;
mod handover;
mod hold;
mod launch;
mod memory;
mod mounts;
mod plain;
mod plan;
mod planted;
mod probe;
pub mod probes;
mod run;
mod seccomp;
mod sink;
mod spec;
mod streams;
mod supervise;
mod survey;
mod sys;
mod terminal;
mod view;
#[cfg(feature = "wasm")]
pub mod wasm;
mod wire;
mod writes;

pub use cgroup::Hierarchy;
pub use egress_proxy::{EGRESS_PROXY, EgressProxy, Outfit};
pub use ended::{
    Confinement, EndedBy, Exit, FinishedRun, LimitedBy, Obtained, Planted, PlantedName, ProgramEnded,
    UnixSockets,
};
pub use error::{SandboxError, SetupStep};
pub use executor::{AFTER_KERNEL_MS, MASKED_OUTPUT, ProcessTier, ProgramArguments};
pub use explain::{Explained, ViewEntry, Visibility, explain};
pub use guest_thread::confine_guest_thread;
pub use plain::{PlainEnd, run_plain};
pub use probe::{Closed, Finding, Probe, full_closed, probe};
pub use run::run;
pub use sink::Sink;
pub use spec::{
    Bind, Cover, DEFAULT_PATH, Floor, HOME, Limits, MemoryFloor, Spec, Stdin, TMP_FILES_MAX, WorkspaceMount,
    git_environment,
};
pub use survey::{FileUse, Listings, Survey};
pub use sys::{block_signals, forget_signal, restore_signals, watch_readable};
pub use terminal::{KeyMode, Terminal};
pub use writes::WriteRule;
