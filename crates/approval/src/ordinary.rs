//! Commands of ordinary work: what a person who lets an agent work on files expects it to run without a word.
//!
//! What a program can reach is confined by the sandbox, not here. This only tells the commands that nobody needs to look at from those
//! that undo work, reach for other machines or say what they do in a language of their own.

use std::sync::LazyLock;

use crate::shell::ShellLine;

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
    runs_file: bool,
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
        let runs_file = words.pop_if(|last| *last == "FILE").is_some();
        Some(Self { words, is_whole, runs_file, refused: refused.split_ascii_whitespace().collect() })
    }

    /// What follows the words of this line, if the command begins with them and has nothing that makes it something else.
    fn rest<'w>(&self, program: &str, words: &'w [String]) -> Option<&'w [String]> {
        let (first, following) = self.words.split_first()?;
        let (given, rest) = words.split_at_checked(following.len())?;
        let is_refused = |word: &String| {
            // `-ofile` is `-o file`, and `--output=file` is `--output file`; a long option may be cut short.
            self.refused.iter().any(|option| match option.strip_prefix("--") {
                Some(_) => word.len() > 2 && option.starts_with(word.split('=').next().unwrap_or_default()),
                None if option.len() == 2 => is_short(word, option),
                None => word == option,
            })
        };
        let fits = *first == program
            && given.iter().zip(following).all(|(given, word)| given == word)
            && (!self.is_whole || rest.is_empty())
            && !rest.iter().any(is_refused);
        fits.then_some(rest)
    }
}

/// Whether a word has a short option, be it among others: `-ro` has `-o`.
fn is_short(word: &str, option: &str) -> bool {
    word.starts_with('-')
        && !word.starts_with("--")
        && option.chars().nth(1).is_some_and(|c| word.contains(c))
}

/// The files of the workspace that an ordinary command runs by name, as it names them. `None`: it is none of ordinary work.
pub fn ordinary(argv: &[String]) -> Option<Vec<String>> {
    let (program, words) = argv.split_first()?;
    let name = name_of(program);
    if let (Some(name), [option, line]) = (name, words)
        && SHELLS.contains(&name)
        && option == "-c"
    {
        return ordinary_line(line);
    }
    ordinary_command(argv)
}

fn ordinary_line(text: &str) -> Option<Vec<String>> {
    let line = ShellLine::read(text);
    // A pattern makes names of files, and nothing else.
    let has_patterns = line.expands;
    let without = || ShellLine::read(&text.replace(['*', '?', '[', ']'], "x"));
    let is_readable = text.len() <= LINE_BYTES_MAX
        && !line.writes
        && !line.is_prefixed
        && !line.commands.is_empty()
        && (!has_patterns || !without().expands);
    if !is_readable {
        return None;
    }
    let mut files = Vec::new();
    for command in &line.commands {
        // A file could have the name of an option.
        if has_patterns && command.first().is_some_and(|program| has_refused_options(program)) {
            return None;
        }
        files.extend(ordinary_command(command)?);
    }
    // What was written by one of them is not what a person has seen.
    (files.is_empty() || line.commands.iter().filter(|command| !is_cd(command)).count() == 1).then_some(files)
}

fn is_cd(command: &[String]) -> bool {
    command.first().is_some_and(|word| word == "cd")
}

fn has_refused_options(program: &str) -> bool {
    TABLE.iter().any(|entry| entry.words.first() == Some(&program) && !entry.refused.is_empty())
}

fn ordinary_command(argv: &[String]) -> Option<Vec<String>> {
    let (program, words) = argv.split_first()?;
    let Some(name) = name_of(program) else {
        // A program of the workspace is a file that runs.
        let is_inside = !program.starts_with('/') && !program.starts_with('~');
        return is_inside.then(|| vec![program.clone()]);
    };
    if name == "sed" {
        return prints_lines(words).then(Vec::new);
    }
    let name = if name.starts_with("python") { "python" } else { name };
    let found = TABLE.iter().find_map(|entry| Some((entry, entry.rest(name, words)?)));
    match found {
        Some((entry, rest)) if entry.runs_file => {
            let file = rest.first().filter(|file| !file.starts_with(['-', '+']) && !file.is_empty())?;
            Some(vec![file.clone()])
        }
        Some(_) => Some(Vec::new()),
        None => None,
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

    fn line(text: &str) -> Option<Vec<String>> {
        ordinary(&["/bin/sh".to_owned(), "-c".to_owned(), text.to_owned()])
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
            assert_eq!(line(text), Some(Vec::new()), "{text}");
        }
        assert_eq!(line("cd app && python3 main.py --help"), Some(vec!["main.py".to_owned()]));
        assert_eq!(line("./run.sh now"), Some(vec!["./run.sh".to_owned()]));
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
        ] {
            assert_eq!(line(text), None, "{text}");
        }
        assert_eq!(ordinary(&[]), None);
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(ordinary(&words(&["bash", "-c", "rm x"])), None);
        assert_eq!(ordinary(&words(&["/usr/bin/ls", "-l"])), Some(Vec::new()));
        assert_eq!(ordinary(&words(&["ls", "$(rm x)"])), Some(Vec::new()), "no shell reads this");
    }
}
