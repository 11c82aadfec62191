//! Flow instead of session taint: what a call was computed from, as far as the host knows it, and whether that is believed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{CallId, Session};
use crate::flow::{DerivedFrom, FlowError, FlowSource};
use crate::labels::{Effect, FieldLabels};
use crate::ruling::Point;
use crate::said::{Argument, Leaf, Said};
use crate::spans::Sources;
use crate::text;
use crate::transcript::Hearing;

/// Results that a report can name. A later one is unknown, and a report that names it is refused.
const RESULTS_MAX: usize = 100_000;
/// So many words in a row of a stranger's text aren't there by chance.
const RUN_WORDS: usize = 4;

/// The results of a session, as far as reports can name them.
#[derive(Debug, Default)]
pub(super) struct Results {
    heard: HashMap<CallId, ResultFlow>,
    /// Sources of results that a stranger can have had a say in.
    strangers: Sources,
    /// Something untrusted was heard that is no result, so that no report can leave it out.
    pub(super) beside: bool,
    /// The tools describe themselves, and nobody has vouched for them.
    descriptions: bool,
}

#[derive(Debug, Default)]
struct ResultFlow {
    /// A stranger can have chosen the call that gave it.
    chosen: bool,
    /// A stranger can have written a part of it.
    written: bool,
    confidential: bool,
    sources: Sources,
    /// Its fields, and whether a stranger can have written a part of one.
    fields: BTreeMap<String, bool>,
}

/// Which parts of a call no stranger can have chosen.
#[derive(Debug, Default)]
pub(super) struct Unswayed<'a> {
    /// The choice of the tool.
    pub(super) call: bool,
    arguments: BTreeSet<&'a str>,
    /// Why the report isn't believed.
    pub(super) contradiction: Option<String>,
}

impl<'a> Unswayed<'a> {
    pub(super) fn new(call: bool, arguments: impl Iterator<Item = &'a str>) -> Self {
        Self { call, arguments: arguments.collect(), contradiction: None }
    }

    pub(super) fn has(&self, argument: &Argument<'_>) -> bool {
        self.arguments.contains(argument.name)
    }

    /// The whole call.
    pub(super) fn is_all(&self, said: &Said<'_>) -> bool {
        self.call && said.arguments.iter().all(|argument| self.has(argument))
    }
}

impl Results {
    /// There are tools that nobody has vouched for.
    pub(super) fn describe(&mut self) {
        self.descriptions = true;
    }

    /// Takes a result in. If one number has several, what is said of one holds for all.
    pub(super) fn add(&mut self, call: CallId, chosen: bool, confidential: bool, hearing: Hearing) {
        let Hearing { tainted, sources, fields, .. } = hearing;
        if chosen || tainted {
            self.strangers |= sources;
        }
        if self.heard.len() >= RESULTS_MAX && !self.heard.contains_key(&call) {
            return;
        }
        let result = self.heard.entry(call).or_default();
        result.chosen |= chosen;
        result.written |= tainted;
        result.confidential |= confidential;
        result.sources |= sources;
        for (name, tainted) in fields {
            *result.fields.entry(name).or_default() |= tainted;
        }
    }

    fn is_swayed(&self, named: &BTreeSet<FlowSource>) -> bool {
        let swayed = |source: &FlowSource| match source {
            FlowSource::Request => false,
            FlowSource::Tools => self.descriptions,
            FlowSource::Call(call) => self.heard.get(call).is_none_or(|one| one.chosen || one.written),
            // A field that isn't there was misnamed: then nobody knows what was looked at.
            FlowSource::Field(call, name) => self
                .heard
                .get(call)
                .is_none_or(|one| one.chosen || one.fields.get(name).copied().unwrap_or(one.written)),
        };
        self.beside || named.iter().any(swayed)
    }

    fn of<'a>(&'a self, named: &'a BTreeSet<FlowSource>) -> impl Iterator<Item = &'a ResultFlow> {
        named.iter().filter_map(|source| self.heard.get(&source.call()?))
    }

    fn unknown(&self, report: &DerivedFrom) -> Option<CallId> {
        report.all().filter_map(FlowSource::call).find(|call| !self.heard.contains_key(call))
    }
}

