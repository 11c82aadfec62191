//! Models: who performs a request to one, and how it is planned. The requests and answers themselves are `regent-wire`'s.

use regent_policy::{Label, Reason};
use regent_wire::Inference;

use crate::executor::Executor;
use crate::syscall::tier;

/// Performs model calls, and plans them beforehand.
pub trait Models: Executor<tier::Host> {
    /// Which model a request would go to, where that is, and what it would cost at most. `label` is what the conversation carries.
    /// Quick and without effects: it is asked before policy is.
    fn plan(&self, inference: &Inference, label: Label) -> Result<ModelPlan, Reason>;
}

/// The plan of a model call: the model, its endpoint and its maximum cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelPlan {
    /// Which model it would go to; replaces what was asked for.
    pub model: String,
    /// Where it would go, as a URL; `None` if it stays on this machine.
    pub remote: Option<String>,
    /// The secrets that open it, by name: the only ones that the call's permit gives out.
    pub secrets: Vec<String>,
    /// Tokens of the conversation, counted or estimated from above.
    pub tokens_in: u64,
    /// Its maximum cost; `None` if unknown.
    pub money_microusd_max: Option<u64>,
}
