//! Where untrusted code runs: the process tier, the WASM tier (feature `wasm`) and the microVM tier (feature `microvm`).
//!
//! [`run`] starts a program in a box of its own: namespaces, a minimal root file system, Landlock, seccomp, limits,
//! no network of its own, nothing inherited. [`probe()`] tells what this host really gives, [`Obtained`] what a run really got;
//! less than the floor of the [`Spec`] is refused.
//!
//! What it does not promise:
//! - The host's kernel is shared. Code that is expected to attack the kernel belongs in a stronger tier.
//! - The workspace has no quota: each file is limited, not their sum. Temporary files are limited as a whole.
//! - Without a cgroup, the memory of a run is watched, not held: a run that is over its limit is killed within milliseconds, and
//!   buffers of the kernel are not counted. Without a cgroup the kernel holds root to no limit on processes at all; [`Obtained`]
//!   says so.
//! - Seen from the host, files that the program makes are its caller's, and so is the program, without any privilege. An
//!   ordinary user's supplementary groups can't be dropped; they matter only for what the view shows.
//! - A socket can be bound to a guarded name, since nothing acts on a socket there; it is moved aside afterwards.
//! - The first process of a box is a copy of the caller, kept out of the program's reach in four ways; secrets that must not
//!   be copied have to be kept in memory marked `MADV_DONTFORK`.
//! - The fallback has no private temporary folder, no `/proc`, no sockets, and so no egress proxy: a run that asks for the network is refused.
//!
//! Read `child.rs` for what happens inside, `view.rs` for what is visible, `seccomp/lists.rs` for what can be called.

mod bare;
mod cgroup;
mod child;
mod children;
mod ended;
mod error;
mod executor;
mod explain;
mod grants;
mod handover;
mod hold;
mod launch;
mod memory;
#[cfg(all(feature = "microvm", target_arch = "x86_64"))]
pub mod microvm;
mod mounts;
mod outlet;
mod plain;
mod plan;
mod planted;
mod probe;
pub mod probes;
mod run;
mod seccomp;
mod spec;
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
pub use ended::{Confinement, Ended, EndedBy, Exit, LimitedBy, Obtained, Planted, UnixSockets};
pub use error::{SandboxError, Step};
pub use executor::ProcessTier;
pub use explain::{Explained, Place, Shown, explain};
pub use outlet::{OUTLET, Outfit, Outlet};
pub use plain::{PlainEnd, run_plain};
pub use probe::{Closed, Finding, Probe, probe};
pub use run::run;
pub use spec::{
    Bind, Cover, DEFAULT_PATH, Floor, HOME, Limits, MemoryFloor, Spec, Stdin, TMP_FILES_MAX, WorkspaceMount,
    git_environment,
};
pub use survey::{FileUse, Listings, Survey};
pub use terminal::Terminal;
pub use writes::WriteRule;
