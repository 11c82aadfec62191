//! How many tokens a text has, about. It decides about room: what is cut, and when a conversation is compacted.
//!
//! No vocabulary is compiled in, because each provider has its own and they change. The costs below were fitted against `o200k_base` and
//! `cl100k_base`; the test has their counts. A reservation for a budget is another question, answered from above by `regent-models`.

/// Tells about how many tokens a text has.
pub type Estimator = fn(&str) -> u64;

/// Costs are in hundredths of a token.
const TOKEN: u64 = 100;

/// What a run of characters of one kind is to a tokenizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lower,
    Upper,
    Digit,
    Space,
    Line,
    Mark,
    /// Writing without spaces between words: Chinese, Japanese, Korean.
    Dense,
    /// Any other letter beyond ASCII.
    Letter,
    /// Pictures, signs, control characters.
    Other,
}

fn kind_of(c: char) -> Kind {
    match c {
        'a'..='z' => Kind::Lower,
        'A'..='Z' => Kind::Upper,
        '0'..='9' => Kind::Digit,
        ' ' | '\t' => Kind::Space,
        '\n' | '\r' => Kind::Line,
        '!'..='~' => Kind::Mark,
        '\u{3000}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7af}'
        | '\u{f900}'..='\u{faff}'
        | '\u{ff00}'..='\u{ffef}'
        | '\u{20000}'..='\u{3ffff}' => Kind::Dense,
        other if other.is_alphabetic() => Kind::Letter,
        _other => Kind::Other,
    }
}

/// About as many tokens as a tokenizer of today counts: within a fifth for prose, code, JSON and Chinese.
pub fn tokens_about(text: &str) -> u64 {
    let mut chars = text.chars().map(|c| (kind_of(c), c)).peekable();
    let mut cost = 0_u64;
    while let Some((kind, first)) = chars.next() {
        let mut run = 1_u64;
        let mut take = |wanted: &dyn Fn(Kind) -> bool| {
            let mut taken = 0_u64;
            while chars.next_if(|(kind, _)| wanted(*kind)).is_some() {
                taken += 1;
            }
            taken
        };
        cost = cost.saturating_add(match kind {
            Kind::Lower => {
                run += take(&|kind| kind == Kind::Lower);
                word(run)
            }
            Kind::Upper => {
                run += take(&|kind| kind == Kind::Upper);
                match take(&|kind| run == 1 && kind == Kind::Lower) {
                    0 => TOKEN + 25 * run.saturating_sub(3),
                    lower => word(run + lower),
                }
            }
            Kind::Digit => {
                run += take(&|kind| kind == Kind::Digit);
                TOKEN * run.div_ceil(3)
            }
            Kind::Space => {
                run += take(&|kind| kind == Kind::Space);
                // One space belongs to the word after it.
                match chars.peek() {
                    Some((Kind::Line, _)) => 0,
                    Some((Kind::Digit, _)) => TOKEN,
                    _ if run > 1 => TOKEN,
                    _ => 0,
                }
            }
            Kind::Line => {
                take(&|kind| matches!(kind, Kind::Line | Kind::Space));
                70
            }
            Kind::Mark => marks(first, &mut chars),
            Kind::Dense => 82,
            Kind::Letter => {
                run += take(&|kind| kind == Kind::Letter);
                40 + 32 * run
            }
            Kind::Other => 150,
        });
    }
    cost.div_ceil(TOKEN)
}

fn word(letters: u64) -> u64 {
    TOKEN + 7 * letters.saturating_sub(6)
}

/// Punctuation: pairs such as `);` are one token, and a line of dashes is a few.
fn marks(first: char, chars: &mut std::iter::Peekable<impl Iterator<Item = (Kind, char)>>) -> u64 {
    const RUN_MAX: u64 = 64;
    let (mut run, mut same) = (1_u64, true);
    while run < RUN_MAX
        && let Some((_, next)) = chars.next_if(|(kind, _)| *kind == Kind::Mark)
    {
        same &= next == first;
        run += 1;
    }
    if same { TOKEN + TOKEN * (run / 16) } else { TOKEN + 45 * run.saturating_sub(2) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    /// What two real tokenizers count.
    #[derive(Deserialize)]
    struct Sample {
        name: String,
        text: String,
        o200k_base: u64,
        /// Older, and of no use for Chinese: a half more tokens than today's.
        cl100k_base: Option<u64>,
    }

    #[test]
    fn the_estimate_is_within_a_fifth_of_real_tokenizers() {
        let samples: Vec<Sample> = serde_json::from_str(include_str!("tokens/samples.json")).unwrap();
        for Sample { name, text, o200k_base, cl100k_base } in samples {
            let about = tokens_about(&text);
            for counted in [Some(o200k_base), cl100k_base].into_iter().flatten() {
                assert!(about.abs_diff(counted) * 5 <= counted, "{name}: {about}, really {counted}");
            }
        }
    }

    proptest! {
        #[test]
        fn more_text_is_hardly_less(text in "\\PC{0,200}", more in "\\PC{0,50}") {
            let both = format!("{text}{more}");
            prop_assert!(tokens_about(&both) + 2 >= tokens_about(&text));
        }
    }
}
