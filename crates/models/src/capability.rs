//! What models can do and what they cost: dated data (`capability/capabilities.toml`), a file of the user's, and the settings.

mod table;

use std::collections::BTreeSet;

use regent_kernel::Effort;
use serde::{Deserialize, Serialize};

use crate::prices::Price;
pub use table::{CapabilityTable, TableError};

/// The limits of a model that nobody knows.
pub const WINDOW_TOKENS: u64 = 32_768;
/// The same for its answers.
pub const ANSWER_TOKENS: u64 = 4_096;

/// What one model can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Capability {
    /// Tokens of the prompt and the answer together.
    pub window_tokens: u64,
    /// Tokens of one answer, thoughts included. Never more than the window.
    pub answer_tokens: u64,
    /// What it costs; `None` if nobody knows.
    pub price: Option<Price>,
    /// Whether it thinks, and how it is told how much.
    pub reasoning: Thinking,
    /// Whether it takes images.
    pub images: bool,
    /// Whether it takes files.
    pub files: bool,
    /// Whether it can be told to call a tool.
    pub tool_choice: ToolChoice,
    /// How its provider caches prompts.
    pub caching: Caching,
    /// Parameters that it answers with an error.
    pub refused: BTreeSet<&'static str>,
    /// Where this is from.
    pub source: CapabilitySource,
}

/// Whether a model thinks, and how it is told how much.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// It doesn't, or nobody knows.
    #[default]
    None,
    /// By one of these words.
    Words(BTreeSet<Effort>),
    /// By one of these words beside adaptive thinking, as Anthropic's models want it. `none` is among them if it can be turned off.
    Adaptive(BTreeSet<Effort>),
    /// By how many tokens it may think, at most so many.
    Budget(u64),
    /// It is on or off.
    Switch,
}

impl Thinking {
    /// The model's own word for an effort: the nearest that it knows, and rather less. `None` if it has no words.
    pub fn word(&self, effort: Effort) -> Option<Effort> {
        let (Self::Words(words) | Self::Adaptive(words)) = self else { return None };
        // Thinking as little as it can is not the same as not thinking.
        let fits = |word: &&Effort| effort == Effort::None || **word != Effort::None;
        let below = words.iter().rev().filter(fits).find(|word| **word <= effort);
        below.or_else(|| words.iter().find(fits)).copied()
    }
}

/// Whether a model can be told to call a tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// It takes no tools.
    None,
    /// It takes tools, and decides itself.
    Auto,
    /// It can be told to call one.
    #[default]
    Forced,
}

/// How a provider caches prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Caching {
    /// It doesn't.
    None,
    /// By itself: what begins the same is read from the cache.
    Automatic,
    /// Up to the places that a question marks.
    Breakpoints,
}

/// Where a capability is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CapabilitySource {
    /// Nobody knows the model: cautious defaults.
    Default,
    /// The weights themselves.
    Weights,
    /// The built-in table, or the user's newer one.
    Table,
    /// The settings, at least in part.
    Settings,
}

/// What a table or the settings say of a model. What is absent is left to the next source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CapabilitySpec {
    /// See [`Capability::window_tokens`].
    #[serde(deserialize_with = "table::positive")]
    pub window_tokens: Option<u64>,
    /// See [`Capability::answer_tokens`].
    #[serde(deserialize_with = "table::positive")]
    pub answer_tokens: Option<u64>,
    /// See [`Capability::price`].
    pub price: Option<Price>,
    /// See [`Capability::reasoning`].
    pub reasoning: Option<Thinking>,
    /// See [`Capability::images`].
    pub images: Option<bool>,
    /// See [`Capability::files`].
    pub files: Option<bool>,
    /// See [`Capability::tool_choice`].
    pub tool_choice: Option<ToolChoice>,
    /// See [`Capability::caching`].
    pub caching: Option<Caching>,
    /// See [`Capability::refused`].
    #[serde(deserialize_with = "table::parameters")]
    pub refused: Option<BTreeSet<&'static str>>,
}

