//! The decision function. It is pure: the same facts get the same verdict from the same policy.
//!
//! Within one file, deny beats ask and ask beats allow; the order of rules decides only which of several rules with one effect is named.
//! `transform` and `raise-tier` rules, limits and rates modify an allow and never create one. Each file decides on its own and the
//! strictest verdict applies, so an additional file can only narrow.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::acs::control::{Control, ControlVerdict, PointVerdict};
use crate::condition::{Clause, Names, Quantifier, all_hold, could_hold, secrets};
use crate::conflicts::Conflicts;
use crate::declassify::Declassified;
use crate::explain::Outline;
use crate::facts::{Facts, Resource};
use crate::governance::Governance;
use crate::graph::Graph;
use crate::index::Index;
use crate::rule::{Effect, Rule};
use crate::sequence::Events;
use crate::shadow::Shadow;
use crate::transform::Transform;
use crate::verdict::{Charge, Grant, Layer, Limits, Question, Reason, RuleRef, Verdict, codes};
use crate::words::{Word, words};

/// What happens to calls that no rule matches, and to denied calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Calls that no rule allows are denied.
    Strict,
    /// Calls that no rule matches are allowed, with a warning.
    Permissive,
    /// Denials and questions become allows with a warning.
    Audit,
}

words!(Mode: "strict" => Strict, "permissive" => Permissive, "audit" => Audit);

/// A compiled policy: one or more files, decided together.
#[derive(Debug, Clone)]
pub struct Policy {
    sets: Box<[Arc<RuleSet>]>,
    digest: [u8; 32],
    /// A candidate policy that is evaluated for comparison.
    shadow: Option<Shadow>,
}

/// One compiled file.
#[derive(Debug)]
pub(crate) struct RuleSet {
    pub name: Box<str>,
    pub layer: Layer,
    pub mode: Mode,
    /// The agents that it applies to; others are unaffected.
    pub agents: Option<Names>,
    /// The limits of an allow, before rules narrow them.
    pub limits: Limits,
    pub governance: Governance,
    pub conflicts: Conflicts,
    pub rules: Box<[Rule]>,
    /// Whether any rule has a rate.
    pub has_rates: bool,
    pub index: Index,
    /// Events that update the history of rules.
    pub events: Events,
    /// The constraint graph, if any.
    pub graph: Option<Graph>,
    /// The manifest, if the file is one; its points decide where they apply.
    pub control: Option<Control>,
    /// Number of examples checked at load time.
    pub examples: usize,
    /// False only for the placeholder of a missing policy.
    pub is_loaded: bool,
}

impl Policy {
    /// The rates that [`decide`](Self::decide) and [`contrast`](Self::contrast) may need for a call, possibly with duplicates. Uses the
    /// index, so it allocates nothing; ignores `facts.rates`.
    pub fn rates(&self, facts: &Facts<'_>, visit: &mut impl FnMut(Charge)) {
        let own = self.sets.iter();
        let candidates = self.shadow.iter().flat_map(|shadow| shadow.candidate.sets.iter());
        for set in own.chain(candidates).filter(|set| set.has_rates && set.is_about(facts)) {
            set.index.candidates(facts, &mut |at| {
                set.rule(Some(at)).and_then(Rule::charge).into_iter().for_each(&mut *visit);
            });
        }
    }

    /// The rates of all rules, for callers that decide many calls with the same counts.
    pub fn all_rates(&self) -> impl Iterator<Item = Charge> {
        let with_rates = self.sets.iter().filter(|set| set.has_rates);
        with_rates.flat_map(|set| set.rules.iter().filter_map(Rule::charge))
    }

    /// Whether a file must be hidden from a program, given the facts of a call that would read or write it. Each policy file decides on its
    /// own: a file that asks, denies, or has rules about this access but none that allows it, hides the file, whatever the others say. Only
    /// policy files without any rule about this access abstain.
    pub fn hides(&self, facts: &Facts<'_>) -> bool {
        let mut about = self.sets.iter().filter(|set| set.is_about(facts)).peekable();
        about.peek().is_none() || about.any(|set| set.hides(facts))
    }

