//! `fs.stat`: what is known of a file or folder.

use regent_kernel::{Access, ArgumentKind, Permit, RawOutput, SideEffect, Tier, ToolSpec, tier};
use serde::Deserialize;
use serde_json::json;

use crate::confidentiality::WORKSPACE_FILE;
use crate::manifest::{capabilities, kinds, object, path};
use crate::output::{Driven, arguments, path_failure};

pub(crate) fn spec() -> ToolSpec {
    ToolSpec {
        name: "fs.stat".to_owned(),
        description: "Describe a file or folder; of a link, what it leads to. Returns JSON: path, kind (file, folder, special), \
                      bytes, mode, modified_ms, links."
            .to_owned(),
        input: object(&["path"], json!({"path": path("the file or folder")})),
        arguments: kinds([("/path", ArgumentKind::Path(Access::Read))]),
        capabilities: capabilities(&["file.read"]),
        effect: SideEffect::Read,
        idempotent: true,
        reversible: true,
        tiers: vec![Tier::Host],
        output: WORKSPACE_FILE,
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Args<'a> {
    path: &'a str,
}

pub(crate) fn run(permit: &Permit<'_, tier::Host>) -> Driven<RawOutput> {
    let Args { path } = arguments(permit)?;
    let found = permit.workspace().stat(path).map_err(|error| path_failure(path, &error))?;
    Ok(RawOutput::json(&json!({
        "path": path,
        "kind": found.kind,
        "bytes": found.bytes,
        "mode": format!("{:04o}", found.mode),
        "modified_ms": found.modified_ms,
        "links": found.links,
    })))
}
