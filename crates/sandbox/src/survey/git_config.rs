//! What a repository's configuration names: programs that git runs, and files that it takes further settings from.
//!
//! Every value counts, except those of a few keys that never name a file: a key that a later git adds is looked at before anybody
//! knows of it.

/// How a setting uses its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// It is the path of a file or folder.
    Path,
    /// The same, and the file holds further settings.
    Include,
    /// It may be a command line. Each word may name a file.
    Command,
}

/// One value of a configuration file that may name a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub value: String,
    pub used_as: Use,
    /// The root of the working tree (`core.worktree`).
    pub is_root: bool,
}

const HARMLESS_SECTIONS: &[&str] = &["user", "author", "committer", "branch", "color", "extensions"];
const HARMLESS_KEYS: &[&str] =
    &["url", "pushurl", "fetch", "push", "active", "path", "branch", "merge", "tagopt"];
const PATH_KEYS: &[&str] =
    &["hookspath", "attributesfile", "templatedir", "template", "allowedsignersfile", "worktree"];

/// The words of a value that may name a file.
pub(super) fn words(setting: &Setting) -> Vec<&str> {
    match setting.used_as {
        Use::Path | Use::Include => vec![setting.value.as_str()],
        Use::Command => {
            let breaks = |c: char| c.is_whitespace() || "!'\"`;&|<>(){}$=,".contains(c);
            setting.value.split(breaks).filter(|word| !matches!(*word, "" | "." | ".." | "/")).collect()
        }
    }
}

/// Every setting of a configuration file. What git could not parse either is skipped.
pub(super) fn settings(text: &str) -> Vec<Setting> {
    let (mut list, mut section, mut rest) = (Vec::new(), String::new(), text);
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else { return list };
        if matches!(first, '#' | ';') {
            rest = rest.find('\n').and_then(|end| rest.get(end..)).unwrap_or_default();
        } else if first == '[' {
            let end = header_end(rest);
            let header = rest.get(1..end).unwrap_or_default();
            section = header
                .split(|c: char| c.is_whitespace() || matches!(c, '.' | '"'))
                .next()
                .unwrap_or_default()
                .to_ascii_lowercase();
            rest = rest.get(end + 1..).unwrap_or_default();
        } else {
            let end = rest.find(['=', '\n']).unwrap_or(rest.len());
            let key = rest.get(..end).unwrap_or_default().trim().to_ascii_lowercase();
            rest = rest.get(end..).unwrap_or_default();
            let Some(after) = rest.strip_prefix('=') else { continue };
            let (value, left) = value(after);
            rest = left;
            list.extend(setting(&section, &key, value));
        }
    }
}

fn setting(section: &str, key: &str, value: String) -> Option<Setting> {
    let used_as = match (section, key) {
        ("include" | "includeif", "path") => Use::Include,
        (section, _) if HARMLESS_SECTIONS.contains(&section) => return None,
        ("remote" | "submodule" | "url", key) if HARMLESS_KEYS.contains(&key) => return None,
        (_, key) if PATH_KEYS.contains(&key) => Use::Path,
        _ => Use::Command,
    };
    Some(Setting { value, used_as, is_root: (section, key) == ("core", "worktree") })
}

/// Where the `]` of a section header is. A quoted part may contain one.
fn header_end(text: &str) -> usize {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ']' | '\n' if !quoted => return at,
            _ => {}
        }
    }
    text.len()
}

/// A value, unquoted, and what comes after its line.
fn value(text: &str) -> (String, &str) {
    let (mut value, mut quoted, mut escaped) = (String::new(), false, false);
    for (at, c) in text.char_indices() {
        match c {
            '\n' if escaped => escaped = false,
            'n' | 't' | 'b' if escaped => {
                value.push(' ');
                escaped = false;
            }
            '\r' if escaped => {}
            _ if escaped => {
                value.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            '\n' => return (value.trim().to_owned(), text.get(at..).unwrap_or_default()),
            '#' | ';' if !quoted => {
                let rest = text.get(at..).unwrap_or_default();
                let end = rest.find('\n').unwrap_or(rest.len());
                return (value.trim().to_owned(), rest.get(end..).unwrap_or_default());
            }
            _ => value.push(c),
        }
    }
    (value.trim().to_owned(), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_may_name_files_are_found_in_every_notation() {
        let text = "# c\n[core] hooksPath = \"a b\" ; c\n\tfsmonitor=./x.sh --flag\n[remote \"o]\"]\n url = ../o\n uploadpack = up\n\
            [alias]\r\n  st = !sh 'tools/st.sh' \\\n  more # c\r\n[include]path=inc\n[user]\nname = src\n[Hook \"h\"]\nCommand = run/it\nbool\n";
        let found: Vec<(String, Use)> =
            settings(text).into_iter().map(|one| (one.value, one.used_as)).collect();
        let is = |value: &str, used_as| (value.to_owned(), used_as);
        assert_eq!(
            found,
            [
                is("a b", Use::Path),
                is("./x.sh --flag", Use::Command),
                is("up", Use::Command),
                is("!sh 'tools/st.sh'   more", Use::Command),
                is("inc", Use::Include),
                is("run/it", Use::Command),
            ]
        );
        let alias =
            Setting { value: "!sh 'tools/st.sh' . && x".to_owned(), used_as: Use::Command, is_root: false };
        assert_eq!(words(&alias), ["sh", "tools/st.sh", "x"]);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_parsed_to_its_end(text in "(\\[|\\]|=|\"|\\\\|\n|#|\\PC){0,60}") {
            settings(&text);
        }
    }
}
