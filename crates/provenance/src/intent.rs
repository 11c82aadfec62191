//! Determines which classes of effects a request asks for. An effect in a class that no word of the request names is suspicious.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use crate::made;
use crate::records;
use crate::text;

const VERBS: &str = include_str!("verbs.txt");

/// Index of a class of effects in the lexicon.
type ClassId = usize;

pub(crate) static LEXICON: LazyLock<Lexicon> = LazyLock::new(|| Lexicon::read(VERBS));

/// Classes with generic words: the changed, created or deleted thing must be named too.
const NEEDS_A_THING: &[&str] = &["change", "delete", "create"];

#[derive(Debug, Default)]
pub(crate) struct Lexicon {
    classes: Vec<&'static str>,
    /// A thing, and its synonyms.
    things: Vec<(&'static str, Vec<&'static str>)>,
    /// A word, or a prefix with `*`, and its class.
    words: Vec<(&'static str, ClassId)>,
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
            lexicon.words.extend(words.split_whitespace().map(|word| (word, id)));
        }
        let things = text.lines().filter_map(|line| line.split_once(" = "));
        lexicon.things = things.map(|(thing, others)| (thing, others.split_whitespace().collect())).collect();
        lexicon
    }

    /// Whether a word names a thing.
    pub(crate) fn names(&self, thing: &str, word: &str) -> bool {
        let mut others =
            self.things.iter().filter(|(known, _)| *known == thing).flat_map(|(_, others)| others);
        word.starts_with(thing) || others.any(|known| fits(known, word))
    }

    fn classes_of<'l>(&'l self, word: &'l str) -> impl Iterator<Item = ClassId> + 'l {
        self.words.iter().filter(|(known, _)| fits(known, word)).map(|(_, class)| *class)
    }
}

/// Whether a word matches an entry of the lexicon: `pay*` matches any ending.
fn fits(known: &str, word: &str) -> bool {
    known.strip_suffix('*').map_or(known == word, |beginning| word.starts_with(beginning))
}

/// Maximum number of indexed sentences, and of words per sentence: every call is compared with them.
const SENTENCES_MAX: usize = 256;

/// The requested classes of effects, and the request's sentences.
#[derive(Debug, Default)]
pub(crate) struct Intent {
    classes: BTreeSet<ClassId>,
    words: BTreeSet<String>,
    sentences: Vec<Vec<String>>,
    /// Tools for which a planner granted a word that the lexicon lacks.
    granted: BTreeSet<String>,
    /// Words written as names: capitalized, or with a digit.
    pub(crate) names: BTreeSet<String>,
}

impl Intent {
    /// Adds a message of the user.
    pub(crate) fn add_message(&mut self, request: &str) {
        let lines = [". ", "! ", "? "].iter().fold(request.to_owned(), |all, end| all.replace(end, "\n"));
        for sentence in lines.lines() {
            let words = text::words(sentence);
            self.classes.extend(words.iter().flat_map(|word| LEXICON.classes_of(word)));
            self.words.extend(words.iter().cloned());
            if self.sentences.len() < SENTENCES_MAX && words.len() < SENTENCES_MAX {
                self.names.extend(names_in(sentence));
                self.sentences.push(words);
            }
        }
    }

    /// Whether a text in the request can identify something. `me` and `all` can't.
    pub(crate) fn is_telling(&self, spelt: &str) -> bool {
        let is_small = spelt.len() < 3 && spelt.bytes().all(|byte| byte.is_ascii_lowercase());
        !matches!(spelt, "true" | "false")
            && (self.names.contains(spelt) || !(is_small || LEXICON.names("common", spelt)))
    }

    /// The sentences with a word for an argument, by its name.
    pub(crate) fn about(&self, argument: &str) -> impl Iterator<Item = &[String]> {
        let kinds: Vec<String> = made::kinds(argument).collect();
        let is_about = move |sentence: &&Vec<String>| {
            sentence.iter().any(|word| kinds.iter().any(|kind| LEXICON.names(kind, word)))
        };
        self.sentences.iter().filter(is_about).map(Vec::as_slice)
    }

    /// The numbers and percentages in the request: 10 % is 0.1.
    pub(crate) fn figures(&self) -> (Vec<f64>, Vec<f64>) {
        let number = |word: &str| word.parse::<f64>().ok().filter(|_| text::is_number(word));
        let share = |word: &String| number(word.strip_suffix('%')?).map(|share| share / 100.0);
        let numbers = self.words.iter().filter_map(|word| number(word)).collect();
        (numbers, self.words.iter().filter_map(share).collect())
    }

