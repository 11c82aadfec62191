//! Which model `auto` means: local first, within rules, learning from the results of earlier calls, and explaining its choice.

mod seen;

use regent_kernel::{Confidentiality, Label};
use serde::Serialize;

use crate::prices::usd;
use crate::settings::RouterSettings;
pub use seen::{ModelStats, Tally};

/// The class of a call that names none.
pub const ANY: &str = "any";
/// From so many outcomes on, what was seen counts.
const OUTCOMES_MIN: u64 = 5;

/// A model that could be asked.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// As `provider/model`.
    pub model: String,
    /// Leaves this machine.
    pub is_remote: bool,
    /// Its breaker lets calls pass.
    pub is_up: bool,
    /// A part of the conversation that it doesn't take, in words.
    pub refuses: Option<String>,
    /// What the call costs at most; `None` if nobody knows.
    pub money_microusd_max: Option<u64>,
}

/// How a model fared in a choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Considered {
    /// Which.
    pub model: String,
    /// Why it was chosen, ranks lower, or can't be used.
    pub why: String,
    /// It can be asked.
    pub fits: bool,
}

/// A choice, the best first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// For which class of tasks.
    pub class: String,
    /// All of them: those that fit, in order, then the others.
    pub considered: Vec<Considered>,
}

impl Choice {
    /// The models that fit, in order.
    pub fn fitting(&self) -> impl Iterator<Item = &str> {
        self.considered.iter().filter(|one| one.fits).map(|one| one.model.as_str())
    }
}

/// Whether a conversation may leave this machine, whatever any rule says: secrets, what is under a law, and what nobody has
/// classified may not.
pub fn may_leave(label: Label) -> bool {
    match label.confidentiality {
        Confidentiality::Public
        | Confidentiality::Internal
        | Confidentiality::Private
        | Confidentiality::Pii => true,
        Confidentiality::Unknown
        | Confidentiality::Regulated
        | Confidentiality::Secret
        | Confidentiality::Credential => false,
    }
}

/// Chooses a model, with the reasons. The same inputs give the same choice.
pub fn choose(
    rules: &RouterSettings,
    class: &str,
    label: Label,
    candidates: &[Candidate],
    seen: &ModelStats,
) -> Choice {
    let limits = Limits::for_class(rules, class);
    let mut fitting = Vec::new();
    let mut others = Vec::new();
    for (at, candidate) in candidates.iter().enumerate() {
        match refused(candidate, label, &limits) {
            Some(why) => others.push(Considered { model: candidate.model.clone(), why, fits: false }),
            None => fitting.push(limits.rank(at, candidate, seen.tally(class, &candidate.model))),
        }
    }
    fitting.sort_by_key(|ranked| ranked.key);
    let mut considered: Vec<Considered> = fitting.into_iter().map(|ranked| ranked.considered).collect();
    considered.append(&mut others);
    Choice { class: class.to_owned(), considered }
}

/// Why a model can't be asked at all.
fn refused(candidate: &Candidate, label: Label, limits: &Limits<'_>) -> Option<String> {
    if candidate.is_remote && !may_leave(label) {
        let what = serde_json::to_value(label.confidentiality).ok();
        let what = what.as_ref().and_then(|word| word.as_str()).unwrap_or("such").to_owned();
        return Some(format!("it is remote, and {what} text must stay on this machine"));
    }
    if let Some(part) = &candidate.refuses {
        return Some(format!("it takes no {part}"));
    }
    if !candidate.is_up {
        return Some("it is down".to_owned());
    }
    match (limits.cost_microusd_max, candidate.money_microusd_max) {
        (Some(most), Some(cost)) if cost > most => {
            Some(format!("it may cost {}; the limit is {}", usd(cost), usd(most)))
        }
        (Some(_), None) => Some("its price is unknown, and there is a cost limit".to_owned()),
        (Some(_), Some(_)) | (None, _) => None,
    }
}

/// The limits of one class.
#[derive(Debug)]
struct Limits<'r> {
    prefer: &'r [String],
    cost_microusd_max: Option<u64>,
    latency_ms_max: Option<u64>,
    good_percent_min: Option<u8>,
}

#[derive(Debug)]
struct Ranked {
    key: (bool, bool, usize, bool, u64, u64, usize),
    considered: Considered,
}

impl<'r> Limits<'r> {
    fn for_class(rules: &'r RouterSettings, class: &str) -> Self {
        let own = rules.classes.get(class);
        Self {
            prefer: own.map_or(&[], |own| own.prefer.as_slice()),
            cost_microusd_max: own.and_then(|own| own.cost_microusd_max).or(rules.cost_microusd_max),
            latency_ms_max: own.and_then(|own| own.latency_ms_max).or(rules.latency_ms_max),
            good_percent_min: own.and_then(|own| own.good_percent_min).or(rules.good_percent_min),
        }
    }

    /// Smaller is better: what has been good enough and quick enough, what is preferred, what stays here, what has been better so
    /// far, what is cheaper, what was named first.
    fn rank(&self, at: usize, candidate: &Candidate, tally: Tally) -> Ranked {
        let counts = tally.outcomes() >= OUTCOMES_MIN;
        let percent = tally.good_percent();
        let too_bad = counts && self.good_percent_min.is_some_and(|least| percent < u64::from(least));
        let too_slow =
            tally.latency_ms > 0 && self.latency_ms_max.is_some_and(|most| tally.latency_ms > most);
        let preferred = self.prefer.iter().position(|model| *model == candidate.model).unwrap_or(usize::MAX);
        // In steps of ten, so that a single outcome doesn't turn everything over.
        let badness = if counts { 10 - (percent / 10).min(10) } else { 2 };
        let cost = candidate.money_microusd_max.unwrap_or(u64::MAX);
        let mut why = vec![if candidate.is_remote { "remote" } else { "on this machine" }.to_owned()];
        if preferred != usize::MAX {
            why.push("preferred for this class".to_owned());
        }
        if counts {
            why.push(format!("{} of {} calls succeeded", tally.good, tally.outcomes()));
        }
        if tally.latency_ms > 0 {
            why.push(format!("about {} ms", tally.latency_ms));
        }
        if too_bad {
            why.push("below the required success rate".to_owned());
        }
        if too_slow {
            why.push("slower than the latency limit".to_owned());
        }
        why.push(match candidate.money_microusd_max {
            None => "no known price".to_owned(),
            Some(0) => "free".to_owned(),
            Some(most) => format!("at most {}", usd(most)),
        });
        let key = (too_bad, too_slow, preferred, candidate.is_remote, badness, cost, at);
        Ranked {
            key,
            considered: Considered { model: candidate.model.clone(), why: why.join(", "), fits: true },
        }
    }
}

#[cfg(test)]
mod tests;
