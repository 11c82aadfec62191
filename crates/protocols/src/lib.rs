//! How do programs reach us? Adapters between the protocols of other programs and system calls. They translate and decide nothing: every
//! decision is made by [`Kernel::syscall`](regent_kernel::Kernel::syscall).
//!
//! [`judge`] answers hosts that run agents of their own. [`labels`] has what is known of the tools that such hosts bring.
#![forbid(unsafe_code)]

pub mod judge;
pub mod labels;
