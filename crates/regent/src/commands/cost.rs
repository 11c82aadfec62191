//! `regent cost`: what was used, summed up from the ledger's receipts alone.

use clap::{Subcommand, ValueEnum};
use regent_lookup::{Cost, GroupBy};
use serde_json::json;

use crate::codes;
use crate::context::Context;
use crate::failure::Failure;
use crate::money;
use crate::output::{CommandResult, Done, Screen};
use crate::past::Past;
use crate::settings::duration_ms;
use crate::term;

/// The longest bar of the chart.
const BAR_CHARS_MAX: u64 = 30;

/// Show costs
#[derive(Debug, Subcommand)]
pub(crate) enum CostCommand {
    /// Sum up money, tokens and calls from the receipts in the ledger
    Show {
        /// Group by
        #[arg(long, value_enum, default_value = "day")]
        by: ByWord,
        /// Only this recent, e.g. 2h or 7d
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ByWord {
    /// The task that calls were made for
    Task,
    /// The agent that made the calls
    Agent,
    /// The day (UTC)
    Day,
    /// The model that answered
    Model,
}

impl CostCommand {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Show { .. } => "cost.show",
        }
    }
}

pub(crate) fn run(context: &Context, command: &CostCommand) -> CommandResult {
    let CostCommand::Show { by, since } = command;
    let ago = |text: &String| -> Result<i64, Failure> {
        let ms = duration_ms(text).and_then(|ms| i64::try_from(ms).ok()).ok_or_else(|| {
            Failure::new(codes::USAGE, format!("`{}` is not a time", term::inline(text)))
                .help("give a time such as 90s, 10m, 2h or 7d")
        })?;
        Ok(context.clock.now_ms().saturating_sub(ms))
    };
    let since_ms = since.as_ref().map(ago).transpose()?;
    let (by, name) = match by {
        ByWord::Task => (GroupBy::Task, "TASK"),
        ByWord::Agent => (GroupBy::Agent, "AGENT"),
        ByWord::Day => (GroupBy::Day, "DAY"),
        ByWord::Model => (GroupBy::Model, "MODEL"),
    };
    let mut costs = Past::open(context)?.costs(by, since_ms)?;
    if by == GroupBy::Day {
        costs.sort_by(|one, other| one.of.cmp(&other.of));
    }
    let total = costs.iter().fold(Cost::default(), |so_far, one| Cost {
        of: None,
        calls: so_far.calls.saturating_add(one.calls),
        tokens: so_far.tokens.saturating_add(one.tokens),
        money_microusd: so_far.money_microusd.saturating_add(one.money_microusd),
        wall_ms: so_far.wall_ms.saturating_add(one.wall_ms),
        bytes_out: so_far.bytes_out.saturating_add(one.bytes_out),
    });
    let text = table(&context.screen, name, &costs, &total);
    Ok(Done::new(
        json!({"by": name.to_lowercase(), "since_ms": since_ms, "costs": costs, "total": total}),
        text,
    ))
}

fn table(screen: &Screen, name: &str, costs: &[Cost], total: &Cost) -> String {
    if costs.is_empty() {
        return "nothing was used\n".to_owned();
    }
    let row = |name: &str, one: &Cost| {
        let (calls, tokens) = (money::grouped(one.calls), money::grouped(one.tokens));
        format!("{name:<24} {calls:>8} {tokens:>14} {:>16}", money::usd(one.money_microusd))
    };
    // Where nothing costs money, as with models on this machine, the chart is of tokens.
    let measure = |one: &Cost| if total.money_microusd > 0 { one.money_microusd } else { one.tokens };
    let most = costs.iter().map(measure).max().unwrap_or(0);
    let mut text = screen.strong(&format!("{name:<24} {:>8} {:>14} {:>16}\n", "CALLS", "TOKENS", "COST"));
    for one in costs {
        let name = one.of.as_deref().map_or_else(|| "-".to_owned(), |of| term::short(of, 24));
        text.push_str(&format!("{}  {}\n", row(&name, one), screen.faint(&bar(screen, measure(one), most))));
    }
    text.push_str(&format!("{}\n", screen.strong(&row("total", total))));
    text
}

/// A bar as long as its part of the most; what is there at all is seen.
fn bar(screen: &Screen, part: u64, most: u64) -> String {
    let room = u64::try_from(screen.width.saturating_sub(68)).unwrap_or(0).min(BAR_CHARS_MAX);
    let chars = u128::from(part).saturating_mul(u128::from(room)).checked_div(u128::from(most)).unwrap_or(0);
    let chars = usize::try_from(chars).unwrap_or(0).max(usize::from(part > 0));
    "#".repeat(chars)
}