impl CapabilitySpec {
    /// This, and what another says where this is silent.
    pub fn or(self, other: &Self) -> Self {
        Self {
            window_tokens: self.window_tokens.or(other.window_tokens),
            answer_tokens: self.answer_tokens.or(other.answer_tokens),
            price: self.price.or(other.price),
            reasoning: self.reasoning.or_else(|| other.reasoning.clone()),
            images: self.images.or(other.images),
            files: self.files.or(other.files),
            tool_choice: self.tool_choice.or(other.tool_choice),
            caching: self.caching.or(other.caching),
            refused: self.refused.or_else(|| other.refused.clone()),
        }
    }

    /// With defaults where it is silent: images, files and caching as the provider's protocol has them.
    pub(crate) fn resolved(self, usual: Usual, source: CapabilitySource) -> Capability {
        let window_tokens = self.window_tokens.unwrap_or(WINDOW_TOKENS);
        Capability {
            window_tokens,
            // An answer that fills the window would leave no room for the question.
            answer_tokens: self.answer_tokens.unwrap_or(ANSWER_TOKENS).min(window_tokens.div_ceil(2)),
            price: self.price,
            reasoning: self.reasoning.unwrap_or_default(),
            images: usual.images && self.images.unwrap_or(true),
            files: usual.files && self.files.unwrap_or(true),
            tool_choice: self.tool_choice.unwrap_or_default(),
            caching: self.caching.unwrap_or(usual.caching),
            refused: self.refused.unwrap_or_default(),
            source,
        }
    }
}

/// What a protocol has a place for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usual {
    pub(crate) images: bool,
    pub(crate) files: bool,
    pub(crate) caching: Caching,
}

impl Default for Capability {
    /// The cautious limits of a model that nobody knows.
    fn default() -> Self {
        let usual = Usual { images: false, files: false, caching: Caching::None };
        CapabilitySpec::default().resolved(usual, CapabilitySource::Default)
    }
}

impl Capability {
    /// What holds for either of two models: the lesser limits, no price, and parts that one of them takes, because the router chooses
    /// a model that takes them.
    #[must_use]
    pub fn least(self, other: &Self) -> Self {
        Self {
            window_tokens: self.window_tokens.min(other.window_tokens),
            answer_tokens: self.answer_tokens.min(other.answer_tokens),
            price: self.price.filter(|price| other.price.as_ref() == Some(price)),
            reasoning: if self.reasoning == other.reasoning { self.reasoning } else { Thinking::None },
            images: self.images || other.images,
            files: self.files || other.files,
            tool_choice: self.tool_choice.min(other.tool_choice),
            caching: self.caching.min(other.caching),
            refused: self.refused.union(&other.refused).copied().collect(),
            source: self.source.min(other.source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_used_and_rather_less() {
        use Effort::{High, Low, Max, Medium, Minimal, None as Off, Xhigh};
        let cases: &[(&[Effort], Effort, Option<Effort>)] = &[
            (&[Low, Medium, High], Max, Some(High)),
            (&[Low, Medium, High], Off, Some(Low)),
            (&[Off, Low, High], Off, Some(Off)),
            (&[Off, Low, High], Minimal, Some(Low)),
            (&[Off, Low, High], Medium, Some(Low)),
            (&[Low, Medium, High, Xhigh, Max], Xhigh, Some(Xhigh)),
            (&[], High, None),
        ];
        for (words, asked, expected) in cases {
            let thinking = Thinking::Words(words.iter().copied().collect());
            assert_eq!(thinking.word(*asked), *expected, "{words:?} {asked:?}");
        }
        assert_eq!(Thinking::Budget(9).word(High), None);
    }

    #[test]
    fn an_answer_leaves_half_of_the_window_to_the_question() {
        let tiny = CapabilitySpec { window_tokens: Some(2_000), ..CapabilitySpec::default() };
        let usual = Usual { images: true, files: false, caching: Caching::None };
        let tiny = tiny.resolved(usual, CapabilitySource::Settings);
        assert_eq!((tiny.window_tokens, tiny.answer_tokens), (2_000, 1_000));
        assert_eq!((tiny.images, tiny.files), (true, false));
        let least = Capability::default().least(&tiny);
        assert_eq!((least.window_tokens, least.answer_tokens, least.images), (2_000, 1_000, true));
    }
}
