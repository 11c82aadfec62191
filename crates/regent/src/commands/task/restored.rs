//! What restoring a snapshot of the workspace changes, for people.

use regent_runtime::snapshot::{Restored, Skipped};

use crate::output::Screen;
use crate::term;

/// How many paths a preview names.
const PATHS_SHOWN_MAX: usize = 20;

/// The message about files that are written and removed, before and after.
pub(crate) const AHEAD: [&str; 2] = ["to write ", "to remove"];
pub(crate) const DONE: [&str; 2] = ["put back ", "removed  "];

/// The files that a restore changes, or will change.
pub(crate) fn changes(screen: &Screen, restored: &Restored, [written, removed]: [&str; 2]) -> String {
    let mut text = String::new();
    let plain = |paths: &[String]| paths.iter().map(|path| (path.clone(), String::new())).collect::<Vec<_>>();
    let skipped = |all: &[Skipped]| {
        all.iter().map(|one| (one.path.clone(), format!(" ({})", one.why.word()))).collect::<Vec<_>>()
    };
    let failed = restored.failed.iter().map(|missed| (missed.path.clone(), format!(" ({})", missed.why)));
    let marked = [
        (written, plain(&restored.written)),
        (removed, plain(&restored.removed)),
        ("stays    ", plain(&restored.left)),
        ("left out ", skipped(&restored.left_out)),
        ("not kept ", skipped(&restored.not_kept)),
        ("FAILED   ", failed.collect()),
    ];
    for (word, lines) in marked {
        for (path, why) in lines.iter().take(PATHS_SHOWN_MAX) {
            let line = format!("{}{}", term::inline(path), term::inline(why));
            text.push_str(&format!("  {}  {line}\n", screen.faint(word)));
        }
        let more = lines.len().saturating_sub(PATHS_SHOWN_MAX);
        if more > 0 {
            text.push_str(&format!("  {}  … {more} more\n", screen.faint(word)));
        }
    }
    text
}
