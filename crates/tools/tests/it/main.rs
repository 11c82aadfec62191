//! The built-in tools behind a real kernel: judged by a policy, recorded in a ledger, on real files and sockets.

#[cfg(test)]
mod fetch;
#[cfg(test)]
mod files;
#[cfg(test)]
mod macros;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod names;
#[cfg(test)]
mod programs;
#[cfg(test)]
mod trees;
#[cfg(test)]
mod world;
