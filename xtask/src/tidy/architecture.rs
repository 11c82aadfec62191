//! ARCHITECTURE.md names who enforces each invariant. What it names exists, or the table is a wish.

use std::collections::BTreeSet;
use std::path::Path;

/// The page with the table.
pub(super) const PAGE: &str = "ARCHITECTURE.md";
const HEADING: &str = "## Invariants";

/// What declares a name that can enforce something.
const KEYWORDS: &[&str] = &["fn", "struct", "enum", "trait", "type", "const", "static", "mod"];
const COMMANDS: &str = "xtask/src/main.rs";
const LINTS: &str = "Cargo.toml";

/// Everything that an enforcer can be, by name.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// What the sources declare: functions, types, variants, constants, modules. And the lints of the workspace.
    declared: BTreeSet<String>,
    /// Words of `cargo xtask`.
    commands: BTreeSet<String>,
    files: Vec<String>,
}

impl Names {
    pub(super) fn add(&mut self, file: &str, text: &str) {
        self.files.push(file.to_owned());
        if file == LINTS {
            let lints = text.lines().filter_map(|line| line.split_once(" = \"deny\""));
            self.declared.extend(lints.map(|(lint, _)| lint.to_owned()));
        }
        if !file.ends_with(".rs") {
            return;
        }
        let mut in_enum = None;
        for line in text.lines() {
            let code = line.split("//").next().unwrap_or_default();
            let words: Vec<&str> = code.split_whitespace().collect();
            let pairs =
                words.iter().zip(words.iter().skip(1)).filter(|(keyword, _)| KEYWORDS.contains(keyword));
            self.declared.extend(pairs.map(|(_, name)| identifier(name).to_owned()));
            let indent = line.len() - line.trim_start().len();
            match in_enum {
                Some(outer) if code.trim() == "}" && indent == outer => in_enum = None,
                // A variant is one step further in than its enum, and begins with a capital.
                Some(outer) if indent == outer + 4 && code.trim_start().starts_with(char::is_uppercase) => {
                    self.declared.insert(identifier(code.trim_start()).to_owned());
                }
                Some(_) => {}
                None if words.contains(&"enum") && code.ends_with('{') => in_enum = Some(indent),
                None => {}
            }
            if file == COMMANDS {
                self.commands.extend(code.split('"').skip(1).step_by(2).map(str::to_owned));
            }
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

    /// A declared name, the beginning of some (`c2_*`), the number of a test (`adv_046`), or a crate.
    fn has_name(&self, word: &str) -> bool {
        let begins = |beginning: &str| self.declared.iter().any(|known| known.starts_with(beginning));
        match word.strip_suffix(['*', '\u{2026}']) {
            Some(beginning) => begins(beginning),
            None if word.strip_prefix("adv_").is_some_and(|number| number.parse::<u16>().is_ok()) => {
                begins(&format!("{word}_"))
            }
            None => self.declared.contains(word) || self.has_path(&format!("crates/{word}/src")),
        }
    }

    /// Whether something of this name exists: a path, a command of ours, or each part of `type::function`.
    fn has(&self, root: &Path, name: &str) -> bool {
        let name = name.trim();
        if let Some(command) = name.strip_prefix("cargo xtask ").or_else(|| name.strip_prefix("xtask ")) {
            let mut words = command.split_whitespace().take_while(|word| !word.starts_with('-')).peekable();
            return words.peek().is_some() && words.all(|word| self.commands.contains(word));
        }
        if name.contains('/') || name.ends_with(".rs") || name.ends_with(".toml") {
            return self.has_path(name) || root.join(name).exists();
        }
        let mut parts = name.split("::").peekable();
        parts.peek().is_some() && parts.all(|part| self.has_name(part))
    }
}

fn identifier(word: &str) -> &str {
    word.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
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
