//! Judges a call against the plan. Planners make honest mistakes, so a call outside the plan becomes a question, never a lost call. As long
//! as no outsider can have influenced the call, it doesn't even become a question.

use super::meant::is_number;
use super::{Planned, Session};
use crate::intent;
use crate::labels::FieldLabels;
use crate::plan::{self, PlanStep, Selection};
use crate::records;
use crate::ruling::{Point, Ruling};
use crate::said::{Argument, CallArguments, Leaf};
use crate::spans::Sources;
use crate::text;
use crate::whole;

/// A call compared with a step.
struct StepCheck<'a, 'v> {
    planned: &'a Planned,
    labels: &'a FieldLabels,
    said: &'a CallArguments<'v>,
    step: &'a PlanStep,
}

impl Session {
    pub(super) fn by_plan(
        &self,
        planned: &Planned,
        tool: &str,
        labels: &FieldLabels,
        said: &CallArguments<'_>,
    ) -> Ruling {
        let mut best: Option<(Point, usize)> = None;
        let mut spent = false;
        for (number, step) in planned.plan.steps.iter().enumerate().filter(|(_, step)| step.tool == tool) {
            if labels.acts() && planned.used.get(number).copied().unwrap_or(true) {
                spent = true;
                continue;
            }
            let point = self.fits(&StepCheck { planned, labels, said, step });
            if best.as_ref().is_none_or(|(so_far, _)| point.stance < so_far.stance) {
                best = Some((point, number));
            }
        }
        if let Some((point, number)) = best {
            return Ruling {
                step: labels.acts().then_some(number),
                ..Ruling::new(self.unless_alone(point, said))
            };
        }
        // A read affects no one.
        if !labels.acts() {
            return Ruling::new(self.by_grounds(tool, labels, said));
        }
        let point = if spent {
            Point::ask("plan.used_up", format!("all planned steps with `{tool}` have been used"))
        } else {
            Point::ask("plan.not_planned", format!("`{tool}` is not in the plan"))
        };
        Ruling::new(self.unless_alone(point, said))
    }

    /// Waives the point while the agent has read no untrusted input and the call uses no quarantined value.
    fn unless_alone(&self, point: Point, said: &CallArguments<'_>) -> Point {
        if self.transcript.is_tainted() || self.uses_quarantined(said) { point } else { Point::fine() }
    }

    fn fits(&self, held: &StepCheck<'_, '_>) -> Point {
        let mut so_far = Point::fine();
        for argument in &held.said.arguments {
            so_far = so_far.or(self.argument_fits(held, argument));
        }
        // Omitting an argument changes the effect as much as adding one.
        let is_given = |name: &String| held.said.arguments.iter().any(|argument| argument.name == name);
        let missing = held.step.args.iter().find(|(name, planned)| {
            let says_something = !matches!(planned, plan::Argument::Free(_))
                && !matches!(planned, plan::Argument::Const(value) if text::is_empty(value));
            held.labels.acts() && says_something && !is_given(name)
        });
        match missing {
            Some((name, _)) => {
                so_far.or(Point::ask("plan.missing", format!("the plan has `{name}`, but the call omits it")))
            }
            None => so_far,
        }
    }

    fn argument_fits(&self, held: &StepCheck<'_, '_>, argument: &Argument<'_>) -> Point {
        let StepCheck { labels, said, step, .. } = held;
        match step.args.get(argument.name) {
            None if argument.is_unset && is_left_empty(held, argument.name) => Point::fine(),
            None => self.is_fine_unplanned(&step.tool, labels, said, argument),
            Some(plan::Argument::Const(planned)) if argument.is_unset && text::is_empty(planned) => {
                Point::fine()
            }
            Some(plan::Argument::Const(planned)) if text::same(planned, argument.value) => Point::fine(),
            Some(plan::Argument::Const(_)) => {
                Point::ask_about("plan.const", argument.name, "the plan has another value")
            }
            // A read may look at anything as long as it reaches no one.
            Some(plan::Argument::From(_) | plan::Argument::Select(_) | plan::Argument::Free(_))
                if !labels.acts() && !argument.is_sink =>
            {
                Point::fine()
            }
            Some(plan::Argument::From(from)) => self.is_from(held, argument, from),
            Some(plan::Argument::Select(selection)) => self.is_selected(held, argument, selection),
            Some(plan::Argument::Free(_)) => self.is_free(argument),
        }
    }

