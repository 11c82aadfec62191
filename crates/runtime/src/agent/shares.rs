//! How much of the window the results of tools may take: a quarter of the room for one, half of it for those of one turn. What is cut says
//! so, and how to get the rest. The ledger keeps the whole.

use std::collections::BTreeMap;
use std::ops::Range;

use regent_kernel::{DriverKind, ToolSpec};
use serde_json::Value;

use crate::context::Estimator;

/// A result as text for the model, and which part of it is the tool's output. That part may be cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) text: String,
    pub(super) content: Range<usize>,
}

impl Shown {
    /// A short word of our own.
    pub(super) fn word(text: impl Into<String>) -> Self {
        Self { text: text.into(), content: 0..0 }
    }

    fn content(&self) -> &str {
        self.text.get(self.content.clone()).unwrap_or_default()
    }
}

/// How to get the rest of a tool's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paging {
    /// A file's content, from this byte.
    FromByte(u64),
    /// A file's content in JSON.
    Encoded,
    /// What a program wrote: its end matters as much as its beginning.
    Program,
    /// Many items.
    Items,
}

impl Paging {
    /// How the output of a call is continued.
    pub(super) fn of_call(spec: Option<&ToolSpec>, args: &Value, output: &str) -> Self {
        let Some(spec) = spec else { return Self::Items };
        match (spec.name.as_str(), spec.driver) {
            ("fs.read", _) if output.starts_with("{\"base64\"") => Self::Encoded,
            ("fs.read", _) => Self::FromByte(args.get("offset").and_then(Value::as_u64).unwrap_or(0)),
            (_, DriverKind::Process) => Self::Program,
            (_, _) => Self::Items,
        }
    }
}

/// Cuts the results of a turn to their shares of `room` tokens.
pub(super) fn cut_to_shares(
    shown: BTreeMap<usize, (Shown, Paging)>,
    room: u64,
    of: Estimator,
) -> BTreeMap<usize, String> {
    let sizes: Vec<u64> = shown.values().map(|(shown, _)| of(&shown.text)).collect();
    let each = share_of_each(&sizes, room / 2).min(room / 4);
    let cut = shown.into_iter().zip(sizes).map(|((index, (shown, paging)), size)| {
        let text = if size > each { cut(&shown, paging, each, of) } else { shown.text };
        (index, text)
    });
    cut.collect()
}

/// The largest size that all can have so that they fit together: the small ones stay whole.
fn share_of_each(sizes: &[u64], tokens_max: u64) -> u64 {
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    let (mut left, mut count) = (tokens_max, sizes.len() as u64);
    for size in sizes {
        let share = left / count.max(1);
        if size > share {
            return share;
        }
        left = left.saturating_sub(size);
        count = count.saturating_sub(1);
    }
    tokens_max
}

fn cut(shown: &Shown, paging: Paging, tokens_max: u64, of: Estimator) -> String {
    const HINT_TOKENS: u64 = 64;
    let content = shown.content();
    if content.is_empty() {
        return shown.text.clone();
    }
    let around = of(&shown.text).saturating_sub(of(content));
    let tokens_max = tokens_max.saturating_sub(around).saturating_sub(HINT_TOKENS).max(16);
    let (kept, hint) = match paging {
        Paging::Program => {
            let kept = middle_out(content, tokens_max, of).unwrap_or_else(|| content.to_owned());
            let hint = format!(
                "[cut: the beginning and the end of {} bytes ({} lines) are shown; filter the output (grep, head, tail), or send it to a file and read parts of it]",
                content.len(),
                content.lines().count()
            );
            (kept, hint)
        }
        Paging::FromByte(_) | Paging::Encoded | Paging::Items => {
            let kept = beginning(content, tokens_max, of);
            (kept.to_owned(), hint_of(content, kept, paging))
        }
    };
    let before = shown.text.get(..shown.content.start).unwrap_or_default();
    let after = shown.text.get(shown.content.end..).unwrap_or_default();
    format!("{before}{kept}{after}\n{hint}")
}

fn hint_of(content: &str, kept: &str, paging: Paging) -> String {
    let (content, total) = match (paging, mark_of(content)) {
        (Paging::FromByte(_), Some((own, total))) => (own, Some(total)),
        (_, _) => (content, None),
    };
    let (lines, of_lines) = (kept.lines().count(), content.lines().count());
    // What was masked has another length than in the file, so only the tool can say where to go on.
    if kept.contains("[secret:") || paging == Paging::Encoded {
        let bytes = kept.len() / 4 * 3;
        return format!(
            "[cut: {lines} of {of_lines} lines are shown; ask again with \"bytes_max\": {bytes}]"
        );
    }
    match paging {
        Paging::FromByte(from) => {
            let next = from.saturating_add(kept.len() as u64);
            let total = total.unwrap_or_else(|| from.saturating_add(content.len() as u64));
            format!(
                "[cut: bytes {from} to {next} of {total} are shown, {lines} of {of_lines} lines; fs.read with \"offset\": {next} goes on]"
            )
        }
        Paging::Encoded | Paging::Program | Paging::Items => {
            format!(
                "[cut: {lines} of {of_lines} lines are shown; ask for less, with a narrower path or pattern]"
            )
        }
    }
}

/// The content without the line in which `fs.read` says that there is more, and the size of the file.
fn mark_of(content: &str) -> Option<(&str, u64)> {
    let (own, mark) = content.rsplit_once("\n[cut at byte ")?;
    let (_, rest) = mark.split_once(" of ")?;
    Some((own, rest.split_once(';')?.0.parse().ok()?))
}

