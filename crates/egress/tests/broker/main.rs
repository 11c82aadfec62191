//! The broker with real programs in real sandboxes, against servers on loopback, which they reach only because the test says that
//! they may.
//!
//! Needs `curl` and `python3` (the system's own, in `/usr/bin`).

#[cfg(test)]
mod adversarial;
#[cfg(test)]
mod exchanges;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod servers;
#[cfg(test)]
mod tunnels;
#[cfg(test)]
mod world;