    /// What prevents a call from being allowed, in every applicable file; the verdict names only the first.
    pub(crate) fn obstacles(&self, facts: &Facts<'_>) -> Vec<Obstacle> {
        let about = self.sets.iter().filter(|set| set.is_about(facts));
        let of_set = |set: &RuleSet| {
            let hits = set.hits(facts);
            let said = set.control.as_ref().and_then(|control| control.before(facts));
            let rule = match set.ruling(&hits, said.as_ref(), facts) {
                Ruling::Allow(..) => return None,
                Ruling::Ask(rule, ..) => Some(rule),
                Ruling::Deny(reason) => reason.rule,
            };
            let is_allowed_otherwise = hits.allow.is_some() || set.mode != Mode::Strict;
            Some(Obstacle { layer: set.layer, rule, is_allowed_otherwise })
        };
        about.filter_map(|set| of_set(set)).collect()
    }

    /// Decides one call.
    pub fn decide(&self, facts: &Facts<'_>) -> Verdict {
        let mut is_spoken_of = false;
        let mut grant = Grant {
            limits: Limits::UNLIMITED,
            rule_wall_ms_max: Limits::UNLIMITED.wall_ms_max,
            tier: facts.tier,
            transforms: Vec::new(),
            charges: Vec::new(),
            declassify: Vec::new(),
            warnings: Vec::new(),
            rule: None,
            result: None,
        };
        let mut question: Option<(RuleRef, String, u8, Coverage)> = None;
        for set in self.sets.iter().filter(|set| set.is_about(facts)) {
            // Only the first file declassifies: files below it can only narrow.
            let is_first = !std::mem::replace(&mut is_spoken_of, true);
            let hits = set.hits(facts);
            let said = set.control.as_ref().and_then(|control| control.before(facts));
            match set.ruling(&hits, said.as_ref(), facts) {
                Ruling::Deny(reason) => return Verdict::Deny(reason),
                Ruling::Ask(rule, reason, approvers, cover) => match &mut question {
                    None => question = Some((rule, reason, approvers, cover)),
                    Some((_, _, most, least)) => {
                        (*most, *least) = ((*most).max(approvers), (*least).min(cover))
                    }
                },
                Ruling::Allow(rule, warning) => {
                    if grant.rule.is_none() {
                        grant.rule = rule;
                    }
                    grant.warnings.extend(warning);
                }
            }
            set.modify(&hits, said, &mut grant);
            if is_first {
                grant.declassify = set.declassified(&hits);
            }
        }
        if !is_spoken_of {
            return Verdict::Deny(Reason {
                code: codes::NO_RULE.into(),
                message: format!("no policy applies to the agent `{}`", facts.caller.agent.escape_debug()),
                rule: None,
                help: None,
            });
        }
        match question {
            Some((rule, mut reason, approvers, cover)) => {
                // In the question and not beside the outcome, because the answer depends on it.
                if cover == Coverage::Part {
                    reason.push_str(
                        " (no rule matches the rest of this call, and an approval covers that too)",
                    );
                }
                Verdict::Ask(Question { rule, reason, grant, approvers })
            }
            None => Verdict::Allow(grant),
        }
    }

    /// Denies everything, for a missing policy.
    pub fn deny_all() -> Self {
        let set = RuleSet {
            name: "none".into(),
            layer: Layer::Builtin,
            mode: Mode::Strict,
            agents: None,
            limits: Limits::default(),
            governance: Governance::default(),
            conflicts: Conflicts::default(),
            rules: Box::default(),
            has_rates: false,
            index: Index::default(),
            events: Events::default(),
            graph: None,
            control: None,
            examples: 0,
            is_loaded: false,
        };
        Self::from_set(set, "", &BTreeMap::new())
    }

