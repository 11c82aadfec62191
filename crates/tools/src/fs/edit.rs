//! `fs.edit`: replaces exact text in a file.

use regent_kernel::{Digest, Foreseen, Label, Placement, RawOutput, ToolFailure, label_of_path};
use serde_json::json;

use super::{FILE_BYTES_MAX, check_size, content_is, read_whole};
use crate::confidentiality::RECEIPT;
use crate::output::{failure, on_files, path_failure};
use crate::{Context, ToolError, tool};

const COUNT_MAX: u64 = 10_000;
/// Places that the returned diff shows.
const SHOWN_MAX: usize = 10;
/// How much of the old and of the new text it shows.
const SHOWN_BYTES_MAX: usize = 2000;

/// Replace exact text in a UTF-8 file. `old` must occur exactly once, or exactly `count` times, all of which are replaced. Fails if the
/// file changes meanwhile. Returns JSON: path, replaced, lines, diff.
///
/// - path: the file
/// - old: the text that is there
/// - new: the text to put in its place
/// - count: how often `old` occurs; 1 if absent
// Whether the old text is there is something learnt about the content, so it is a read as well.
#[tool(
    name = "fs.edit",
    effect = "write",
    capabilities = ["file.read", "file.write"],
    reversible,
    output = RECEIPT,
    foresee = foresee
)]
pub(crate) async fn replace(
    #[arg(path = "write")] path: &str,
    #[arg(schema = json!({"type": "string", "minLength": 1, "maxLength": FILE_BYTES_MAX}))] old: &str,
    #[arg(schema = json!({"type": "string", "maxLength": FILE_BYTES_MAX}))] new: &str,
    #[schemars(range(min = 1, max = COUNT_MAX))] count: Option<usize>,
    permit: &Context<'_>,
) -> Result<RawOutput, ToolError> {
    let place = path.to_owned();
    let content = on_files(permit, move |workspace| read_whole(workspace, &place, FILE_BYTES_MAX)).await??;
    let before = Digest::compute(&content);
    let content = String::from_utf8(content)
        .map_err(|_| failure("fs.not_text", format!("`{path}` is not UTF-8 text")))?;
    let edit = edit(&content, old, new, count.unwrap_or(1)).map_err(|mut failure| {
        failure.message = format!("`{path}`: {}", failure.message);
        failure
    })?;
    check_size(permit, edit.content.len())?;
    let (place, bytes) = (path.to_owned(), edit.content.into_bytes());
    let after = Digest::compute(&bytes);
    // What others wrote since the look above would be lost in silence: then the edit fails instead.
    on_files(permit, move |workspace| workspace.place(&place, &bytes, Placement::Swap(before)))
        .await?
        .map_err(|error| path_failure(path, &error))?;
    let diff = diff(&edit.lines, old, new);
    let result = json!({"path": path, "replaced": edit.replaced, "lines": edit.lines, "diff": diff});
    let label = Label { integrity: RECEIPT.integrity, ..label_of_path(path) };
    Ok(RawOutput::json(&result).with_label(label).with_obtained(content_is(&after)))
}

fn foresee(
    _path: &str,
    old: &str,
    new: &str,
    count: Option<usize>,
    before: Option<&[u8]>,
) -> Option<Foreseen> {
    let content = before.and_then(|before| std::str::from_utf8(before).ok());
    let edited = content.and_then(|content| edit(content, old, new, count.unwrap_or(1)).ok());
    Some(edited.map_or(Foreseen::Fails, |edited| Foreseen::Holds(edited.content.into_bytes())))
}

#[derive(Debug, PartialEq, Eq)]
struct Edit {
    content: String,
    replaced: usize,
    /// Where the replaced texts began; the first few.
    lines: Vec<usize>,
}

