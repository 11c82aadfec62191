//! Making a plan: the model writes one, gets its errors back, and then criticises it once.

use regent_kernel::{Inference, Message, Role, Sampling};

use super::graph::{Graph, Plan};
use crate::agent::placeholders::{PlaceholderTable, final_call, restored_text};
use crate::agent::{Work, infer};
use crate::door::Door;
use crate::event::{Event, PlannedStep};
use crate::stop::StopCause;

const ASK: &str = "Take the goal apart into steps. Each step is done by an agent of its own that sees only the step's goal and the answers of \
    the steps that it needs. Steps that don't need each other are done side by side. Use as few steps as will do. Where a step changes \
    something, `undo` may name the one tool call that makes up for it. Answer with JSON: {\"steps\": [{\"id\", \"goal\", \"needs\"}]}.";
const REVIEW: &str = "Look at this plan as someone who has to answer for it. Is a step missing, needless, or not able to be done with these \
    tools? Does a step need an answer that it doesn't name? Answer with the better plan as JSON, or with the same one if it is good.";

/// Makes a plan for a goal.
pub async fn draft(door: &Door, work: &Work) -> Result<Graph, StopCause> {
    let tools: Vec<&str> = work.offers.iter().map(|offer| offer.name.as_str()).collect();
    let goal = format!("{ASK}\n\nTools: {}\n\nGoal:\n{}", tools.join(", "), work.goal);
    let mut messages = vec![Message::new(Role::System, &work.role), Message::new(Role::User, goal)];
    messages.retain(|message| !message.parts.is_empty());
    let mut graph = match ask(door, work, "0/plan", &mut messages).await? {
        Ok(graph) => graph,
        Err(why) => {
            messages
                .push(Message::new(Role::User, format!("That is no plan: {why}. Answer with JSON only.")));
            ask(door, work, "0/plan-again", &mut messages).await?.map_err(StopCause::Plan)?
        }
    };
    messages.push(Message::new(Role::User, REVIEW));
    // A review that is no plan leaves the plan as it is.
    if let Ok(better) = ask(door, work, "0/review", &mut messages).await? {
        graph = better;
    }
    let steps = graph
        .steps()
        .iter()
        .map(|step| PlannedStep { name: step.id.clone(), goal: step.goal.clone() })
        .collect();
    door.events().send(Event::Plan { steps });
    Ok(graph)
}

async fn ask(
    door: &Door,
    work: &Work,
    step: &str,
    messages: &mut Vec<Message>,
) -> Result<Result<Graph, String>, StopCause> {
    let inference = Inference {
        model: door.model_at(step).to_owned(),
        messages: messages.clone(),
        tools: Vec::new(),
        tokens_max: work.limits.answer_tokens_max,
        sampling: Sampling { schema: Some(Plan::schema()), must_call: false, ..work.sampling.clone() },
    };
    let (completion, _) = infer(door, step, inference, work.limits.tries_max).await?;
    let (text, table) = (completion.message.text().into_owned(), completion.redacted);
    messages.push(Message::new(Role::Assistant, restored_text(&text, &table)));
    // Values are put back into what was read: a quotation mark in one must not change what the JSON says.
    let plan = serde_json::from_str(json_in(&text)).map(|plan| with_values(door, plan, &table));
    Ok(plan
        .map_err(|error| error.to_string())
        .and_then(|plan| plan.order().map_err(|error| error.to_string())))
}

/// A plan with what redaction took out. A call that would take it off this machine keeps the placeholder.
fn with_values(door: &Door, mut plan: Plan, table: &PlaceholderTable) -> Plan {
    for step in &mut plan.steps {
        step.goal = restored_text(&step.goal, table);
        if let Some(undo) = &mut step.undo {
            let tool = door.kernel().tool(&undo.tool);
            if let Ok(call) = final_call(undo, tool.as_ref().map(|tool| tool.spec()), table) {
                *undo = call;
            }
        }
    }
    plan
}

/// Models like to put JSON between words or fences.
fn json_in(text: &str) -> &str {
    match (text.find('{'), text.rfind('}')) {
        (Some(from), Some(to)) => text.get(from..=to).unwrap_or(text),
        (Some(_) | None, _) => text,
    }
}