    /// Combines two layers: each decides, and the stricter verdict applies. The project's policy can only narrow the user's.
    #[must_use]
    pub fn layered(user: Self, project: Option<Self>) -> Self {
        let Some(project) = project else { return user };
        let digest = Sha256::new()
            .chain_update(b"regent policy layers v1\0")
            .chain_update(user.digest)
            .chain_update(project.digest)
            .finalize();
        let sets: Box<[_]> = user.sets.iter().chain(&project.sets).map(Arc::clone).collect();
        Self { sets, digest: digest.into(), shadow: user.shadow.or(project.shadow) }
    }

    /// Identifies exactly this policy in the ledger, including comments.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// A summary of its rules.
    pub fn outline(&self) -> Vec<Outline> {
        let outline = |set: &Arc<RuleSet>| Outline {
            name: set.name.to_string(),
            layer: set.layer,
            mode: set.mode,
            rules: set.rules.len() + set.control.as_ref().map_or(0, |control| control.points().count()),
            examples: set.examples,
            points: set.control.iter().flat_map(Control::points).map(|(at, _)| at).collect(),
            limits: set.limits,
        };
        self.sets.iter().map(outline).collect()
    }

    pub(crate) fn from_set(set: RuleSet, text: &str, files: &BTreeMap<String, String>) -> Self {
        let mut digest = Sha256::new()
            .chain_update(b"regent policy v1\0")
            .chain_update(set.layer.as_str())
            .chain_update([0])
            .chain_update(text);
        for (name, text) in files {
            let part = Sha256::new().chain_update(name).chain_update([0]).chain_update(text).finalize();
            digest = digest.chain_update(b"\0file\0").chain_update(part);
        }
        Self { sets: Box::new([Arc::new(set)]), digest: digest.finalize().into(), shadow: None }
    }

    pub(crate) fn with_shadow(self, shadow: Shadow) -> Self {
        Self { shadow: Some(shadow), ..self }
    }

    pub(crate) fn shadow(&self) -> Option<&Shadow> {
        self.shadow.as_ref()
    }

    pub(crate) fn sets(&self) -> &[Arc<RuleSet>] {
        &self.sets
    }
}

/// The matching rules of one file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Hits {
    pub deny: Option<u32>,
    pub ask: Option<u32>,
    /// The highest number of approvers that any asking rule requires.
    pub approvers: u8,
    pub allow: Option<u32>,
    /// All deciding rules in order; kept only if the strategy needs them.
    pub deciding: Vec<u32>,
    /// Matching rules that modify an allow, in order.
    pub modifiers: Vec<u32>,
    /// The first matching rule with an exhausted rate.
    pub used_up: Option<u32>,
}

impl Hits {
    /// Records a matching rule.
    pub(crate) fn add(&mut self, at: u32, rule: &Rule, facts: &Facts<'_>) {
        let first = |slot: &mut Option<u32>| *slot = Some(slot.map_or(at, |other| other.min(at)));
        match rule.effect {
            // With a rate, it denies only calls beyond the rate.
            Effect::Deny if rule.rate.is_none() => first(&mut self.deny),
            Effect::Ask => {
                first(&mut self.ask);
                self.approvers = self.approvers.max(rule.approvers);
            }
            Effect::Allow => first(&mut self.allow),
            Effect::Deny | Effect::Transform | Effect::RaiseTier | Effect::Warn => {}
        }
        if rule.modifies()
            && let Err(place) = self.modifiers.binary_search(&at)
        {
            self.modifiers.insert(place, at);
            if rule.is_used_up(facts) {
                first(&mut self.used_up);
            }
        }
    }
}

/// How much of a call the rules of a file cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Coverage {
    Part,
    Whole,
}

