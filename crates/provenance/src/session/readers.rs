//! Who may read it: an output whose label names readers goes to them, and to nobody else without a person's yes. It holds from the first
//! byte on, with a plan and without one, whether or not anything untrusted was heard.

use serde_json::Value;

use super::Session;
use crate::labels::FieldLabels;
use crate::ruling::Point;
use crate::spans::Sources;
use crate::text;

impl Session {
    /// Nothing that the call says is from a source that those it reaches may not read. As ever that takes a positive find: what is found
    /// nowhere may be the same in other words, and is asked about.
    pub(super) fn is_for_readers(&self, labels: &FieldLabels, args: &Value) -> Point {
        if !labels.acts() || !self.transcript.has_readers() {
            return Point::fine();
        }
        let Some(kept) = self.transcript.kept_from(&reached(labels, args)) else { return Point::fine() };
        let given = args.as_object().into_iter().flatten().filter(|(_, value)| !text::is_empty(value));
        given.fold(Point::fine(), |so_far, (name, value)| {
            so_far.or(self.is_readable(name, value, labels.is_sink(name, value), kept))
        })
    }

    fn is_readable(&self, name: &str, value: &Value, is_sink: bool, kept: Sources) -> Point {
        let mut is_fine = true;
        text::leaves(value, &mut |_, leaf| {
            let words = text::words_of(leaf);
            let whole = self.transcript.seen(&words).sources;
            let open = |word: &String| self.transcript.seen(std::slice::from_ref(word)).sources & !kept != 0;
            // Where a sink comes from is judged already; here only whether it says what isn't for all.
            is_fine &= whole & !kept != 0 || if is_sink { whole & kept == 0 } else { words.iter().all(open) };
        });
        if is_fine {
            return Point::fine();
        }
        let tool = self.transcript.name_of(kept);
        let reason =
            format!("`{name}` may say what `{tool}` gave, which isn't for everyone that this reaches");
        Point::ask("provenance.readers", reason)
    }
}

/// Those whom a call names as affected, in words.
pub(super) fn reached(labels: &FieldLabels, args: &Value) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    let given = args.as_object().into_iter().flatten();
    for (_, value) in given.filter(|(name, value)| labels.is_sink(name, value)) {
        text::leaves(value, &mut |_, leaf| all.push(text::words_of(leaf)));
    }
    all
}
