//! Flow reports in place of session taint: what a call was computed from, as the host reports it, and whether the report is credible.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{CallId, Session};
use crate::flow::{DerivedFrom, FlowError, FlowSource};
use crate::labels::{Effect, FieldLabels};
use crate::ruling::Point;
use crate::said::{Argument, CallArguments, Leaf};
use crate::spans::Sources;
use crate::text;
use crate::transcript::AddedOutput;

/// Maximum number of results that a report can name. A report that names a later one is rejected.
const RESULTS_MAX: usize = 100_000;
/// This many consecutive words of an untrusted text are no coincidence.
const RUN_WORDS: usize = 4;

/// The results of a session that reports can name.
#[derive(Debug, Default)]
pub(super) struct Results {
    by_call: HashMap<CallId, ResultFlow>,
    /// Sources of results that an outsider may have influenced.
    strangers: Sources,
    /// Untrusted input was received outside any result, so no report can exclude it.
    pub(super) beside: bool,
    /// Tool descriptions are untrusted.
    descriptions: bool,
}

#[derive(Debug, Default)]
struct ResultFlow {
    /// An outsider may have chosen its call.
    chosen: bool,
    /// An outsider may have written a part of it.
    written: bool,
    confidential: bool,
    sources: Sources,
    /// Its fields, and whether an outsider may have written a part of each.
    fields: BTreeMap<String, bool>,
}

/// The parts of a call that no outsider can have chosen.
#[derive(Debug, Default)]
pub(super) struct Unswayed<'a> {
    /// The choice of the tool.
    pub(super) call: bool,
    arguments: BTreeSet<&'a str>,
    /// Why the report is not credible.
    pub(super) contradiction: Option<String>,
}

impl<'a> Unswayed<'a> {
    pub(super) fn new(call: bool, arguments: impl Iterator<Item = &'a str>) -> Self {
        Self { call, arguments: arguments.collect(), contradiction: None }
    }

    pub(super) fn has(&self, argument: &Argument<'_>) -> bool {
        self.arguments.contains(argument.name)
    }

    /// Whether that is the entire call.
    pub(super) fn is_all(&self, said: &CallArguments<'_>) -> bool {
        self.call && said.arguments.iter().all(|argument| self.has(argument))
    }
}

impl Results {
    /// Notes that some tools are unvouched.
    pub(super) fn describe(&mut self) {
        self.descriptions = true;
    }

    /// Adds a result. If several results share a number, the flags of each apply to all.
    pub(super) fn add(&mut self, call: CallId, chosen: bool, confidential: bool, added: AddedOutput) {
        let AddedOutput { tainted, sources, fields, .. } = added;
        if chosen || tainted {
            self.strangers |= sources;
        }
        if self.by_call.len() >= RESULTS_MAX && !self.by_call.contains_key(&call) {
            return;
        }
        let result = self.by_call.entry(call).or_default();
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
            FlowSource::Call(call) => self.by_call.get(call).is_none_or(|one| one.chosen || one.written),
            // A missing field was misnamed, so it is unknown what was used.
            FlowSource::Field(call, name) => self
                .by_call
                .get(call)
                .is_none_or(|one| one.chosen || one.fields.get(name).copied().unwrap_or(one.written)),
        };
        self.beside || named.iter().any(swayed)
    }

    fn named_by<'a>(&'a self, named: &'a BTreeSet<FlowSource>) -> impl Iterator<Item = &'a ResultFlow> {
        named.iter().filter_map(|source| self.by_call.get(&source.call()?))
    }

    fn unknown(&self, report: &DerivedFrom) -> Option<CallId> {
        report.all().filter_map(FlowSource::call).find(|call| !self.by_call.contains_key(call))
    }
}

impl Session {
    /// The parts of a call that no outsider can have chosen: all parts before any untrusted input, later those that the report attributes
    /// to other sources. A report that names an unknown result is rejected.
    pub(super) fn unswayed<'a>(
        &self,
        report: Option<&DerivedFrom>,
        said: &'a CallArguments<'_>,
    ) -> Result<Unswayed<'a>, Point> {
        let Some(report) = report else { return Ok(self.unswayed_unreported(said)) };
        if let Some(call) = self.results.unknown(report) {
            let error = FlowError::Unknown(format!("call {call}"));
            return Err(Point::deny("provenance.unknown_source", error.to_string()));
        }
        let mut unswayed = Unswayed { call: !self.results.is_swayed(&report.call), ..Unswayed::default() };
        for argument in &said.arguments {
            let named = report.sources_of(argument.name);
            if self.results.is_swayed(named) {
                continue;
            }
            // A match is stronger evidence than a report: a host that is wrong about one value may be wrong about all.
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

    /// Whether an argument occurs in an outsider's text, but neither in the request nor in the reported sources.
    fn contradicts(&self, argument: &Argument<'_>, named: &BTreeSet<FlowSource>) -> bool {
        let sources = self.results.named_by(named).fold(0, |all, result| all | result.sources);
        let trusted = self.transcript.trusted();
        // A source that an influenced result shares doesn't support the report, unless no outsider can write it.
        let named = 1 | self.transcript.agreed() | (sources & (trusted | !self.results.strangers));
        let said = 1 | self.transcript.agreed();
        let is_value = |leaf: &Leaf| {
            let seen = self.transcript.seen(&leaf.words).sources;
            seen & self.quarantine_values() != 0 && seen & (named | said) == 0
        };
        self.is_found_in(argument, self.results.strangers, named) || argument.leaves.iter().any(is_value)
    }

    /// Whether a value, an address or several consecutive words of an argument occur in `theirs` but not in `named`.
    pub(super) fn is_found_in(&self, argument: &Argument<'_>, theirs: Sources, named: Sources) -> bool {
        let is_theirs = |words: &[String]| {
            let seen = self.transcript.seen(words).sources;
            seen & theirs != 0 && seen & named == 0
        };
        // In content, a single plain word proves nothing.
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

    /// Whether content may reveal confidential data: it was computed from such a result, or contains a word that only such results have. A
    /// flow report doesn't affect this: it states who chose a value, not who may read it.
    pub(super) fn may_tell(
        &self,
        labels: &FieldLabels,
        argument: &Argument<'_>,
        report: Option<&DerivedFrom>,
    ) -> bool {
        let Some(report) = report.filter(|_| self.transcript.is_tainted() && labels.acts()) else {
            return false;
        };
        // A recipient is not a message, unless it is a URL to fetch. If the sinks are undeclared, only ids, figures and single words count
        // as recipients.
        let is_name = |leaf: &Leaf| !labels.inferred || text::is_token(&leaf.text);
        if argument.is_sink && labels.effect != Effect::Egress && argument.leaves.iter().all(is_name) {
            return false;
        }
        let (open, secret) = (self.transcript.open(), self.transcript.secret());
        let computed =
            self.results.named_by(report.sources_of(argument.name)).any(|result| result.confidential);
        let seen = |words: &[String]| self.transcript.seen(words).sources;
        let is_open = |word: &String| {
            let sources = seen(std::slice::from_ref(word));
            sources & open != 0 || (!computed && sources & secret == 0)
        };
        let is_plain = |leaf: &Leaf| seen(&leaf.words) & open != 0 || leaf.words.iter().all(is_open);
        !argument.leaves.iter().all(is_plain)
    }
}