/// Why one policy file doesn't allow a call.
#[derive(Debug)]
pub(crate) struct Obstacle {
    pub(crate) layer: Layer,
    /// The rule that asks or denies; `None` if no rule allows the call.
    pub(crate) rule: Option<RuleRef>,
    /// Whether the file would allow the call without that rule.
    pub(crate) is_allowed_otherwise: bool,
}

/// The ruling of one file.
enum Ruling {
    Allow(Option<RuleRef>, Option<Reason>),
    Ask(RuleRef, String, u8, Coverage),
    Deny(Reason),
}

impl RuleSet {
    /// Whether it applies to the caller.
    pub(crate) fn is_about(&self, facts: &Facts<'_>) -> bool {
        self.agents.as_ref().is_none_or(|names| names.matches(facts.caller.agent))
    }

    /// The matching rules.
    pub(crate) fn hits(&self, facts: &Facts<'_>) -> Hits {
        let mut hits = Hits::default();
        self.index.candidates(facts, &mut |at| {
            if let Some(rule) = self.rules.get(at as usize)
                && rule.matches(facts)
            {
                hits.add(at, rule, facts);
                if self.conflicts != Conflicts::DenyOverrides && rule.decides() {
                    hits.deciding.push(at);
                }
            }
        });
        self.conflicts.settle(&mut hits, &self.rules);
        hits
    }

    fn hides(&self, facts: &Facts<'_>) -> bool {
        let hits = self.hits(facts);
        let said = self.control.as_ref().and_then(|control| control.before(facts));
        match self.ruling(&hits, said.as_ref(), facts) {
            Ruling::Allow(..) => false,
            Ruling::Ask(..) => true,
            Ruling::Deny(_) => {
                let speaks = |rule: &Rule| rule.decides() && could_hold(&rule.when, facts);
                !self.is_loaded
                    || said.is_some()
                    || self.refusal(&hits, facts).is_some()
                    || self.rules.iter().any(speaks)
            }
        }
    }

    fn ruling(&self, hits: &Hits, said: Option<&PointVerdict>, facts: &Facts<'_>) -> Ruling {
        if let Some(reason) = self.refusal(hits, facts) {
            return match self.mode {
                Mode::Strict | Mode::Permissive => Ruling::Deny(reason),
                Mode::Audit => Ruling::Allow(None, Some(would_deny(reason))),
            };
        }
        if let Some(said) = said {
            return self.by_manifest(said, facts);
        }
        if let Some((at, reason)) = self.asks(hits, facts) {
            return match self.mode {
                Mode::Strict | Mode::Permissive => {
                    Ruling::Ask(at.clone(), reason, hits.approvers.max(1), self.cover_of(hits, facts))
                }
                Mode::Audit => {
                    let (message, rule) = (format!("would ask: {reason}"), Some(at.clone()));
                    Ruling::Allow(
                        None,
                        Some(Reason { code: codes::WOULD_ASK.into(), message, rule, help: None }),
                    )
                }
            };
        }
        match (self.rule(hits.allow), self.mode) {
            (Some(rule), _) => Ruling::Allow(Some(rule.at.clone()), None),
            (None, Mode::Strict) => Ruling::Deny(self.no_rule(facts)),
            // Without a rule, no mode that can deny grants a secret.
            (None, Mode::Permissive) if secrets(facts).next().is_some() => Ruling::Deny(self.no_rule(facts)),
            (None, Mode::Audit) => Ruling::Allow(None, Some(would_deny(self.no_rule(facts)))),
            (None, Mode::Permissive) => {
                let message = format!("no rule matches {}; permissive mode allowed it", described(facts));
                Ruling::Allow(
                    None,
                    Some(Reason { code: codes::UNMATCHED.into(), message, rule: None, help: None }),
                )
            }
        }
    }

