//! Tokens counted before anyone who knows them has counted, from above.
//!
//! No vocabulary is compiled in: each provider has its own, they change, and what is wanted here is a bound for a reservation, not the
//! figure that is paid. Letters and digits of ASCII make a token of three at worst in usual text and code, and everything else
//! one of its own; a letter of another script counts as two. It is never more than the bytes of a text, which is where tokenizers
//! that work on bytes end.

use regent_kernel::{Inference, Message};

/// What a turn costs beside its text: who speaks, where it begins and ends.
const TURN: u64 = 8;
/// What a tool costs beside its own words.
const OFFER: u64 = 16;
/// What a conversation costs beside its turns.
const CONVERSATION: u64 = 32;

/// At most so many tokens in usual text.
pub fn of_text(text: &str) -> u64 {
    let (mut run, mut count, mut spaces) = (0_u64, 0_u64, 0_u64);
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            run += 1;
            spaces = 0;
            continue;
        }
        count += run.div_ceil(3);
        run = 0;
        if c == ' ' {
            // One space belongs to the word after it; indentation goes in runs.
            spaces += 1;
            count += u64::from(spaces > 1 && spaces % 2 == 0);
            continue;
        }
        spaces = 0;
        count += if c.is_ascii() { 1 } else { 2 };
    }
    (count + run.div_ceil(3)).min(text.len() as u64)
}

/// At most so many tokens in usual conversations.
pub fn of_conversation(inference: &Inference) -> u64 {
    let turns: u64 = inference.messages.iter().map(of_turn).sum();
    let offer = |offer: &regent_kernel::Offer| {
        OFFER + of_text(&offer.name) + of_text(&offer.description) + of_text(&offer.input.to_string())
    };
    let tools: u64 = inference.tools.iter().map(offer).sum();
    let schema = inference.sampling.schema.as_ref().map_or(0, |schema| of_text(&schema.to_string()));
    CONVERSATION.saturating_add(turns).saturating_add(tools).saturating_add(schema)
}

fn of_turn(message: &Message) -> u64 {
    let ids = message.calls().map(|call| of_text(&call.id));
    let parts = message.parts.iter().map(|part| part.tokens(&of_text));
    ids.chain(parts).fold(TURN, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn usual_texts_are_counted_from_above() {
        // What the tokenizers of the field make of them, at most.
        let cases = [
            ("", 0),
            ("Hello, world!", 4),
            ("The quick brown fox jumps over the lazy dog.", 10),
            ("fn main() {\n    println!(\"{}\", 42);\n}\n", 16),
            ("Übermäßig größere Straßen", 12),
            ("日本語のテキスト", 12),
            ("{\"path\":\"src/main.rs\",\"lines\":[1,2,3]}", 20),
            ("🙂🙂🙂", 6),
        ];
        for (text, really) in cases {
            assert!(of_text(text) >= really, "{text}: {} < {really}", of_text(text));
        }
    }

    proptest! {
        #[test]
        fn never_more_than_bytes_and_never_less_for_more(text in "\\PC{0,200}", more in "\\PC{0,50}") {
            prop_assert!(of_text(&text) <= text.len() as u64);
            let both = format!("{text}{more}");
            prop_assert!(of_text(&both) + 1 >= of_text(&text));
        }
    }
}
