//! One rule, compiled.

use sha2::{Digest, Sha256};

use crate::condition::{Clause, Quantifier, all_hold, names_secrets, secrets};
use crate::declassify::Declassified;
use crate::facts::Facts;
use crate::transform::Transform;
use crate::verdict::{Charge, Layer, Limits, RuleId, RuleRef};
use crate::words::{Tier, Word, words};

/// The effect of a rule on matching calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Allows, unless another rule denies or asks.
    Allow,
    /// Denies, whatever other rules say. With a `rate`, denies once the rate is used up.
    Deny,
    /// Needs an approval.
    Ask,
    /// Changes arguments; allows nothing by itself.
    Transform,
    /// Requires a stronger tier; allows nothing by itself.
    RaiseTier,
    /// Warns the caller; allows nothing by itself.
    Warn,
}

words!(Effect: "allow" => Allow, "deny" => Deny, "ask" => Ask, "transform" => Transform, "raise-tier" => RaiseTier,
    "warn" => Warn);

impl Effect {
    /// An allow must cover the entire call; every other effect matches any part of it.
    pub(crate) fn quantifier(self) -> Quantifier {
        match self {
            Self::Allow => Quantifier::Every,
            Self::Deny | Self::Ask | Self::Transform | Self::RaiseTier | Self::Warn => Quantifier::Any,
        }
    }
}

/// A compiled rule.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub at: RuleRef,
    pub id: RuleId,
    pub effect: Effect,
    pub when: Box<[Clause]>,
    /// Empty: no exception.
    pub unless: Box<[Clause]>,
    pub reason: Option<Box<str>>,
    pub help: Option<Box<str>>,
    pub limits: Option<Limits>,
    pub rate: Option<Rate>,
    pub tier: Option<Tier>,
    pub transforms: Box<[Transform]>,
    /// Result fields that it declassifies.
    pub declassify: Option<Declassified>,
    pub approvers: u8,
    /// The rule's priority, for strategies that use it: the highest decides.
    pub priority: u32,
}

/// A number of calls within a sliding window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    pub limit: u32,
    pub window_ms: u64,
}

impl Rule {
    /// A rule that matches everything; loaders fill in the rest.
    pub(crate) fn new(id: &str, layer: Layer, line: u32, effect: Effect) -> Self {
        Self {
            at: RuleRef { id: id.into(), layer, line },
            id: rule_id(layer, id),
            effect,
            when: Box::default(),
            unless: Box::default(),
            reason: None,
            help: None,
            limits: None,
            rate: None,
            tier: None,
            transforms: Box::default(),
            declassify: None,
            approvers: 1,
            priority: 0,
        }
    }

    pub(crate) fn matches(&self, facts: &Facts<'_>) -> bool {
        let quantifier = self.effect.quantifier();
        all_hold(&self.when, facts, quantifier) && self.grants_secrets(facts) && !self.excepts(facts)
    }

    /// An allow must name every secret that the call uses.
    pub(crate) fn grants_secrets(&self, facts: &Facts<'_>) -> bool {
        match self.effect {
            Effect::Allow => secrets(facts).next().is_none() || names_secrets(&self.when, facts),
            Effect::Deny | Effect::Ask | Effect::Transform | Effect::RaiseTier | Effect::Warn => true,
        }
    }

    /// Whether the rule's own exception applies.
    pub(crate) fn excepts(&self, facts: &Facts<'_>) -> bool {
        !self.unless.is_empty() && all_hold(&self.unless, facts, self.effect.quantifier().flipped())
    }

    /// The rate that matching calls are charged against.
    pub(crate) fn charge(&self) -> Option<Charge> {
        self.rate.map(|rate| Charge { rule: self.id, limit: rate.limit, window_ms: rate.window_ms })
    }

    /// Whether its rate is used up.
    pub(crate) fn is_used_up(&self, facts: &Facts<'_>) -> bool {
        self.rate.is_some_and(|rate| facts.rates.used(self.id, rate.window_ms) >= rate.limit)
    }

    /// Whether it allows, denies or asks. A deny with a rate denies only beyond the rate.
    pub(crate) fn decides(&self) -> bool {
        match self.effect {
            Effect::Allow | Effect::Ask => true,
            Effect::Deny => self.rate.is_none(),
            Effect::Transform | Effect::RaiseTier | Effect::Warn => false,
        }
    }

    /// Whether it modifies an allow's grant.
    pub(crate) fn modifies(&self) -> bool {
        self.limits.is_some()
            || self.rate.is_some()
            || self.tier.is_some()
            || !self.transforms.is_empty()
            || self.declassify.is_some()
            || self.effect == Effect::Warn
    }
}

/// Depends only on layer and id, so that counts survive a reload.
fn rule_id(layer: Layer, id: &str) -> RuleId {
    let digest = Sha256::new().chain_update(layer.as_str()).chain_update([0]).chain_update(id).finalize();
    RuleId(digest.iter().take(8).fold(0, |word, byte| (word << 8) | u64::from(*byte)))
}
