//! Egress: every connection from Regent to another machine.
//!
//! [`Reach`] resolves a host once, refuses addresses that aren't public, and connects to the address that it checked.
//! [`Client`] uses it for the requests of `http.fetch` and of models (which may go through a [`Proxy`]), and [`Broker`], the egress proxy of sandboxes, for programs.
//!
//! The broker is an HTTP proxy whose listener is inside the sandbox. Each connection and each request of a program is a
//! system call (`net.connect`, `net.request`), made with the permit of the program's own call, so that policy judges
//! host, port, method and path, and the ledger records them. The driver of such a call takes the live exchange out of the broker's
//! `table` and moves its bytes, within limits, budgets and time. Nothing else moves any.
//!
//! Limits:
//! - Regent can't see inside a TLS tunnel. Its server name must be the host that was judged. If a rule sets `/inspect`,
//!   the broker opens the tunnel, and each request in it is judged.
//! - A placeholder (`secret://name`) is replaced only in plain and inspected requests.
//! - Revealed values are found in requests if they are complete, plain or in a common encoding; not if they are compressed,
//!   encrypted, or split over requests.
#![forbid(unsafe_code)]

mod address;
mod authorities;
mod authority;
mod body;
mod broker;
mod client;
mod front;
mod headers;
mod hello;
mod name;
mod outgoing;
mod pool;
mod proxy;
mod reach;
mod replayed;
mod request;
mod specs;
mod table;
mod tally;
mod tunnel;

pub use authorities::{authorities, system_authorities};
pub use broker::{Broker, BrokerParts, CERTIFICATES};
pub use client::{Client, Incomplete, Request, Response};
pub use proxy::Proxy;
pub use reach::{Network, Reach, ReachError};
pub use specs::specs;