    /// Whether the request mentions an argument that a call omits: by a part of its name, or by a whole that contains it in the lexicon, as
    /// an address contains a street.
    pub(crate) fn wants(&self, argument: &str) -> bool {
        let parts: Vec<String> = parts(argument).iter().map(|part| made::singular(part).to_owned()).collect();
        let is = |part: &String, word: &String| {
            made::singular(word) == part || LEXICON.names(&format!("argument {part}"), word)
        };
        let has =
            |sentence: &Vec<String>| parts.iter().all(|part| sentence.iter().any(|word| is(part, word)));
        made::kinds(argument).next().is_some() && self.sentences.iter().any(has)
    }

    /// Whether the request asks for a calculation.
    pub(crate) fn reckons(&self) -> bool {
        self.words.iter().any(|word| LEXICON.names("reckon", word) || word.ends_with('%'))
    }

    /// Accepts a planner's claim that a word of the request asks for a tool. The lexicon overrides the planner, and names or pronouns ask
    /// for nothing.
    pub(crate) fn grant(&mut self, tool: &str, word: &str) -> bool {
        let spelt = text::words(word);
        let [spelt] = spelt.as_slice() else { return false };
        let opens = |sentence: &Vec<String>| sentence.first() == Some(spelt);
        // A word at the start of a sentence may be capitalized without being a name.
        let is_name = self.names.contains(spelt) && !self.sentences.iter().any(opens);
        let is_idle = LEXICON.names("common", spelt) || LEXICON.names("determiner", spelt) || is_name;
        let is_word = spelt.chars().count() >= 3 && spelt.chars().all(char::is_alphabetic);
        let is_new = LEXICON.classes_of(spelt).next().is_none() && !LEXICON.names("weekday", spelt);
        let is_granted = is_word && is_new && !is_idle && self.words.contains(spelt);
        if is_granted {
            self.granted.insert(tool.to_owned());
        }
        is_granted
    }

    /// Whether the request includes an effect of this tool. A tool whose name has no word of the lexicon passes.
    pub(crate) fn includes(&self, tool: &str) -> bool {
        let classes = classes_of_tool(tool);
        classes.is_empty()
            || self.granted.contains(tool)
            || (classes.iter().any(|class| self.classes.contains(class)) && self.names_thing(tool, &classes))
    }

    /// Whether the request certainly asks for the tool's effect: it has a word for it that isn't the name of a thing.
    pub(crate) fn asks_for(&self, tool: &str) -> bool {
        let classes = classes_of_tool(tool);
        let is_of_tool = |word: &String| LEXICON.classes_of(word).any(|class| classes.contains(&class));
        let is_verb = |words: &Vec<String>| {
            let before = [None].into_iter().chain(words.iter().map(Some));
            before.zip(words).any(|(before, word)| {
                is_of_tool(word) && !before.is_some_and(|before| LEXICON.names("determiner", before))
            })
        };
        self.granted.contains(tool) || (self.includes(tool) && self.sentences.iter().any(is_verb))
    }

    /// Like `asks_for`, but a tool whose name has no word of the lexicon passes.
    pub(crate) fn may_ask_for(&self, tool: &str) -> bool {
        self.asks_for(tool) || classes_of_tool(tool).is_empty()
    }

    /// Whether words of the request identify nothing: pronouns, articles and the like, unless written as names.
    pub(crate) fn is_idle(&self, words: &[String]) -> bool {
        let is_idle = |word: &String| {
            !self.names.contains(word)
                && (LEXICON.names("common", word)
                    || LEXICON.names("determiner", word)
                    || LEXICON.names("function", word))
        };
        matches!(words, [word] if is_idle(word))
    }

    /// Whether the request combines a superlative with a thing ("the latest mail") that the tool's name contains.
    pub(crate) fn ends_name(&self, tool: &str) -> bool {
        const WORDS_MAX: usize = 4;
        let kinds: Vec<String> = made::kinds(tool).collect();
        let is_kind = |word: &String| {
            kinds.iter().any(|kind| made::singular(word) == kind || LEXICON.names(kind, word))
        };
        self.sentences.iter().any(|sentence| {
            let ends = sentence.iter().enumerate().filter(|(_, word)| records::is_end(word));
            ends.map(|(at, _)| at).any(|at| sentence.iter().skip(at).skip(1).take(WORDS_MAX).any(is_kind))
        })
    }

