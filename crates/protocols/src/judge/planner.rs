//! Plans for sessions whose host brings none: from the words of the request, and from a model that reads the request and nothing else.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use regent_kernel::{Declared, Digest, Kernel, Principal};
use regent_runtime::planner;
use regent_wire::judge::PlannerReport;
use serde_json::{Value, json};

/// Requests whose steps are remembered. The same request with the same tools has the same steps, so a model is asked once.
const REMEMBERED_MAX: usize = 1_024;

/// Who proposes plans.
#[derive(Debug)]
pub struct Planner {
    is_on: bool,
    /// The model that proposes steps beside the words of the request, if there is one.
    model: Option<String>,
    /// The steps that it has proposed.
    known: Mutex<HashMap<Digest, Arc<Vec<Value>>>>,
}

/// What a session begins with, and what its host learns about the planner.
pub(super) struct Proposal {
    pub(super) trusted: Value,
    pub(super) told: Option<PlannerReport>,
}

impl Planner {
    /// The planner that the command line asks for.
    pub fn new(is_on: bool, model: Option<String>) -> Self {
        Self { is_on, model, known: Mutex::default() }
    }

    /// The model that is set up.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// What the host knows of the request, with a proposal if it brings no plan. What isn't an object is for the kernel to refuse.
    pub(super) async fn propose(
        &self,
        kernel: &Kernel,
        agent: &Principal,
        (request, tools): (&str, &BTreeMap<String, Declared>),
        mut trusted: Value,
    ) -> Proposal {
        if trusted.is_null() {
            trusted = json!({});
        }
        let plan = trusted.as_object_mut().map(|fields| fields.entry("plan").or_insert(Value::Null));
        let Some(plan) = plan.filter(|plan| self.is_on && plan.is_null()) else {
            return Proposal { trusted, told: None };
        };
        let Some(model) = self.model() else {
            *plan = json!("propose");
            return Proposal { trusted, told: None };
        };
        // A request without the model's steps is judged by its words alone.
        let told = match self.steps(kernel, agent, (model, request), tools).await {
            Ok(steps) => {
                *plan = json!({"propose": *steps});
                let proposed = Some(steps.len() as u64);
                PlannerReport { model: model.to_owned(), proposed, failed: None }
            }
            Err(error) => {
                *plan = json!("propose");
                let failed = Some(error.to_string());
                PlannerReport { model: model.to_owned(), proposed: None, failed }
            }
        };
        Proposal { trusted, told: Some(told) }
    }

    async fn steps(
        &self,
        kernel: &Kernel,
        agent: &Principal,
        (model, request): (&str, &str),
        tools: &BTreeMap<String, Declared>,
    ) -> Result<Arc<Vec<Value>>, planner::PlannerError> {
        let key = Digest::compute(json!([request, tools]).to_string().as_bytes());
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let steps = Arc::new(planner::propose_steps(kernel, agent, model, request, tools).await?);
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= REMEMBERED_MAX {
            all.clear();
        }
        all.insert(key, Arc::clone(&steps));
        Ok(steps)
    }
}
