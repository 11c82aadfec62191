//! `fs.write`: the content of a file, made, replaced or added to.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regent_kernel::{
    Access, ArgumentKind, Digest, Failure, Foreseen, PathError, Permit, Placement, RawOutput, SideEffect,
    Tier, ToolSpec, tier,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{FILE_BYTES_MAX, check_size, content_is};
use crate::confidentiality::RECEIPT;
use crate::manifest::{built_in, capabilities, kinds, object, path};
use crate::output::{Driven, arguments, blocking, failure, path_failure};

pub(crate) fn spec() -> ToolSpec {
    ToolSpec {
        name: "fs.write".to_owned(),
        description: "Write a file, making missing folders. `create` refuses to replace, `replace` (the default) writes the whole \
                      file at once or leaves it as it was, `append` adds to the end. Returns JSON: path, created, bytes."
            .to_owned(),
        input: object(
            &["path", "content"],
            json!({
                "path": path("the file"),
                "content": {"type": "string", "maxLength": FILE_BYTES_MAX, "description": "what to write"},
                "encoding": {"enum": ["text", "base64"], "description": "what `content` is; `text` if absent"},
                "mode": {"enum": ["create", "replace", "append"], "description": "`replace` if absent"},
                "seen": {
                    "type": "string", "pattern": "^[0-9a-f]{64}$", "x-regent-fill": true,
                    "description": "SHA-256 of the content to replace or add to; fails if the file has another by now",
                },
            }),
        ),
        arguments: kinds([("/path", ArgumentKind::Path(Access::Write))]),
        capabilities: capabilities(&["file.write"]),
        effect: SideEffect::Write,
        // Appending twice is not appending once.
        idempotent: false,
        reversible: false,
        tiers: vec![Tier::Host],
        output: RECEIPT,
        ..built_in()
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Args<'a> {
    path: &'a str,
    content: &'a str,
    #[serde(default)]
    mode: Mode,
    #[serde(default)]
    encoding: Encoding,
    seen: Option<Digest>,
}

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

pub(crate) async fn run(permit: &Permit<'_, tier::Host>) -> Driven<RawOutput> {
    let Args { path, content, mode, encoding, seen } = arguments(permit)?;
    let content = decoded(content, encoding)?;
    check_size(permit, content.len())?;
    let (workspace, place) = (permit.workspace().clone(), path.to_owned());
    // Of a file that was added to only the end is known.
    let after = (!matches!(mode, Mode::Append)).then(|| Digest::of(&content));
    let written = blocking(permit, move |_| match (mode, seen) {
        // A file that is there is refused, whatever it holds.
        (Mode::Create, _) => workspace.place(&place, &content, Placement::Create),
        (Mode::Replace, None) => workspace.place(&place, &content, Placement::Replace),
        (Mode::Replace, Some(seen)) => match workspace.place(&place, &content, Placement::Swap(seen)) {
            // It was removed since it was read: there is nothing to damage.
            Err(PathError::NotFound) => workspace.place(&place, &content, Placement::Create),
            other => other,
        },
        (Mode::Append, seen) => workspace.append(&place, &content, seen.as_ref()),
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

fn decoded(content: &str, encoding: Encoding) -> Result<Vec<u8>, Failure> {
    match encoding {
        Encoding::Text => Ok(content.as_bytes().to_vec()),
        Encoding::Base64 => STANDARD
            .decode(content)
            .map_err(|error| failure("args.invalid", format!("`content` is not base64: {error}"))),
    }
}

pub(crate) fn foresee(args: &Value, before: Option<&[u8]>) -> Option<Foreseen> {
    let Args { content, mode, encoding, seen, .. } = Args::deserialize(args).ok()?;
    let Ok(content) = decoded(content, encoding) else { return Some(Foreseen::Fails) };
    Some(match (mode, before) {
        (Mode::Create, Some(_)) => Foreseen::Fails,
        (Mode::Replace | Mode::Append, Some(before))
            if seen.is_some_and(|seen| seen != Digest::of(before)) =>
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

    #[test]
    fn foresees_what_the_file_will_hold() {
        let seen = |content: &str| Digest::of(content.as_bytes()).to_string();
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
            assert_eq!(foresee(&args, before.map(str::as_bytes)), Some(expected), "{args} {before:?}");
        }
        assert_eq!(foresee(&json!({"path": 1}), None), None);
    }
}
