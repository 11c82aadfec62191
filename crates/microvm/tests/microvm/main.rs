//! The microVM tier against the real thing: a kernel, its tools, KVM, and real programs.
//!
//! Where there is no `/dev/kvm`, or no static busybox, the tests that need them say so and skip.
#![cfg(target_arch = "x86_64")]

#[cfg(test)]
mod adversarial;
#[cfg(test)]
mod behaviour;
#[cfg(test)]
mod exam;
#[cfg(test)]
mod kit;
#[cfg(test)]
#[path = "../../../testkit/src/skip.rs"]
mod skip;
