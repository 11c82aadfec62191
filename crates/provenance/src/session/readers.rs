//! Enforces readers: an output whose label names readers goes to those parties only, unless approved. This applies from the first byte,
//! with or without a plan, tainted or not.

use super::Session;
use crate::labels::FieldLabels;
use crate::ruling::Point;
use crate::said::{Argument, CallArguments};
use crate::spans::Sources;

impl Session {
    /// Checks that a call contains nothing from sources that its targets may not read. Openness needs a match: a word without origin may be
    /// the same content in other words, and becomes a question.
    pub(super) fn is_for_readers(&self, labels: &FieldLabels, said: &CallArguments<'_>) -> Point {
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
            // The origin of a sink is judged elsewhere; here only whether it contains restricted data.
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

/// The targets of a call, as words.
pub(super) fn reached(said: &CallArguments<'_>) -> Vec<Vec<String>> {
    said.sinks().flat_map(|argument| &argument.leaves).map(|leaf| leaf.words.clone()).collect()
}