    /// Whether the request names the thing that the tool changes, creates or deletes. Other effects need no thing: paying always pays
    /// something.
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

/// Words of a sentence that are written as names.
fn names_in(sentence: &str) -> impl Iterator<Item = String> {
    let is_name = |(at, word): &(usize, &str)| {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        let has_digit = word.contains(|c: char| c.is_ascii_digit()) && word.contains(char::is_alphabetic);
        let lower = word.to_lowercase();
        let opens = || LEXICON.names("common", &lower) || LEXICON.classes_of(&lower).next().is_some();
        has_digit || (word.len() > 1 && word.contains(char::is_uppercase) && !(*at == 0 && opens()))
    };
    let words = sentence.split_whitespace().enumerate().filter(is_name);
    words.flat_map(|(_, word)| text::words(word)).filter(|word| !text::is_figure(word))
}

/// The classes that all parts of the name agree on. If they disagree (`mail.delete`), the gravest one.
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

/// Whether a value has a type that doesn't fit the argument's name: a street is not an account number, and a weekday or month is not a name.
pub(crate) fn is_misfit(argument: &str, words: &[String]) -> bool {
    let is = |kind: &str| made::kinds(argument).any(|own| LEXICON.names(kind, &own));
    let is_code = matches!(words, [word] if text::shape(word).is_some());
    (is_code && is("named")) || (words.iter().all(|word| LEXICON.names("weekday", word)) && !is("timed"))
}

/// Whether a tool pays, invites or shares: its effect is irreversible, or grants access.
pub(crate) fn endorses(tool: &str) -> bool {
    parts(tool).iter().any(|part| LEXICON.names("lasting", part))
}

/// Whether a tool only adds something new, by its name.
pub(crate) fn only_creates(tool: &str) -> bool {
    let creates = |class: &ClassId| matches!(LEXICON.classes.get(*class), Some(&("create" | "reserve")));
    let classes = classes_of_tool(tool);
    !classes.is_empty() && classes.iter().all(creates)
}

/// The parts of a name, in lower case.
pub(crate) fn parts(name: &str) -> Vec<String> {
    let (mut spaced, mut before) = (String::new(), '_');
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && before.is_lowercase()) {
            spaced.push(' ');
        }
        spaced.extend(c.to_lowercase().filter(|_| c.is_alphanumeric()));
        before = c;
    }
    spaced.split(' ').filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_needs_a_matching_word() {
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
            intent.add_message(request);
            assert_eq!(intent.includes(tool), is, "{request} {tool}");
        }
    }

    #[test]
    fn a_tool_that_also_reaches_others_does_not_only_create() {
        let cases = [
            ("create_calendar_event", true),
            ("schedule_event", true),
            ("create_payment", false),
            ("create_share_link", false),
            ("create_announcement", false),
            ("add_member", false),
            ("set_permissions", false),
            ("delete_emails", false),
            ("frobnicate", false),
        ];
        for (tool, only) in cases {
            assert_eq!(only_creates(tool), only, "{tool}");
        }
    }

    #[test]
    fn pronouns_identify_nothing() {
        let mut intent = Intent::default();
        intent.add_message("Send me what Al has in dev, it is true");
        for (text, is) in
            [("me", false), ("al", true), ("dev", true), ("true", false), ("it", false), ("has", true)]
        {
            assert_eq!(intent.is_telling(text), is, "{text}");
        }
    }

    #[test]
    fn words_that_resemble_calculations_are_none() {
        for (request, is) in
            [("Send the difference", true), ("Book different hotels", false), ("10% more", true)]
        {
            let mut intent = Intent::default();
            intent.add_message(request);
            assert_eq!(intent.reckons(), is, "{request}");
        }
    }

    #[test]
    fn names_are_written_as_names() {
        let cases = [
            ("Spotify sent me a note", vec!["spotify"]),
            ("Please pay Ann and the iPhone. They know Bob.", vec!["ann", "bob", "iphone"]),
            ("Pay 10.00 to GB29NWBK60161331926819 on 2024-05-03", vec!["gb29nwbk60161331926819"]),
            ("I read it", vec![]),
        ];
        for (request, names) in cases {
            let mut intent = Intent::default();
            intent.add_message(request);
            assert_eq!(intent.names.iter().collect::<Vec<_>>(), names, "{request}");
        }
    }
}
