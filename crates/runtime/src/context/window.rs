//! The part of a conversation that fits: what is pinned always, then as many of the last turns as there is room for.

use regent_kernel::{Message, Role};

/// Tells how many tokens a text has, at most.
pub type Estimator = fn(&str) -> u64;

/// Tokens that a message costs beside its text.
const MESSAGE_TOKENS: u64 = 8;

/// From above, for any tokenizer of today: three bytes a token. A count that is too high costs room, one too low costs the call.
pub fn estimate(text: &str) -> u64 {
    (text.len() as u64).div_ceil(3)
}

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
#[error("the pinned parts and the last turn need {needed} tokens; {tokens_max} are allowed")]
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
    turns: Vec<(Turn, u64)>,
    pinned_tokens: u64,
    tokens_max: u64,
    estimator: Estimator,
}

impl Window {
    /// An empty one for this many tokens.
    pub fn new(tokens_max: u64, estimator: Estimator) -> Self {
        Self { pinned: Vec::new(), turns: Vec::new(), pinned_tokens: 0, tokens_max, estimator }
    }

    /// Adds a message that always stays, at the beginning.
    pub fn pin(&mut self, role: Role, text: String) {
        let message = Message::new(role, text);
        self.pinned_tokens = self.pinned_tokens.saturating_add(self.cost(&message));
        self.pinned.push(message);
    }

    /// Adds a pinned message if it and a reserve for the turns fit; returns whether it did.
    pub fn pin_if_it_fits(&mut self, role: Role, text: String) -> bool {
        let message = Message::new(role, text);
        let tokens = self.pinned_tokens.saturating_add(self.cost(&message));
        // Half of the window is the turns'.
        let fits = tokens <= self.tokens_max / 2;
        if fits {
            self.pinned_tokens = tokens;
            self.pinned.push(message);
        }
        fits
    }

    /// Adds a turn.
    pub fn push(&mut self, turn: Turn) {
        let tokens = turn.0.iter().fold(0_u64, |sum, message| sum.saturating_add(self.cost(message)));
        self.turns.push((turn, tokens));
    }

    /// The messages that fit: all pinned ones, a note of what was left out, and the newest complete turns.
    pub fn messages(&self) -> Result<Vec<Message>, WindowError> {
        let note_tokens = (self.estimator)(&left_out(self.turns.len())).saturating_add(MESSAGE_TOKENS);
        let mut tokens = self.pinned_tokens.saturating_add(note_tokens);
        let mut kept = 0_usize;
        for (_, cost) in self.turns.iter().rev() {
            let with = tokens.saturating_add(*cost);
            if with > self.tokens_max {
                break;
            }
            tokens = with;
            kept = kept.saturating_add(1);
        }
        if kept == 0 && (!self.turns.is_empty() || tokens > self.tokens_max) {
            let last = self.turns.last().map_or(0, |(_, cost)| *cost);
            let needed = self.pinned_tokens.saturating_add(note_tokens).saturating_add(last);
            return Err(WindowError { needed, tokens_max: self.tokens_max });
        }
        let dropped = self.turns.len().saturating_sub(kept);
        let mut messages = self.pinned.clone();
        if dropped > 0 {
            messages.extend(Turn::from_user(left_out(dropped)).0);
        }
        messages.extend(self.turns.iter().skip(dropped).flat_map(|(turn, _)| turn.0.iter().cloned()));
        Ok(messages)
    }

    /// How many tokens these messages have at most.
    pub fn tokens_of(&self, messages: &[Message]) -> u64 {
        messages.iter().fold(0, |sum, message| sum.saturating_add(self.cost(message)))
    }

    fn cost(&self, message: &Message) -> u64 {
        let tokens = message.parts.iter().map(|part| part.tokens(&self.estimator));
        tokens.fold(MESSAGE_TOKENS, u64::saturating_add)
    }
}

fn left_out(turns: usize) -> String {
    format!("[{turns} earlier turns were left out to save room; what they found is not above]")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regent_kernel::ToolUse;
    use serde_json::json;

    use super::*;

    fn acted(id: &str, words: usize) -> Turn {
        let call = ToolUse { id: id.to_owned(), tool: "echo".to_owned(), args: json!({"id": id}) };
        Turn::new(vec![Message::asking("", [call]), Message::answer(id, "word ".repeat(words))])
    }

    #[test]
    fn pinned_parts_stay_and_old_turns_go_first() {
        let mut window = Window::new(400, estimate);
        window.pin(Role::System, "rules".to_owned());
        for id in ["a", "b", "c", "d"] {
            window.push(acted(id, 60));
        }
        let messages = window.messages().unwrap();
        assert_eq!(messages[0].text(), "rules");
        assert!(messages[1].text().starts_with("[2 earlier turns"), "{}", messages[1].text());
        assert_eq!(messages.last().unwrap().answers(), Some("d"));
    }

    #[test]
    fn what_can_not_fit_is_an_error() {
        let mut window = Window::new(100, estimate);
        window.pin(Role::System, "rules".to_owned());
        window.push(acted("a", 1_000));
        assert!(window.messages().is_err());
        assert!(!window.pin_if_it_fits(Role::User, "x".repeat(1_000)));
        assert!(window.pin_if_it_fits(Role::User, "short".to_owned()));
    }

    proptest! {
        #[test]
        fn a_call_and_its_answer_are_never_separated(sizes in prop::collection::vec(0_usize..200, 0..20), most in 60_u64..3_000) {
            let mut window = Window::new(most, estimate);
            window.pin(Role::System, "rules".to_owned());
            for (index, size) in sizes.iter().enumerate() {
                window.push(acted(&index.to_string(), *size));
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
