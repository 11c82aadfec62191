//! The microVM tier: static programs as guests of KVM, without a guest kernel.
//!
//! The guest is one processor at ring 3 and its memory. Each `syscall` instruction is an exit that we answer (`calls.rs`); a file of
//! the workspace is one governed call on the one path, made by the future that holds the permit (`tier.rs`); what needs nobody's leave
//! (memory, clocks, random numbers, `/tmp`) is answered on the guest's own thread (`guest.rs`), which can do nothing else. The host's
//! kernel sees no system call of the guest's at all.
//!
//! What it does not promise:
//! - Static ELF programs for x86-64 only; a dynamic one fails with `microvm.not_static`. One processor, one thread, one process:
//!   `fork`, `clone`, `execve` and sockets are refused, signal handlers are never run. x86-64 Linux hosts with `/dev/kvm`.
//! - Of the workspace a program sees files as they were when it opened them, and what it writes is there when it has closed it.
//!   Files can't be removed, nor renamed once they are there, nor given modes and times, because no tool does that; a folder
//!   comes into being with its first file; a file that is written can be 5 MiB large.
//! - The image of a program that ran before is mapped again: its own addresses are the same in each run. Stack and mappings move.
//! - The program can tell the time precisely, and which processor it runs on. Side channels of the hardware are the host's matter.
//! - The guest's memory and ours are in one process. Breaking out of KVM into the guest's thread leads to a thread that can open
//!   nothing, but its memory is shared with the rest of us.
//!
//! Read `machine.rs` for the machine, `space.rs` for its memory, `calls.rs` for what a program can ask for.
#![cfg(target_arch = "x86_64")]

mod areas;
mod calls;
mod confine;
mod elf;
mod figures;
mod files;
mod guest;
mod layout;
mod link;
mod machine;
mod memory;
mod naming;
mod nested;
mod programs;
mod self_test;
mod space;
mod start;
mod template;
#[cfg(test)]
mod tests;
mod tier;
mod transfer;
mod tree;

pub use self_test::{finding, is_offered, probe};
pub use tier::{MicrovmTier, ProvidedProgram};
