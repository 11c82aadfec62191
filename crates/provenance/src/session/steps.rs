//! A call against the plan.

use serde_json::{Map, Value};

use super::{Planned, Session};
use crate::labels::FieldLabels;
use crate::plan::{Argument, Selection, Step};
use crate::records;
use crate::ruling::{Point, Ruling, Stance};
use crate::spans::Sources;
use crate::text;

/// An argument of a call, as it is held against the plan.
struct Held<'a> {
    tool: &'a str,
    name: &'a str,
    value: &'a Value,
    sink: bool,
}

impl Session {
    pub(super) fn by_plan(
        &self,
        planned: &Planned,
        tool: &str,
        labels: &FieldLabels,
        args: &Value,
    ) -> Ruling {
        let none = Map::new();
        let args = args.as_object().unwrap_or(&none);
        let mut best: Option<(Point, usize)> = None;
        let mut spent = false;
        for (number, step) in planned.plan.steps.iter().enumerate().filter(|(_, step)| step.tool == tool) {
            if labels.acts() && planned.used.get(number).copied().unwrap_or(true) {
                spent = true;
                continue;
            }
            let point = self.fits(planned, step, labels, args);
            if best.as_ref().is_none_or(|(so_far, _)| point.stance < so_far.stance) {
                best = Some((point, number));
            }
        }
        match best {
            Some((point, number)) => {
                let takes = labels.acts() && point.stance != Stance::Deny;
                Ruling { step: takes.then_some(number), ..Ruling::new(point) }
            }
            None if spent => {
                let reason = format!("every planned step with `{tool}` has been taken");
                Ruling::new(Point::deny("plan.used_up", reason))
            }
            None => Ruling::new(Point::deny("plan.not_planned", format!("`{tool}` is not in the plan"))),
        }
    }

    fn fits(&self, planned: &Planned, step: &Step, labels: &FieldLabels, args: &Map<String, Value>) -> Point {
        let mut so_far = Point::fine();
        for (name, value) in args.iter().filter(|(_, value)| !text::is_empty(value)) {
            let held = Held { tool: &step.tool, name, value, sink: labels.is_sink(name, value) };
            let point = match step.args.get(name) {
                None => Point::deny("plan.argument", format!("`{}` was not planned", name.escape_debug())),
                Some(Argument::Const(planned)) if text::same(planned, value) => Point::fine(),
                Some(Argument::Const(_)) => {
                    Point::deny("plan.const", format!("`{name}` is not what the request says"))
                }
                // What a read looks at is its own matter as long as it reaches nobody.
                Some(Argument::From(_) | Argument::Select(_) | Argument::Free(_))
                    if !labels.acts() && !held.sink =>
                {
                    Point::fine()
                }
                Some(Argument::From(from)) => self.is_from(planned, &held, from),
                Some(Argument::Select(selection)) => self.is_selected(&held, selection),
                Some(Argument::Free(_)) => self.is_free(&held),
            };
            so_far = so_far.or(point);
            if so_far.stance == Stance::Deny {
                break;
            }
        }
        so_far
    }

    /// A value out of named outputs. A sink may come from what others can write only where that leaves no choice.
    fn is_from(&self, planned: &Planned, held: &Held<'_>, from: &[String]) -> Point {
        let sources = self.transcript.of_tools(|tool| from.iter().any(|one| names(one, tool).is_some()));
        let mut so_far = Point::fine();
        text::leaves(held.value, &mut |_, leaf| {
            let words = text::words_of(leaf);
            so_far = so_far.clone().or(self.leaf_is_from(planned, held, from, &words, sources));
        });
        so_far
    }

