//! Commands of ordinary work, which an agent that works on files is expected to run without a question.
//!
//! What a program can reach is confined by the sandbox, not here. This only separates the commands that need no review from those
//! that undo work, reach for other machines or say what they do in a language of their own.

use std::sync::LazyLock;

use crate::command::shell::ShellLine;

/// Where programs of the system lie.
const SYSTEM_FOLDERS: &[&str] = &["/bin/", "/usr/bin/", "/usr/local/bin/"];
const SHELLS: &[&str] = &["sh", "bash", "dash"];
/// Longer lines are programs.
const LINE_BYTES_MAX: usize = 4096;

static TABLE: LazyLock<Vec<Entry>> =
    LazyLock::new(|| include_str!("ordinary.txt").lines().filter_map(Entry::read).collect());

/// A line of the table.
#[derive(Debug)]
struct Entry {
    words: Vec<&'static str>,
    /// Nothing may follow.
    is_whole: bool,
    refused: Vec<&'static str>,
}

impl Entry {
    fn read(line: &'static str) -> Option<Self> {
        let (words, refused) = line.split_once(" ! ").unwrap_or((line, ""));
        let mut words: Vec<&str> = words.split_ascii_whitespace().collect();
        if words.first().is_none_or(|first| first.starts_with('#')) {
            return None;
        }
        let is_whole = words.pop_if(|last| *last == "$").is_some();
        Some(Self { words, is_whole, refused: refused.split_ascii_whitespace().collect() })
    }

    /// Whether the command begins with the words of this line, and has nothing that makes it something else.
    fn fits(&self, program: &str, words: &[String]) -> bool {
        let Some((first, following)) = self.words.split_first() else { return false };
        let Some((given, rest)) = words.split_at_checked(following.len()) else { return false };
        let is_refused = |word: &String| {
            // `-ofile` is `-o file`, and `--output=file` is `--output file`; a long option may be cut short.
            self.refused.iter().any(|option| match option.strip_prefix("--") {
                Some(_) => word.len() > 2 && option.starts_with(word.split('=').next().unwrap_or_default()),
                None if option.len() == 2 => is_short(word, option),
                // `-exec x`, `-exec=x` and `--exec x` are the same to many programs.
                None => {
                    let name = word.trim_start_matches('-').split('=').next();
                    word.starts_with('-') && name == option.strip_prefix('-')
                }
            })
        };
        *first == program
            && given.iter().zip(following).all(|(given, word)| given == word)
            && (!self.is_whole || rest.is_empty())
            && !rest.iter().any(is_refused)
    }
}

/// Whether a word has a short option, be it among others: `-ro` has `-o`.
fn is_short(word: &str, option: &str) -> bool {
    word.starts_with('-')
        && !word.starts_with("--")
        && option.chars().nth(1).is_some_and(|c| word.contains(c))
}

/// Whether a command is one of ordinary work.
pub(crate) fn is_ordinary(argv: &[String]) -> bool {
    let Some((program, words)) = argv.split_first() else { return false };
    match (name_of(program), words) {
        (Some(name), [option, line]) if SHELLS.contains(&name) && option == "-c" => is_ordinary_line(line),
        (Some(_) | None, _) => is_ordinary_command(argv),
    }
}

fn is_ordinary_line(text: &str) -> bool {
    let line = ShellLine::read(text);
    // A pattern makes names of files, and nothing else.
    let has_patterns = line.expands;
    let without = || ShellLine::read(&text.replace(['*', '?', '[', ']'], "x"));
    // Some programs expand what a shell has left as it is.
    let is_code = |word: &String| ["$(", "${", "$[", "`"].iter().any(|code| word.contains(code));
    // A file could have the name of an option.
    let may_have_options = |command: &Vec<String>| {
        has_patterns && command.first().is_some_and(|program| has_refused_options(program))
    };
    text.len() <= LINE_BYTES_MAX
        && !line.writes
        && !line.is_prefixed
        && !line.commands.is_empty()
        && !line.words.iter().any(is_code)
        && (!has_patterns || !without().expands)
        && line.commands.iter().all(|command| is_ordinary_command(command) && !may_have_options(command))
}

fn has_refused_options(program: &str) -> bool {
    let name = name_of(program).unwrap_or(program);
    TABLE.iter().any(|entry| entry.words.first() == Some(&name) && !entry.refused.is_empty())
}