    /// A manifest's verdict applies where it has a point. It grants no secret, because it can't name one.
    fn by_manifest(&self, said: &PointVerdict, facts: &Facts<'_>) -> Ruling {
        match &said.stance {
            ControlVerdict::Deny(reason) => Ruling::Deny(reason.clone()),
            // A script computes its changes, so they can't be checked at load time.
            ControlVerdict::Ask(_) | ControlVerdict::Allow
                if self.layer == Layer::Project && !said.transforms.iter().all(Transform::only_narrows) =>
            {
                let message = "the project's manifest changes the call, but a project can only narrow";
                let help = "use the manifest as your own policy, or deny the call instead of changing it";
                let (message, help) = (message.to_owned(), Some(help.to_owned()));
                Ruling::Deny(Reason {
                    code: codes::MANIFEST.into(),
                    message,
                    rule: Some(said.rule.clone()),
                    help,
                })
            }
            ControlVerdict::Ask(_) | ControlVerdict::Allow if secrets(facts).next().is_some() => {
                Ruling::Deny(self.no_rule(facts))
            }
            ControlVerdict::Ask(reason) => Ruling::Ask(said.rule.clone(), reason.clone(), 1, Coverage::Whole),
            ControlVerdict::Allow => Ruling::Allow(Some(said.rule.clone()), None),
        }
    }

    fn rule(&self, at: Option<u32>) -> Option<&Rule> {
        at.and_then(|at| self.rules.get(at as usize))
    }

    /// The rule that needs an approval, and why. The governance field only narrows: in strict mode, it asks only about calls that a rule
    /// would allow.
    fn asks(&self, hits: &Hits, facts: &Facts<'_>) -> Option<(&RuleRef, String)> {
        let plainly = || format!("{} needs an approval", described(facts));
        if let Some(rule) = self.rule(hits.ask) {
            return Some((&rule.at, rule.reason.as_deref().map_or_else(plainly, str::to_owned)));
        }
        let at = self.governance.asks(facts)?;
        (hits.allow.is_some() || self.mode == Mode::Permissive).then(|| (at, plainly()))
    }

    /// An ask matches any part of a call. If no rule covers the rest, the question says that an approval does.
    fn cover_of(&self, hits: &Hits, facts: &Facts<'_>) -> Coverage {
        let covers = |rule: &Rule| all_hold(&rule.when, facts, Quantifier::Every);
        match hits.allow.is_some() || self.rule(hits.ask).is_none_or(covers) {
            true => Coverage::Whole,
            false => Coverage::Part,
        }
    }

    /// The reason for a denial by a check, a rule or a rate.
    fn refusal(&self, hits: &Hits, facts: &Facts<'_>) -> Option<Reason> {
        if let Some(breach) = self.governance.breach(facts) {
            return Some(Reason {
                code: breach.code.into(),
                message: breach.message,
                rule: Some(breach.at.clone()),
                help: Some("the policy file sets this limit at its top, in the named line".to_owned()),
            });
        }
        if let Some(reason) = self.graph.as_ref().and_then(|graph| graph.refusal(facts)) {
            return Some(reason);
        }
        if let Some(rule) = self.rule(hits.deny) {
            let message = rule
                .reason
                .as_deref()
                .map_or_else(|| format!("{} is denied", described(facts)), str::to_owned);
            let help = rule.help.as_deref().map(str::to_owned);
            return Some(Reason { code: codes::DENIED.into(), message, rule: Some(rule.at.clone()), help });
        }
        let rule = self.rule(hits.used_up)?;
        let (limit, window_s) = rule.rate.map_or((0, 0), |rate| (rate.limit, rate.window_ms / 1000));
        Some(Reason {
            code: codes::RATE.into(),
            message: format!(
                "rule `{}` allows {limit} calls in {window_s} s, and they are used up",
                rule.at.id
            ),
            rule: Some(rule.at.clone()),
            help: Some("try again later".to_owned()),
        })
    }