impl Session {
    /// Which parts of a call no stranger can have chosen: all of them as long as nothing untrusted was heard, later those that the report
    /// says come from elsewhere. A report that names what isn't there is refused.
    pub(super) fn unswayed<'a>(
        &self,
        report: Option<&DerivedFrom>,
        said: &'a Said<'_>,
    ) -> Result<Unswayed<'a>, Point> {
        let Some(report) = report else { return Ok(self.unswayed_unreported(said)) };
        if let Some(call) = self.results.unknown(report) {
            let error = FlowError::Unknown(format!("call {call}"));
            return Err(Point::deny("provenance.unknown_source", error.to_string()));
        }
        let mut unswayed = Unswayed { call: !self.results.is_swayed(&report.call), ..Unswayed::default() };
        for argument in &said.arguments {
            let named = report.of(argument.name);
            if self.results.is_swayed(named) {
                continue;
            }
            // A find is better evidence than a report: a host that is wrong about one value may be wrong about all of them.
            let has_theirs = self.transcript.is_tainted() || !self.quarantine.is_empty();
            if has_theirs && self.contradicts(argument, named) {
                let contradiction = format!(
                    "the host reports that `{}` doesn't come from untrusted text, but it is found there",
                    argument.name
                );
                return Ok(Unswayed { contradiction: Some(contradiction), ..Unswayed::default() });
            }
            unswayed.arguments.insert(argument.name);
        }
        Ok(unswayed)
    }

    /// Whether an argument is found in what a stranger had a say in, and neither in the request nor in what the report names.
    fn contradicts(&self, argument: &Argument<'_>, named: &BTreeSet<FlowSource>) -> bool {
        let sources = self.results.of(named).fold(0, |all, result| all | result.sources);
        let trusted = self.transcript.trusted();
        // A source that a swayed result shares can't speak for a named one, unless no outsider writes it.
        let named = 1 | self.transcript.agreed() | (sources & (trusted | !self.results.strangers));
        let said = 1 | self.transcript.agreed();
        let is_value = |leaf: &Leaf| {
            let seen = self.transcript.seen(&leaf.words).sources;
            seen & self.quarantine_values() != 0 && seen & (named | said) == 0
        };
        self.is_found_in(argument, self.results.strangers, named) || argument.leaves.iter().any(is_value)
    }

    /// Whether a value, an address or some words in a row of an argument are found in `theirs`, and not in `named`.
    pub(super) fn is_found_in(&self, argument: &Argument<'_>, theirs: Sources, named: Sources) -> bool {
        let is_theirs = |words: &[String]| {
            let seen = self.transcript.seen(words).sources;
            seen & theirs != 0 && seen & named == 0
        };
        // In content a single plain word is anybody's.
        let runs = |leaf: &Leaf| {
            let length = RUN_WORDS.min(leaf.words.len()).max(2);
            let reaches =
                |word: &String| text::shape(word).is_some() && is_theirs(std::slice::from_ref(word));
            leaf.words.windows(length).any(is_theirs) || leaf.words.iter().any(reaches)
        };
        let sink = |leaf: &Leaf| {
            let seen = self.transcript.seen(&leaf.words).sources;
            seen & theirs != 0 && !self.transcript.is_whole_in(leaf, seen & named)
        };
        argument.leaves.iter().any(|leaf| runs(leaf) || (argument.is_sink && sink(leaf)))
    }

    /// Whether content may tell what is confidential: it was computed from such a result, or has a word that only such results have. A
    /// report takes nothing from this. It says who chose a value, not who may read it.
    pub(super) fn may_tell(
        &self,
        labels: &FieldLabels,
        argument: &Argument<'_>,
        report: Option<&DerivedFrom>,
    ) -> bool {
        let Some(report) = report.filter(|_| self.transcript.is_tainted() && labels.acts()) else {
            return false;
        };
        // Whom a call is for is no message, unless it is the address that is fetched. If nobody has declared which arguments those are, only
        // ids, figures and single words are believed to be none.
        let is_name = |leaf: &Leaf| !labels.inferred || text::is_token(&leaf.text);
        if argument.is_sink && labels.effect != Effect::Egress && argument.leaves.iter().all(is_name) {
            return false;
        }
        let (open, secret) = (self.transcript.open(), self.transcript.secret());
        let computed = self.results.of(report.of(argument.name)).any(|result| result.confidential);
        let seen = |words: &[String]| self.transcript.seen(words).sources;
        let is_open = |word: &String| {
            let sources = seen(std::slice::from_ref(word));
            sources & open != 0 || (!computed && sources & secret == 0)
        };
        let is_plain = |leaf: &Leaf| seen(&leaf.words) & open != 0 || leaf.words.iter().all(is_open);
        !argument.leaves.iter().all(is_plain)
    }
}
