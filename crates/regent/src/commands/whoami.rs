//! `regent whoami`: the identity that the kernel has validated.

use clap::Args;
use regent_kernel::Op;
use serde_json::Value;

use super::token;
use crate::calls;
use crate::compose;
use crate::context::Context;
use crate::output::{CommandResult, Done};
use crate::term;

/// Show who you are to the kernel: name, role, and how it knows
#[derive(Debug, Args)]
pub(crate) struct WhoamiArgs {}

pub(crate) async fn run(context: &Context) -> CommandResult {
    let host = compose::for_chores(context, Vec::new()).await?;
    let told: Result<Value, _> = token::ask(context, &host, Op::Whoami).await;
    let told = calls::settled(told, host.shutdown().await)?;
    let part = |name: &str| told.get(name).and_then(Value::as_str).map(term::inline).unwrap_or_default();
    let role = match part("role") {
        role if role.is_empty() => part("class"),
        role => role,
    };
    let text = format!("{} ({role}), authenticated by {}\n", part("name"), part("authenticated"));
    Ok(Done::new(told.clone(), text))
}