    fn leaf_is_from(
        &self,
        planned: &Planned,
        held: &Held<'_>,
        from: &[String],
        words: &[String],
        sources: Sources,
    ) -> Point {
        let (name, seen) = (held.name, self.transcript.seen(words).sources);
        let spelt = words.join(" ");
        let in_field = |one: &String| match one.rsplit_once('.') {
            Some((tool, field)) if !self.tools.contains_key(one) => {
                self.transcript.records.has(tool, field, &spelt)
            }
            Some(_) | None => self.transcript.of_tools(|tool| tool == one) & seen != 0,
        };
        if seen & sources == 0 || !from.iter().any(in_field) {
            let reason = format!("`{name}` is not from {}", list(from));
            return if held.sink {
                Point::deny("plan.from", reason)
            } else {
                Point::ask("plan.from", reason)
            };
        }
        if !held.sink || seen & 1 != 0 {
            return Point::fine();
        }
        if seen & sources & self.transcript.trusted() != 0 {
            return self.is_the_one_meant(held, from, &spelt);
        }
        let steps = planned.plan.steps.iter().filter(|step| {
            step.tool == held.tool
                && matches!(step.args.get(name), Some(Argument::From(other)) if other == from)
        });
        let room = steps.count();
        let alike = match words {
            [word] => self.transcript.alike(word, sources),
            _several => None,
        };
        match alike {
            Some(alike) if alike.len() <= room => Point::fine(),
            Some(_) | None => {
                let reason = format!(
                    "`{name}` is from what others can write in {}, and it could be another",
                    list(from)
                );
                Point::ask("plan.untrusted_choice", reason)
            }
        }
    }

    /// Where the request says which ("the largest"), it must be that one, as far as the outputs tell.
    fn is_the_one_meant(&self, held: &Held<'_>, from: &[String], spelt: &str) -> Point {
        if self.ends.is_empty() {
            return Point::fine();
        }
        let tool_of = |one: &String| match one.rsplit_once('.') {
            Some((tool, _)) if !self.tools.contains_key(one) => tool.to_owned(),
            Some(_) | None => one.clone(),
        };
        let told = from
            .iter()
            .filter_map(|one| self.transcript.records.is_extreme(&tool_of(one), spelt, &self.ends));
        match told.reduce(|one, other| one || other) {
            None | Some(true) => Point::fine(),
            Some(false) => {
                Point::ask("plan.choice", format!("`{}` is not the one that the request names", held.name))
            }
        }
    }

    fn is_selected(&self, held: &Held<'_>, selection: &Selection) -> Point {
        let name = held.name;
        let Some(picked) = self.transcript.records.select(selection) else {
            return Point::deny(
                "plan.select",
                format!("there is nothing yet that `{name}` could be selected from"),
            );
        };
        let items = match held.value {
            Value::Array(items) => items.as_slice(),
            one @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
                std::slice::from_ref(one)
            }
        };
        if !items.iter().all(|item| picked.contains(&records::spelt(item))) {
            return Point::deny("plan.select", format!("`{name}` is not what the selection gives"));
        }
        if held.sink && self.transcript.records.is_by_untrusted(selection) && picked.len() > items.len() {
            return Point::ask(
                "plan.untrusted_choice",
                format!("`{name}` is selected by what others can write"),
            );
        }
        Point::fine()
    }

    /// The planner leaves it open: a sink has to be trusted anyway, and content mustn't smuggle an address, a link or a code.
    fn is_free(&self, held: &Held<'_>) -> Point {
        if held.sink {
            let origin = self.origin(held.value);
            return if origin.is_trusted() {
                Point::fine()
            } else {
                Point::ask("plan.free_sink", format!("`{}` comes from {origin}", held.name))
            };
        }
        if self.transcript.is_tainted() {
            self.smuggles_nothing(held.name, held.value)
        } else {
            Point::fine()
        }
    }
}

/// The field that a `from` names of a tool; empty for all of it.
fn names<'f>(one: &'f str, tool: &str) -> Option<&'f str> {
    let rest = one.strip_prefix(tool)?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('.') }
}

fn list(from: &[String]) -> String {
    let names: Vec<String> = from.iter().map(|one| format!("`{}`", one.escape_debug())).collect();
    names.join(", ")
}
