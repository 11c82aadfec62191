//! Judges a call without a plan: whether it is grounded in the request and in trusted outputs.

use super::readers::reached;
use super::{Session, acts_of};
use crate::date;
use crate::intent;
use crate::labels::FieldLabels;
use crate::ruling::{Point, Stance};
use crate::said::{Argument, CallArguments, Leaf};
use crate::spans::Sources;
use crate::text;
use crate::transcript::Origin;

impl Session {
    /// Judges a call that may have been computed from anything received so far.
    pub(super) fn by_grounds(&self, tool: &str, labels: &FieldLabels, said: &CallArguments<'_>) -> Point {
        let is_free = !self.transcript.is_tainted();
        let is_fine = |argument: &Argument<'_>| is_free && !self.is_quarantined(argument);
        self.by_grounds_but(tool, labels, said, is_free, is_fine)
    }

    /// Judges a call, except for the parts that only the agent can have chosen: the tool, if `is_called_by_us`, and arguments that are
    /// `is_fine`.
    pub(super) fn by_grounds_but(
        &self,
        tool: &str,
        labels: &FieldLabels,
        said: &CallArguments<'_>,
        is_called_by_us: bool,
        is_fine: impl Fn(&Argument<'_>) -> bool,
    ) -> Point {
        // Before any untrusted input, no outsider can have influenced the call.
        if !self.transcript.is_tainted() && self.quarantine.is_empty() {
            return Point::fine();
        }
        // Reports sinks first, because they matter most to a reviewer; among those, values from an outsider's text.
        let is_theirs =
            |argument: &Argument<'_>| matches!(self.transcript.origin_of(argument), Origin::Untrusted(_));
        let mut sinks: Vec<_> = said.sinks().filter(|argument| !is_fine(argument)).collect();
        sinks.sort_by_cached_key(|argument| !is_theirs(argument));
        let so_far = sinks
            .into_iter()
            .fold(Point::fine(), |so_far, argument| so_far.or(self.is_grounded(tool, argument)));
        if labels.local {
            return so_far;
        }
        let open = self.open_to(said);
        let content = said.content().filter(|argument| labels.acts() && !is_fine(argument));
        let so_far = content.fold(so_far, |so_far, argument| so_far.or(self.is_covered(argument, open)));
        if so_far.stance != Stance::Allow || !labels.acts() || is_called_by_us {
            return so_far;
        }
        if !self.intent.includes(tool) {
            let reason = format!("the request has no word for what `{tool}` does");
            return Point::ask("provenance.intent", reason);
        }
        if let Some(name) = self.left_out(labels, said) {
            let reason = format!("the request mentions `{name}` of `{tool}`, but the call omits it");
            return Point::ask("provenance.left_out", reason);
        }
        if self.is_done(&acts_of(tool, said)) {
            let reason = format!("`{tool}` has already done this for the same target");
            return Point::ask("provenance.repeated", reason);
        }
        so_far
    }

    /// The sources whose words may be sent to the call's targets.
    pub(super) fn open_to(&self, said: &CallArguments<'_>) -> Sources {
        let open = self.transcript.open();
        if self.transcript.has_readers() { open | self.transcript.readable(&reached(said)) } else { open }
    }

    /// A sink must be in the request or approved. A choice among trusted values is safe only if no outsider can have made it.
    pub(super) fn is_grounded(&self, tool: &str, argument: &Argument<'_>) -> Point {
        let name = argument.name;
        let origin = |leaf: &Leaf| {
            let origin = self.transcript.origin_of_sink(leaf);
            let is_fine = match origin {
                Origin::Request => !intent::is_misfit(name, &leaf.words) && !self.intent.is_idle(&leaf.words),
                Origin::Trusted(_) => self.is_no_choice(tool, name, leaf),
                Origin::Untrusted(_) | Origin::Nowhere => self.transcript.is_made(&leaf.text, tool, name),
            };
            (!is_fine).then_some(origin)
        };
        match argument.leaves.iter().filter_map(origin).max() {
            None => Point::fine(),
            Some(_) => Point::ask_about("provenance.sink", name, "it decides who or what is affected"),
        }
    }

    /// Whether a trusted value leaves no choice to an outsider: it was approved, a call of this session created it, or the request
    /// identifies it ("the largest").
    pub(super) fn is_no_choice(&self, tool: &str, name: &str, leaf: &Leaf) -> bool {
        let is_extreme = || {
            self.intent.may_ask_for(tool)
                && self.transcript.records.is_extreme_anywhere(
                    &leaf.words.join(" "),
                    &self.ends,
                    &self.intent,
                )
        };
        self.transcript.is_agreed(&leaf.words)
            || self.transcript.is_made(&leaf.text, tool, name)
            || (!self.ends.is_empty() && is_extreme())
            || (!leaf.words.iter().all(|word| date::is_date(word)) && self.is_beside_named(name, leaf, None))
    }

    /// Content must consist of words of the request and of trusted outputs that its recipients may read.
    pub(super) fn is_covered(&self, argument: &Argument<'_>, open: Sources) -> Point {
        let may_tell = self.transcript.may_tell_secrets(open);
        let is_fine = |leaf: &Leaf| {
            if may_tell && leaf.says_between {
                return false;
            }
            // A figure that readers could misinterpret must be spelled as in its source.
            let is_figure = leaf.words.iter().all(|word| text::is_number(word));
            if is_figure
                && !text::is_clear_figure(&leaf.text)
                && !self.transcript.is_written_in(&leaf.text, open)
            {
                return false;
            }
            if self.transcript.seen(&leaf.words).sources & open != 0 {
                return true;
            }
            // A due date alone reveals too little to be useful to others.
            if let [day] = leaf.words.as_slice()
                && date::is_date(day)
            {
                return true;
            }
            // A number is grounded if the request identifies its record ("what Ann was paid"). Not in free text, which could contain any
            // number.
            if argument.value.is_number()
                && (self.is_beside_named(argument.name, leaf, None)
                    || self.is_worked_out(argument.name, leaf))
            {
                return true;
            }
            let sources = |word: &String| self.transcript.seen(std::slice::from_ref(word)).sources;
            // A time of day alone reveals little: on a day in the request, it is a time or a duration.
            let on_a_day = leaf.words.iter().any(|word| date::is_date(word) && sources(word) & 1 != 0);
            leaf.words.iter().all(|word| sources(word) & open != 0 || (on_a_day && date::is_clock(word)))
        };
        if argument.leaves.iter().all(is_fine) {
            return Point::fine();
        }
        let reason =
            "it consists neither of the request's words nor of trusted results that may be passed on";
        Point::ask_about("provenance.content", argument.name, reason)
    }

    /// Free text must not contain an address, link or code, unless the request or an open trusted output has it.
    pub(super) fn smuggles_nothing(&self, argument: &Argument<'_>) -> Point {
        let (open, secret) = (self.transcript.open(), self.transcript.secret());
        let sources = |word: &String| self.transcript.seen(std::slice::from_ref(word)).sources;
        let is_known = |word: &String| sources(word) & open != 0;
        // A word that only confidential results have.
        let is_secret = |word: &String| sources(word) != 0 && sources(word) & !secret == 0;
        let reaches =
            |word: &&String| text::shape(word).is_some() || *word == text::NOWHERE || is_secret(word);
        let mut words = argument.leaves.iter().flat_map(|leaf| &leaf.words).filter(reaches);
        let says_between =
            self.transcript.may_tell_secrets(open) && argument.leaves.iter().any(|leaf| leaf.says_between);
        if !says_between && words.all(is_known) {
            return Point::fine();
        }
        let reason = "it has an address, a link or a code that is not from the request or a trusted result";
        Point::ask_about("provenance.smuggled", argument.name, reason)
    }

    /// Judges one argument as without a plan.
    pub(super) fn is_fine_unplanned(
        &self,
        tool: &str,
        labels: &FieldLabels,
        said: &CallArguments<'_>,
        argument: &Argument<'_>,
    ) -> Point {
        match (argument.is_sink, labels.acts()) {
            (true, _) => self.is_grounded(tool, argument),
            (false, true) => self.is_covered(argument, self.open_to(said)),
            (false, false) => Point::fine(),
        }
    }
}
