//! How far a call of a tool of ours reaches. What it does to the content of the workspace is its agent's work, whoever had the idea: it is
//! recorded, and pictures of the workspace bring it back. What runs later, lies outside, or is no command of ordinary work is another
//! matter, once the agent has heard what isn't the person's.

use regent_approval::ordinary;
use regent_guard::{Kinds, kinds_of};
use regent_policy::{Access, Integrity};
use serde_json::Value;

use crate::catalogue::{ArgumentKind, Tool};
use crate::facts::{Sheet, Target};
use crate::kernel::Core;

impl Core {
    /// The names of the arguments that reach no further than the content of the workspace, or name a command of ordinary work.
    pub(crate) fn kept_inside<'t>(&self, sheet: &Sheet, tool: &'t Tool) -> Vec<&'t str> {
        let name = |pointer: &'t String| pointer.split('/').nth(1).unwrap_or_default();
        let all = &tool.spec().arguments;
        let beyond: Vec<&str> = all
            .iter()
            .filter(|(pointer, kind)| !self.is_inside(sheet, pointer, **kind))
            .map(|(pointer, _)| name(pointer))
            .collect();
        all.keys().map(name).filter(|name| !beyond.contains(name)).collect()
    }

    fn is_inside(&self, sheet: &Sheet, pointer: &str, kind: ArgumentKind) -> bool {
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
                let wants_network =
                    sheet.args.get("network").is_some_and(|wants| *wants != Value::Bool(false));
                let Some(Target::Argv(argv)) = Target::program(kind, program) else { return false };
                let cwd = sheet.args.get("cwd").and_then(Value::as_str).unwrap_or(".");
                !wants_network
                    && ordinary(&argv)
                        .is_some_and(|files| files.iter().all(|file| self.is_not_by_agents(cwd, file)))
            }
            (ArgumentKind::Path(_) | ArgumentKind::Url, _) => false,
        }
    }

    /// Whether a file holds nothing that an agent wrote after it had heard what isn't the person's. What can't be looked at may.
    fn is_not_by_agents(&self, cwd: &str, file: &str) -> bool {
        if file.starts_with('/') {
            return false;
        }
        let label = self.label_of_file(&format!("{cwd}/{file}"));
        label.is_ok_and(|label| label.is_none_or(|label| label.integrity <= Integrity::OwnModel))
    }
}