/// The beginning of a text, up to the end of a line if one is near.
pub(super) fn beginning(text: &str, tokens_max: u64, of: Estimator) -> &str {
    let kept = prefix(text, tokens_max, of);
    match kept.rfind('\n') {
        Some(end) if kept.len() < text.len() && end >= kept.len() / 4 * 3 => kept.get(..=end).unwrap_or(kept),
        Some(_) | None => kept,
    }
}

/// The beginning and the end of a text that has more tokens than this; `None` if it hasn't.
pub(super) fn middle_out(text: &str, tokens_max: u64, of: Estimator) -> Option<String> {
    if of(text) <= tokens_max {
        return None;
    }
    let head = prefix(text, tokens_max / 2, of);
    let rest = text.get(head.len()..).unwrap_or_default();
    let mut start = rest.len();
    let tokens = of(rest).max(1);
    let bytes = (rest.len() as u128 * u128::from(tokens_max / 2) / u128::from(tokens)) as u64;
    start = start.saturating_sub(usize::try_from(bytes).unwrap_or(usize::MAX));
    while !rest.is_char_boundary(start) {
        start += 1;
    }
    let tail = rest.get(start..).unwrap_or_default();
    Some(format!("{head}\n[… {start} bytes are left out here …]\n{tail}"))
}

/// As much of the beginning of a text as has about so many tokens.
fn prefix(text: &str, tokens_max: u64, of: Estimator) -> &str {
    let mut end = text.len();
    for _ in 0..16 {
        let kept = text.get(..end).unwrap_or_default();
        let tokens = of(kept);
        if tokens <= tokens_max {
            return kept;
        }
        // In proportion, and a little less.
        let less = (end as u128 * u128::from(tokens_max) / u128::from(tokens.max(1))) as usize;
        end = less.min(end.saturating_sub(1)) / 32 * 31;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::context::tokens_about;

    fn shown(content: &str) -> Shown {
        let before = "<<output TAG>>\n";
        let text = format!("{before}{content}\n<<end TAG>>");
        Shown { text, content: before.len()..before.len() + content.len() }
    }

    fn cut_one(content: &str, paging: Paging, room: u64) -> String {
        let all = BTreeMap::from([(0, (shown(content), paging))]);
        let mut texts = cut_to_shares(all, room, tokens_about);
        let text = texts.remove(&0).unwrap();
        assert!(tokens_about(&text) <= room / 4 + 16, "{} of {room}: {text}", tokens_about(&text));
        assert!(text.contains("<<end TAG>>"), "{text}");
        text
    }

    #[test]
    fn d4_a_long_result_is_cut_and_says_how_to_go_on() {
        let lines: String = (0..20_000).map(|line| format!("line {line}\n")).collect();
        let text = cut_one(&lines, Paging::FromByte(0), 8_000);
        let next: usize =
            text.rsplit_once("\"offset\": ").unwrap().1.split(' ').next().unwrap().parse().unwrap();
        assert!(text.contains(&format!("of {} are shown", lines.len())), "{text}");
        let kept = text.lines().nth(1).unwrap();
        assert_eq!(kept, "line 0");
        assert!(lines[next..].starts_with("line "), "it goes on at a line: {:?}", &lines[next..next + 20]);

        let text = cut_one(&"x".repeat(3_000_000), Paging::FromByte(500), 8_000);
        assert!(text.contains("bytes 500 to "), "{}", text.lines().last().unwrap());
        let text = cut_one(&lines, Paging::Program, 8_000);
        assert!(
            text.contains("line 0\n")
                && text.contains("line 19999")
                && text.contains("bytes are left out here")
        );
        let masked = format!("token [secret:db] {lines}");
        assert!(cut_one(&masked, Paging::FromByte(0), 8_000).contains("\"bytes_max\": "));
        let part = format!("{lines}\n[cut at byte 188890 of 3145728; read on with \"offset\": 188890]");
        assert!(cut_one(&part, Paging::FromByte(0), 8_000).contains("of 3145728 are shown"));
    }

    #[test]
    fn d4_the_results_of_a_turn_share_its_room_and_small_ones_stay_whole() {
        let long = "word ".repeat(10_000);
        let texts = |count: usize| {
            let one = |index| (index, (shown(if index == 0 { "short" } else { &long }), Paging::Items));
            cut_to_shares((0..count).map(one).collect(), 8_000, tokens_about)
        };
        for count in [2, 3, 6, 12] {
            let texts = texts(count);
            let sum: u64 = texts.values().map(|text| tokens_about(text)).sum();
            assert!(sum <= 4_000 + 16 * count as u64, "{count}: {sum}");
            assert_eq!(texts[&0], shown("short").text);
            assert!(texts[&1].contains("[cut: "));
        }
    }

    #[test]
    fn small_results_and_words_of_our_own_are_never_cut() {
        let word = Shown::word("[denied: no]");
        let all = BTreeMap::from([(0, (word, Paging::Items)), (1, (shown("fine"), Paging::Program))]);
        let texts = cut_to_shares(all, 10, tokens_about);
        assert_eq!(texts[&0], "[denied: no]");
    }

    #[test]
    fn how_to_go_on_follows_the_call() {
        let spec = |name: &str, driver| ToolSpec { name: name.to_owned(), driver, ..ToolSpec::default() };
        let read = spec("fs.read", DriverKind::Host);
        let cases = [
            (Some(&read), json!({"path": "a"}), "x", Paging::FromByte(0)),
            (Some(&read), json!({"path": "a", "offset": 7}), "x", Paging::FromByte(7)),
            (Some(&read), json!({"path": "a"}), "{\"base64\":\"\"}", Paging::Encoded),
            (None, json!({}), "x", Paging::Items),
        ];
        for (spec, args, output, expected) in cases {
            assert_eq!(Paging::of_call(spec, &args, output), expected, "{args}");
        }
    }
}
