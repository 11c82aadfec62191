//! Plans: a goal taken apart into steps that build on each other, done by child agents side by side, undone in part if one fails.

mod carry;
mod draft;
mod graph;
#[cfg(test)]
mod tests;

pub use carry::carry_out;
pub use draft::draft;
pub use graph::{Graph, Plan, PlanError, PlanStep};