fn edit(content: &str, old: &str, new: &str, count: usize) -> Result<Edit, ToolFailure> {
    let places: Vec<usize> = content.match_indices(old).map(|(at, _)| at).collect();
    let lines = lines_of(content, &places);
    match places.len() {
        0 => Err(failure("fs.no_match", "the old text doesn't occur in the file")),
        found if found != count => Err(failure(
            "fs.ambiguous",
            format!(
                "the old text occurs {found} times, not {count}: at lines {lines:?}; give more of it, or `count`"
            ),
        )),
        // The result may be larger than any file should be; the caller checks, but must not run out of memory before.
        found
            if content.len().saturating_add(found.saturating_mul(new.len()))
                > FILE_BYTES_MAX as usize * 4 =>
        {
            Err(failure("fs.too_large", "the file would become too large"))
        }
        replaced => Ok(Edit { content: content.replace(old, new), replaced, lines }),
    }
}

/// The lines, from 1, that the first few places are on.
fn lines_of(content: &str, places: &[usize]) -> Vec<usize> {
    let (mut line, mut from, mut lines) = (1, 0, Vec::new());
    for &at in places.iter().take(SHOWN_MAX) {
        line += content
            .as_bytes()
            .get(from..at)
            .unwrap_or_default()
            .iter()
            .filter(|&&byte| byte == b'\n')
            .count();
        from = at;
        lines.push(line);
    }
    lines
}

/// Says what was done in the usual form, but only with text that the caller knows already.
fn diff(lines: &[usize], old: &str, new: &str) -> String {
    let mut text = String::new();
    for line in lines.iter().take(1) {
        text.push_str(&format!("@@ line {line} @@\n"));
        for (sign, side) in [('-', old), ('+', new)] {
            for row in cut(side).lines() {
                text.push_str(&format!("{sign}{row}\n"));
            }
        }
    }
    text
}

fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(SHOWN_BYTES_MAX)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostTool as _;

    #[test]
    fn only_an_exact_and_expected_match_is_replaced() {
        let text = "one\ntwo\nthree two\n";
        let codes = [
            ("four", 1, "fs.no_match"),
            ("two", 1, "fs.ambiguous"),
            ("two", 3, "fs.ambiguous"),
            ("one", 2, "fs.ambiguous"),
        ];
        for (old, count, code) in codes {
            assert_eq!(edit(text, old, "x", count).unwrap_err().code, code, "{old} {count}");
        }
        let both = edit(text, "two", "2", 2).unwrap();
        assert_eq!(both, Edit { content: "one\n2\nthree 2\n".to_owned(), replaced: 2, lines: vec![2, 3] });
        assert_eq!(diff(&both.lines, "two", "2"), "@@ line 2 @@\n-two\n+2\n");
        assert_eq!(edit(text, "one\ntwo", "", 1).unwrap().content, "\nthree two\n");
    }

    #[test]
    fn foresees_what_the_file_will_hold() {
        let cases = [
            (json!({"old": "b", "new": "c"}), Some(&b"abd"[..]), Some("acd")),
            (json!({"old": "b", "new": "b"}), Some(&b"abd"[..]), Some("abd")),
            (json!({"old": "b", "new": "c", "count": 2}), Some(&b"bb"[..]), Some("cc")),
            (json!({"old": "x", "new": "c"}), Some(&b"abd"[..]), None),
            (json!({"old": "b", "new": "c"}), Some(&b"b\xff"[..]), None),
            (json!({"old": "b", "new": "c"}), None, None),
        ];
        for (mut args, before, after) in cases {
            args["path"] = json!("a");
            let expected = after.map_or(Foreseen::Fails, |after| Foreseen::Holds(after.into()));
            assert_eq!(replace().foresee(&args, before), Some(expected), "{args} {before:?}");
        }
        assert_eq!(replace().foresee(&json!({"path": "a"}), Some(b"")), None);
    }

    #[test]
    fn an_edit_that_would_explode_is_refused() {
        let text = "a".repeat(10_000);
        assert_eq!(edit(&text, "a", &"b".repeat(1 << 20), 10_000).unwrap_err().code, "fs.too_large");
    }
}
