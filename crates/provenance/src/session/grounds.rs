//! A call without a plan: whether what it does rests on the request and on trusted outputs.

use serde_json::Value;

use super::{Session, act_of};
use crate::labels::FieldLabels;
use crate::ruling::{Point, Stance};
use crate::text;

impl Session {
    pub(super) fn by_grounds(&self, tool: &str, labels: &FieldLabels, args: &Value) -> Point {
        // Before anything untrusted was heard, all that the agent says is its own.
        if !self.transcript.is_tainted() {
            return Point::fine();
        }
        let mut so_far = Point::fine();
        for (name, value) in args.as_object().into_iter().flatten().filter(|(_, value)| !text::is_empty(value)) {
            let sink = labels.is_sink(name, value);
            if !labels.acts() && !sink {
                continue;
            }
            so_far = so_far.or(if sink { self.is_grounded(name, value) } else { self.is_covered(name, value) });
            if so_far.stance == Stance::Ask {
                return so_far;
            }
        }
        if labels.acts() && self.acts.contains(&act_of(tool, args)) {
            return Point::ask("provenance.repeated", "exactly this has been done already".to_owned());
        }
        so_far
    }

    /// A sink is positively found in the request or in a trusted output.
    fn is_grounded(&self, name: &str, value: &Value) -> Point {
        let origin = self.origin(value);
        if origin.is_trusted() {
            Point::fine()
        } else {
            Point::ask("provenance.sink", format!("`{name}` decides who or what is affected, and comes from {origin}"))
        }
    }

    /// Content is made of words of the request and of trusted outputs that aren't confidential.
    fn is_covered(&self, name: &str, value: &Value) -> Point {
        let open = self.transcript.open();
        let mut odd = None;
        text::leaves(value, &mut |_, leaf| {
            let words = text::words_of(leaf);
            if self.transcript.seen(&words).sources & open != 0 {
                return;
            }
            let uncovered = words.iter().find(|word| self.transcript.seen(std::slice::from_ref(word)).sources & open == 0);
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
            let reason = format!("`{name}` has an address, a link or a code that is not from the request or a trusted result");
            return Point::ask("provenance.smuggled", reason);
        }
        Point::fine()
    }
}
