//! How far a call of a tool of ours reaches. What it does to the content of the workspace is its agent's work, no matter who had the idea: it is
//! recorded, and snapshots bring the files back. What runs later, lies outside, or is no command of ordinary work is another
//! matter, once the agent has received untrusted input.

use crate::command::is_ordinary;
use regent_guard::{Kinds, kinds_of};
use regent_policy::Access;
use serde_json::Value;

use crate::catalogue::{ArgumentKind, Tool};
use crate::facts::{Sheet, Target, program_target};

/// The names of the arguments that reach no further than the content of the workspace, or name a command of ordinary work.
pub(crate) fn kept_inside<'t>(sheet: &Sheet, tool: &'t Tool) -> Vec<&'t str> {
    let name = |pointer: &'t String| pointer.split('/').nth(1).unwrap_or_default();
    let all = &tool.spec().arguments;
    let beyond: Vec<&str> = all
        .iter()
        .filter(|(pointer, kind)| !is_inside(sheet, pointer, **kind))
        .map(|(pointer, _)| name(pointer))
        .collect();
    all.keys().map(name).filter(|name| !beyond.contains(name)).collect()
}

fn is_inside(sheet: &Sheet, pointer: &str, kind: ArgumentKind) -> bool {
    let Some(value) = sheet.args.pointer(pointer) else { return true };
    match (kind, value) {
        (ArgumentKind::Path(access), Value::String(path)) => {
            let links = sheet.mentioned.iter().filter_map(|target| match target {
                Target::Path { path, .. } => Some(path),
                Target::Endpoint { .. } | Target::Argv(_) | Target::Secret(_) => None,
            });
            let runs_later = |path: &String| kinds_of(path).intersects(Kinds::RUN_LATER);
            !path.starts_with('/') && (access == Access::Read || !links.chain([path]).any(runs_later))
        }
        (ArgumentKind::Argv | ArgumentKind::Shell, program) => {
            // A variable can make a program do anything.
            let has_env = sheet.args.get("env").and_then(Value::as_object).is_some_and(|env| !env.is_empty());
            let wants_network = sheet.args.get("network").is_some_and(|wants| *wants != Value::Bool(false));
            let Some(Target::Argv(argv)) = program_target(kind, program) else { return false };
            !wants_network && !has_env && is_ordinary(&argv)
        }
        (ArgumentKind::Path(_) | ArgumentKind::Url, _) => false,
    }
}

/// The arguments with every program in one line: it is named as a whole, or not at all.
pub(crate) fn in_lines(tool: &Tool, args: &Value) -> Value {
    let mut args = args.clone();
    let programs = tool.spec().arguments.iter().filter(|(_, kind)| **kind == ArgumentKind::Argv);
    for (pointer, _) in programs {
        if let Some(slot) = args.pointer_mut(pointer)
            && let Some(words) = slot.as_array()
        {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            *slot = Value::String(words.join(" "));
        }
    }
    args
}

/// Why a call that reaches further becomes a question, in a sentence. `untrusted` names the untrusted input.
pub(crate) fn why(sheet: &Sheet, untrusted: &str) -> String {
    let is_later = |target: &Target| match target {
        Target::Path { path, access } if *access != Access::Read => {
            kinds_of(path).intersects(Kinds::RUN_LATER)
        }
        Target::Path { .. } | Target::Endpoint { .. } | Target::Argv(_) | Target::Secret(_) => false,
    };
    let what = if sheet.resources.iter().chain(&sheet.mentioned).any(is_later) {
        "this file runs later"
    } else if sheet.resources.iter().any(|target| matches!(target, Target::Argv(_))) {
        "this command does more than inspect, build, test or format"
    } else {
        "this reaches beyond the workspace"
    };
    format!("{what}, the request doesn't name it, and the agent has read untrusted text: {untrusted}")
}
