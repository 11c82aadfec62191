//! The built-in tools behind a real kernel: judged by a policy, recorded in a ledger, on real files and sockets.

mod fetch;
mod files;
mod names;
mod world;
