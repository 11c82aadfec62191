//! What a session has heard: the request, and every output, indexed by the words in it, each with where it came from.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::date;
use crate::labels::{Cleared, Effect, FieldLabels};
use crate::made::{Made, is_id};
use crate::records::Records;
use crate::ruling::quoted;
use crate::said;
use crate::spans::{Mark, Sources, SpanHits, Spans};
use crate::text::{self, Leaf, Shape};
use crate::texts::Texts;
use crate::whole::Text;

/// The request.
const REQUEST: u32 = 0;
/// What a person has agreed to in this session, and the ids of what the session itself has made.
const AGREED: u32 = 1;
/// Bits in a set of sources.
const SOURCES_MAX: usize = 128;
/// Leaves whose place is kept; the words of later ones are found, but not their place.
const LEAVES_MAX: usize = 100_000;
/// What of one output that others can write is indexed. They may write any amount, and all of it takes room that trusted outputs need.
/// What comes after is found nowhere, which is no better than untrusted.
const UNTRUSTED_BYTES_MAX: usize = 256 << 10;
/// Different words of one shape that one source may hold before they count as many.
pub(crate) const ALIKE_MAX: usize = 64;

/// Fields of one output that are told apart.
const FIELDS_MAX: usize = 1_000;

/// Where a value comes from. Ordered by trust, best first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The trusted request says it.
    Request,
    /// A field that no outsider can write has it.
    Trusted(OutputField),
    /// Only fields that an outsider can write have it.
    Untrusted(OutputField),
    /// It is nowhere to be found. That is no better than untrusted: text can be encoded.
    Nowhere,
}

impl Origin {
    /// Whether it was found in a trusted source.
    pub fn is_trusted(&self) -> bool {
        match self {
            Self::Request | Self::Trusted(_) => true,
            Self::Untrusted(_) | Self::Nowhere => false,
        }
    }

    /// The word that rules use.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Trusted(_) => "trusted",
            Self::Untrusted(_) => "untrusted",
            Self::Nowhere => "nowhere",
        }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Request => f.write_str("the request"),
            Self::Trusted(place) | Self::Untrusted(place) => {
                let OutputField { call, tool, .. } = place;
                write!(f, "the result of `{tool}` (call {call}, `{}`)", quoted(&place.field))?;
                f.write_str(if self.is_trusted() { "" } else { ", where others can write" })
            }
            Self::Nowhere => f.write_str("neither the request nor any result"),
        }
    }
}

/// A place in an earlier output.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OutputField {
    /// The number of the call.
    pub call: u64,
    /// The tool that gave it.
    pub tool: String,
    /// The field it was in.
    pub field: String,
}

#[derive(Debug)]
struct Source {
    tool: Box<str>,
    trusted: bool,
    secret: bool,
    /// Who alone may read it, in words; empty if nobody is named.
    readers: Vec<Vec<String>>,
}

#[derive(Debug)]
struct SourceField {
    call: u64,
    source: u32,
    field: Box<str>,
    /// The number of its text, if that is kept.
    text: Option<u32>,
}

impl SourceField {
    fn is_in(&self, sources: Sources) -> bool {
        1_u128.checked_shl(self.source).unwrap_or(0) & sources != 0
    }
}

/// One output, as it is heard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heard<'a> {
    pub(crate) call: u64,
    pub(crate) tool: &'a str,
    pub(crate) labels: &'a FieldLabels,
    pub(crate) output: &'a Value,
    /// Fields whose label a rule lowers.
    pub(crate) cleared: &'a Cleared,
    /// The agent reads it. What it doesn't read can't tell it what to do.
    pub(crate) is_read: bool,
}

/// What hearing an output came to.
#[derive(Debug, Default)]
pub(crate) struct Hearing {
    /// Which fields' labels were lowered.
    pub(crate) cleared: Cleared,
    /// An outsider can have written a part of it.
    pub(crate) tainted: bool,
    /// The sources that it is kept in.
    pub(crate) sources: Sources,
    /// Its fields from the top, and whether an outsider can have written a part of one.
    pub(crate) fields: BTreeMap<String, bool>,
    /// There was no room for all of it.
    pub(crate) is_partial: bool,
}

