//! `fs.write`: the content of a file, made, replaced or added to.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regent_kernel::{Access, ArgumentKind, Permit, Placement, RawOutput, SideEffect, Tier, ToolSpec, tier};
use serde::Deserialize;
use serde_json::json;

use super::{FILE_BYTES_MAX, check_size};
use crate::confidentiality::WORKSPACE_FILE;
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
            }),
        ),
        arguments: kinds([("/path", ArgumentKind::Path(Access::Write))]),
        capabilities: capabilities(&["file.write"]),
        effect: SideEffect::Write,
        // Appending twice is not appending once.
        idempotent: false,
        reversible: false,
        tiers: vec![Tier::Host],
        output: WORKSPACE_FILE,
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
    let Args { path, content, mode, encoding } = arguments(permit)?;
    let content = match encoding {
        Encoding::Text => content.as_bytes().to_vec(),
        Encoding::Base64 => STANDARD
            .decode(content)
            .map_err(|error| failure("args.invalid", format!("`content` is not base64: {error}")))?,
    };
    check_size(permit, content.len())?;
    let (workspace, place) = (permit.workspace().clone(), path.to_owned());
    let written = blocking(permit, move |_| match mode {
        Mode::Create => workspace.place(&place, &content, Placement::Create),
        Mode::Replace => workspace.place(&place, &content, Placement::Replace),
        Mode::Append => workspace.append(&place, &content),
    })
    .await?
    .map_err(|error| path_failure(path, &error))?;
    Ok(RawOutput::json(&json!({"path": path, "created": written.created, "bytes": written.bytes})))
}
