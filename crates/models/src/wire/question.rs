//! A question as a protocol is to write it: the conversation, what its model can do, and what the settings say of its provider.

use regent_kernel::{Effort, Inference, Part, Role};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::capability::{Caching, Capability, CapabilitySource, Thinking, ToolChoice};
use crate::names::Names;

/// How long Anthropic keeps a prompt in its cache after its last use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum CacheTtl {
    /// Five minutes.
    #[default]
    #[serde(rename = "5m")]
    FiveMinutes,
    /// An hour, at a higher price for what is written to it.
    #[serde(rename = "1h")]
    Hour,
}

/// What is asked, and of whom.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The model, as the provider spells it.
    pub model: &'a str,
    /// The conversation.
    pub inference: &'a Inference,
    /// Tools as the provider spells them.
    pub names: &'a Names,
    /// What the model can do.
    pub capability: &'a Capability,
    /// How much it should think where the conversation doesn't say.
    pub effort: Option<Effort>,
    /// How long its prompt is kept.
    pub cache_ttl: CacheTtl,
}

/// The fewest tokens that a budget for thoughts may have.
const BUDGET_MIN: u64 = 1_024;
/// Hexadecimal digits of a key for a cache.
const KEY_CHARS: usize = 32;

impl Question<'_> {
    /// Whether the model is told to call a tool: only if it can be.
    pub(super) fn must_call(&self) -> bool {
        let Self { inference, capability, .. } = self;
        inference.sampling.must_call
            && !inference.tools.is_empty()
            && capability.tool_choice == ToolChoice::Forced
    }

    /// How much the model is to think, if anyone says so.
    pub(super) fn effort(&self) -> Option<Effort> {
        self.inference.sampling.effort.or(self.effort)
    }

    /// The word of the model for that, if it has words.
    pub(super) fn effort_word(&self) -> Option<Effort> {
        self.capability.reasoning.word(self.effort()?)
    }

    /// Whether it is told to think. Then it takes no temperature.
    pub(super) fn thinks(&self) -> bool {
        match &self.capability.reasoning {
            Thinking::None => false,
            Thinking::Words(_) | Thinking::Adaptive(_) => {
                self.effort_word().is_some_and(|word| word != Effort::None)
            }
            Thinking::Budget(_) => self.budget().is_some(),
            Thinking::Switch => self.effort().is_some_and(|effort| effort != Effort::None),
        }
    }

    /// How many tokens it may think: a share of the most, and of the answer, which they are part of.
    pub(super) fn budget(&self) -> Option<u64> {
        let Thinking::Budget(most) = self.capability.reasoning else { return None };
        let eighths = match self.effort()? {
            Effort::None => return None,
            Effort::Minimal | Effort::Low => 1,
            Effort::Medium => 2,
            Effort::High => 4,
            Effort::Xhigh => 6,
            Effort::Max => 8,
        };
        let budget = (most / 8 * eighths).max(BUDGET_MIN).min(self.inference.tokens_max / 2);
        (budget >= BUDGET_MIN).then_some(budget)
    }

    /// The temperature, unless it thinks.
    pub(super) fn temperature(&self) -> Option<Value> {
        self.inference.sampling.temperature.filter(|_| !self.thinks()).map(Value::from)
    }

    /// The same for all turns of a conversation, and for no other's: their servers send what has it to where its beginning is cached.
    pub(super) fn cache_key(&self) -> Option<Value> {
        // A model that nobody knows may be another vendor's behind a gateway, which refuses it.
        let is_known = self.capability.source != CapabilitySource::Default;
        if self.capability.caching != Caching::Automatic || !is_known {
            return None;
        }
        let mut hasher = Sha256::new();
        let first_user = self.inference.messages.iter().position(|message| message.role == Role::User);
        for message in self.inference.messages.iter().take(first_user.map_or(0, |at| at + 1)) {
            hasher.update(message.role.as_str());
            for part in &message.parts {
                hasher.update(part.as_text().map_or(0, str::len).to_le_bytes());
                hasher.update(part.as_text().unwrap_or_default());
            }
        }
        let hex: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Some(json!(hex.get(..KEY_CHARS)?))
    }

    /// Whether the turn that goes on after a tool's result began with a thought. Fixed budgets ask for that.
    pub(super) fn goes_on_thinking(&self) -> bool {
        let after = |role| self.inference.messages.iter().rposition(|message| message.role == role);
        let Some(last) = after(Role::Assistant) else { return true };
        let is_answered = self.inference.messages.last().is_some_and(|message| message.role == Role::Tool);
        let message = self.inference.messages.get(last);
        !is_answered
            || message.is_some_and(|message| matches!(message.parts.first(), Some(Part::Reasoning(_))))
    }
}
