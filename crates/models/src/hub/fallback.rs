//! What is done when a provider fails: another one is asked by a system call of its own, so that policy judges where it goes, the
//! ledger has it, and budgets are reserved for it. The conversation stays as it is, byte for byte, so that caches of prompts hold.

use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};

use regent_kernel::{
    Channel, Completion, Inference, Label, Op, Outcome, Permit, RawOutput, Reply, Status, tier,
};

use super::{Hub, ProviderEntry, class_of, is_auto};
use crate::provider::{Next, ProviderError};
use crate::settings::FALLBACKS_MAX;

/// In the stream: what follows replaces what came before.
const ANEW: &[u8] = b"\x1e";

impl Hub {
    /// Asks others in turn; `None` if there are none, or none of them did better. `has_begun` says that the same model is worth one
    /// more call of its own: its answer was cut.
    pub(super) async fn fall_back(
        &self,
        permit: &Permit<'_, tier::Host>,
        entry: &ProviderEntry,
        inference: &Inference,
        error: &ProviderError,
        has_begun: bool,
    ) -> Option<RawOutput> {
        let next = error.next();
        let is_fallback = permit.call().parent().is_some_and(|parent| self.falling().contains(&parent));
        if next == Next::Fail || is_fallback {
            return None;
        }
        let _falling = Falling::begin(self, permit.intent().seq);
        let again = (has_begun && matches!(next, Next::Again(_))).then(|| inference.model.clone());
        for model in again.into_iter().chain(self.others(permit, entry, inference)) {
            let op = Op::Infer(Inference { model, ..inference.clone() });
            // A model that policy denies, or that needs an approval, is left out.
            if !permit.would_allow(op.clone()).await {
                continue;
            }
            if let Ok(Reply::Done(outcome)) = permit.syscall(op).await
                && outcome.status == Status::Ok
            {
                return Some(given_anew(permit, &outcome, has_begun).await);
            }
        }
        None
    }

    /// Whom to ask instead: those that the provider's settings name; where the router chose, its next best.
    fn others(
        &self,
        permit: &Permit<'_, tier::Host>,
        entry: &ProviderEntry,
        inference: &Inference,
    ) -> Vec<String> {
        if !entry.fallback.is_empty() {
            return entry.fallback.clone();
        }
        let Op::Infer(asked) = permit.call().op() else { return Vec::new() };
        if !is_auto(&asked.model) {
            return Vec::new();
        }
        // The label of the conversation is judged again with each call; here it is only about order.
        let label = Label {
            integrity: regent_kernel::Integrity::OwnModel,
            confidentiality: regent_kernel::Confidentiality::Public,
        };
        let asked = Inference { model: format!("auto:{}", class_of(&asked.model)), ..inference.clone() };
        let choice = self.explain(&asked, label);
        choice
            .fitting()
            .filter(|model| *model != inference.model)
            .take(FALLBACKS_MAX)
            .map(str::to_owned)
            .collect()
    }

    fn falling(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.falling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Another call's answer as this one's. What it cost is charged there.
async fn given_anew(permit: &Permit<'_, tier::Host>, outcome: &Outcome, has_begun: bool) -> RawOutput {
    let bytes = outcome.output.bytes();
    if let Ok(completion) = serde_json::from_slice::<Completion>(bytes) {
        let before = if has_begun { ANEW } else { &[] };
        let text = [before, completion.message.text().as_bytes()].concat();
        let flowed = permit.emit(Channel::Output, &text).await;
        if flowed.is_err() || permit.end(Channel::Output).await.is_err() {
            return RawOutput::failed("model.too_large", "the answer exceeds its size limit");
        }
    }
    RawOutput::new(bytes.to_vec()).with_label(outcome.output.label())
}

/// Marks a call as one that is falling back.
struct Falling<'h> {
    hub: &'h Hub,
    seq: u64,
}

impl<'h> Falling<'h> {
    fn begin(hub: &'h Hub, seq: u64) -> Self {
        hub.falling().insert(seq);
        Self { hub, seq }
    }
}

impl Drop for Falling<'_> {
    fn drop(&mut self) {
        self.hub.falling().remove(&self.seq);
    }
}
