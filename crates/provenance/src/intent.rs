//! What a request asks for, in classes of effects: an effect of a class that no word of the request names is somebody else's idea.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use crate::made;

const VERBS: &str = include_str!("verbs.txt");

/// A class of effects, by its number in the lexicon.
type ClassId = usize;

static LEXICON: LazyLock<Lexicon> = LazyLock::new(|| Lexicon::read(VERBS));

/// Classes whose words go with anything: what is changed, made or deleted has to be named too.
const NEEDS_A_THING: &[&str] = &["change", "delete", "create"];

#[derive(Debug, Default)]
struct Lexicon {
    classes: Vec<&'static str>,
    /// A thing, and what else it is called.
    things: Vec<(&'static str, Vec<&'static str>)>,
    /// A word, or the beginning of one, and what it is about.
    words: Vec<(&'static str, bool, ClassId)>,
}

impl Lexicon {
    fn read(text: &'static str) -> Self {
        let mut lexicon = Self::default();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        for (class, words) in lines.filter_map(|line| line.split_once(':')) {
            let known = lexicon.classes.iter().position(|one| *one == class);
            let id = known.unwrap_or_else(|| {
                lexicon.classes.push(class);
                lexicon.classes.len().saturating_sub(1)
            });
            let of = |word: &'static str| match word.strip_suffix('*') {
                Some(beginning) => (beginning, true, id),
                None => (word, false, id),
            };
            lexicon.words.extend(words.split_whitespace().map(of));
        }
        let things = text.lines().filter_map(|line| line.split_once(" = "));
        lexicon.things = things.map(|(thing, others)| (thing, others.split_whitespace().collect())).collect();
        lexicon
    }

    /// Whether a word stands for a thing.
    fn names(&self, thing: &str, word: &str) -> bool {
        let others = self.things.iter().filter(|(known, _)| *known == thing).flat_map(|(_, others)| others);
        let fits = |known: &str| match known.strip_suffix('*') {
            Some(beginning) => word.starts_with(beginning),
            None => word == known,
        };
        word.starts_with(thing) || others.into_iter().any(|known| fits(known))
    }

    fn classes_of<'l>(&'l self, word: &'l str) -> impl Iterator<Item = ClassId> + 'l {
        let fits = move |(known, is_beginning, _): &&(&str, bool, ClassId)| {
            if *is_beginning { word.starts_with(known) } else { word == *known }
        };
        self.words.iter().filter(fits).map(|(_, _, class)| *class)
    }
}

/// The classes of effects that are asked for, and all words of the person.
#[derive(Debug, Default)]
pub(crate) struct Intent {
    classes: BTreeSet<ClassId>,
    words: BTreeSet<String>,
}

impl Intent {
    /// Takes in what the person says.
    pub(crate) fn hear(&mut self, words: &[String]) {
        for word in words {
            self.classes.extend(LEXICON.classes_of(word));
        }
        self.words.extend(words.iter().cloned());
    }

    /// Whether an effect of this tool is asked for. Of a tool whose name has no word of the lexicon nobody can say: it is not held to this.
    pub(crate) fn includes(&self, tool: &str) -> bool {
        let classes = classes_of_tool(tool);
        classes.is_empty()
            || (classes.iter().any(|class| self.classes.contains(class)) && self.names_thing(tool, &classes))
    }

    /// Whether what the tool changes, makes or deletes is named. Of other effects the words alone say enough: who pays, pays something.
    fn names_thing(&self, tool: &str, classes: &BTreeSet<ClassId>) -> bool {
        let needs =
            |class: &ClassId| LEXICON.classes.get(*class).is_some_and(|name| NEEDS_A_THING.contains(name));
        if !classes.iter().all(needs) {
            return true;
        }
        let things: Vec<String> = made::kinds(tool).collect();
        let named = |thing: &String| self.words.iter().any(|word| LEXICON.names(thing, word));
        things.is_empty() || things.iter().any(named)
    }
}

/// What all parts of its name agree on. Where they don't (`mail.delete`), the gravest of what they say.
fn classes_of_tool(tool: &str) -> BTreeSet<ClassId> {
    const GRAVEST_FIRST: &[&str] =
        &["delete", "pay", "share", "publish", "message", "change", "reserve", "create", "run"];
    let parts = parts(tool);
    let of = |part: &String| LEXICON.classes_of(part).collect::<BTreeSet<ClassId>>();
    let said: Vec<BTreeSet<ClassId>> = parts.iter().map(of).filter(|classes| !classes.is_empty()).collect();
    let common = said.iter().cloned().reduce(|one, other| &one & &other).unwrap_or_default();
    if !common.is_empty() {
        return common;
    }
    let id = |name: &&str| LEXICON.classes.iter().position(|class| class == name);
    let gravest =
        GRAVEST_FIRST.iter().filter_map(id).find(|class| said.iter().any(|one| one.contains(class)));
    gravest.into_iter().collect()
}

/// Whether a tool pays, invites or shares: what it does can't be taken back, or lets somebody in.
pub(crate) fn endorses(tool: &str) -> bool {
    const LASTING: &[&str] =
        &["pay", "money", "transfer", "transaction", "payment", "refund", "wire", "invite", "share", "grant"];
    parts(tool).iter().any(|part| LASTING.contains(&part.as_str()))
}

/// The parts of a name, in lower case.
pub(crate) fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut before = '_';
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && before.is_lowercase()) {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut().filter(|_| c.is_alphanumeric()) {
            part.extend(c.to_lowercase());
        }
        before = c;
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    #[test]
    fn an_effect_needs_a_word_of_its_class() {
        let cases = [
            ("Pay the bill", "send_money", true),
            ("Überweise Ann 10 Euro", "send_money", true),
            ("What is my latest mail about?", "delete_email", false),
            ("How much did I spend in March?", "send_money", false),
            ("Please reschedule my dentist to Friday", "update_calendar_event", true),
            ("Wie wird das Wetter?", "createEvent", false),
            ("What does it say?", "frobnicate", true),
            ("Adjust my rent payment", "update_password", false),
            ("Change my password", "update_password", true),
            ("What does my latest mail say?", "mail.delete", false),
            ("Email Ann the report", "send_money", false),
            ("Update my account information", "update_user_info", true),
            ("Book lunch with Ann on Friday", "create_calendar_event", true),
        ];
        for (request, tool, is) in cases {
            let mut intent = Intent::default();
            intent.hear(&text::words(request));
            assert_eq!(intent.includes(tool), is, "{request} {tool}");
        }
    }
}
