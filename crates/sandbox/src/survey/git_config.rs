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

/// A word of a value that may name a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConfigWord {
    pub text: String,
    /// Put together from what a shell would make of the value: it means something only if there is such a file.
    pub is_guess: bool,
}

/// The words of a value that may name a file.
pub(super) fn words(setting: &Setting) -> Vec<ConfigWord> {
    let value = setting.value.as_str();
    match setting.used_as {
        Use::Path | Use::Include => vec![ConfigWord { text: value.to_owned(), is_guess: false }],
        Use::Command => {
            let mut words: Vec<ConfigWord> = plain_words(value)
                .map(|(_, word)| ConfigWord { text: word.to_owned(), is_guess: false })
                .collect();
            let guesses: Vec<String> = quoted(value).chain(after_expansions(value)).collect();
            let folders = changed_to(value);
            let below = folders.iter().flat_map(|folder| {
                let words = words.iter().map(|word| &word.text).chain(&guesses);
                words.map(move |word| format!("{folder}/{word}"))
            });
            let below: Vec<String> = below.collect();
            words.extend(guesses.into_iter().chain(below).map(|text| ConfigWord { text, is_guess: true }));
            words
        }
    }
}

/// Words between white space and what means something to a shell, each with the character before it.
fn plain_words(value: &str) -> impl Iterator<Item = (Option<char>, &str)> {
    let breaks = |c: char| c.is_whitespace() || "!'\"`;&|<>(){}$=,".contains(c);
    let words = value.split(breaks).filter(|word| !matches!(*word, "" | "." | ".." | "/"));
    words.map(move |word| {
        let at = word.as_ptr().addr() - value.as_ptr().addr();
        (value.get(..at).and_then(|before| before.chars().next_back()), word)
    })
}

/// What stands in quotes, white space and all.
fn quoted(value: &str) -> impl Iterator<Item = String> {
    let inside = |quote: char| value.split(quote).skip(1).step_by(2).map(str::trim).map(str::to_owned);
    inside('\'').chain(inside('"')).filter(|text| text.contains(char::is_whitespace))
}

/// What follows a variable or the output of a command (`$HOME/x`, `$(git rev-parse --show-toplevel)/x`): it may be the home folder or the
/// root of the working tree.
fn after_expansions(value: &str) -> impl Iterator<Item = String> {
    let rest = plain_words(value).filter_map(|(before, word)| {
        let (name, rest) = word.split_once('/')?;
        let follows = match before? {
            '$' => true,
            ')' | '}' | '`' | '"' | '\'' => name.is_empty(),
            _ => false,
        };
        Some(rest.trim_start_matches('/')).filter(|rest| follows && !rest.is_empty())
    });
    rest.flat_map(|rest| [rest.to_owned(), format!("~/{rest}")])
}

/// The folders that a command line changes to.
fn changed_to(value: &str) -> Vec<String> {
    let words: Vec<&str> = plain_words(value).map(|(_, word)| word).collect();
    let pairs = words.windows(2).filter_map(|pair| match pair {
        ["cd" | "-C", folder] => Some((*folder).to_owned()),
        _ => None,
    });
    pairs.collect()
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
        assert_eq!(texts(&alias), ["sh", "tools/st.sh", "x"]);
    }

    fn texts(setting: &Setting) -> Vec<String> {
        words(setting).into_iter().map(|word| word.text).collect()
    }

    #[test]
    fn words_that_a_shell_would_put_together_are_found() {
        let has = |value: &str, word: &str| {
            let setting = Setting { value: value.to_owned(), used_as: Use::Command, is_root: false };
            assert!(texts(&setting).iter().any(|text| text == word), "{value}: {:?}", texts(&setting));
        };
        has("\"$HOME/p/fsm.sh\"", "~/p/fsm.sh");
        has("${HOME}/p/fsm.sh", "~/p/fsm.sh");
        has("!$(git rev-parse --show-toplevel)/scripts/st.sh", "scripts/st.sh");
        has("!cd scripts && ./x.sh", "scripts/./x.sh");
        has("!git -C tools ls && sh y.sh", "tools/y.sh");
        has("!'my tools/y.sh' a", "my tools/y.sh");
        has("!~/p/x.sh", "~/p/x.sh");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_parsed_to_its_end(text in "(\\[|\\]|=|\"|\\\\|\n|#|\\PC){0,60}") {
            settings(&text).iter().for_each(|setting| drop(words(setting)));
        }
    }
}
