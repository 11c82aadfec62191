//! `fs.list`: what is in a folder.

use regent_kernel::{Access, ArgumentKind, Permit, RawOutput, SideEffect, Tier, ToolSpec, tier};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Below, Met, Tour};
use crate::confidentiality::WORKSPACE_FILE;
use crate::manifest::{built_in, capabilities, integer, kinds, object, path};
use crate::output::{Driven, Room, arguments};

const ENTRIES_DEFAULT: usize = 1000;
const ENTRIES_MAX: u64 = 20_000;

pub(crate) fn spec() -> ToolSpec {
    ToolSpec {
        name: "fs.list".to_owned(),
        description: "List a folder, with everything below it if `recursive`. Links are shown, not followed; `.git` is not gone \
                      into. Returns JSON: entries (path, kind, bytes), more (there are more than fit), left_out (folders that \
                      were not gone into because policy or permissions are against it)."
            .to_owned(),
        input: object(
            &["path"],
            json!({
                "path": path("the folder; `.` is the workspace"),
                "recursive": {"type": "boolean", "description": "false if absent"},
                "entries_max": integer(1, ENTRIES_MAX, "how many at most; 1000 if absent"),
            }),
        ),
        arguments: kinds([("/path", ArgumentKind::Path(Access::List))]),
        capabilities: capabilities(&["file.list"]),
        effect: SideEffect::Read,
        idempotent: true,
        reversible: true,
        tiers: vec![Tier::Host],
        output: WORKSPACE_FILE,
        ..built_in()
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Args<'a> {
    path: &'a str,
    #[serde(default)]
    recursive: bool,
    entries_max: Option<usize>,
}

pub(crate) async fn run(permit: &Permit<'_, tier::Host>) -> Driven<RawOutput> {
    let Args { path, recursive, entries_max } = arguments(permit)?;
    let entries_max = entries_max.unwrap_or(ENTRIES_DEFAULT);
    let below = if recursive { Below::Enter } else { Below::Stay };
    let (mut tour, mut room) = (Tour::new(path), Room::of(permit));
    let (mut entries, mut more) = (Vec::new(), false);
    'tour: while let Some(folder) = tour.next(permit, below).await? {
        for met in &folder {
            let entry = describe(met);
            if entries.len() >= entries_max || !room.take(&entry) {
                more = true;
                break 'tour;
            }
            entries.push(entry);
        }
    }
    let result = json!({"path": path, "entries": entries, "more": more, "left_out": tour.left_out});
    Ok(RawOutput::json(&result))
}

fn describe(met: &Met) -> Value {
    let mut entry = json!({"path": met.path, "kind": met.item.kind, "bytes": met.item.bytes});
    if !met.plain
        && let Some(fields) = entry.as_object_mut()
    {
        fields.insert("escaped".to_owned(), Value::Bool(true));
    }
    entry
}
