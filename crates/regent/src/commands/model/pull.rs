//! `regent model pull`: downloads weights, with a bar while they come.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use regent_kernel::{Op, ToolCall};
use regent_models::pull::{self, Progress, ProgressSink, PullError, Weights};
use serde_json::{Value, json};

use crate::caller;
use crate::calls;
use crate::chores;
use crate::codes;
use crate::compose::{self, LedgerStart};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{CommandResult, Done};

/// Letters of the bar.
const BAR_WIDTH: u64 = 30;

pub(super) async fn run(context: &Context, name: Option<&str>) -> CommandResult {
    let name = name.or_else(|| pull::names().next()).unwrap_or_default();
    let weights =
        pull::find(name).map_err(|error: PullError| Failure::new(codes::MODEL_WEIGHTS, error.to_string()))?;
    let folder = context.paths.weights();
    let was_there = pull::is_pulled(&folder, name);
    let tools = chores::model_tools(folder, bar(context, weights));
    let host = compose::for_chores(context, tools, LedgerStart::Behind).await?;
    let op = Op::RunTool(ToolCall { tool: "model.pull".to_owned(), args: json!({"name": name}) });
    let outcome = calls::call_on(context, &host, &caller::authenticate(context, &host).await?, op).await;
    let pulled = outcome.and_then(|outcome| calls::result::<Value>(&outcome));
    let pulled = calls::settled(pulled, host.shutdown().await)?;
    let file = PathBuf::from(pulled.get("file").and_then(Value::as_str).unwrap_or_default());
    if !was_there && context.screen.draws {
        context.screen.say("\n");
    }
    let word = if was_there { "is already downloaded" } else { "downloaded" };
    let text = format!(
        "{} {word}: {} ({}, {} MB)\n",
        context.screen.strong(&format!("local/{name}")),
        file.display(),
        weights.licence,
        weights.bytes / 1_000_000
    );
    let value = json!({"model": format!("local/{name}"), "file": file, "bytes": weights.bytes, "sha256": weights.sha256, "pulled": !was_there});
    Ok(Done::new(value, text))
}

/// On a terminal a bar that moves; elsewhere a line for each tenth.
fn bar(context: &Context, weights: &Weights) -> ProgressSink {
    let (screen, name) = (context.screen, weights.name.clone());
    let last = AtomicU64::new(u64::MAX);
    let one_at_a_time = Mutex::new(());
    Arc::new(move |Progress { done, total }| {
        let _alone = one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = if screen.draws { 1_000 } else { 10 };
        let part = done.saturating_mul(parts).checked_div(total).unwrap_or(0);
        if last.swap(part, Ordering::AcqRel) == part {
            return;
        }
        let percent = done.saturating_mul(100).checked_div(total).unwrap_or(0);
        let (done_mb, total_mb) = (done / 1_000_000, total / 1_000_000);
        if screen.draws {
            let full = usize::try_from(percent.saturating_mul(BAR_WIDTH) / 100).unwrap_or(0);
            let empty = usize::try_from(BAR_WIDTH).unwrap_or(0).saturating_sub(full);
            screen.say(&format!(
                "\r{name} [{}{}] {percent:>3} %  {done_mb}/{total_mb} MB",
                "█".repeat(full),
                "·".repeat(empty)
            ));
        } else {
            screen.say(&format!("{name}: {percent} % ({done_mb} of {total_mb} MB)\n"));
        }
    })
}
