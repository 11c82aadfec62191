//! What a call has used so far: charged once, whatever happens to it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use regent_kernel::{Inference, ModelUsage, Spent};
use serde_json::{Value, json};

use crate::event::{Gathered, TokenUsage};
use crate::prices::Price;
use crate::provider::Provider;
use crate::tokens;

/// One call's account.
#[derive(Debug, Default)]
pub(super) struct CallAccount {
    /// How often the provider was asked.
    pub(super) tries: u32,
    /// Codes of what went wrong before it went right.
    pub(super) errors: Vec<&'static str>,
    /// The answer that is coming, or came.
    pub(super) gathered: Gathered,
    /// One has begun, and was taken from there.
    pub(super) has_begun: bool,
    /// Places that were redacted.
    pub(super) redacted: usize,
    /// What the question went without because the provider refuses it.
    pub(super) refused: BTreeSet<&'static str>,
    pub(super) is_remote: bool,
    pub(super) bytes_out: AtomicU64,
    used: Option<(TokenUsage, &'static str)>,
}

impl CallAccount {
    /// Whether an answer has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun || self.gathered.has_begun()
    }

    /// Settles what the answer that came, whole or in part, has used. One that never began has used nothing.
    pub(super) fn settle(&mut self, inference: &Inference) -> ModelUsage {
        if self.used.is_none() && (self.gathered.has_begun() || self.gathered.reported().is_some()) {
            self.used = Some(settled(inference, &self.gathered));
        }
        self.used.map_or(ModelUsage::default(), |(used, _)| used.tokens)
    }

    /// For the kernel's budgets.
    pub(super) fn spent(&self, price: Option<Price>) -> Spent {
        let used = self.used.map(|(used, _)| used).unwrap_or_default();
        let ModelUsage { input, cached, output, .. } = used.tokens;
        Spent {
            bytes_out: self.bytes_out.load(Ordering::Relaxed),
            money_microusd: price.map_or(0, |price| price.cost(&used)),
            tokens: input.saturating_add(cached).saturating_add(output),
            wall_ms: 0,
        }
    }

    /// For the receipt: no words of the provider's, only ours.
    pub(super) fn receipt(&self, model: &str, provider: &dyn Provider, price: Option<Price>) -> Value {
        let (used, source) = self.used.unwrap_or((TokenUsage::default(), "none"));
        let mut receipt = json!({
            "model": model,
            "place": if self.is_remote { "remote" } else { "this machine" },
            "secret": provider.secret(),
            "tries": self.tries,
            "errors": self.errors,
            "usage": {
                "input": used.tokens.input,
                "cached": used.tokens.cached,
                "output": used.tokens.output,
                "reasoning": used.tokens.reasoning,
                "source": source,
            },
            "priced": price.is_some(),
            "redacted": self.redacted,
        });
        if let (Some(fields), false) = (receipt.as_object_mut(), self.refused.is_empty()) {
            fields.insert("refused".to_owned(), json!(self.refused));
        }
        receipt
    }
}

/// What the provider reports, if it can be so; our own count if it can't, or if there is nothing.
fn settled(inference: &Inference, gathered: &Gathered) -> (TokenUsage, &'static str) {
    let (written, thought_bytes) = gathered.written();
    let output = written.map(tokens::of_text).sum::<u64>().saturating_add(thought_bytes as u64 / 3);
    let input = tokens::of_conversation(inference);
    let counted = || {
        let output = output.min(inference.tokens_max);
        TokenUsage::from(ModelUsage { input, cached: 0, output, reasoning: 0 })
    };
    let Some(reported) = gathered.reported() else {
        return (counted(), "counted: the provider reported none");
    };
    let ModelUsage { input: read, cached, output: wrote, .. } = reported.tokens;
    let read = read.saturating_add(cached);
    // A little more than was asked for is usual; several times as much is a mistake, and nobody is charged for it.
    let most_out = inference.tokens_max.saturating_add(inference.tokens_max / 8).saturating_add(64);
    let most_in = input.saturating_mul(4).saturating_add(1_024);
    let nothing_written = wrote == 0 && output > 0;
    if read == 0 || read > most_in || wrote > most_out || nothing_written {
        return (counted(), "counted: the provider's report is impossible");
    }
    (reported, "reported")
}
