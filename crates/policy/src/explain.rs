//! Explains a decision: the verdict, the deciding rule and its line, and why every other rule didn't match.

use serde::{Deserialize, Serialize};

use crate::acs::Point;
use crate::acs::control::ControlVerdict;
use crate::condition::{Clause, Condition, Quantifier};
use crate::facts::Facts;
use crate::policy::{Mode, Policy, RuleSet};
use crate::rule::{Effect, Rule};
use crate::verdict::{Grant, Layer, Limits, RuleRef, Verdict};

/// Why an otherwise matching allow doesn't apply.
const SECRETS_UNNAMED: &str = "it has no `secret:` that names every secret of the call";

/// A verdict with its explanation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// The verdict of `decide`.
    pub verdict: Verdict,
    /// A summary in one sentence.
    pub summary: String,
    /// The matching rules, and those for this operation and tool that didn't match, in file order.
    pub considered: Vec<Consideration>,
    /// Number of rules for other operations or tools.
    pub unrelated: usize,
}

/// The result for one rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Consideration {
    /// The rule.
    pub rule: RuleRef,
    /// Its effect.
    pub effect: Effect,
    /// The result.
    pub outcome: Fared,
}

/// The result for a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "fared")]
pub enum Fared {
    /// It matched.
    Matched,
    /// It matched, and its rate is exceeded.
    UsedUp,
    /// A condition doesn't hold; this is the first one.
    Missed {
        /// The condition, as written.
        condition: String,
        /// Its line.
        line: u32,
    },
    /// All its conditions hold, but so does its `unless`.
    Excepted {
        /// The line of the exception.
        line: u32,
    },
}

/// One file of a policy, in figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Outline {
    /// Where it was read from.
    pub name: String,
    /// Whose it is.
    pub layer: Layer,
    /// Its mode.
    pub mode: Mode,
    /// How many rules it has.
    pub rules: usize,
    /// How many examples were checked when it was loaded.
    pub examples: usize,
    /// The points at which it is asked, if it is a manifest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<Point>,
    /// What it grants where no rule narrows it.
    #[serde(skip)]
    pub limits: Limits,
}

impl Policy {
    /// Decides like [`decide`](Self::decide) and explains the verdict. Evaluates all rules, so it is not for the call path.
    pub fn explain(&self, facts: &Facts<'_>) -> Explanation {
        let verdict = self.decide(facts);
        let mut considered = Vec::new();
        let mut unrelated = 0;
        for set in self.sets().iter().filter(|set| set.is_about(facts)) {
            let said = set.control.as_ref().and_then(|control| control.before(facts));
            considered.extend(said.map(|said| Consideration {
                rule: said.rule,
                effect: match said.stance {
                    ControlVerdict::Deny(_) => Effect::Deny,
                    ControlVerdict::Ask(_) => Effect::Ask,
                    ControlVerdict::Allow if said.transforms.is_empty() => Effect::Allow,
                    ControlVerdict::Allow => Effect::Transform,
                },
                outcome: Fared::Matched,
            }));
            for rule in &set.rules {
                match consider(rule, facts) {
                    Some(outcome) => {
                        considered.push(Consideration { rule: rule.at.clone(), effect: rule.effect, outcome })
                    }
                    None => unrelated += 1,
                }
            }
        }
        let summary = summary(&verdict, self.sets());
        Explanation { verdict, summary, considered, unrelated }
    }
}

fn summary(verdict: &Verdict, sets: &[std::sync::Arc<RuleSet>]) -> String {
    let by = |rule: Option<&RuleRef>| match rule {
        Some(rule) => format!("by rule {rule}"),
        None => {
            let modes: Vec<String> =
                sets.iter().map(|set| format!("{} policy: {}", set.layer, set.mode)).collect();
            format!("by mode ({})", modes.join(", "))
        }
    };
    match verdict {
        Verdict::Allow(grant) => match grant.warnings.first() {
            Some(warning) => {
                format!("allowed {}: {}{}", by(grant.rule.as_ref()), warning.message, lowered(grant))
            }
            None => format!("allowed {}{}", by(grant.rule.as_ref()), lowered(grant)),
        },
        Verdict::Ask(question) => format!("asked {}: {}", by(Some(&question.rule)), question.reason),
        Verdict::Deny(reason) => format!("denied {}: {}", by(reason.rule.as_ref()), reason.message),
    }
}

/// Describes the declassified fields.
fn lowered(grant: &Grant) -> String {
    let each = grant.declassify.iter().map(|one| {
        let fields: Vec<&str> = one.trust.iter().chain(&one.open).map(String::as_str).collect();
        format!("; rule `{}` declassifies {} of its result", one.rule, fields.join(", "))
    });
    each.collect()
}

/// The result for a rule; `None` if it is for another operation or tool.
fn consider(rule: &Rule, facts: &Facts<'_>) -> Option<Fared> {
    let Some(missed) = first_missed(&rule.when, facts, rule.effect.quantifier()) else {
        return Some(if !rule.grants_secrets(facts) {
            Fared::Missed { condition: SECRETS_UNNAMED.to_owned(), line: rule.at.line }
        } else if rule.excepts(facts) {
            Fared::Excepted { line: rule.unless.first().map_or(rule.at.line, |clause| clause.line) }
        } else if rule.is_used_up(facts) {
            Fared::UsedUp
        } else {
            Fared::Matched
        });
    };
    match missed.condition {
        Condition::Op(_) | Condition::Tool(_) => None,
        Condition::Class(_)
        | Condition::Agent(_)
        | Condition::Role(_)
        | Condition::Trust { .. }
        | Condition::Capability(_)
        | Condition::Path(_)
        | Condition::Endpoint(_)
        | Condition::Argv(_)
        | Condition::Secret(_)
        | Condition::Arg { .. }
        | Condition::Label { .. }
        | Condition::Tier(_)
        | Condition::Time(_)
        | Condition::Budget { .. }
        | Condition::Session { .. }
        | Condition::History(_)
        | Condition::Body(_)
        | Condition::Expression(_)
        | Condition::Any(_)
        | Condition::All(_) => Some(Fared::Missed { condition: missed.text.to_string(), line: missed.line }),
    }
}

fn first_missed<'r>(clauses: &'r [Clause], facts: &Facts<'_>, quantifier: Quantifier) -> Option<&'r Clause> {
    clauses.iter().find(|clause| !clause.condition.holds(facts, quantifier))
}

/// Why a rule doesn't match, in one sentence; `None` if it matches.
pub(crate) fn first_failure(rule: &Rule, facts: &Facts<'_>) -> Option<String> {
    if let Some(clause) = first_missed(&rule.when, facts, rule.effect.quantifier()) {
        return Some(format!("`{}` in line {} doesn't match", clause.text, clause.line));
    }
    if !rule.grants_secrets(facts) {
        return Some(SECRETS_UNNAMED.to_owned());
    }
    rule.excepts(facts).then(|| "its `unless` matches".to_owned())
}
