//! Where untrusted code runs: the process tier.
//!
//! [`run`] starts a program in a box of its own: namespaces, a minimal root file system, Landlock, seccomp, limits,
//! no network, nothing inherited. [`probe()`] tells what this host really gives, [`Obtained`] what a run really got;
//! less than the floor of the [`Spec`] is refused.
//!
//! Read `child.rs` for what happens inside, `view.rs` for what is visible, `seccomp/lists.rs` for what can be called.

mod bare;
mod cgroup;
mod child;
mod ended;
mod error;
mod executor;
mod explain;
mod grants;
mod launch;
mod mounts;
mod plan;
mod planted;
mod probe;
pub mod probes;
mod run;
mod seccomp;
mod spec;
mod sys;
mod view;
mod wire;

pub use cgroup::Hierarchy;
pub use ended::{Confinement, Ended, EndedBy, Exit, LimitedBy, Obtained, Planted};
pub use error::{SandboxError, Step};
pub use executor::{CONTROL_PATHS, HIDDEN_PATHS, ProcessTier};
pub use explain::{Explained, Place, Shown, explain};
pub use probe::{Closed, Finding, Probe, probe};
pub use run::run;
pub use spec::{Bind, DEFAULT_PATH, Floor, HOME, Limits, Output, Spec, Stdin, TMP_FILES_MAX, WorkspaceMount};
