//! Everything that a session has received: the request and every output, indexed by words with their origin.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::date;
use crate::labels::{Cleared, Effect, FieldLabels};
use crate::made::{CreatedIds, is_id};
use crate::records::Records;
use crate::ruling::quoted;
use crate::said;
use crate::spans::{Mark, Sources, SpanHits, Spans};
use crate::text::{self, Leaf, Shape};
use crate::texts::Texts;
use crate::whole::Text;

/// The request.
const REQUEST: u32 = 0;
/// Values approved in this session, and ids that the session created.
const AGREED: u32 = 1;
/// Maximum sources: bits in a set of sources.
const SOURCES_MAX: usize = 128;
/// Maximum leaves with a recorded field. Words of later leaves are found, but not their field.
const LEAVES_MAX: usize = 100_000;
/// Maximum indexed bytes of one output's untrusted part. Others may write any amount, which would use up the space for trusted outputs.
/// Text beyond it has no origin, which is no better than untrusted.
const UNTRUSTED_BYTES_MAX: usize = 256 << 10;
/// Maximum different words of one shape in a source; beyond it they count as many.
pub(crate) const ALIKE_MAX: usize = 64;

/// Maximum distinguished fields of one output.
const FIELDS_MAX: usize = 1_000;

/// The origin of a value, in order of trust, best first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The trusted request contains it.
    Request,
    /// A field that no outsider can write contains it.
    Trusted(OutputField),
    /// Only fields that an outsider can write contain it.
    Untrusted(OutputField),
    /// It isn't found. That is no better than untrusted, because text can be encoded.
    Nowhere,
}

impl Origin {
    /// Whether the value is in a trusted source.
    pub fn is_trusted(&self) -> bool {
        match self {
            Self::Request | Self::Trusted(_) => true,
            Self::Untrusted(_) | Self::Nowhere => false,
        }
    }

    /// The name that rules use.
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
            Self::Nowhere => f.write_str("neither the request nor a tool result"),
        }
    }
}

/// A field of an earlier output.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OutputField {
    /// The number of the call.
    pub call: u64,
    /// The tool.
    pub tool: String,
    /// The field.
    pub field: String,
}

#[derive(Debug)]
struct Source {
    tool: Box<str>,
    trusted: bool,
    secret: bool,
    /// Its readers, as words; empty for no restriction.
    readers: Vec<Vec<String>>,
}

#[derive(Debug)]
struct SourceField {
    call: u64,
    source: u32,
    field: Box<str>,
    /// The number of its text, if kept.
    text: Option<u32>,
}

impl SourceField {
    fn is_in(&self, sources: Sources) -> bool {
        1_u128.checked_shl(self.source).unwrap_or(0) & sources != 0
    }
}

/// One output to add.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceivedOutput<'a> {
    pub(crate) call: u64,
    pub(crate) tool: &'a str,
    pub(crate) labels: &'a FieldLabels,
    pub(crate) output: &'a Value,
    /// Declassified fields.
    pub(crate) cleared: &'a Cleared,
    /// Whether the agent reads it. Unread text can't instruct the agent.
    pub(crate) is_read: bool,
}

/// The result of adding an output.
#[derive(Debug, Default)]
pub(crate) struct AddedOutput {
    /// The declassified fields.
    pub(crate) cleared: Cleared,
    /// Whether an outsider may have written a part of it.
    pub(crate) tainted: bool,
    /// Its sources.
    pub(crate) sources: Sources,
    /// Its top-level fields, and whether an outsider may have written a part of each.
    pub(crate) fields: BTreeMap<String, bool>,
    /// Whether some of it didn't fit.
    pub(crate) is_partial: bool,
}

/// Everything that a session has received.
#[derive(Debug)]
pub struct Transcript {
    spans: Spans,
    sources: Vec<Source>,
    leaves: Vec<SourceField>,
    alike: HashMap<(u32, Shape), BTreeSet<Box<str>>>,
    /// Sources that were truncated. A value in them can't be proven to be the only one.
    cut: Sources,
    pub(crate) records: Records,
    pub(crate) texts: Texts,
    made: CreatedIds,
    tainted: bool,
    /// Whether restricted data couldn't be assigned a source.
    lost: bool,
    /// Whether confidential data didn't fit.
    lost_secrets: bool,
}

impl Default for Transcript {
    /// An empty transcript.
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
            made: CreatedIds::default(),
            tainted: false,
            lost: false,
            lost_secrets: false,
        }
    }
}

impl Transcript {
    /// Adds a message of the user.
    pub(crate) fn say(&mut self, request: &str) {
        self.texts.keep(REQUEST, true, request);
        self.add(&text::words(request), Mark { source: REQUEST, leaf: u32::MAX, trusted: true });
    }

    /// Approximate memory use.
    pub(crate) fn bytes(&self) -> usize {
        let leaves = self.leaves.len().saturating_mul(size_of::<SourceField>().saturating_add(32));
        [self.spans.bytes(), self.texts.bytes(), self.records.bytes(), leaves].into_iter().sum()
    }

