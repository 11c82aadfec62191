//! Whether an answer is borne out by what was done. A model may say that it did what it didn't do; the ledger knows better.
//!
//! Nothing is judged that takes understanding: only whether a request for a change led to one, whether the last change went well, and
//! whether the files that it names are there. So a task that passes isn't right for certain, and one that doesn't deserves a look.

use super::asking::asks_for_change;

/// A call of a tool, as far as this needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Deed {
    pub(crate) tool: String,
    /// With what, without the content of files.
    pub(crate) args: String,
    pub(crate) kind: DeedKind,
    pub(crate) went_well: bool,
    /// A person denied it.
    pub(crate) is_denied: bool,
}

/// What a tool may do to files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeedKind {
    /// Nothing.
    Looks,
    /// It changes those that it names.
    Changes,
    /// It may take away those that it names.
    Removes,
    /// Anything.
    Program,
}

impl Deed {
    fn may_change(&self) -> bool {
        self.kind != DeedKind::Looks
    }

    fn may_remove(&self) -> bool {
        matches!(self.kind, DeedKind::Removes | DeedKind::Program)
    }
}

/// Why the answer to a request isn't borne out by the calls that were made for it; nothing if nothing speaks against it. Where nothing may be
/// changed, an answer is all that is wanted. `exists` is about words that look like files; none if one is something else.
pub(crate) fn doubt(
    request: &str,
    reads_only: bool,
    deeds: &[Deed],
    exists: impl Fn(&str) -> Option<bool>,
) -> Option<String> {
    // Whoever denied a call knows that it wasn't made.
    if deeds.iter().any(|deed| deed.is_denied) {
        return None;
    }
    let changes: Vec<&Deed> = deeds.iter().filter(|deed| deed.may_change()).collect();
    // A program that ends with an error has often done what it was to do: a test that fails, a search without a match.
    let mut edits = changes.iter().filter(|deed| deed.kind != DeedKind::Program);
    if let Some(last) = edits.next_back().filter(|last| !last.went_well && !reads_only) {
        return Some(format!("its last change failed: `{}`", last.tool));
    }
    if !deeds.is_empty() && deeds.iter().all(|deed| !deed.went_well && deed.kind != DeedKind::Program) {
        return Some("none of its calls succeeded".to_owned());
    }
    if reads_only {
        return None;
    }
    let done: Vec<&Deed> = changes.into_iter().filter(|deed| deed.went_well).collect();
    if !asks_for_change(request) {
        return None;
    }
    if done.is_empty() {
        return Some("it changed nothing, though a change was asked for".to_owned());
    }
    let mut named = files_in(request);
    named.retain(|name| exists(name).is_some());
    let may_be_gone = |name: &str| done.iter().any(|deed| deed.may_remove() && deed.args.contains(name));
    if let Some(missing) = named.iter().find(|name| !may_be_gone(name) && exists(name) == Some(false)) {
        return Some(format!("`{missing}` doesn't exist"));
    }
    let touches = |deed: &&Deed| {
        deed.kind == DeedKind::Program || named.iter().any(|name| deed.args.contains(name.as_str()))
    };
    if !named.is_empty() && !done.iter().any(touches) {
        return Some(format!("it changed none of the files that were named: {}", named.join(", ")));
    }
    None
}

/// The words that are names of files: with an extension of letters, or with a slash between words.
fn files_in(request: &str) -> Vec<String> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    let words = request.split(|c: char| !is_part(c)).map(|word| word.trim_matches(['.', '/', '-']));
    let is_file = |word: &&str| {
        word.rsplit_once('.').is_some_and(|(stem, extension)| {
            let plain = |c: char| c.is_ascii_alphanumeric();
            let letters = extension.chars().any(|c| c.is_ascii_alphabetic());
            // Not `e.g.`.
            stem.len() + extension.len() > 2
                && !stem.is_empty()
                && (1..=5).contains(&extension.len())
                && extension.chars().all(plain)
                && letters
        })
    };
    words.filter(is_file).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::super::asking::is_question;
    use super::*;

    fn deed(tool: &str, args: &str, kind: DeedKind, went_well: bool) -> Deed {
        Deed { tool: tool.to_owned(), args: args.to_owned(), kind, went_well, is_denied: false }
    }

    #[test]
    fn what_was_done_decides_whether_an_answer_stands() {
        use DeedKind::{Changes, Looks, Program, Removes};
        let write =
            |path: &str, well: bool| deed("fs.write", &format!("{{\"path\":\"{path}\"}}"), Changes, well);
        let edit =
            |path: &str, well: bool| deed("fs.edit", &format!("{{\"path\":\"{path}\"}}"), Changes, well);
        let read = |well: bool| deed("fs.read", "{\"path\":\"a.txt\"}", Looks, well);
        let moved = deed("fs.move", "{\"from\":\"a.txt\",\"to\":\"b.txt\"}", Removes, true);
        let shell = |well: bool| deed("shell.exec", "{\"command\":\"true\"}", Program, well);
        let there = ["a.txt", "notes.md"];
        let cases: &[(&str, Vec<Deed>, Option<&str>)] = &[
            ("What is in a.txt?", vec![read(true)], None),
            ("What is in a.txt?", vec![], None),
            ("What is in a.txt?", vec![read(false)], Some("none of its calls")),
            ("What is in a.txt?", vec![read(false), read(true)], None),
            ("Change a.txt", vec![read(true)], Some("changed nothing")),
            ("Change a.txt", vec![], Some("changed nothing")),
            ("Change a.txt", vec![write("a.txt", true)], None),
            ("Change a.txt", vec![write("a.txt", true), edit("a.txt", false)], Some("last change failed")),
            ("Change a.txt", vec![edit("a.txt", false), edit("a.txt", true)], None),
            ("Change a.txt", vec![write("b.txt", true)], Some("none of the files that were named")),
            ("Create new.txt", vec![write("a.txt", true)], Some("`new.txt` doesn't exist")),
            ("Rename a.txt to b.txt", vec![moved.clone()], None),
            ("Fix the bug in a.txt", vec![shell(true)], None),
            ("Write hello into new.txt", vec![shell(true)], Some("`new.txt` doesn't exist")),
            ("Change a.txt with fs.edit", vec![edit("a.txt", true)], None),
            ("Check the style of a.txt", vec![read(true)], None),
            ("go on", vec![read(true)], None),
            ("go on", vec![shell(false), read(true)], None),
            ("Test it", vec![shell(false)], None),
            ("Change a.txt", vec![Deed { is_denied: true, ..write("a.txt", false) }], None),
            ("go on", vec![edit("a.txt", false), read(true)], Some("last change failed")),
            ("Change a.txt", vec![write("a.txt", true), shell(false)], None),
        ];
        for (request, deeds, wanted) in cases {
            let found = doubt(request, is_question(request), deeds, |name| {
                (name != "fs.edit").then(|| there.contains(&name))
            });
            match wanted {
                None => assert_eq!(found, None, "{request} {deeds:?}"),
                Some(part) => assert!(
                    found.as_ref().is_some_and(|why| why.contains(part)),
                    "{request} {deeds:?}: {found:?}"
                ),
            }
        }
    }

    #[test]
    fn names_of_files_are_found_in_a_request() {
        let request =
            "Bump 0.4.1 to 0.5.0 in Cargo.toml, then e.g. copy docs/a.md. into ./out/b_c-d.json (v1.2).";
        assert_eq!(files_in(request), ["Cargo.toml", "docs/a.md", "out/b_c-d.json"]);
    }
}
