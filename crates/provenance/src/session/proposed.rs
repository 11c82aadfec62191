//! Proposed plans: derived from the request alone, by its verbs and the things it names, and by a model that has read nothing else.
//!
//! A proposed plan only adds permissions. An effect that the request names may happen once with content in the agent's own words. A model
//! may find such a word in a language that the lexicon lacks, ask for the effect again for another target that the request names, and
//! select a record by words of the request. Everything else follows the rules without a plan.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Planned, Session};
use crate::intent::{self, Intent};
use crate::labels::FieldLabels;
use crate::plan::{Argument, Pick, Plan, PlanStep, ProposedStep, Selection};
use crate::ruling::{Point, Ruling, Stance};
use crate::said::{self, CallArguments};
use crate::text;

/// Maximum number of a model's steps. No request needs more.
const PROPOSED_MAX: usize = 32;

impl Session {
    /// One step for each effect that this turn's request names, plus the model's steps. Effects of earlier turns are not proposed again.
    pub(super) fn proposal(&mut self, request: &str, proposed: &[ProposedStep]) -> Plan {
        let mut turn = Intent::default();
        turn.add_message(request);
        let is_open = |(_, labels): &(&String, &FieldLabels)| is_proposable(labels);
        let asked = self.tools.iter().filter(is_open).filter(|(tool, _)| turn.asks_for(tool));
        let mut steps: Vec<PlanStep> =
            asked.map(|(tool, labels)| step_of(tool, labels, BTreeMap::new())).collect();
        steps.sort_by(|one, other| one.tool.cmp(&other.tool));
        for step in proposed.iter().take(PROPOSED_MAX) {
            steps.extend(self.accepted(&mut turn, step, &steps));
        }
        Plan { steps }
    }

    /// A model's step, if the request supports it and it adds something to the steps so far.
    fn accepted(
        &mut self,
        turn: &mut Intent,
        proposed: &ProposedStep,
        so_far: &[PlanStep],
    ) -> Option<PlanStep> {
        let ProposedStep { tool, word, args } = proposed;
        let labels = self.tools.get(tool).filter(|labels| is_proposable(labels))?;
        let args = args.iter().filter(|(name, argument)| self.is_borne_out(labels, name, argument));
        let args: BTreeMap<_, _> = args.map(|(name, argument)| (name.clone(), argument.clone())).collect();
        let is_sink = |name: &String| labels.sinks.contains(name);
        let has_selection =
            args.iter().any(|(name, one)| is_sink(name) && matches!(one, Argument::Select(_)));
        // A repetition must name another target.
        let others: Vec<&PlanStep> = so_far.iter().filter(|step| step.tool == *tool).collect();
        let is_another = args.keys().any(is_sink)
            && !others
                .iter()
                .any(|step| labels.sinks.iter().all(|sink| step.args.get(sink) == args.get(sink)));
        let step = step_of(tool, labels, args);
        if turn.asks_for(tool) {
            return (has_selection || is_another || others.is_empty()).then_some(step);
        }
        // The grant applies to the entire conversation, like any word of the request.
        let is_granted = turn.grant(tool, word) && self.intent.grant(tool, word);
        is_granted.then_some(step)
    }

    /// Whether the request contains the argument: the full constant, or the words that select a record.
    fn is_borne_out(&self, labels: &FieldLabels, name: &str, argument: &Argument) -> bool {
        let is_in_request = |value: &Value| {
            let text = text::text_of(text::Leaf::Scalar(value));
            let words = text::words(&text);
            !words.is_empty()
                && self.intent.is_telling(&words.join(" "))
                && !intent::is_misfit(name, &words)
                && self.transcript.is_in_request(&text)
        };
        let is_known = |Selection { from, by, pick, whose, .. }: &Selection| {
            let reads = |tool: &String| self.tools.get(tool).is_some_and(|labels| !labels.acts());
            let is_by_end = match pick {
                Pick::Every => whose.is_some(),
                // The author of a list decides what is first.
                Pick::First | Pick::Count => false,
                Pick::Largest | Pick::Smallest | Pick::Latest | Pick::Earliest => {
                    by.is_some() && self.ends.iter().any(|end| end.is_picked_by(*pick))
                }
            };
            !from.is_empty()
                && from.iter().all(reads)
                && is_by_end
                && whose.as_ref().is_none_or(|one| is_in_request(&one.is))
        };
        labels.fields.contains(name)
            && match argument {
                Argument::Const(value) => !value.is_object() && !value.is_array() && is_in_request(value),
                Argument::Select(selection) => is_known(selection),
                Argument::From(_) | Argument::Free(_) => false,
            }
    }

    pub(super) fn by_proposal(
        &self,
        planned: &Planned,
        tool: &str,
        labels: &FieldLabels,
        said: &CallArguments<'_>,
        by_grounds: impl FnOnce() -> Point,
    ) -> Ruling {
        let by_plan = self.by_plan(planned, tool, labels, said);
        let is_plain = || {
            self.left_out(labels, said).is_none()
                && said.content().all(|argument| self.is_in_own_words(argument, said))
        };
        let is_done = || self.is_done(&super::acts_of(tool, said));
        if by_plan.stance == Stance::Allow && (by_plan.step.is_none() || (is_plain() && !is_done())) {
            return by_plan;
        }
        // A call consumes its tool's step, however it was allowed.
        Ruling { step: by_plan.step, ..Ruling::new(by_grounds()) }
    }

    /// Whether content is grounded, or has no figure and no word that occurs only in results that may not be sent.
    fn is_in_own_words(&self, argument: &said::Argument<'_>, said: &CallArguments<'_>) -> bool {
        let open = self.open_to(said);
        // Any word may encode confidential data.
        if self.transcript().may_tell_secrets(open) {
            return self.is_covered(argument, open).stance == Stance::Allow;
        }
        let is_fine = |word: &String| {
            let sources = self.transcript().seen(std::slice::from_ref(word)).sources;
            // Letters only, so no figure in disguise.
            let is_plain = word.chars().all(|c| c.is_alphabetic() || "'-\u{2019}".contains(c));
            sources & open != 0 || (sources == 0 && is_plain)
        };
        argument.leaves.iter().flat_map(|leaf| &leaf.words).all(is_fine)
            || self.is_covered(argument, open).stance == Stance::Allow
    }
}

/// Whether steps of a tool can be proposed: it has an effect, and its description is trusted.
fn is_proposable(labels: &FieldLabels) -> bool {
    labels.acts() && !labels.local && !labels.inferred
}

/// A step with these arguments, and content in the agent's own words.
fn step_of(tool: &str, labels: &FieldLabels, mut args: BTreeMap<String, Argument>) -> PlanStep {
    for name in labels.fields.iter().filter(|name| !labels.sinks.contains(*name)) {
        args.entry(name.clone()).or_insert(Argument::Free(true));
    }
    PlanStep { tool: tool.to_owned(), args }
}
