//! Kernels to test with: one that is alone in the world, and one that shares its state with others.

pub(crate) mod alone;
mod aside;
mod callers;
mod files;
mod own_agents;
mod quarantined;
mod requests;
mod reviews;
mod routing;
pub(crate) mod shared;