    /// A value from named outputs. A sink may come from untrusted output only if that leaves no choice.
    fn is_from(&self, held: &StepCheck<'_, '_>, argument: &Argument<'_>, from: &[String]) -> Point {
        let sources = self.transcript.of_tools(|tool| from.iter().any(|one| self.tool_of(one) == tool));
        let leaves = argument.leaves.iter();
        leaves.fold(Point::fine(), |so_far, leaf| {
            so_far.or(self.leaf_is_from(held, argument, from, leaf, sources))
        })
    }

    fn leaf_is_from(
        &self,
        held: &StepCheck<'_, '_>,
        argument: &Argument<'_>,
        from: &[String],
        leaf: &Leaf,
        sources: Sources,
    ) -> Point {
        let (name, tool, words) = (argument.name, held.step.tool.as_str(), &leaf.words);
        let seen = self.transcript.seen(words).sources;
        let spelt = words.join(" ");
        let in_field = |one: &String| match one.rsplit_once('.') {
            Some((tool, field)) if !self.tools.contains_key(one) => {
                self.transcript.records.has(tool, field, &spelt)
            }
            Some(_) | None => self.transcript.of_tools(|tool| tool == one) & seen != 0,
        };
        let is_clear = argument.value.is_number() || text::is_clear_figure(&leaf.text);
        if !argument.is_sink && is_clear && self.is_worked_out(name, leaf) {
            return Point::fine();
        }
        if seen & sources == 0 || !from.iter().any(in_field) {
            return Point::ask_about("plan.from", name, format!("it should be from {}", list(from)));
        }
        // An amount is a choice as well as a target.
        let is_chosen = argument.is_sink || is_number(leaf);
        if !is_chosen || !held.labels.acts() || self.transcript.is_whole_in(leaf, seen & 1) {
            return Point::fine();
        }
        if !self.transcript.is_whole_in(leaf, seen & sources) {
            let reason = format!("it is only a part of what is in {}", list(from));
            return Point::ask_about("plan.from", name, reason);
        }
        if seen & sources & self.transcript.trusted() != 0 {
            return self.is_the_one_meant(held, argument, from, leaf);
        }
        if !argument.is_sink {
            return Point::fine();
        }
        // An irreversible effect needs a target that not only untrusted text names.
        let is_only = match words.as_slice() {
            _any if intent::endorses(tool) => false,
            [word] => {
                let alike = self.transcript.alike(word, sources);
                alike.is_some_and(|alike| alike.len() <= room(held, name, from))
            }
            _several => self.transcript.texts.have_only(&beside(held, from), sources),
        };
        if is_only {
            return Point::fine();
        }
        Point::ask_about("plan.untrusted_choice", name, "untrusted text could have named another")
    }

    /// Whether one of several trusted values is meant: the request names it by a word beside it or by its rank ("the largest"), or it is
    /// the only one. Otherwise an outsider may have chosen it.
    fn is_the_one_meant(
        &self,
        held: &StepCheck<'_, '_>,
        argument: &Argument<'_>,
        from: &[String],
        leaf: &Leaf,
    ) -> Point {
        let spelt = leaf.words.join(" ");
        let tools: Vec<&str> = from.iter().map(|one| self.tool_of(one)).collect();
        let records = &self.transcript.records;
        let claims = tools.iter().filter_map(|tool| records.is_extreme(tool, &spelt, &self.ends));
        let by_end = claims.reduce(|one, other| one || other).filter(|_| !self.ends.is_empty());
        let is_meant = match by_end {
            Some(is_meant) => is_meant,
            None => {
                self.is_no_choice(&held.step.tool, argument.name, leaf)
                    || tools.iter().all(|tool| {
                        records
                            .rivals(tool, &spelt)
                            .is_some_and(|rivals| rivals <= room(held, argument.name, from))
                            || self.is_beside_named(argument.name, leaf, Some(tool))
                    })
            }
        };
        if is_meant {
            return Point::fine();
        }
        let reason = format!("there are other candidates in {}", list(from));
        Point::ask_about("plan.choice", argument.name, reason)
    }

