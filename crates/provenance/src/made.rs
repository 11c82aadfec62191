//! What calls of the session have brought about, by its ids. An id stands for one kind of thing: number 27 of the events is no mail.

use std::collections::{BTreeSet, HashMap};

use crate::intent::{self, LEXICON};
use crate::whole;

/// Ids that are kept.
const IDS_MAX: usize = 10_000;
#[derive(Debug, Default)]
pub(crate) struct Made(HashMap<String, BTreeSet<String>>);

impl Made {
    /// A tool has given this id in a field of its answer.
    pub(crate) fn add(&mut self, tool: &str, path: &str, id: &str) {
        if self.0.len() < IDS_MAX && !id.trim().is_empty() {
            self.0.entry(whole::fold(id)).or_default().extend(kinds(tool).chain(kinds(path)));
        }
    }

    /// Whether it is an id of what a parameter of a tool is about, by their names.
    pub(crate) fn is_of(&self, id: &str, tool: &str, parameter: &str) -> bool {
        let Some(made) = self.0.get(&whole::fold(id)) else { return false };
        // `event_id` says what it is the id of; of a plain `id` the tool does.
        let named = if kinds(parameter).next().is_none() { tool } else { parameter };
        kinds(named).any(|kind| made.contains(&kind))
    }
}

/// Whether a field, or the last one of a path, holds ids.
pub(crate) fn is_id(path: &str) -> bool {
    let last = path.rsplit(['.', ']']).next().unwrap_or_default();
    matches!(last, "id" | "id_" | "uuid") || last.ends_with("_id")
}

/// The parts of a name that say which kind of thing it is about, in the singular.
pub(crate) fn kinds(name: &str) -> impl Iterator<Item = String> {
    let says_something = |part: &String| part.len() > 1 && !LEXICON.names("generic", part);
    intent::parts(name).into_iter().filter(says_something).map(|part| singular(&part).to_owned())
}

/// A word without the ending of its plural.
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
    fn b6_an_id_is_that_of_one_kind_of_thing() {
        let mut made = Made::default();
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
