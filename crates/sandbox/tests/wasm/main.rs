//! The WASM tier against real components, through a real kernel with the real file and network tools.
//!
//! Guests are written in WAT and made into components here, so that no other compiler is needed; where Rust's own WASI target is
//! installed, a program of that kind is built and run as well.
#![cfg(feature = "wasm")]

#[cfg(test)]
mod adversarial;
#[cfg(test)]
mod behaviour;
#[cfg(test)]
mod exam;
#[cfg(test)]
mod guests;
#[cfg(test)]
mod install;
#[cfg(test)]
mod kit;
#[cfg(test)]
mod older;
#[cfg(test)]
#[path = "../../../testkit/src/skip.rs"]
mod skip;
