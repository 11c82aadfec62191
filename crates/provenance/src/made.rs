//! Ids that calls of this session created. An id belongs to one kind of thing: id 27 of an event doesn't name a mail.

use std::collections::{BTreeSet, HashMap};

use crate::intent::{self, LEXICON};
use crate::whole;

/// Maximum number of ids.
const IDS_MAX: usize = 10_000;
#[derive(Debug, Default)]
pub(crate) struct CreatedIds(HashMap<String, BTreeSet<String>>);

impl CreatedIds {
    /// Records an id from a field of a tool's output.
    pub(crate) fn add(&mut self, tool: &str, path: &str, id: &str) {
        if self.0.len() < IDS_MAX && !id.trim().is_empty() {
            self.0.entry(whole::fold(id)).or_default().extend(kinds(tool).chain(kinds(path)));
        }
    }

    /// Whether an id belongs to the kind of thing that a tool's parameter names.
    pub(crate) fn is_of(&self, id: &str, tool: &str, parameter: &str) -> bool {
        let Some(made) = self.0.get(&whole::fold(id)) else { return false };
        // `event_id` names its kind; for a plain `id`, the tool's name does.
        let named = if kinds(parameter).next().is_none() { tool } else { parameter };
        kinds(named).any(|kind| made.contains(&kind))
    }
}

/// Whether a field, or the last part of a path, contains ids.
pub(crate) fn is_id(path: &str) -> bool {
    let last = path.rsplit(['.', ']']).next().unwrap_or_default();
    matches!(last, "id" | "id_" | "uuid") || last.ends_with("_id")
}

/// The parts of a name that state a kind, in the singular.
pub(crate) fn kinds(name: &str) -> impl Iterator<Item = String> {
    let says_something = |part: &String| part.len() > 1 && !LEXICON.names("generic", part);
    intent::parts(name).into_iter().filter(says_something).map(|part| singular(&part).to_owned())
}

/// A word without its plural ending.
pub(crate) fn singular(word: &str) -> &str {
    word.strip_suffix('s').filter(|rest| rest.len() > 2 && !rest.ends_with('s')).unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_known_by_the_last_name_of_its_path() {
        for (path, is) in
            [("id", true), (".id_", true), ("[].event_id", true), ("[].id.name", false), ("paid", false)]
        {
            assert_eq!(is_id(path), is, "{path}");
        }
    }

    #[test]
    fn b6_an_id_belongs_to_one_kind() {
        let mut made = CreatedIds::default();
        made.add("create_calendar_event", ".id_", "27");
        for (tool, parameter, is) in [
            ("cancel_calendar_event", "event_id", true),
            ("addEventParticipants", "eventId", true),
            ("reschedule_event", "id", true),
            ("drop_mail", "mail_id", false),
            ("drop", "id", false),
            ("share_event", "file_id", false),
        ] {
            assert_eq!(made.is_of("27", tool, parameter), is, "{tool} {parameter}");
        }
        for id in ["28", "27/../", "/27", ""] {
            assert!(!made.is_of(id, "cancel_calendar_event", "event_id"), "{id}");
        }
    }
}
