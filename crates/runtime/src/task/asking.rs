//! What a request asks for: an answer, or a change. A question changes nothing, unless somebody says that it may.
//!
//! The words decide, not a model: whoever writes the files that an agent reads has no part in it.

use regent_kernel::{Changes, Grants};

use super::spec::TaskRecord;

/// How a question begins, and what asks for nothing but an answer.
const ASKS: &[&str] = &[
    "what",
    "what's",
    "which",
    "who",
    "who's",
    "whose",
    "where",
    "where's",
    "when",
    "why",
    "how",
    "is",
    "are",
    "was",
    "were",
    "does",
    "did",
    "has",
    "have",
    "had",
    "can",
    "could",
    "should",
    "would",
    "will",
    "explain",
    "describe",
    "tell",
    "summarize",
    "summarise",
    "compare",
    "count",
    "list",
    "read",
];
/// How a part of a sentence begins that asks for a change, or for running something that may make one.
const CHANGES: &[&str] = &[
    "add",
    "append",
    "apply",
    "build",
    "bump",
    "change",
    "clean",
    "commit",
    "configure",
    "convert",
    "copy",
    "correct",
    "create",
    "delete",
    "deploy",
    "document",
    "download",
    "drop",
    "duplicate",
    "edit",
    "ensure",
    "execute",
    "export",
    "extend",
    "extract",
    "fill",
    "fix",
    "format",
    "generate",
    "implement",
    "import",
    "improve",
    "increase",
    "initialize",
    "insert",
    "install",
    "make",
    "merge",
    "migrate",
    "modify",
    "move",
    "note",
    "optimize",
    "overwrite",
    "patch",
    "port",
    "prepend",
    "publish",
    "push",
    "put",
    "record",
    "reduce",
    "refactor",
    "remember",
    "remove",
    "rename",
    "reorder",
    "repair",
    "replace",
    "reset",
    "resolve",
    "restore",
    "reverse",
    "revert",
    "rewrite",
    "run",
    "save",
    "scaffold",
    "set",
    "sort",
    "split",
    "start",
    "stop",
    "store",
    "swap",
    "test",
    "translate",
    "truncate",
    "turn",
    "undo",
    "uninstall",
    "update",
    "upgrade",
    "use",
    "write",
];
/// Words before the one that counts.
const FILLERS: &[&str] = &[
    "please", "also", "just", "now", "ok", "okay", "so", "but", "you", "can", "could", "would", "will",
    "about", "how",
];
/// Words that part a sentence.
const JOINTS: &[&str] = &["and", "then"];
/// Where an answer is to go into a file, it is a change.
const TARGET: &str = "into";

/// Words for running something: it may change something, and need not.
const RUNS: &[&str] =
    &["run", "test", "build", "execute", "start", "stop", "use", "note", "remember", "record"];

/// Whether a request is a question and nothing else: it begins like one, or ends like one, and no part of it asks for a change.
pub fn is_question(request: &str) -> bool {
    let own = own_words(request);
    let text = own.trim();
    let (clauses, is_filler) = (clauses(text), |word: &String| FILLERS.contains(&word.as_str()));
    let mut words = clauses.iter().flatten();
    let first = words.find(|word| !is_filler(word) || asks(word));
    let begins = |clause: &Vec<String>| leading(clause).is_some_and(|word| CHANGES.contains(&word));
    if clauses.iter().any(begins) || clauses.iter().flatten().any(|word| word == TARGET) {
        return false;
    }
    text.ends_with('?') || first.is_some_and(|word| asks(word))
}

/// Whether some part of a request asks for a change outright.
pub(crate) fn asks_for_change(request: &str) -> bool {
    let changes = |word: &str| CHANGES.contains(&word) && !RUNS.contains(&word);
    clauses(&own_words(request)).iter().any(|clause| leading(clause).is_some_and(changes))
}

/// A request without what it quotes, and without notes in brackets.
fn own_words(request: &str) -> String {
    let is_note = |line: &str| line.starts_with('[') && line.ends_with(']');
    let own = request.lines().filter(|line| !line.trim_start().starts_with('>') && !is_note(line.trim()));
    own.collect::<Vec<_>>().join("\n")
}

/// The words of each part of a request, in lower case.
fn clauses(request: &str) -> Vec<Vec<String>> {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '\'' | '/' | '.' | '_' | '-');
    let mut clauses = Vec::new();
    for sentence in request.split(['!', '?', ';', ',', ':', '\n']).flat_map(|part| part.split(". ")) {
        let words: Vec<String> = sentence
            .split(|c: char| !is_word(c))
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect();
        let parts = words.split(|word| JOINTS.contains(&word.as_str()));
        clauses.extend(parts.filter(|part| !part.is_empty()).map(<[String]>::to_vec));
    }
    clauses
}

/// The word that a part of a request begins with.
fn leading(clause: &[String]) -> Option<&str> {
    clause.iter().map(String::as_str).find(|word| !FILLERS.contains(word))
}

fn asks(word: &str) -> bool {
    ASKS.contains(&word)
}

impl TaskRecord {
    /// From which turn on which changes may be made: the goal's, then those of each later message.
    pub(crate) fn changes(&self) -> Vec<(u32, Changes)> {
        let of = |request: &str| match self.spec.changes {
            Some(changes) => changes,
            None if is_question(request) => Changes::Denied,
            None => Changes::Allowed,
        };
        let later = self.said.iter().map(|said| (said.turn, of(&said.text)));
        std::iter::once((1, of(&self.spec.goal))).chain(later).collect()
    }

    /// Whether nothing may be changed for the last request.
    pub(crate) fn reads_only(&self) -> bool {
        self.changes().last().is_some_and(|(_, changes)| *changes == Changes::Denied)
    }

    /// What its agent is granted while it works on the last request.
    pub(crate) fn grants(&self) -> Grants {
        let changes = self.changes().last().map_or(Changes::Allowed, |(_, changes)| *changes);
        // Tools that somebody chose are all that it gets. What is offered by default is a matter of policy.
        let tools = self.spec.tools.as_ref().map(|_| self.tools.keys().cloned().collect());
        Grants { tools, changes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_requests_are_told_apart() {
        let questions = [
            "What is the capital of Freedonia? The file notes.txt says it.",
            "Which port is set in server.toml?",
            "Read project.json and tell me who the owner is.",
            "How many lines of app.log contain the word ERROR?",
            "who is on call?",
            "Explain how the parser works",
            "and why is that?",
            "the port of the server?",
            "please list all files in box",
            "How do I fix the typo in notes.txt?",
            "[I have restored the files.]\n> Rename a.txt\n\nwhy did you do that?",
            "which tests use port 80, and what do they set it to?",
        ];
        for question in questions {
            assert!(is_question(question), "{question}");
        }
        let requests = [
            "Write a summary of README.md into SUMMARY.md",
            "Can you fix the typo in notes.txt?",
            "What is wrong with the tests? Fix it.",
            "rename a.txt to b.txt",
            "Count the errors and put the number into count.txt",
            "How about you delete old.log?",
            "go on",
            "do it",
            "Name the variable better in a.c",
            "Review and tidy up a.c",
            "Find and kill all leftovers",
            "Say hello in hello.txt",
            "Show all prices with two decimals in prices.txt",
            "> what is it?\n\nfix it",
            "",
            "Put 5 into x",
            "Read a.txt, then write b.txt",
            "Could you please also rename it?",
            "List the names in a.txt into b.txt",
            "What's in a.txt? and delete b.txt",
        ];
        for request in requests {
            assert!(!is_question(request), "{request}");
        }
    }
}