    fn no_rule(&self, facts: &Facts<'_>) -> Reason {
        if !self.is_loaded {
            return Reason {
                code: codes::NOT_LOADED.into(),
                message: "no policy is loaded, so nothing is allowed".to_owned(),
                rule: None,
                help: Some("run `regent init`, or fix the policy file and try again".to_owned()),
            };
        }
        Reason {
            code: codes::NO_RULE.into(),
            message: format!("no rule of the {} policy allows {}", self.layer, described(facts)),
            rule: None,
            help: Some(
                "`regent policy why` shows the rules that were considered; add an `allow` rule to permit it"
                    .to_owned(),
            ),
        }
    }

    /// The fields that matching rules declassify. If one rule decides alone, only that rule counts.
    fn declassified(&self, hits: &Hits) -> Vec<Declassified> {
        let speaks = |at: &&u32| self.conflicts == Conflicts::DenyOverrides || hits.allow == Some(**at);
        let rules = hits.modifiers.iter().filter(speaks).filter_map(|at| self.rules.get(*at as usize));
        rules.filter_map(|rule| rule.declassify.clone()).collect()
    }

    /// Narrows a grant by the matching rules.
    fn modify(&self, hits: &Hits, said: Option<PointVerdict>, grant: &mut Grant) {
        grant.limits = grant.limits.meet(self.limits);
        let mut changes = Vec::new();
        if let Some(said) = said {
            changes.extend(said.transforms);
            grant.warnings.extend(said.warnings);
            grant.result = grant.result.max(said.result);
        }
        for rule in hits.modifiers.iter().filter_map(|at| self.rules.get(*at as usize)) {
            if let Some(limits) = rule.limits {
                grant.limits = grant.limits.meet(limits);
                grant.rule_wall_ms_max = grant.rule_wall_ms_max.min(limits.wall_ms_max);
            }
            if let Some(tier) = rule.tier {
                grant.tier = grant.tier.max(tier);
            }
            if rule.effect == Effect::Warn {
                let message = rule.reason.as_deref().unwrap_or("a rule has a warning about this call");
                grant.warnings.push(Reason {
                    code: codes::WARNED.into(),
                    message: message.to_owned(),
                    rule: Some(rule.at.clone()),
                    help: rule.help.as_deref().map(str::to_owned),
                });
            }
            changes.extend(rule.transforms.iter().cloned());
            grant.charges.extend(rule.charge());
        }
        // Before those of the layers above: the user's changes apply last, so that a project can't undo them.
        grant.transforms.splice(0..0, changes);
    }
}

fn would_deny(reason: Reason) -> Reason {
    let message = format!("would deny: {}", reason.message);
    Reason { code: codes::WOULD_DENY.into(), message, ..reason }
}

/// A short description of a call, for users and models.
pub(crate) fn described(facts: &Facts<'_>) -> String {
    let what = facts.tool.unwrap_or(facts.op);
    match facts.resources.first() {
        Some(Resource::Path { path, access }) => format!("`{what}` ({access} `{}`)", path.escape_debug()),
        Some(Resource::Endpoint { scheme, host, port, .. }) => {
            format!("`{what}` ({scheme}://{}:{port})", host.escape_debug())
        }
        Some(Resource::Argv(argv)) => {
            let program = argv.first().map_or("", String::as_str);
            format!("`{what}` (`{}`)", program.escape_debug())
        }
        Some(Resource::Secret(name)) => format!("`{what}` (secret `{name}`)"),
        None => format!("`{what}`"),
    }
}

impl Policy {
    /// Whether any rule or check examines a call's arguments.
    pub fn looks_at_args(&self) -> bool {
        fn any(clauses: &[Clause]) -> bool {
            clauses.iter().any(|clause| {
                let condition = &clause.condition;
                condition.looks_at_args() || condition.branches().iter().any(|branch| any(branch))
            })
        }
        self.sets.iter().any(|set| {
            set.governance.blocked.is_some()
                || set.graph.is_some()
                || set.control.is_some()
                || set.rules.iter().any(|rule| any(&rule.when) || any(&rule.unless))
        })
    }
}
