//! The broker with real programs in real sandboxes, against servers on loopback, which the test's settings allow.
//!
//! Needs `curl` and `python3` (the system's own, in `/usr/bin`).

#[cfg(test)]
mod adversarial;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod exchanges;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod servers;
#[cfg(test)]
mod tunnels;