fn is_ordinary_command(argv: &[String]) -> bool {
    let Some((program, words)) = argv.split_first() else { return false };
    match name_of(program) {
        // A program of the workspace may be anything.
        None => false,
        Some("sed") => prints_lines(words),
        // What git keeps is for git to write.
        Some("cp" | "mkdir" | "touch") if words.iter().any(|word| word.contains(".git")) => false,
        Some(name) => {
            let name = if name.starts_with("python") { "python" } else { name };
            TABLE.iter().any(|entry| entry.fits(name, words))
        }
    }
}

/// `sed -n 3,5p file`: lines of a file. Anything else sed does is a program.
fn prints_lines(words: &[String]) -> bool {
    let [option, script, files @ ..] = words else { return false };
    let lines = script.strip_suffix('p').unwrap_or_default();
    option == "-n"
        && !lines.is_empty()
        && lines.chars().all(|c| c.is_ascii_digit() || ",$".contains(c))
        && !files.iter().any(|file| file.starts_with('-'))
}

/// The name of a program of the system. `None` for a path elsewhere.
fn name_of(program: &str) -> Option<&str> {
    let name = SYSTEM_FOLDERS.iter().find_map(|folder| program.strip_prefix(folder)).unwrap_or(program);
    (!name.contains('/') && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> bool {
        is_ordinary(&["/bin/sh".to_owned(), "-c".to_owned(), text.to_owned()])
    }

    #[test]
    fn ordinary_work_needs_no_question() {
        for text in [
            "ls -la",
            "cat src/main.rs | head -20",
            "cd sub && cargo test --workspace 2>&1 | tail -5",
            "python3 -m pytest -q tests/test_a.py",
            "grep -rn \"fn main\" src",
            "grep -n main *.py",
            "sed -n 10,20p src/lib.rs",
            "find . -name '*.rs'",
            "git status && git diff",
            "git commit -m 'Fix the parser'",
            "make test",
            "mkdir -p src/parser",
            "pytest > /dev/null",
        ] {
            assert!(line(text), "{text}");
        }
    }

    #[test]
    fn all_else_is_asked_about() {
        for text in [
            "",
            "rm -rf ./*",
            "mv a b",
            "curl https://evil.test",
            "git push",
            "git commit --amend -m x",
            "git commit --am",
            "git -c core.pager=x log",
            "git log --output=Makefile",
            "git branch -D main",
            "git config core.fsmonitor x",
            "find . -delete",
            "find . -exec sh {} +",
            "find *",
            "sort -ro Makefile x",
            "sort --outp=Makefile x",
            "python3 -c 'import os'",
            "python3 -",
            "sh -s",
            "make deploy",
            "make -f x.mk",
            "npm install evil",
            "npm run deploy",
            "echo x > Makefile",
            "PATH=. ls",
            "LD_PRELOAD=./x.so ls",
            "if true; then ls; fi",
            "ls; cat $(cat name)",
            "ls `cat name`",
            "cat <<END",
            "cp a run.py && python3 run.py",
            "base64 -d x | sh",
            "xargs rm",
            "env ls",
            "sed -n '1e rm' x",
            "sed -i s/a/b/ x",
            "/tmp/ls",
            "~/ls",
            "bash -c 'rm x'",
            "../../../bin/rm -rf src",
            "../../bin/sh -c x",
            "sh ../../x.sh",
            "python3 main.py",
            "./run.sh now",
            "sh cleanup.sh",
            "cd app && python3 main.py",
            "python3 ev*.py",
            "./ev?l.sh",
            "(cd app); python3 evil.py",
            "cd app; python3 evil.py",
            "cd app || python3 evil.py",
            "cd ../x && python3 evil.py",
            "cd app && ls && python3 evil.py",
            "printf -v 'a[$(rm x)]' x",
            "test -v 'a[$(rm x)]'",
            "[ -v x ]",
            "grep '`rm x`' y",
            "gcc -wrapper sh,-c,x -c x.c",
            "gcc -fplugin=./x.so x.c",
            "cmake -E rm -rf src",
            "git branch --list --no-list -D main",
            "go test -exec=./evil.sh",
            "go test --exec ./evil.sh",
            "go build -toolexec=./x",
            "/usr/bin/find ../d *",
            "ninja deploy",
            "tox exec -- rm x",
            "cp r.txt .git/refs/heads/main",
        ] {
            assert!(!line(text), "{text}");
        }
        assert!(!is_ordinary(&[]));
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert!(!is_ordinary(&words(&["bash", "-c", "rm x"])));
        assert!(is_ordinary(&words(&["/usr/bin/ls", "-l"])));
        assert!(is_ordinary(&words(&["ls", "$(rm x)"])), "no shell reads this");
    }
}
