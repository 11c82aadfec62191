//! How does anything leave? Everything that Regent sends to another machine, it sends from here.
//!
//! [`Reach`] finds out where a host is, once, refuses what isn't public, and connects to the address that it checked. Two things
//! use it: [`Client`], which makes the requests of `http.fetch` and of models; and [`Broker`], the egress proxy of sandboxes.
//!
//! The broker is an HTTP proxy whose listener lies in the box. Each connection and each request that a program asks for is a
//! system call of its own (`net.connect`, `net.request`), made with the permit of the program's own call, so that policy judges
//! host, port, method and path, and the ledger has them. The driver of such a call takes the live exchange out of the broker's
//! `table` and moves its bytes, within limits, budgets and time; nothing else moves any.
//!
//! What it does not promise:
//! - What is inside a TLS tunnel is the tunnel's own: the name in its greeting must be the name that was judged, the rest can't
//!   be seen. A rule that sets `/inspect` has the tunnel opened, and then each request in it is judged.
//! - A placeholder (`secret://name`) is filled in where requests can be seen: plain ones, and inspected ones.
//! - Values that leave are found if they were revealed in this process and leave whole, plain or in a usual encoding. Compressed,
//!   encrypted, or split over requests they are not.
#![forbid(unsafe_code)]

mod address;
mod authority;
mod body;
mod broker;
mod client;
mod front;
mod hello;
mod name;
mod outgoing;
mod reach;
mod replayed;
mod request;
mod shown;
mod specs;
mod table;
mod tally;
mod tunnel;

pub use broker::{Broker, CERTIFICATES, Outfit};
pub use client::{Client, Incomplete, Request, Response};
pub use reach::{Network, Reach, ReachError};
pub use specs::{register, specs};