    /// Whether any untrusted text has been received.
    pub fn is_tainted(&self) -> bool {
        self.tainted
    }

    /// Marks the session as tainted.
    pub(crate) fn taint(&mut self) {
        self.tainted = true;
    }

    /// Adds an approved value.
    pub(crate) fn agree(&mut self, value: &Value) {
        let mut all = Vec::new();
        text::leaves(value, &mut |_, leaf| all.push(leaf));
        for leaf in all {
            self.texts.keep(AGREED, true, &text::text_of(leaf));
            self.add(&text::words_of(leaf), Mark { source: AGREED, leaf: u32::MAX, trusted: true });
        }
    }

    /// Whether a value was approved.
    pub(crate) fn is_agreed(&self, words: &[String]) -> bool {
        self.seen(words).sources & (1 << AGREED) != 0
    }

    /// The source of approved values.
    pub(crate) fn agreed(&self) -> Sources {
        1 << AGREED
    }

    /// Adds an output.
    pub(crate) fn add_output(&mut self, received: &ReceivedOutput<'_>) -> AddedOutput {
        let ReceivedOutput { tool, labels, output, .. } = *received;
        let cleared = received.cleared.within(output);
        let taint = labels.taint_of(output);
        let mut added = AddedOutput::default();
        let mut all = Vec::new();
        text::leaves(output, &mut |path, leaf| all.push((path.to_owned(), leaf)));
        let mut room = UNTRUSTED_BYTES_MAX;
        for (path, leaf) in all {
            // The output of a writing tool repeats its arguments; only the ids that it creates are new.
            let writes = labels.effect == Effect::Write;
            let is_theirs = taint.covers(&path);
            let by_rule = cleared.trusts(&path).filter(|_| is_theirs || (writes && !is_id(&path)));
            let tainted = is_theirs && by_rule.is_none();
            added.tainted |= tainted;
            let top = path.split(['.', '[', ']']).find(|name| !name.is_empty());
            if let Some(top) = top.filter(|_| added.fields.len() < FIELDS_MAX || tainted) {
                *added.fields.entry(top.to_owned()).or_default() |= tainted;
            }
            let opened = cleared.opens(&path).filter(|_| labels.is_confidential());
            let trusted = by_rule.is_some() || (!tainted && (!writes || is_id(&path)));
            let secret = labels.is_confidential() && opened.is_none();
            let (sources, is_whole) = self.take(received, &path, (leaf, &mut room), (trusted, secret));
            added.sources |= sources;
            added.is_partial |= !is_whole;
            // An unlabelled tool may not have created the id that it returns.
            if writes && !tainted && is_id(&path) && !labels.inferred {
                self.made.add(tool, &path, &text::text_of(leaf));
            }
            added.cleared.trust.extend(by_rule.cloned());
            added.cleared.open.extend(opened.cloned());
        }
        self.tainted |= added.tainted && received.is_read;
        // As above: the output of a writing tool repeats its arguments.
        let writes = labels.effect == Effect::Write;
        let is_trusted =
            |path: &str| cleared.trusts(path).is_some() || (!taint.covers(path) && (!writes || is_id(path)));
        self.records.take(tool, output, is_trusted);
        added
    }

