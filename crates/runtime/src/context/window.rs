//! A conversation with a limit: what is pinned, a summary of what was compacted, and all turns since.
//!
//! Turns leave in large steps only, so that the beginning of the prompt stays the same for many turns and providers can cache it.

use regent_kernel::{Message, ModelUsage, Role};

use super::tokens::Estimator;

/// Tokens that a message costs beside its text.
const MESSAGE_TOKENS: u64 = 8;
/// How far a provider's own count may move the estimate, in percent.
const SCALE_PERCENT: std::ops::RangeInclusive<u64> = 80..=150;
/// A count beyond these can't be one of this prompt, and moves nothing.
const BELIEVED_PERCENT: std::ops::RangeInclusive<u64> = 50..=250;

/// A model's answer with the results of its calls. Never separated.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn(Vec<Message>);

impl Turn {
    /// A turn of the model with the answers of its tools, or a word from outside.
    pub fn new(messages: Vec<Message>) -> Self {
        Self(messages)
    }

    /// A message to the model.
    pub fn from_user(text: impl Into<String>) -> Self {
        Self(vec![Message::new(Role::User, text)])
    }

    /// Its messages.
    pub fn messages(&self) -> &[Message] {
        &self.0
    }
}

/// The conversation doesn't fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the goal, the instructions and the last turn need about {needed} tokens, and the model's window has {tokens_max} for them; shorten them, or use a model with a larger window (`--window` sets it)"
)]
pub struct WindowError {
    /// How many would be needed.
    pub needed: u64,
    /// How many may be.
    pub tokens_max: u64,
}

/// A conversation with a limit.
#[derive(Debug, Clone)]
pub struct Window {
    pinned: Vec<Message>,
    pinned_tokens: u64,
    /// What stands for the turns that were compacted.
    compacted: Option<(Message, u64)>,
    turns: Vec<(Turn, u64)>,
    tokens_max: u64,
    estimator: Estimator,
    /// What a provider counts, in percent of the estimate.
    scale_percent: u64,
}

impl Window {
    /// An empty one for this many tokens.
    pub fn new(tokens_max: u64, estimator: Estimator) -> Self {
        Self {
            pinned: Vec::new(),
            pinned_tokens: 0,
            compacted: None,
            turns: Vec::new(),
            tokens_max,
            estimator,
            scale_percent: 100,
        }
    }

    /// Adds a message that always stays, at the beginning.
    pub fn pin(&mut self, role: Role, text: String) {
        let at = self.pinned.len();
        self.pin_at(at, Message::new(role, text));
    }

    /// Adds a pinned message after the first few.
    pub(crate) fn pin_at(&mut self, at: usize, message: Message) {
        self.pinned_tokens = self.pinned_tokens.saturating_add(self.cost(&message));
        self.pinned.insert(at.min(self.pinned.len()), message);
    }

    /// How many messages are pinned.
    pub(crate) fn pinned(&self) -> usize {
        self.pinned.len()
    }

    /// Adds a turn.
    pub fn push(&mut self, turn: Turn) {
        let tokens = self.tokens_of(turn.messages());
        self.turns.push((turn, tokens));
    }

    /// Takes room for something else, such as another tool.
    pub(crate) fn take(&mut self, tokens: u64) {
        self.tokens_max = self.tokens_max.saturating_sub(tokens);
    }

    /// Tokens that the pinned messages leave.
    pub fn room(&self) -> u64 {
        self.tokens_max.saturating_sub(self.pinned_tokens)
    }

    /// The same in tokens of the estimate, which may be larger than a provider's.
    pub(crate) fn estimated_room(&self) -> u64 {
        self.room().saturating_mul(100) / self.scale_percent.max(1)
    }

    /// About how many tokens all of it has now.
    pub fn tokens(&self) -> u64 {
        let compacted = self.compacted.as_ref().map_or(0, |(_, tokens)| *tokens);
        let turns = self.turns.iter().fold(compacted, |sum, (_, tokens)| sum.saturating_add(*tokens));
        self.scaled(self.pinned_tokens.saturating_add(turns))
    }

    /// Takes in what a provider counted for the messages as they are now and `others` beside them: tools, for example.
    pub(crate) fn calibrate(&mut self, usage: &ModelUsage, others: u64) {
        self.scale_percent = 100;
        let estimated = self.tokens().saturating_add(others).max(1);
        let counted = usage.input.saturating_add(usage.cached);
        let percent = counted.saturating_mul(100) / estimated;
        if BELIEVED_PERCENT.contains(&percent) {
            self.scale_percent = percent.clamp(*SCALE_PERCENT.start(), *SCALE_PERCENT.end());
        }
    }

    /// Whether it is time to compact: an eighth of the room is left.
    pub fn is_nearly_full(&self) -> bool {
        let limit = self.tokens_max.saturating_sub(self.room() / 8);
        self.tokens() > limit && !self.turns.is_empty()
    }

    /// What stands for earlier turns, if they were compacted.
    pub(crate) fn compacted(&self) -> Option<&Message> {
        self.compacted.as_ref().map(|(message, _)| message)
    }

