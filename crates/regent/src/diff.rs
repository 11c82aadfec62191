//! What a write would change, line by line, for a person to look at.

/// Lines around a change that are shown with it.
const CONTEXT_LINES: usize = 2;
/// Texts with more changed lines than this are shown as one block out, one block in.
const COMPARED_LINES_MAX: usize = 400;

/// A line of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// In both.
    Same(&'a str),
    /// Goes.
    Old(&'a str),
    /// Comes.
    New(&'a str),
    /// So many that are in both are left out.
    Skipped(usize),
}

/// How one text becomes another. Nothing if they are the same.
pub(crate) fn lines<'a>(old: &'a str, new: &'a str) -> Vec<Line<'a>> {
    let (old, new): (Vec<&str>, Vec<&str>) =
        (old.split_terminator('\n').collect(), new.split_terminator('\n').collect());
    let before = old.iter().zip(&new).take_while(|(one, other)| one == other).count();
    let rest = |lines: &[&'a str]| lines.get(before..).unwrap_or_default().to_vec();
    let (old_rest, new_rest) = (rest(&old), rest(&new));
    let after =
        old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(one, other)| one == other).count();
    let middle =
        |lines: &[&'a str]| lines.get(..lines.len().saturating_sub(after)).unwrap_or_default().to_vec();
    let (gone, come) = (middle(&old_rest), middle(&new_rest));
    if gone.is_empty() && come.is_empty() {
        return Vec::new();
    }
    let mut all: Vec<Line<'a>> = old.iter().take(before).map(|line| Line::Same(line)).collect();
    all.extend(changed(&gone, &come));
    all.extend(old_rest.iter().skip(gone.len()).map(|line| Line::Same(line)));
    shortened(&all)
}

/// The changed part: the longest common subsequence stays.
fn changed<'a>(gone: &[&'a str], come: &[&'a str]) -> Vec<Line<'a>> {
    if gone.len() > COMPARED_LINES_MAX || come.len() > COMPARED_LINES_MAX {
        return gone
            .iter()
            .map(|line| Line::Old(line))
            .chain(come.iter().map(|line| Line::New(line)))
            .collect();
    }
    // `longest[i][j]`: how many lines the ends of both from there on have in common.
    let mut longest = vec![vec![0_u32; come.len().saturating_add(1)]; gone.len().saturating_add(1)];
    let at = |table: &[Vec<u32>], i: usize, j: usize| {
        table.get(i).and_then(|row| row.get(j)).copied().unwrap_or(0)
    };
    for (i, one) in gone.iter().enumerate().rev() {
        for (j, other) in come.iter().enumerate().rev() {
            let best = if one == other {
                at(&longest, i + 1, j + 1).saturating_add(1)
            } else {
                at(&longest, i + 1, j).max(at(&longest, i, j + 1))
            };
            if let Some(cell) = longest.get_mut(i).and_then(|row| row.get_mut(j)) {
                *cell = best;
            }
        }
    }
    let (mut i, mut j, mut out) = (0, 0, Vec::new());
    loop {
        match (gone.get(i), come.get(j)) {
            (Some(one), Some(other)) if one == other => {
                out.push(Line::Same(one));
                (i, j) = (i + 1, j + 1);
            }
            (Some(one), other) if other.is_none() || at(&longest, i + 1, j) >= at(&longest, i, j + 1) => {
                out.push(Line::Old(one));
                i += 1;
            }
            (_, Some(other)) => {
                out.push(Line::New(other));
                j += 1;
            }
            (_, None) => return out,
        }
    }
}

/// Leaves out what is the same and far from any change.
fn shortened<'a>(all: &[Line<'a>]) -> Vec<Line<'a>> {
    let is_change = |line: &Line<'_>| matches!(line, Line::Old(_) | Line::New(_));
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
            out.push(Line::Skipped(skipped));
            skipped = 0;
        }
        out.push(*line);
    }
    if skipped > 0 {
        out.push(Line::Skipped(skipped));
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(old: &str, new: &str) -> String {
        let line = |line: &Line<'_>| match line {
            Line::Same(text) => format!(" {text}\n"),
            Line::Old(text) => format!("-{text}\n"),
            Line::New(text) => format!("+{text}\n"),
            Line::Skipped(count) => format!("@{count}\n"),
        };
        lines(old, new).iter().map(line).collect()
    }

    #[test]
    fn what_changes_is_shown_with_its_surroundings() {
        for (old, new, diff) in [
            ("", "a\nb\n", "+a\n+b\n"),
            ("a\nb\n", "", "-a\n-b\n"),
            ("a\n", "a\n", ""),
            ("1\n2\n3\n4\n5\n6\n7\n", "1\n2\n3\nx\n5\n6\n7\n", "@1\n 2\n 3\n-4\n+x\n 5\n 6\n@1\n"),
            ("a\nb\nc\n", "b\nc\nd\n", "-a\n b\n c\n+d\n"),
        ] {
            assert_eq!(shown(old, new), diff, "{old:?} {new:?}");
        }
    }

    proptest! {
        #[test]
        fn each_side_can_be_read_off(old in "([abc]\n){0,12}", new in "([abc]\n){0,12}") {
            let diff = lines(&old, &new);
            let count = |side: fn(&Line<'_>) -> Option<usize>| diff.iter().filter_map(side).sum::<usize>();
            let of_old = count(|line| match line { Line::Same(_) | Line::Old(_) => Some(1), Line::Skipped(many) => Some(*many), Line::New(_) => None });
            let of_new = count(|line| match line { Line::Same(_) | Line::New(_) => Some(1), Line::Skipped(many) => Some(*many), Line::Old(_) => None });
            prop_assert!(diff.is_empty() == (old == new));
            prop_assert!(diff.is_empty() || (of_old, of_new) == (old.lines().count(), new.lines().count()));
        }
    }
}
