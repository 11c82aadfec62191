//! ARCHITECTURE.md names who enforces each invariant. What it names exists, or the table is a wish.

use std::collections::BTreeSet;
use std::path::Path;

/// The page with the table.
pub(super) const PAGE: &str = "ARCHITECTURE.md";
const HEADING: &str = "## Invariants";

/// Everything that an enforcer can be, by name.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Words of the sources: functions, types, tests, files.
    words: BTreeSet<String>,
    files: Vec<String>,
}

impl Names {
    pub(super) fn add(&mut self, file: &str, text: &str) {
        self.files.push(file.to_owned());
        if file.ends_with(".rs") || file.ends_with(".toml") {
            let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
            self.words.extend(words.filter(|word| !word.is_empty()).map(str::to_owned));
        }
    }

    fn has_path(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        self.files.iter().any(|file| {
            let is_below = |from: &str| {
                from.strip_prefix(path).is_some_and(|rest| {
                    rest.is_empty() || rest.starts_with('/') || (rest.starts_with('.') && !path.contains('.'))
                })
            };
            // Files of a crate are named from `crates/`, or from the crate's `src`.
            is_below(file)
                || file.strip_prefix("crates/").is_some_and(is_below)
                || file.match_indices('/').any(|(at, _)| file.get(at + 1..).is_some_and(is_below))
        })
    }

    fn has_word(&self, word: &str) -> bool {
        match word.strip_suffix(['*', '\u{2026}']) {
            Some(beginning) => self.words.iter().any(|known| known.starts_with(beginning)),
            None => {
                self.words.contains(word)
                    || self.words.iter().any(|known| known.starts_with(&format!("{word}_")))
            }
        }
    }

    /// Whether something of this name exists: a path, a command of ours, or each part of `type::function`.
    fn has(&self, root: &Path, name: &str) -> bool {
        let name = name.trim();
        if let Some(command) = name.strip_prefix("cargo xtask ").or_else(|| name.strip_prefix("xtask ")) {
            return command.split_whitespace().next().is_some_and(|word| self.has_word(word));
        }
        if name.contains('/') || name.ends_with(".rs") || name.ends_with(".toml") {
            return self.has_path(name) || root.join(name).exists();
        }
        let parts = name.split([':', '.', '(', ')', '-', ' ', '@', ',']).filter(|part| !part.is_empty());
        parts.into_iter().all(|part| self.has_word(part))
    }
}

/// Enforcers in the table that don't exist, each with its line.
pub(super) fn missing(root: &Path, text: &str, names: &Names) -> Vec<(usize, String)> {
    let rows = text.lines().enumerate().skip_while(|(_, line)| *line != HEADING).skip(1);
    let rows = rows.take_while(|(_, line)| !line.starts_with("## "));
    let mut found = Vec::new();
    for (at, line) in rows.filter(|(_, line)| line.starts_with("| ") && !line.starts_with("|---")) {
        let Some(enforcers) = line.trim_end_matches(['|', ' ']).rsplit('|').next() else { continue };
        // What is quoted as code is a name.
        for name in enforcers.split('`').skip(1).step_by(2) {
            if !names.has(root, name) {
                found.push((at + 1, format!("names `{name}` as an enforcer, and there is no such thing")));
            }
        }
    }
    found
}
