//! Agent Control Specification: the public cases where they can be had, and our own in the same form.

#[cfg(test)]
mod cases;
#[cfg(test)]
#[path = "../../../testkit/src/skip.rs"]
mod skip;