    /// The tool in a `from`.
    fn tool_of<'f>(&self, one: &'f str) -> &'f str {
        one.rsplit_once('.').filter(|_| !self.tools.contains_key(one)).map_or(one, |(tool, _)| tool)
    }

    fn is_selected(&self, held: &StepCheck<'_, '_>, argument: &Argument<'_>, selection: &Selection) -> Point {
        let name = argument.name;
        let Some(picked) = self.transcript.records.select(selection) else {
            return Point::ask_about("plan.select", name, "there is nothing to select it from");
        };
        let items = argument.value.as_array().map_or(std::slice::from_ref(argument.value), Vec::as_slice);
        if !items.iter().all(|item| picked.contains(&records::spelt(item))) {
            return Point::ask_about("plan.select", name, "the planned selection gives another value");
        }
        // A proposed selection was not reviewed, so it must not depend on untrusted text at all.
        let is_open = held.planned.is_proposed || picked.len() > items.len();
        if argument.is_sink && is_open && self.transcript.records.is_by_untrusted(selection) {
            return Point::ask_about("plan.untrusted_choice", name, "it is selected by untrusted text");
        }
        Point::fine()
    }

    /// The plan leaves the argument open: a sink must still be trusted, and content must not contain an address, link or code.
    fn is_free(&self, argument: &Argument<'_>) -> Point {
        if !argument.is_sink {
            // An open number must be a calculation. A number that occurs in a result, or one of several in the request, would have been
            // planned explicitly.
            let is_taken = |leaf: &Leaf| {
                let sources = self.transcript.seen(&leaf.words).sources;
                let is_one_of_several = || self.intent.reckons() || self.intent.figures().0.len() > 1;
                is_number(leaf) && sources != 0 && (sources & 1 == 0 || is_one_of_several())
            };
            if argument.leaves.iter().any(is_taken) {
                let reason = "the plan leaves it open, and it could be another number";
                return Point::ask_about("plan.free_number", argument.name, reason);
            }
            return self.smuggles_nothing(argument);
        }
        if self.transcript.origin_of(argument).is_trusted() {
            return Point::fine();
        }
        Point::ask_about("plan.free_sink", argument.name, "it decides who or what is affected")
    }
}

/// Whether the plan leaves an optional sink out, too. A proposed plan names no sinks, so it says nothing about them.
fn is_left_empty(held: &StepCheck<'_, '_>, sink: &str) -> bool {
    let is_open = |name: &String| matches!(held.step.args.get(name), Some(plan::Argument::Free(_)));
    !held.planned.is_proposed && !held.labels.fields.requires(sink) && !held.labels.sinks.iter().any(is_open)
}

/// Number of steps with the same choice.
fn room(held: &StepCheck<'_, '_>, name: &str, from: &[String]) -> usize {
    let steps = held.planned.plan.steps.iter().filter(|step| {
        step.tool == held.step.tool
            && matches!(step.args.get(name), Some(plan::Argument::From(other)) if other == from)
    });
    steps.count()
}

/// The call's values in all arguments planned from the same outputs.
fn beside<'h>(held: &'h StepCheck<'_, '_>, from: &[String]) -> Vec<whole::Value<'h>> {
    let is_from =
        |name| matches!(held.step.args.get(name), Some(plan::Argument::From(other)) if other == from);
    let leaves = held.said.sinks().filter(|argument| is_from(argument.name)).flat_map(|one| &one.leaves);
    leaves.map(|leaf| whole::Value::new(&leaf.text)).collect()
}

fn list(from: &[String]) -> String {
    let names: Vec<String> = from.iter().map(|one| format!("`{}`", one.escape_debug())).collect();
    names.join(", ")
}
