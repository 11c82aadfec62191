//! `fs.append`: adds lines to the end of a text file.

use regent_kernel::{Digest, Foreseen, PathError, Placement, RawOutput, ToolFailure};
use serde_json::json;

use super::{FILE_BYTES_MAX, check_size, content_is, read_whole};
use crate::confidentiality::RECEIPT;
use crate::output::{failure, on_files, path_failure};
use crate::{Context, ToolError, tool};

/// Add lines to the end of a text file; the rest of it stays as it is. The text begins on a line of its own and ends with a line break. A
/// file that doesn't exist is made. Fails if the file changes meanwhile. Returns JSON: path, created, bytes.
///
/// - path: the file
/// - text: the lines to add
// Whether the last line had a break is learnt from the size, so it is a read as well. Adding twice is not adding once.
#[tool(name = "fs.append", effect = "write", capabilities = ["file.read", "file.write"], output = RECEIPT, foresee = foresee)]
pub(crate) async fn append(
    #[arg(path = "write")] path: &str,
    #[arg(schema = json!({"type": "string", "minLength": 1, "maxLength": FILE_BYTES_MAX}))] text: &str,
    permit: &Context<'_>,
) -> Result<RawOutput, ToolError> {
    let place = path.to_owned();
    let before = on_files(permit, move |workspace| match read_whole(workspace, &place, FILE_BYTES_MAX) {
        Err(failure) if failure.code == MISSING => Ok(None),
        read => read.map(Some),
    })
    .await??;
    let content = added(before.as_deref().unwrap_or_default(), text)?;
    check_size(permit, content.len())?;
    let (place, after) = (path.to_owned(), Digest::compute(&content));
    // What others wrote since the look above would be lost in silence: then this fails instead.
    let how = before.as_ref().map_or(Placement::Create, |before| Placement::Swap(Digest::compute(before)));
    let written = on_files(permit, move |workspace| workspace.place(&place, &content, how)).await?;
    let written = written.map_err(|error: PathError| path_failure(path, &error))?;
    let result = json!({"path": path, "created": written.created, "bytes": written.bytes});
    Ok(RawOutput::json(&result).with_obtained(content_is(&after)))
}

/// The code of a failure to read what isn't there.
const MISSING: &str = "fs.not_found";

fn foresee(_path: &str, text: &str, before: Option<&[u8]>) -> Option<Foreseen> {
    Some(added(before.unwrap_or_default(), text).map_or(Foreseen::Fails, Foreseen::Holds))
}

/// The content with the text as lines at its end, with the line breaks that the file has.
fn added(before: &[u8], text: &str) -> Result<Vec<u8>, ToolFailure> {
    let held =
        std::str::from_utf8(before).map_err(|_| failure("fs.not_text", "the file is not UTF-8 text"))?;
    let line_break = if held.contains("\r\n") { "\r\n" } else { "\n" };
    let mut content = held.to_owned();
    if !content.is_empty() && !content.ends_with('\n') {
        content.push_str(line_break);
    }
    for line in text.lines() {
        content.push_str(line);
        content.push_str(line_break);
    }
    Ok(content.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_stands_on_lines_of_its_own() {
        let cases: &[(&str, &str, &str)] = &[
            ("", "a", "a\n"),
            ("a\n", "b", "a\nb\n"),
            ("a", "b", "a\nb\n"),
            ("a\n", "b\n", "a\nb\n"),
            ("a\n", "b\nc", "a\nb\nc\n"),
            ("a\r\nb\r\n", "c\nd", "a\r\nb\r\nc\r\nd\r\n"),
            ("a\n\n", "b", "a\n\nb\n"),
            ("ü", "漢", "ü\n漢\n"),
        ];
        for (before, text, after) in cases {
            assert_eq!(added(before.as_bytes(), text).unwrap(), after.as_bytes(), "{before:?} {text:?}");
            let Some(Foreseen::Holds(held)) = foresee("p", text, Some(before.as_bytes())) else {
                panic!("{text}")
            };
            assert_eq!(held, after.as_bytes());
        }
        assert_eq!(added(b"\xff", "x").unwrap_err().code, "fs.not_text");
    }
}