/// Everything that a session has received.
#[derive(Debug)]
pub struct Transcript {
    spans: Spans,
    sources: Vec<Source>,
    leaves: Vec<SourceField>,
    alike: HashMap<(u32, Shape), BTreeSet<Box<str>>>,
    /// Sources of which something was not looked at. Of no value in them can be said that it is the only one.
    cut: Sources,
    pub(crate) records: Records,
    pub(crate) texts: Texts,
    made: Made,
    tainted: bool,
    /// Something that only some may read couldn't be kept apart.
    lost: bool,
    /// Something confidential had no room.
    lost_secrets: bool,
}

impl Default for Transcript {
    /// Nothing was said or heard yet.
    fn default() -> Self {
        let own = || Source { tool: "".into(), trusted: true, secret: false, readers: Vec::new() };
        Self {
            spans: Spans::default(),
            sources: vec![own(), own()],
            leaves: Vec::new(),
            alike: HashMap::new(),
            cut: 0,
            records: Records::default(),
            texts: Texts::default(),
            made: Made::default(),
            tainted: false,
            lost: false,
            lost_secrets: false,
        }
    }
}

impl Transcript {
    /// The person says something.
    pub(crate) fn say(&mut self, request: &str) {
        self.texts.keep(REQUEST, true, request);
        self.add(&text::words(request), Mark { source: REQUEST, leaf: u32::MAX, trusted: true });
    }

    /// How much memory it takes, about.
    pub(crate) fn bytes(&self) -> usize {
        let leaves = self.leaves.len().saturating_mul(size_of::<SourceField>().saturating_add(32));
        [self.spans.bytes(), self.texts.bytes(), self.records.bytes(), leaves].into_iter().sum()
    }

    /// Whether any untrusted text has been received.
    pub fn is_tainted(&self) -> bool {
        self.tainted
    }

    /// From here on nothing counts as if only trusted things had been heard.
    pub(crate) fn taint(&mut self) {
        self.tainted = true;
    }

    /// A person has looked at this value and agreed to it.
    pub(crate) fn agree(&mut self, value: &Value) {
        let mut all = Vec::new();
        text::leaves(value, &mut |_, leaf| all.push(leaf));
        for leaf in all {
            self.texts.keep(AGREED, true, &text::text_of(leaf));
            self.add(&text::words_of(leaf), Mark { source: AGREED, leaf: u32::MAX, trusted: true });
        }
    }

    /// Whether a person has agreed to this value.
    pub(crate) fn is_agreed(&self, words: &[String]) -> bool {
        self.seen(words).sources & (1 << AGREED) != 0
    }

    /// What a person has agreed to.
    pub(crate) fn agreed(&self) -> Sources {
        1 << AGREED
    }

    /// Takes an output in.
    pub(crate) fn hear(&mut self, heard: &Heard<'_>) -> Hearing {
        let Heard { tool, labels, output, .. } = *heard;
        let cleared = heard.cleared.within(output);
        let taint = labels.taint_of(output);
        let mut hearing = Hearing::default();
        let mut all = Vec::new();
        text::leaves(output, &mut |path, leaf| all.push((path.to_owned(), leaf)));
        let mut room = UNTRUSTED_BYTES_MAX;
        for (path, leaf) in all {
            // What a writing tool answers repeats what it was told; only the ids that it gives are news.
            let writes = labels.effect == Effect::Write;
            let is_theirs = taint.covers(&path);
            let by_rule = cleared.trusts(&path).filter(|_| is_theirs || (writes && !is_id(&path)));
            let tainted = is_theirs && by_rule.is_none();
            hearing.tainted |= tainted;
            let top = path.split(['.', '[', ']']).find(|name| !name.is_empty());
            if let Some(top) = top.filter(|_| hearing.fields.len() < FIELDS_MAX || tainted) {
                *hearing.fields.entry(top.to_owned()).or_default() |= tainted;
            }
            let opened = cleared.opens(&path).filter(|_| labels.is_confidential());
            let trusted = by_rule.is_some() || (!tainted && (!writes || is_id(&path)));
            let secret = labels.is_confidential() && opened.is_none();
            let (sources, is_whole) = self.take(heard, &path, (leaf, &mut room), (trusted, secret));
            hearing.sources |= sources;
            hearing.is_partial |= !is_whole;
            // Of a tool that nobody has labelled nobody knows whether it has made what it names.
            if writes && !tainted && is_id(&path) && !labels.inferred {
                self.made.add(tool, &path, &text::text_of(leaf));
            }
            hearing.cleared.trust.extend(by_rule.cloned());
            hearing.cleared.open.extend(opened.cloned());
        }
        self.tainted |= hearing.tainted && heard.is_read;
        // As above: what a writing tool answers repeats what it was told.
        let writes = labels.effect == Effect::Write;
        let is_trusted =
            |path: &str| cleared.trusts(path).is_some() || (!taint.covers(path) && (!writes || is_id(path)));
        self.records.take(tool, output, is_trusted);
        hearing
    }

