//! Test support: a kernel for tests, the contract suite for executors, the simulator and the crash harness.
#![forbid(unsafe_code)]

pub mod contract;
pub mod drivers;
pub mod puppet;
pub mod random;
pub mod sim;
pub mod test_kernel;
pub mod torture;

pub use contract::{Exam, Programs, Task, executor_contract};
pub use drivers::{Behaviour, Deed, Drivers, EffectSink, Marks, Spans, run, spec};
pub use puppet::{Puppet, Says};
pub use test_kernel::{ALLOW_ALL, TestKernel, spawn};
