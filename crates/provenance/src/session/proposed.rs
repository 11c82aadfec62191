//! A plan that nobody made: proposed from the words of the request alone, by its verbs and the things that it names.
//!
//! It adds to what is allowed without a plan, and only one thing: an effect that the request has a word for may say it once in the agent's
//! own words. Who is affected, and every number, is held to the same rules; so is whatever a result said.

use super::{Planned, Session};
use crate::intent::Intent;
use crate::labels::FieldLabels;
use crate::plan::{Argument, Plan, Step};
use crate::ruling::{Point, Ruling, Stance};
use crate::said::{self, Said};

impl Session {
    /// Each effect that this turn of the person has a word for, once. What an earlier one asked for was done then, or not.
    pub(super) fn proposal(&self, request: &str) -> Plan {
        let mut intent = Intent::default();
        intent.hear(request);
        let step = |(tool, labels): (&String, &FieldLabels)| {
            let content = labels.fields.iter().filter(|name| !labels.sinks.contains(*name));
            let args = content.map(|name| (name.clone(), Argument::Free(true))).collect();
            Step { tool: tool.clone(), args }
        };
        let is_wanted = |(tool, labels): &(&String, &FieldLabels)| {
            labels.acts() && !labels.local && !labels.inferred && intent.asks_for(tool)
        };
        let mut steps: Vec<Step> = self.tools.iter().filter(is_wanted).map(step).collect();
        steps.sort_by(|one, other| one.tool.cmp(&other.tool));
        Plan { steps }
    }

    pub(super) fn by_proposal(
        &self,
        planned: &Planned,
        tool: &str,
        labels: &FieldLabels,
        said: &Said<'_>,
        by_grounds: impl FnOnce() -> Point,
    ) -> Ruling {
        let by_plan = self.by_plan(planned, tool, labels, said);
        let is_plain = || {
            self.left_out(labels, said).is_none()
                && said.content().all(|argument| self.is_in_own_words(argument, said))
        };
        let is_done = || self.is_done(super::act_of(tool, said));
        if by_plan.stance == Stance::Allow && (by_plan.step.is_none() || (is_plain() && !is_done())) {
            return by_plan;
        }
        // A call uses up the step of its tool, however it came to be allowed.
        Ruling { step: by_plan.step, ..Ruling::new(by_grounds()) }
    }

    /// Whether content is grounded, or has no figure and no word that only a result has which may not be passed on.
    fn is_in_own_words(&self, argument: &said::Argument<'_>, said: &Said<'_>) -> bool {
        let open = self.open_to(said);
        let is_fine = |word: &String| {
            let sources = self.transcript().seen(std::slice::from_ref(word)).sources;
            // Letters of one script: no figure in disguise.
            let is_plain = word.chars().all(|c| c.is_alphabetic() || "'-\u{2019}".contains(c));
            sources & open != 0 || (sources == 0 && is_plain)
        };
        argument.leaves.iter().flat_map(|leaf| &leaf.words).all(is_fine)
            || self.is_covered(argument, open).stance == Stance::Allow
    }
}
