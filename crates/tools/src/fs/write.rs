//! `fs.write`: the content of a file, made, replaced or added to.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regent_kernel::{Digest, Foreseen, PathError, Placement, RawOutput, ToolFailure};
use serde::Deserialize;
use serde_json::json;

use super::{FILE_BYTES_MAX, check_size, content_is};
use crate::confidentiality::RECEIPT;
use crate::output::{failure, on_files, path_failure};
use crate::{Context, ToolError, tool};

/// What the content is given as.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    #[default]
    Text,
    Base64,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Create,
    #[default]
    Replace,
    Append,
}

/// Write a file, making missing folders. `create` refuses to replace, `replace` (the default) writes the whole file at once or leaves it
/// as it was, `append` adds to the end. Returns JSON: path, created, bytes.
///
/// - path: the file
/// - content: what to write
/// - encoding: what `content` is; `text` if absent
/// - mode: `replace` if absent
/// - seen: SHA-256 of the content to replace or add to; fails if the file has another by now
// Appending twice is not appending once, so it isn't idempotent.
#[tool(name = "fs.write", effect = "write", capabilities = ["file.write"], output = RECEIPT, foresee = foresee)]
pub(crate) async fn write(
    #[arg(path = "write")] path: &str,
    #[arg(schema = json!({"type": "string", "maxLength": FILE_BYTES_MAX}))] content: &str,
    #[arg(schema = json!({"enum": ["text", "base64"]}))] encoding: Option<Encoding>,
    #[arg(schema = json!({"enum": ["create", "replace", "append"]}))] mode: Option<Mode>,
    #[arg(schema = json!({"type": "string", "pattern": "^[0-9a-f]{64}$", "x-regent-fill": true}))]
    seen: Option<Digest>,
    permit: &Context<'_>,
) -> Result<RawOutput, ToolError> {
    let (mode, encoding) = (mode.unwrap_or_default(), encoding.unwrap_or_default());
    let content = decoded(content, encoding)?;
    check_size(permit, content.len())?;
    let (place, bytes_max) = (path.to_owned(), permit.limits().file_bytes_max);
    // Of a file that was added to only the end is known.
    let after = (!matches!(mode, Mode::Append)).then(|| Digest::compute(&content));
    let written = on_files(permit, move |workspace| match (mode, seen) {
        // A file that is there is refused, whatever it holds.
        (Mode::Create, _) => workspace.place(&place, &content, Placement::Create),
        (Mode::Replace, None) => workspace.place(&place, &content, Placement::Replace),
        (Mode::Replace, Some(seen)) => match workspace.place(&place, &content, Placement::Swap(seen)) {
            // It was removed since it was read: there is nothing to damage.
            Err(PathError::NotFound) => workspace.place(&place, &content, Placement::Create),
            other => other,
        },
        (Mode::Append, seen) => workspace.append(&place, &content, seen.as_ref(), bytes_max),
    })
    .await?
    .map_err(|error| path_failure(path, &error))?;
    let result = json!({"path": path, "created": written.created, "bytes": written.bytes});
    let output = RawOutput::json(&result);
    Ok(match after {
        Some(after) => output.with_obtained(content_is(&after)),
        None => output,
    })
}

fn decoded(content: &str, encoding: Encoding) -> Result<Vec<u8>, ToolFailure> {
    match encoding {
        Encoding::Text => Ok(content.as_bytes().to_vec()),
        Encoding::Base64 => STANDARD
            .decode(content)
            .map_err(|error| failure("args.invalid", format!("`content` is not base64: {error}"))),
    }
}

fn foresee(
    _path: &str,
    content: &str,
    encoding: Option<Encoding>,
    mode: Option<Mode>,
    seen: Option<Digest>,
    before: Option<&[u8]>,
) -> Option<Foreseen> {
    let (mode, encoding) = (mode.unwrap_or_default(), encoding.unwrap_or_default());
    let Ok(content) = decoded(content, encoding) else { return Some(Foreseen::Fails) };
    Some(match (mode, before) {
        (Mode::Create, Some(_)) => Foreseen::Fails,
        (Mode::Replace | Mode::Append, Some(before))
            if seen.is_some_and(|seen| seen != Digest::compute(before)) =>
        {
            Foreseen::Fails
        }
        (Mode::Append, Some(before)) => Foreseen::Holds([before, &content].concat()),
        (Mode::Create | Mode::Append, None) | (Mode::Replace, _) => Foreseen::Holds(content),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostTool as _;

    #[test]
    fn foresees_what_the_file_will_hold() {
        let seen = |content: &str| Digest::compute(content.as_bytes()).to_string();
        let cases = [
            (json!({"content": "new"}), None, Some("new")),
            (json!({"content": "new"}), Some("old"), Some("new")),
            (json!({"content": "old"}), Some("old"), Some("old")),
            (json!({"content": "bmV3", "encoding": "base64"}), None, Some("new")),
            (json!({"content": "?", "encoding": "base64"}), None, None),
            (json!({"content": "new", "mode": "create"}), None, Some("new")),
            (json!({"content": "new", "mode": "create"}), Some("old"), None),
            (json!({"content": "new", "mode": "append"}), None, Some("new")),
            (json!({"content": "new", "mode": "append"}), Some("old"), Some("oldnew")),
            (json!({"content": "new", "seen": seen("old")}), Some("old"), Some("new")),
            (json!({"content": "new", "seen": seen("other")}), Some("old"), None),
            (json!({"content": "new", "seen": seen("other")}), None, Some("new")),
            (json!({"content": "new", "mode": "append", "seen": seen("old")}), Some("old"), Some("oldnew")),
            (json!({"content": "new", "mode": "append", "seen": seen("other")}), Some("old"), None),
        ];
        for (mut args, before, after) in cases {
            args["path"] = json!("a");
            let expected = after.map_or(Foreseen::Fails, |after| Foreseen::Holds(after.into()));
            assert_eq!(
                write().foresee(&args, before.map(str::as_bytes)),
                Some(expected),
                "{args} {before:?}"
            );
        }
        assert_eq!(write().foresee(&json!({"path": 1}), None), None);
    }
}