    /// Keeps a leaf. Gives back its source, and whether there was room for all of it.
    fn take(
        &mut self,
        heard: &Heard<'_>,
        path: &str,
        (leaf, room): (Leaf<'_>, &mut usize),
        (trusted, secret): (bool, bool),
    ) -> (Sources, bool) {
        let Some(source) = self.source_of(heard, trusted, secret) else {
            self.lost |= secret && !heard.labels.readers.is_empty();
            self.lost_secrets |= secret;
            return (0, false);
        };
        let whole = text::text_of(leaf);
        let text = if trusted { &*whole } else { text::head(&whole, *room) };
        *room = room.saturating_sub(if trusted { 0 } else { text.len() });
        let (words, is_cut) = text::cut_words(text);
        let number = u32::try_from(self.leaves.len()).unwrap_or(u32::MAX);
        let kept = self.texts.keep(source, trusted, text);
        self.note_shapes(source, &words);
        if self.leaves.len() < LEAVES_MAX {
            self.leaves.push(SourceField { call: heard.call, source, field: path.into(), text: kept });
        }
        let fits = self.add(&words, Mark { source, leaf: number, trusted });
        let source = 1_u128.checked_shl(source).unwrap_or(0);
        let is_cut = is_cut || text.len() < whole.len();
        if is_cut {
            self.cut |= source;
        }
        (source, fits && !is_cut)
    }

    /// Indexes words. Says whether there was room for all of them.
    fn add(&mut self, words: &[String], mark: Mark) -> bool {
        let fits = self.spans.add(words, mark);
        for word in words.iter().filter_map(|word| date::day_of(word)) {
            self.spans.add(&[word], mark);
        }
        fits
    }

    fn note_shapes(&mut self, source: u32, words: &[String]) {
        for word in words {
            let Some(shape) = text::shape(word) else { continue };
            let alike = self.alike.entry((source, shape)).or_default();
            if alike.len() <= ALIKE_MAX {
                alike.insert(word.as_str().into());
            }
        }
    }

    /// The number of a source; `None` when there are too many, and then nothing of it is found.
    fn source_of(&mut self, heard: &Heard<'_>, trusted: bool, secret: bool) -> Option<u32> {
        let tool = heard.tool;
        let readers = heard.labels.readers.iter().filter(|_| secret);
        let readers: Vec<Vec<String>> = readers.map(|reader| text::words(reader)).collect();
        // One tool may read from stores that have different readers.
        let is = |one: &Source| {
            let is_alike = one.trusted == trusted && one.secret == secret && one.readers == readers;
            !tool.is_empty() && &*one.tool == tool && is_alike
        };
        let known = self.sources.iter().position(is);
        let at = match known {
            Some(at) => at,
            None if self.sources.len() < SOURCES_MAX => {
                self.sources.push(Source { tool: tool.into(), trusted, secret, readers });
                self.sources.len().saturating_sub(1)
            }
            None => return None,
        };
        u32::try_from(at).ok()
    }

    /// What is known of a run of words, with dates that the text has without their year.
    pub(crate) fn seen(&self, words: &[String]) -> SpanHits {
        let exact = self.spans.seen(words);
        if !words.iter().any(|word| date::is_date(word)) {
            return exact;
        }
        let loose: Vec<String> =
            words.iter().map(|word| date::looser(word).unwrap_or_else(|| word.clone())).collect();
        let loose = self.spans.seen(&loose);
        SpanHits {
            sources: exact.sources | loose.sources,
            trusted: exact.trusted.or(loose.trusted),
            untrusted: exact.untrusted.or(loose.untrusted),
        }
    }

    /// Where a leaf comes from: the best place that has all of it, in this order.
    pub(crate) fn origin_of_words(&self, words: &[String]) -> Origin {
        let seen = self.seen(words);
        if seen.sources & 1 != 0 {
            return Origin::Request;
        }
        if seen.sources & self.trusted() != 0 {
            return Origin::Trusted(self.place(seen.trusted));
        }
        if seen.sources != 0 { Origin::Untrusted(self.place(seen.untrusted)) } else { Origin::Nowhere }
    }

    /// Where something comes from that chooses who or what is affected: only what is there as a whole counts.
    pub(crate) fn origin_of_sink(&self, leaf: &said::Leaf) -> Origin {
        let seen = self.seen(&leaf.words);
        let whole = |sources: Sources| self.is_whole_in(leaf, seen.sources & sources);
        if whole(1) {
            return Origin::Request;
        }
        if whole(self.trusted()) {
            return Origin::Trusted(self.place(seen.trusted));
        }
        if seen.sources & !(self.trusted() | 1) != 0 {
            return Origin::Untrusted(self.place(seen.untrusted));
        }
        Origin::Nowhere
    }

    /// Whether one of these sources has a text as it is written.
    pub(crate) fn is_written_in(&self, text: &str, sources: Sources) -> bool {
        self.texts.have(text, sources)
    }

    /// Whether one of these sources has it as a whole. Numbers and dates have many spellings: where
    /// theirs isn't used, their words are compared.
    pub(crate) fn is_whole_in(&self, leaf: &said::Leaf, sources: Sources) -> bool {
        if sources == 0 {
            return false;
        }
        // The first leaf that has the words has the whole value, most of the time: then nothing else is looked at.
        let seen = self.seen(&leaf.words);
        let first = [seen.trusted, seen.untrusted].into_iter().flatten();
        let mut texts = first.filter_map(|leaf| self.leaves.get(leaf as usize)?.text);
        if texts.any(|text| self.texts.has(text, &leaf.text, sources)) {
            return true;
        }
        if self.texts.have(&leaf.text, sources) {
            return true;
        }
        // A figure in another spelling. Where its plain form is written, that has to be there as a whole too.
        let plain = leaf.words.join(" ");
        let is_spelt = self.texts.spell(&leaf.text, sources) || self.texts.spell(&plain, sources);
        text::is_plain_figure(&leaf.text) && (!is_spelt || self.texts.have(&plain, sources))
    }

    /// Whether the person has said this, as a whole.
    pub(crate) fn is_in_request(&self, text: &str) -> bool {
        self.is_whole_in(&said::Leaf::of(text), self.seen(&text::words(text)).sources & 1)
    }

    /// Where an argument comes from: as the worst of its leaves does. An empty one asks for nothing that the request hasn't.
    pub(crate) fn origin_of(&self, argument: &said::Argument<'_>) -> Origin {
        let of = |leaf| self.origin_of_leaf(argument, leaf);
        argument.leaves.iter().map(of).max().unwrap_or(Origin::Request)
    }

    /// Where one of its leaves comes from.
    pub(crate) fn origin_of_leaf(&self, argument: &said::Argument<'_>, leaf: &said::Leaf) -> Origin {
        match argument.is_sink {
            true => self.origin_of_sink(leaf),
            false => self.origin_of_words(&leaf.words),
        }
    }

    /// Where a value comes from, by its words alone.
    pub fn origin(&self, value: &Value) -> Origin {
        let mut worst = Origin::Request;
        text::leaves(value, &mut |_, leaf| {
            let origin = self.origin_of_words(&text::words_of(leaf));
            if origin > worst {
                worst = origin;
            }
        });
        worst
    }

    /// Whether a call of this session brought this id about, and it is the id of what the parameter is about.
    pub(crate) fn is_made(&self, text: &str, tool: &str, parameter: &str) -> bool {
        self.made.is_of(text, tool, parameter)
    }

    /// The first text that others can write, of sources that aren't hidden.
    pub(crate) fn first_of_others(&self, hidden: Sources) -> Option<u32> {
        let is_theirs = |kept: &SourceField| {
            let source = self.sources.get(kept.source as usize);
            kept.text.is_some() && !kept.is_in(hidden) && source.is_some_and(|source| !source.trusted)
        };
        self.leaves.iter().position(is_theirs).and_then(|at| u32::try_from(at).ok())
    }

    /// The text of a leaf, if it was kept, isn't confidential and isn't of a hidden source.
    pub(crate) fn open_text(&self, leaf: u32, hidden: Sources) -> Option<&Text> {
        let kept = self.leaves.get(leaf as usize).filter(|kept| !kept.is_in(hidden))?;
        let source = self.sources.get(kept.source as usize).filter(|source| !source.secret);
        source.and_then(|_| self.texts.get(kept.text?))
    }

    pub(crate) fn place(&self, leaf: Option<u32>) -> OutputField {
        let kept = leaf.and_then(|leaf| self.leaves.get(leaf as usize));
        kept.map_or_else(
            || OutputField { call: 0, tool: "?".to_owned(), field: "?".to_owned() },
            |kept| OutputField {
                call: kept.call,
                tool: self.sources.get(kept.source as usize).map_or("?", |source| &source.tool).to_owned(),
                field: if kept.field.is_empty() {
                    "output".to_owned()
                } else {
                    kept.field.trim_start_matches('.').to_owned()
                },
            },
        )
    }

    fn those(&self, wanted: impl Fn(&Source) -> bool) -> Sources {
        let bits = (0_u32..).zip(&self.sources).skip(1);
        bits.filter(|(_, source)| wanted(source))
            .fold(0, |set, (bit, _)| set | 1_u128.checked_shl(bit).unwrap_or(0))
    }

    /// All sources that no outsider can write, the request aside.
    pub(crate) fn trusted(&self) -> Sources {
        self.those(|source| source.trusted)
    }

    /// The request, and trusted sources that aren't confidential.
    pub(crate) fn open(&self) -> Sources {
        self.those(|source| source.trusted && !source.secret) | 1
    }

    /// Confidential sources.
    pub(crate) fn secret(&self) -> Sources {
        self.those(|source| source.secret)
    }

    /// Those who may read everything that is in these sources, in words; `None` if no source names any.
    pub(crate) fn readers_of(&self, sources: Sources) -> Option<BTreeSet<Vec<String>>> {
        let is_one = |bit: u32| sources & 1_u128.checked_shl(bit).unwrap_or(0) != 0;
        let named = (0_u32..).zip(&self.sources).filter(|(bit, one)| is_one(*bit) && !one.readers.is_empty());
        let sets = named.map(|(_, source)| source.readers.iter().cloned().collect::<BTreeSet<_>>());
        sets.reduce(|one, other| &one & &other)
    }

    /// Whether something confidential had no room, so that nobody would find it in a call.
    pub(crate) fn has_lost_secrets(&self) -> bool {
        self.lost_secrets
    }

    /// Whether something confidential was returned that isn't in these sources: then any signs can stand for it.
    pub(crate) fn may_tell_secrets(&self, open: Sources) -> bool {
        self.lost_secrets || self.secret() & !open != 0
    }

    /// Whether anything is for some and not for others.
    pub(crate) fn has_readers(&self) -> bool {
        self.lost || self.sources.iter().any(|source| !source.readers.is_empty())
    }

    /// The sources that these may not read: those with readers among whom one of `reached` isn't. A call that names no recipient may reach
    /// anybody. `None` if all of them may read everything.
    pub(crate) fn kept_from(&self, reached: &[Vec<String>]) -> Option<Sources> {
        let may =
            |source: &Source| !reached.is_empty() && reached.iter().all(|one| source.readers.contains(one));
        let kept = self.those(|source| !source.readers.is_empty() && !may(source));
        (kept != 0 || self.lost).then_some(kept)
    }

    /// Sources that no outsider can write, and that everyone reached may read.
    pub(crate) fn readable(&self, reached: &[Vec<String>]) -> Sources {
        let kept = self.kept_from(reached).unwrap_or(0);
        self.those(|source| source.trusted && !source.readers.is_empty()) & !kept
    }

    /// Which tool gave the first of these sources, for the person.
    pub(crate) fn name_of(&self, sources: Sources) -> &str {
        let at = usize::try_from(sources.trailing_zeros()).unwrap_or(usize::MAX);
        self.sources.get(at).map_or("an earlier result", |source| &source.tool)
    }

    /// The sources of these tools.
    pub(crate) fn of_tools(&self, is_one: impl Fn(&str) -> bool) -> Sources {
        self.those(|source| is_one(&source.tool))
    }

    /// The words that look like this one in `sources`, trusted or not: untrusted text is no less a choice because what it stands
    /// beside is trusted. `None` if they are too many to tell.
    pub(crate) fn alike(&self, word: &str, sources: Sources) -> Option<BTreeSet<&str>> {
        let shape = text::shape(word)?;
        if sources & self.cut != 0 {
            return None;
        }
        let mut all = BTreeSet::new();
        for (bit, _) in (0_u32..).zip(&self.sources) {
            if sources & 1_u128.checked_shl(bit).unwrap_or(0) == 0 {
                continue;
            }
            let some = self.alike.get(&(bit, shape)).into_iter().flatten();
            all.extend(some.map(|word| &**word));
        }
        (all.len() <= ALIKE_MAX).then_some(all)
    }
}
