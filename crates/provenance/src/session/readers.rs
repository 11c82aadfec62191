//! Who may read it: an output whose label names readers goes to them, and to nobody else without a person's yes. It holds from the first
//! byte on, with a plan and without one, whether or not anything untrusted was heard.

use super::Session;
use crate::labels::FieldLabels;
use crate::ruling::Point;
use crate::said::{Argument, Said};
use crate::spans::Sources;

impl Session {
    /// Nothing that the call says is from a source that those it reaches may not read. As ever that takes a positive find: what is found
    /// nowhere may be the same in other words, and is asked about.
    pub(super) fn is_for_readers(&self, labels: &FieldLabels, said: &Said<'_>) -> Point {
        if !labels.acts() || !self.transcript.has_readers() {
            return Point::fine();
        }
        let Some(kept) = self.transcript.kept_from(&reached(said)) else { return Point::fine() };
        said.arguments
            .iter()
            .fold(Point::fine(), |so_far, argument| so_far.or(self.is_readable(argument, kept)))
    }

    fn is_readable(&self, argument: &Argument<'_>, kept: Sources) -> Point {
        let open = |word: &String| self.transcript.seen(std::slice::from_ref(word)).sources & !kept != 0;
        let is_kept = |word: &String| self.transcript.seen(std::slice::from_ref(word)).sources & kept != 0;
        let is_fine = argument.leaves.iter().all(|leaf| {
            if leaf.says_between {
                return false;
            }
            let whole = self.transcript.seen(&leaf.words).sources;
            // Where a sink comes from is judged already; here only whether it says what isn't for all.
            whole & !kept != 0
                || match argument.is_sink {
                    true => whole & kept == 0 && leaf.words.iter().all(|word| open(word) || !is_kept(word)),
                    false => leaf.words.iter().all(open),
                }
        });
        if is_fine {
            return Point::fine();
        }
        let tool = self.transcript.name_of(kept);
        let reason = format!("it may contain output of `{tool}`, which not all recipients may read");
        Point::ask_about("provenance.readers", argument.name, reason)
    }
}

/// Those whom a call names as affected, in words.
pub(super) fn reached(said: &Said<'_>) -> Vec<Vec<String>> {
    said.sinks().flat_map(|argument| &argument.leaves).map(|leaf| leaf.words.clone()).collect()
}
