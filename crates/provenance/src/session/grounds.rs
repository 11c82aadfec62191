//! A call without a plan: whether what it does rests on the request and on trusted outputs.

use serde_json::Value;

use super::readers::reached;
use super::{Session, act_of};
use crate::date;
use crate::labels::FieldLabels;
use crate::ruling::{Point, Stance};
use crate::spans::Sources;
use crate::text;
use crate::transcript::Origin;

impl Session {
    pub(super) fn by_grounds(&self, tool: &str, labels: &FieldLabels, args: &Value) -> Point {
        let tainted = self.transcript.is_tainted();
        let given = || args.as_object().into_iter().flatten().filter(|(_, value)| !text::is_empty(value));
        // Who is affected comes first: that is what a person should hear.
        let sinks = given().filter(|(name, value)| labels.is_sink(name, value));
        let so_far =
            sinks.fold(Point::fine(), |so_far, (name, value)| so_far.or(self.is_grounded(name, value)));
        // Before anything untrusted was heard, what the agent writes is its own.
        let content =
            given().filter(|(name, value)| tainted && labels.acts() && !labels.is_sink(name, value));
        let mut open = self.transcript.open();
        if self.transcript.has_readers() {
            open |= self.transcript.readable(&reached(labels, args));
        }
        let so_far =
            content.fold(so_far, |so_far, (name, value)| so_far.or(self.is_covered(name, value, open)));
        if so_far.stance != Stance::Allow {
            return so_far;
        }
        if tainted && labels.acts() && self.acts.contains(&act_of(tool, args)) {
            return Point::ask("provenance.repeated", "exactly this has been done already".to_owned());
        }
        so_far
    }

    /// A sink is what the request says, or what a person has agreed to. A choice among trusted values is as good only as long as nobody else
    /// can have made it.
    fn is_grounded(&self, name: &str, value: &Value) -> Point {
        let mut worst: Option<Origin> = None;
        text::leaves(value, &mut |_, leaf| {
            let words = text::words_of(leaf);
            let origin = self.transcript.origin_of_words(&words);
            let fine = match origin {
                Origin::Request => true,
                Origin::Trusted(_) => !self.transcript.is_tainted() || self.is_no_choice(&words),
                Origin::Untrusted(_) | Origin::Nowhere => false,
            };
            if !fine && worst.as_ref().is_none_or(|worst| origin > *worst) {
                worst = Some(origin);
            }
        });
        match worst {
            None => Point::fine(),
            Some(origin) => {
                let reason = format!("`{name}` decides who or what is affected, and comes from {origin}");
                Point::ask("provenance.sink", reason)
            }
        }
    }

    /// A trusted value that nobody else can have chosen: a person agreed to it, a call of this session brought it about, or it is the one that
    /// the request names ("the largest").
    fn is_no_choice(&self, words: &[String]) -> bool {
        let is_extreme = || self.transcript.records.is_extreme_anywhere(&words.join(" "), &self.ends);
        self.transcript.is_agreed(words) || (!self.ends.is_empty() && is_extreme())
    }

    /// Content is made of words of the request and of trusted outputs that aren't confidential to those it reaches.
    fn is_covered(&self, name: &str, value: &Value, open: Sources) -> Point {
        let mut odd = None;
        text::leaves(value, &mut |_, leaf| {
            let words = text::words_of(leaf);
            if self.transcript.seen(&words).sources & open != 0 {
                return;
            }
            let sources = |word: &String| self.transcript.seen(std::slice::from_ref(word)).sources;
            // A time of day says little by itself: on a day that the request names, it is how long and when.
            let on_a_day = words.iter().any(|word| date::is_date(word) && sources(word) & 1 != 0);
            let fine = |word: &String| sources(word) & open != 0 || (on_a_day && date::is_clock(word));
            let uncovered = words.iter().find(|word| !fine(word));
            odd = odd.take().or_else(|| uncovered.cloned());
        });
        match odd {
            None => Point::fine(),
            Some(_) => {
                let reason = format!("`{name}` says what neither the request nor a trusted result says");
                Point::ask("provenance.content", reason)
            }
        }
    }

    /// Nothing in a free text that reaches somebody by itself, unless the request or an open trusted output has it.
    pub(super) fn smuggles_nothing(&self, name: &str, value: &Value) -> Point {
        let open = self.transcript.open();
        let mut smuggled = false;
        text::leaves(value, &mut |_, leaf| {
            let words = text::words_of(leaf);
            let reaching = words.iter().filter(|word| text::shape(word).is_some());
            smuggled |= reaching
                .into_iter()
                .any(|word| self.transcript.seen(std::slice::from_ref(word)).sources & open == 0);
        });
        if smuggled {
            let reason = format!(
                "`{name}` has an address, a link or a code that is not from the request or a trusted result"
            );
            return Point::ask("provenance.smuggled", reason);
        }
        Point::fine()
    }
}
