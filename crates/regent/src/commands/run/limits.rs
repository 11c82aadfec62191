//! Which limit stopped a program, how much it was, and where it is set.

use std::borrow::Cow;

use regent_kernel::{Limits, Op, Principal, Reply};
use regent_policy::Outline;
use regent_sandbox::EndedBy;
use regent_wire::result::Checked;

use crate::codes;
use crate::compose::BootedKernel;
use crate::failure::Failure;
use crate::term;

/// A limit that a program can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    Wall,
    Output,
    Memory,
}

impl Limit {
    /// The limit that ended a run, if one did.
    pub(super) fn reached(why: EndedBy) -> Option<Self> {
        match why {
            EndedBy::WallClock => Some(Self::Wall),
            EndedBy::OutputCap => Some(Self::Output),
            EndedBy::Memory => Some(Self::Memory),
            EndedBy::Itself | EndedBy::Killed => None,
        }
    }

    /// Its key in a policy, and its name in a sentence.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Wall => ("wall", "time"),
            Self::Output => ("output", "output"),
            Self::Memory => ("memory", "memory"),
        }
    }

    fn value_in(self, limits: &Limits) -> u64 {
        match self {
            Self::Wall => limits.wall_ms_max,
            Self::Output => limits.output_bytes_max,
            Self::Memory => limits.memory_bytes_max,
        }
    }

    fn amount(self, value: u64) -> String {
        match self {
            Self::Wall if value < 1_000 => format!("{value} ms"),
            Self::Wall => term::span(value),
            Self::Output | Self::Memory => size(value),
        }
    }
}

/// A size in the largest unit that it is a whole number of.
fn size(bytes: u64) -> String {
    let units = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let whole = units.into_iter().find(|(_, each)| bytes >= *each && bytes.is_multiple_of(*each));
    whole.map_or_else(|| format!("{bytes} bytes"), |(unit, each)| format!("{} {unit}", bytes / each))
}

/// Why a program was stopped, for the user who started it.
pub(super) async fn stopped(
    running: &BootedKernel,
    caller: &Principal,
    op: Op,
    (limit, timeout_ms, ran_ms): (Limit, Option<u64>, u64),
) -> Failure {
    let granted = granted(running, caller, op).await;
    let (what, help) =
        describe(limit, (timeout_ms, ran_ms), granted.as_ref(), &running.host.policy_outline());
    Failure::new(codes::LIMIT_HIT, format!("the program was stopped: {what}")).help(help)
}

/// What policy grants such a call, and by which rule. Asked only once a limit was reached.
async fn granted(running: &BootedKernel, caller: &Principal, op: Op) -> Option<(Limits, Option<String>)> {
    let asked = Op::CheckPolicy { op: Box::new(op) };
    let Ok(Reply::Done(outcome)) = running.host.syscall(caller, asked).await else { return None };
    let checked: Checked = outcome.read().ok()?;
    Some((checked.limits?, checked.rule.map(|rule| rule.id.to_string())))
}

/// The limit in a sentence, and what changes it.
fn describe(
    limit: Limit,
    (timeout_ms, ran_ms): (Option<u64>, u64),
    granted: Option<&(Limits, Option<String>)>,
    files: &[Outline],
) -> (String, String) {
    let (key, name) = limit.words();
    let said = |value: u64, from: &str| format!("{name} limit of {} reached ({from})", limit.amount(value));
    let policys = granted.map(|(limits, _)| limit.value_in(limits));
    let asked = timeout_ms.filter(|_| limit == Limit::Wall);
    let least = [policys, asked].into_iter().flatten().min();
    let Some(value) = least else {
        return (format!("{name} limit reached"), format!("the `limits` of the policy set `{key}`"));
    };
    // What was stopped well before any of these had less time left in its budget.
    if limit == Limit::Wall && ran_ms.saturating_add(1_000) < value {
        let help = "`regent budget show` shows what is left, `regent budget set` changes it".to_owned();
        return (said(ran_ms, "all that its budget had left"), help);
    }
    if asked == Some(value) && policys.is_none_or(|policys| policys > value) {
        return (said(value, "--timeout"), "give a longer --timeout".to_owned());
    }
    // Longer than any file lets others run: on a terminal, where the limits of rules alone hold.
    if limit == Limit::Wall && asked.is_none() && ran_ms > value.saturating_add(5_000) {
        let place = format!("`limits.{key}` in the rule that sets it");
        return (format!("{name} limit of a rule reached"), format!("raise {place}"));
    }
    let of_file = files.iter().find(|file| limit.value_in(&file.limits) == value);
    let (place, owner): (String, Cow<'_, str>) = match (of_file, granted.and_then(|(_, rule)| rule.as_ref()))
    {
        (Some(file), _) => (format!("`limits.{key}`"), term::inline(&file.name)),
        (None, Some(rule)) => {
            (format!("`limits.{key}`"), format!("the rule `{}`", term::inline(rule)).into())
        }
        (None, None) => (format!("`limits.{key}`"), "the policy".into()),
    };
    let longer = if limit == Limit::Wall && asked.is_some_and(|asked| asked > value) {
        "; --timeout can only lower it"
    } else {
        ""
    };
    (said(value, &format!("{place} of {owner}")), format!("raise {place} in {owner}{longer}"))
}

#[cfg(test)]
mod tests {
    use regent_policy::{Layer, Mode};

    use super::*;

    fn file(name: &str, wall_ms_max: u64) -> Outline {
        let limits = Limits { wall_ms_max, memory_bytes_max: 4 << 30, ..Limits::default() };
        let (layer, mode) = (Layer::User, Mode::Strict);
        Outline { name: name.to_owned(), layer, mode, rules: 0, examples: 0, points: Vec::new(), limits }
    }

    #[test]
    fn reports_a_limit_with_its_amount_and_source() {
        let files = [file("mine.yml", 600_000), file("project.yml", 60_000)];
        let granted = |wall_ms_max, rule: &str| {
            let memory_bytes_max = 4 << 30;
            Some((Limits { wall_ms_max, memory_bytes_max, ..Limits::default() }, Some(rule.to_owned())))
        };
        let cases = [
            (
                Limit::Wall,
                (Some(2_000), 2_010),
                granted(60_000, "run"),
                "time limit of 2 s reached (--timeout)",
                "give a longer --timeout",
            ),
            (
                Limit::Wall,
                (Some(120_000), 60_010),
                granted(60_000, "run"),
                "time limit of 1 min reached (`limits.wall` of project.yml)",
                "raise `limits.wall` in project.yml; --timeout can only lower it",
            ),
            (
                Limit::Wall,
                (None, 5_100),
                granted(5_000, "run"),
                "time limit of 5 s reached (`limits.wall` of the rule `run`)",
                "raise `limits.wall` in the rule `run`",
            ),
            (
                Limit::Wall,
                (None, 3_000),
                granted(60_000, "run"),
                "time limit of 3 s reached (all that its budget had left)",
                "`regent budget show` shows what is left, `regent budget set` changes it",
            ),
            (
                Limit::Memory,
                (Some(2_000), 10),
                granted(60_000, "run"),
                "memory limit of 4 GiB reached (`limits.memory` of mine.yml)",
                "raise `limits.memory` in mine.yml",
            ),
            (
                Limit::Output,
                (None, 0),
                None,
                "output limit reached",
                "the `limits` of the policy set `output`",
            ),
        ];
        for (limit, times, granted, what, help) in cases {
            let told = describe(limit, times, granted.as_ref(), &files);
            assert_eq!(told, (what.to_owned(), help.to_owned()));
        }
    }
}
