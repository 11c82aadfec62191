//! `regent approve list`: the pending questions, those of one cause together.

use regent_kernel::{OpenQuestion, Reader};
use serde_json::{Value, json};

use super::{ids, open, project_of, question_json};
use crate::compose::BootedKernel;
use crate::context::Context;
use crate::covered;
use crate::output::{CommandResult, Done};
use crate::question::{self, Batch};
use crate::term;

pub(super) async fn list(context: &Context) -> CommandResult {
    let running = BootedKernel::boot(context).await?;
    let questions = open(context, &running).await;
    let here = project_of(&running);
    let reader = Reader::on(running.host.ledger().storage());
    let questions = running.close(context, questions).await?;
    let covered = covered::count(&reader, &questions.iter().collect::<Vec<_>>());
    let batches = question::batches(&questions);
    let mut text = String::new();
    for batch in &batches {
        text.push_str(&head(context, batch));
        for one in batch.questions() {
            text.push_str(&call(one, batch));
            let place = questions.iter().position(|other| other.id == one.id);
            if let Some(covered) = place.and_then(|at| covered.get(at)?.as_ref()) {
                let line = format!("      the smallest exception: {}\n", covered.line());
                text.push_str(&context.screen.faint(&line));
            }
        }
        text.push_str(&hint(context, batch));
        if let Some(one) = batch.last().filter(|one| one.project != here) {
            let line = format!("      in another project: {}\n", term::inline(&one.project));
            text.push_str(&context.screen.warn(&line));
        }
    }
    match questions.first().and_then(|one| Some((one.attention.as_ref()?, one.read_ms))) {
        Some((attention, read_ms)) => text.push_str(&question::meter(&context.screen, attention, read_ms)),
        None => text.push_str("no pending questions\n"),
    }
    let listed: Vec<Value> =
        questions.iter().zip(&covered).map(|(one, covered)| question_json(one, covered)).collect();
    let grouped: Vec<Value> = batches.iter().map(group).collect();
    Ok(Done::new(json!({"questions": listed, "batches": grouped}), text))
}

/// The id that answers all calls of a batch, how long there is, and why they are asked about.
fn head(context: &Context, batch: &Batch) -> String {
    let (Some(one), Some(last)) = (batch.questions().first(), batch.last()) else { return String::new() };
    // The first to expire ends the time for all of them.
    let until_ms = batch.questions().iter().map(|one| one.expires_at_ms).min().unwrap_or(0);
    let left_ms = until_ms.saturating_sub(context.clock.now_ms());
    let left = term::span(u64::try_from(left_ms).unwrap_or(0));
    let line = one.rule_at.as_ref().map(|at| format!(", line {}", at.line)).unwrap_or_default();
    let count = match batch.questions().len() {
        1 => String::new(),
        count => format!("{count} calls "),
    };
    let quote = one.quote.as_ref().map(|quote| format!("      {}\n", term::inline(quote)));
    format!(
        "{}  {}  {count}by {}, rule {}{line}: {}{}\n{}",
        context.screen.strong(&term::inline(&last.id.0)),
        context.screen.faint(&format!("expires in {left}")),
        term::short(&one.caller, 40),
        term::inline(&one.rule),
        term::inline(&one.reason),
        agreed(one),
        quote.unwrap_or_default(),
    )
}

/// Who has agreed so far, where several people have to.
fn agreed(one: &OpenQuestion) -> String {
    match (one.approvers, one.agreed.as_slice()) {
        (0 | 1, _) => String::new(),
        (needed, []) => format!("; 0 of {needed} people have agreed"),
        (needed, names) => {
            let names_text = term::inline(&names.join(", ")).into_owned();
            format!("; {} of {needed} people have agreed: {names_text}", names.len())
        }
    }
}

/// How a part of a batch is answered: the id of a call stands for those above it too, unless `--only` is given.
fn hint(context: &Context, batch: &Batch) -> String {
    let Some(last) = batch.last().filter(|_| !batch.is_one()) else { return String::new() };
    let line = format!(
        "      `regent approve {}` answers all {}; another id answers its call and those above it; add `--only` for one call\n",
        term::inline(&last.id.0),
        batch.questions().len(),
    );
    context.screen.faint(&line)
}

/// One call of it. Among several each has its id, for an answer that leaves out those below it.
fn call(one: &OpenQuestion, batch: &Batch) -> String {
    let id = if batch.is_one() { String::new() } else { format!("{}  ", term::inline(&one.id.0)) };
    let mut text = format!("      {id}{}\n", term::block(&one.summary).replace('\n', "\n      "));
    for traced in one.origins.iter().filter(|traced| traced.sink) {
        let from = format!("{} {}", traced.argument, question::whence(traced));
        text.push_str(&format!("      {}\n", term::inline(&from)));
    }
    text
}

fn group(batch: &Batch) -> Value {
    let one = batch.questions().first();
    json!({
        "id": batch.last().map(|last| &last.id), "cause": one.and_then(|one| one.cause.as_ref()), "count": batch.questions().len(),
        "questions": ids(batch), "reason": one.map(|one| &one.reason), "quote": one.and_then(|one| one.quote.as_ref()),
    })
}