    /// The turns that leave when it is compacted: all but the newest that fit into a third of the room. The last stays, because the model
    /// hasn't seen what its calls brought, unless it would leave too little room by itself.
    pub fn old_turns(&self) -> impl ExactSizeIterator<Item = &Turn> {
        let (mut tokens, mut kept) = (0_u64, 0_usize);
        for (_, cost) in self.turns.iter().rev() {
            tokens = tokens.saturating_add(self.scaled(*cost));
            let share = if kept == 0 { self.room() / 3 * 2 } else { self.room() / 3 };
            if tokens > share {
                break;
            }
            kept = kept.saturating_add(1);
        }
        let old = self.turns.len().saturating_sub(kept);
        self.turns.iter().take(old).map(|(turn, _)| turn)
    }

    /// Puts a text in the place of the old turns, and of the text for those before.
    pub fn compact(&mut self, text: String) {
        let old = self.old_turns().len();
        self.turns.drain(..old);
        let message = Message::new(Role::User, text);
        let tokens = self.cost(&message);
        self.compacted = Some((message, tokens));
    }

    /// All messages: the pinned ones, what stands for earlier turns, and the turns since.
    pub fn messages(&self) -> Result<Vec<Message>, WindowError> {
        let needed = self.tokens();
        if needed > self.tokens_max {
            return Err(WindowError { needed, tokens_max: self.tokens_max });
        }
        let turns = self.turns.iter().flat_map(|(turn, _)| turn.messages());
        Ok(self.pinned.iter().chain(self.compacted()).chain(turns).cloned().collect())
    }

    /// About how many tokens these messages have.
    pub fn tokens_of(&self, messages: &[Message]) -> u64 {
        messages.iter().fold(0, |sum, message| sum.saturating_add(self.cost(message)))
    }

    fn scaled(&self, tokens: u64) -> u64 {
        tokens.saturating_mul(self.scale_percent) / 100
    }

    fn cost(&self, message: &Message) -> u64 {
        let tokens = message.parts.iter().map(|part| part.tokens(&self.estimator));
        tokens.fold(MESSAGE_TOKENS, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regent_kernel::ToolUse;
    use serde_json::json;

    use super::super::tokens::tokens_about;
    use super::*;

    fn acted(id: &str, words: usize) -> Turn {
        let call = ToolUse { id: id.to_owned(), tool: "echo".to_owned(), args: json!({"id": id}) };
        Turn::new(vec![Message::asking("", [call]), Message::answer(id, "word ".repeat(words))])
    }

    #[test]
    fn compacting_frees_more_than_half_and_keeps_what_is_pinned() {
        let mut window = Window::new(1_000, tokens_about);
        window.pin(Role::System, "rules".to_owned());
        let mut compacted = Vec::new();
        for id in 0..200 {
            window.push(acted(&id.to_string(), 60));
            if window.is_nearly_full() {
                compacted.push(id);
                window.compact("what was found".to_owned());
                assert!(window.tokens() < 500, "{}", window.tokens());
            }
            let messages = window.messages().unwrap();
            assert_eq!(messages[0].text(), "rules");
            assert_eq!(messages.last().unwrap().answers(), Some(id.to_string().as_str()));
        }
        let steps: Vec<i32> = compacted.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(steps.len() > 5 && steps.iter().all(|turns| *turns >= 4), "in large steps: {steps:?}");
    }

    #[test]
    fn a_providers_count_moves_the_estimate_within_bounds() {
        let mut window = Window::new(10_000, tokens_about);
        window.push(acted("a", 1_000));
        let estimated = window.tokens();
        for (counted, percent) in [
            (estimated * 12 / 10, 120),
            (estimated * 6 / 10, 80),
            (estimated * 2, 150),
            (1, 100),
            (u64::MAX / 1_000, 100),
        ] {
            window.calibrate(&ModelUsage { input: counted, ..ModelUsage::default() }, 0);
            let is_near = window.tokens().abs_diff(estimated * percent / 100) <= estimated / 50;
            assert!(is_near, "{counted}: {}", window.tokens());
        }
    }

    #[test]
    fn the_last_turn_stays_although_it_is_large() {
        let mut window = Window::new(1_000, tokens_about);
        (0..5).for_each(|id| window.push(acted(&id.to_string(), 60)));
        window.push(acted("large", 500));
        assert!(window.is_nearly_full());
        window.compact("earlier".to_owned());
        assert_eq!(window.messages().unwrap().last().unwrap().answers(), Some("large"));
    }

    #[test]
    fn what_can_not_fit_is_an_error() {
        let mut window = Window::new(100, tokens_about);
        window.pin(Role::User, "word ".repeat(200));
        assert!(window.messages().is_err());
    }

    proptest! {
        #[test]
        fn a_call_and_its_answer_are_never_separated(sizes in prop::collection::vec(0_usize..200, 0..20), most in 60_u64..3_000) {
            let mut window = Window::new(most, tokens_about);
            window.pin(Role::System, "rules".to_owned());
            for (index, size) in sizes.iter().enumerate() {
                window.push(acted(&index.to_string(), *size));
                if window.is_nearly_full() {
                    window.compact("earlier".to_owned());
                }
                if let Ok(messages) = window.messages() {
                    prop_assert!(window.tokens_of(&messages) <= most);
                    let asked: Vec<String> = messages.iter().flat_map(|m| m.calls().map(|c| c.id.clone())).collect();
                    let answered: Vec<String> = messages.iter().filter_map(|m| m.answers().map(str::to_owned)).collect();
                    prop_assert_eq!(asked, answered);
                    prop_assert_eq!(&messages, &window.messages().unwrap());
                }
            }
        }
    }
}