    /// Adds a leaf. Returns its source, and whether all of it fit.
    fn take(
        &mut self,
        received: &ReceivedOutput<'_>,
        path: &str,
        (leaf, room): (Leaf<'_>, &mut usize),
        (trusted, secret): (bool, bool),
    ) -> (Sources, bool) {
        let Some(source) = self.source_of(received, trusted, secret) else {
            self.lost |= secret && !received.labels.readers.is_empty();
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
            self.leaves.push(SourceField { call: received.call, source, field: path.into(), text: kept });
        }
        let fits = self.add(&words, Mark { source, leaf: number, trusted });
        let source = 1_u128.checked_shl(source).unwrap_or(0);
        let is_cut = is_cut || text.len() < whole.len();
        if is_cut {
            self.cut |= source;
        }
        (source, fits && !is_cut)
    }

    /// Indexes words. Returns whether all of them fit.
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

    /// The number of a source; `None` if there are too many, and then the leaf has no origin.
    fn source_of(&mut self, received: &ReceivedOutput<'_>, trusted: bool, secret: bool) -> Option<u32> {
        let tool = received.tool;
        let readers = received.labels.readers.iter().filter(|_| secret);
        let readers: Vec<Vec<String>> = readers.map(|reader| text::words(reader)).collect();
        // One tool may read from stores with different readers.
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

    /// The occurrences of a sequence of words. A date without a year also matches one with a year.
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

    /// The origin of a leaf: the best source that contains all of it.
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

    /// The origin of a sink: only occurrences in full count.
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

    /// Whether one of these sources contains the exact text.
    pub(crate) fn is_written_in(&self, text: &str, sources: Sources) -> bool {
        self.texts.have(text, sources)
    }

    /// Whether one of these sources contains the leaf in full. Numbers and dates have many spellings: if the exact one isn't there, their
    /// words are compared.
    pub(crate) fn is_whole_in(&self, leaf: &said::Leaf, sources: Sources) -> bool {
        if sources == 0 {
            return false;
        }
        // Fast path: usually the first leaf with these words contains the full value.
        let seen = self.seen(&leaf.words);
        let first = [seen.trusted, seen.untrusted].into_iter().flatten();
        let mut texts = first.filter_map(|leaf| self.leaves.get(leaf as usize)?.text);
        if texts.any(|text| self.texts.has(text, &leaf.text, sources)) {
            return true;
        }
        if self.texts.have(&leaf.text, sources) {
            return true;
        }
        // A figure in another spelling. If the source has its plain form, that must occur in full too.
        let plain = leaf.words.join(" ");
        let is_spelt = self.texts.spell(&leaf.text, sources) || self.texts.spell(&plain, sources);
        text::is_plain_figure(&leaf.text) && (!is_spelt || self.texts.have(&plain, sources))
    }

    /// Whether the request contains this in full.
    pub(crate) fn is_in_request(&self, text: &str) -> bool {
        self.is_whole_in(&said::Leaf::from_text(text), self.seen(&text::words(text)).sources & 1)
    }

    /// The origin of an argument, by its worst leaf. An empty argument has the request's origin.
    pub(crate) fn origin_of(&self, argument: &said::Argument<'_>) -> Origin {
        let of = |leaf| self.origin_of_leaf(argument, leaf);
        argument.leaves.iter().map(of).max().unwrap_or(Origin::Request)
    }

    /// The origin of one leaf.
    pub(crate) fn origin_of_leaf(&self, argument: &said::Argument<'_>, leaf: &said::Leaf) -> Origin {
        match argument.is_sink {
            true => self.origin_of_sink(leaf),
            false => self.origin_of_words(&leaf.words),
        }
    }

    /// The origin of a value, by its words.
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

    /// Whether a call of this session created this id, and its kind fits the parameter.
    pub(crate) fn is_made(&self, text: &str, tool: &str, parameter: &str) -> bool {
        self.made.is_of(text, tool, parameter)
    }

    /// The first text that others can write, except in hidden sources.
    pub(crate) fn first_of_others(&self, hidden: Sources) -> Option<u32> {
        let is_theirs = |kept: &SourceField| {
            let source = self.sources.get(kept.source as usize);
            kept.text.is_some() && !kept.is_in(hidden) && source.is_some_and(|source| !source.trusted)
        };
        self.leaves.iter().position(is_theirs).and_then(|at| u32::try_from(at).ok())
    }

    /// The text of a leaf, if it was kept and is neither confidential nor hidden.
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

    /// All sources that no outsider can write, except the request.
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

    /// The parties that may read everything in these sources; `None` if no source is restricted.
    pub(crate) fn readers_of(&self, sources: Sources) -> Option<BTreeSet<Vec<String>>> {
        let is_one = |bit: u32| sources & 1_u128.checked_shl(bit).unwrap_or(0) != 0;
        let named = (0_u32..).zip(&self.sources).filter(|(bit, one)| is_one(*bit) && !one.readers.is_empty());
        let sets = named.map(|(_, source)| source.readers.iter().cloned().collect::<BTreeSet<_>>());
        sets.reduce(|one, other| &one & &other)
    }

    /// Whether confidential data didn't fit, so that a call can't be checked for it.
    pub(crate) fn has_lost_secrets(&self) -> bool {
        self.lost_secrets
    }

    /// Whether confidential data was received outside these sources: then any text may encode it.
    pub(crate) fn may_tell_secrets(&self, open: Sources) -> bool {
        self.lost_secrets || self.secret() & !open != 0
    }

    /// Whether any source has readers.
    pub(crate) fn has_readers(&self) -> bool {
        self.lost || self.sources.iter().any(|source| !source.readers.is_empty())
    }

    /// The sources that some of `reached` may not read. A call without targets may reach anyone. `None` if all of them may read everything.
    pub(crate) fn kept_from(&self, reached: &[Vec<String>]) -> Option<Sources> {
        let may =
            |source: &Source| !reached.is_empty() && reached.iter().all(|one| source.readers.contains(one));
        let kept = self.those(|source| !source.readers.is_empty() && !may(source));
        (kept != 0 || self.lost).then_some(kept)
    }

    /// Sources that no outsider can write and all of `reached` may read.
    pub(crate) fn readable(&self, reached: &[Vec<String>]) -> Sources {
        let kept = self.kept_from(reached).unwrap_or(0);
        self.those(|source| source.trusted && !source.readers.is_empty()) & !kept
    }

    /// The tool of the first of these sources, for messages.
    pub(crate) fn name_of(&self, sources: Sources) -> &str {
        let at = usize::try_from(sources.trailing_zeros()).unwrap_or(usize::MAX);
        self.sources.get(at).map_or("an earlier result", |source| &source.tool)
    }

    /// The sources of these tools.
    pub(crate) fn of_tools(&self, is_one: impl Fn(&str) -> bool) -> Sources {
        self.those(|source| is_one(&source.tool))
    }

    /// The words of the same shape in `sources`, trusted or not: an untrusted word beside a trusted one is still an alternative. `None` if
    /// there are too many.
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
