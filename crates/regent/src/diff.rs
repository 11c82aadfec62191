//! What a write would change, line by line, for a reviewer.

use std::time::{Duration, Instant};

use similar::{Algorithm, ChangeTag, DiffOp, capture_diff_slices_deadline};

/// Lines around a change that are shown with it.
const CONTEXT_LINES: usize = 2;
/// How long the shortest difference is looked for. Texts that have nothing in common take the square of their size; after this a
/// longer difference, which is as true, does.
const SEARCH_MAX: Duration = Duration::from_millis(200);

/// A line of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiffLine<'a> {
    /// In both.
    Same(&'a str),
    /// Goes.
    Old(&'a str),
    /// Comes.
    New(&'a str),
    /// So many that are in both are left out.
    Skipped(usize),
}

/// How one text becomes another. Nothing if they have the same lines.
pub(crate) fn lines<'a>(old: &'a str, new: &'a str) -> Vec<DiffLine<'a>> {
    let (old, new): (Vec<&str>, Vec<&str>) =
        (old.split_terminator('\n').collect(), new.split_terminator('\n').collect());
    if old == new {
        return Vec::new();
    }
    let deadline = Instant::now().checked_add(SEARCH_MAX);
    let operations = capture_diff_slices_deadline(Algorithm::Myers, &old, &new, deadline);
    let changes = operations.iter().flat_map(|operation: &DiffOp| operation.iter_changes(&old, &new));
    let all: Vec<DiffLine<'a>> = changes
        .map(|change| match change.tag() {
            ChangeTag::Equal => DiffLine::Same(change.value()),
            ChangeTag::Delete => DiffLine::Old(change.value()),
            ChangeTag::Insert => DiffLine::New(change.value()),
        })
        .collect();
    shortened(&all)
}

/// Leaves out what is the same and far from any change.
fn shortened<'a>(all: &[DiffLine<'a>]) -> Vec<DiffLine<'a>> {
    let is_change = |line: &DiffLine<'_>| matches!(line, DiffLine::Old(_) | DiffLine::New(_));
    let near: Vec<bool> = (0..all.len())
        .map(|at| {
            let around =
                at.saturating_sub(CONTEXT_LINES)..=at.saturating_add(CONTEXT_LINES).min(all.len() - 1);
            all.get(around).is_some_and(|lines| lines.iter().any(is_change))
        })
        .collect();
    let mut out = Vec::new();
    let mut skipped = 0;
    for (line, near) in all.iter().zip(near) {
        if !near {
            skipped += 1;
            continue;
        }
        if skipped > 0 {
            out.push(DiffLine::Skipped(skipped));
            skipped = 0;
        }
        out.push(*line);
    }
    if skipped > 0 {
        out.push(DiffLine::Skipped(skipped));
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn render(old: &str, new: &str) -> String {
        let line = |line: &DiffLine<'_>| match line {
            DiffLine::Same(text) => format!(" {text}\n"),
            DiffLine::Old(text) => format!("-{text}\n"),
            DiffLine::New(text) => format!("+{text}\n"),
            DiffLine::Skipped(count) => format!("@{count}\n"),
        };
        lines(old, new).iter().map(line).collect()
    }

    #[test]
    fn prints_changes_with_surrounding_lines() {
        for (old, new, diff) in [
            ("", "a\nb\n", "+a\n+b\n"),
            ("a\nb\n", "", "-a\n-b\n"),
            ("a\n", "a\n", ""),
            ("1\n2\n3\n4\n5\n6\n7\n", "1\n2\n3\nx\n5\n6\n7\n", "@1\n 2\n 3\n-4\n+x\n 5\n 6\n@1\n"),
            ("a\nb\nc\n", "b\nc\nd\n", "-a\n b\n c\n+d\n"),
        ] {
            assert_eq!(render(old, new), diff, "{old:?} {new:?}");
        }
    }

    proptest! {
        #[test]
        fn each_side_can_be_read_off(old in "([abc]\n){0,12}", new in "([abc]\n){0,12}") {
            let diff = lines(&old, &new);
            let count = |side: fn(&DiffLine<'_>) -> Option<usize>| diff.iter().filter_map(side).sum::<usize>();
            let of_old = count(|line| match line { DiffLine::Same(_) | DiffLine::Old(_) => Some(1), DiffLine::Skipped(many) => Some(*many), DiffLine::New(_) => None });
            let of_new = count(|line| match line { DiffLine::Same(_) | DiffLine::New(_) => Some(1), DiffLine::Skipped(many) => Some(*many), DiffLine::Old(_) => None });
            prop_assert!(diff.is_empty() == (old == new));
            prop_assert!(diff.is_empty() || (of_old, of_new) == (old.lines().count(), new.lines().count()));
        }
    }
}
