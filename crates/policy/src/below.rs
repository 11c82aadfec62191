//! Decides in advance about paths below a folder, for a sandbox that exposes the folder.

use crate::condition::{Clause, Condition, Quantifier, could_hold};
use crate::facts::Facts;
use crate::policy::{Mode, Policy, RuleSet};
use crate::rule::{Effect, Rule};

impl Policy {
    /// Whether a call like this one could be asked about or denied for any path. `true` if that can't be ruled out.
    pub fn may_hide(&self, facts: &Facts<'_>) -> bool {
        let mut about = self.sets().iter().filter(|set| set.is_about(facts)).peekable();
        about.peek().is_none() || about.any(|set| set.may_hide(facts))
    }

    /// Example paths below `path` that rules may match because of its location: for `db`, `db/x/x.sql` of the pattern `db/*/*.sql`. Patterns
    /// that match in any folder (`**/x`) are left out. [`hides`](Self::hides) decides about each.
    pub fn examples_below(&self, facts: &Facts<'_>, path: &str) -> Vec<String> {
        let mut examples = vec![format!("{path}/x")];
        for rule in self.sets().iter().filter(|set| set.is_about(facts)).flat_map(|set| &set.rules) {
            if rule.may_refuse() && could_hold(&rule.when, facts) {
                add_examples(&rule.when, path, facts.caller.agent, &mut examples);
            }
        }
        examples
    }
}

impl RuleSet {
    fn may_hide(&self, facts: &Facts<'_>) -> bool {
        let refuses = |rule: &Rule| rule.may_refuse() && could_hold(&rule.when, facts);
        let allows_all = |rule: &Rule| {
            rule.effect == Effect::Allow
                && rule.rate.is_none()
                && rule.unless.is_empty()
                && covers(&rule.when, facts)
        };
        !self.is_loaded
            || self.control.is_some()
            || self.graph.is_some()
            || self.governance.breach(facts).is_some()
            || self.rules.iter().any(refuses)
            || self.mode == Mode::Strict && !self.rules.iter().any(allows_all)
    }
}

impl Rule {
    fn may_refuse(&self) -> bool {
        matches!(self.effect, Effect::Deny | Effect::Ask)
    }
}

/// Whether every clause holds for a call like this one, for any path.
fn covers(clauses: &[Clause], facts: &Facts<'_>) -> bool {
    clauses.iter().all(|Clause { condition, .. }| {
        let picks_paths = matches!(condition, Condition::Path(test) if test.globs.is_some());
        let is_open = picks_paths || condition.looks_at_args() || !condition.branches().is_empty();
        !is_open && condition.holds(facts, Quantifier::Every)
    })
}

fn add_examples(clauses: &[Clause], path: &str, caller: &str, examples: &mut Vec<String>) {
    for Clause { condition, .. } in clauses {
        if let Condition::Path(test) = condition
            && let Some(globs) = &test.globs
        {
            examples.extend(globs.globs().iter().flat_map(|glob| glob.examples_below(path, caller)));
        }
        condition.branches().iter().for_each(|branch| add_examples(branch, path, caller, examples));
    }
}
