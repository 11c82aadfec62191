//! `regent whoami`: the identity that the kernel has validated.

use clap::Args;
use regent_kernel::{Op, PersonRole};
use regent_wire::result::Identity;
use serde_json::json;

use super::token;
use crate::calls;
use crate::compose::{self, LedgerStart};
use crate::context::Context;
use crate::output::{CommandResult, Done};
use crate::term;

/// Show who you are to the kernel: name, role, and how it knows
#[derive(Debug, Args)]
pub(crate) struct WhoamiArgs {}

pub(crate) async fn run(context: &Context) -> CommandResult {
    let host = compose::for_chores(context, Vec::new(), LedgerStart::Behind).await?;
    let own: Result<Identity, _> = token::ask(context, &host, Op::Whoami).await;
    let own = calls::settled(own, host.shutdown().await)?;
    let role = own.role.map_or_else(|| own.class.as_str(), PersonRole::as_str);
    let by = own.authenticated.as_deref().map(term::inline).unwrap_or_default();
    let text = format!("{} ({role}), authenticated by {by}\n", term::inline(&own.name));
    Ok(Done::new(json!(own), text))
}
