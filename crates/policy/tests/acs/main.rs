//! Agent Control Specification: the public cases if available, and our own in the same format.

#[cfg(test)]
mod cases;
#[cfg(test)]
#[path = "../../../testkit/src/skip.rs"]
mod skip;
