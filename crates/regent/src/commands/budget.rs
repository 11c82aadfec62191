//! `regent budget`: what may be used, by whom.

use clap::Subcommand;
use regent_kernel::{Budget, BudgetScope, Each, Op, Standing};
use regent_runtime::TaskView;
use regent_wire::result::BudgetSet;
use serde_json::{Value, json};

use crate::calls;
use crate::codes;
use crate::commands::agent;
use crate::compose::{BootedKernel, tasks};
use crate::context::Context;
use crate::failure::Failure;
use crate::money::{self, Nearness};
use crate::output::{CommandResult, Done, Screen};
use crate::past::Past;
use crate::term;

/// How many tasks are looked at for budgets of their own.
const TASKS_MAX: u32 = 200;

/// Show and set budgets
#[derive(Debug, Subcommand)]
pub(crate) enum BudgetCommand {
    /// Set the limits of a scope; replaces its previous limits
    #[command(after_help = "Example: regent budget set user/day 5usd,tokens=2M")]
    Set {
        /// `user/day` (all your projects, each day), `project`, `task/ID`, or `agent/ID` of a running agent
        scope: String,
        /// E.g. 5usd, tokens=2M, calls=500, time=2h, bytes=1000000, questions=20; `none` removes all limits
        #[arg(required = true)]
        limits: Vec<String>,
    },
    /// Show each budget, its usage, and its state: ok, warning, critical or paused
    Show,
}

impl BudgetCommand {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Set { .. } => "budget.set",
            Self::Show => "budget.show",
        }
    }
}

pub(crate) async fn run(context: &Context, command: BudgetCommand) -> CommandResult {
    match command {
        BudgetCommand::Set { scope, limits } => set(context, &scope, &limits).await,
        BudgetCommand::Show => show(context).await,
    }
}

async fn set(context: &Context, scope: &str, words: &[String]) -> CommandResult {
    let limits = if words == ["none"] { Budget::default() } else { money::parse(words)? };
    let told = match scope.strip_prefix("task/") {
        Some(id) => set_task(context, id, limits).await?,
        None => set_scope(context, scope, limits).await?,
    };
    let shown = if limits == Budget::default() { "no limits".to_owned() } else { money::limits(&limits) };
    let mut text = format!("{}: {shown}\n", term::inline(&told));
    // A task has a record of its own use; what no limit covers isn't counted elsewhere.
    if limits != Budget::default() && scope.strip_prefix("task/").is_none() {
        text.push_str("usage counts from the first limit on; `regent cost show` shows all usage\n");
    }
    Ok(Done::new(json!({"scope": told, "limits": limits}), text))
}

async fn set_task(context: &Context, id: &str, limits: Budget) -> Result<String, Failure> {
    let task = Past::open(context)?.find(id)?;
    let running = BootedKernel::boot(context).await?;
    let result = match tasks::runtime(context, &running, tasks::Asks::Later) {
        Ok(runtime) => runtime.set_budget(&task, limits).await.map_err(Failure::from),
        Err(failure) => Err(failure),
    };
    running.close(context, result).await?;
    Ok(format!("task/{task}"))
}

async fn set_scope(context: &Context, scope: &str, limits: Budget) -> Result<String, Failure> {
    let wrong = |why: String| {
        Failure::new(codes::USAGE, why).help("use `user/day`, `project`, `task/ID` or `agent/ID`")
    };
    let meant = BudgetScope::try_from(scope.to_owned()).map_err(wrong)?;
    let op = Op::SetBudget { scope: meant.clone(), limits };
    match &meant {
        BudgetScope::Session => {
            return Err(wrong(
                "a session ends with its command; set a budget for the task instead".to_owned(),
            ));
        }
        // An agent lives in the process that runs it.
        BudgetScope::Agent(id) => {
            let _set: BudgetSet = agent::call_beside(context, id.as_str(), op).await?;
        }
        BudgetScope::UserDay | BudgetScope::Project => {
            let running = BootedKernel::boot(context).await?;
            let done = calls::call(context, &running, &running.caller(), op).await;
            let done = done.and_then(|outcome| calls::succeeded(&outcome));
            running.close(context, done).await?;
        }
    }
    Ok(meant.to_string())
}

/// How the budgets that processes share stand.
async fn standings(running: &BootedKernel) -> Result<Vec<(String, Standing)>, Failure> {
    let mut all = Vec::new();
    for scope in [BudgetScope::UserDay, BudgetScope::Project] {
        all.push((scope.to_string(), running.host.budget(&scope).await?));
    }
    Ok(all)
}

async fn show(context: &Context) -> CommandResult {
    let running = BootedKernel::boot(context).await?;
    let shared = standings(&running).await;
    let shared = running.close(context, shared).await?;
    let mut rows: Vec<BudgetRow> = shared
        .into_iter()
        .map(|(scope, standing)| BudgetRow {
            scope,
            limits: standing.limits,
            used: standing.used,
            held: standing.held,
        })
        .collect();
    let is_open = |view: &TaskView| !view.state.is_over() && view.record.spec.budget != Budget::default();
    let tasks = Past::open(context)?.newest(TASKS_MAX)?;
    rows.extend(tasks.iter().filter(|view| is_open(view)).map(|view| BudgetRow {
        scope: format!("task/{}", view.record.task),
        limits: view.record.spec.budget,
        used: money::counted(&view.used),
        held: Each::default(),
    }));
    let text: String = rows.iter().map(|row| row.line(&context.screen)).collect();
    Ok(Done::new(json!({"budgets": rows.iter().map(BudgetRow::json).collect::<Vec<_>>()}), text))
}

/// A budget and how it stands.
struct BudgetRow {
    scope: String,
    limits: Budget,
    used: Each<u64>,
    held: Each<u64>,
}

impl BudgetRow {
    fn nearness(&self) -> Option<(u64, Nearness)> {
        let percent = money::percent_used(&self.limits, &self.used)?;
        Some((percent, Nearness::from_percent(percent)))
    }

    fn line(&self, screen: &Screen) -> String {
        let scope = screen.strong(&format!("{:<20}", self.scope));
        let Some((percent, near)) = self.nearness() else { return format!("{scope} no limits\n") };
        let used = Budget {
            approvals: self.limits.approvals.map(|_| self.used.approvals),
            bytes_out: self.limits.bytes_out.map(|_| self.used.bytes_out),
            calls: self.limits.calls.map(|_| self.used.calls),
            money_microusd: self.limits.money_microusd.map(|_| self.used.money_microusd),
            tokens: self.limits.tokens.map(|_| self.used.tokens),
            wall_ms: self.limits.wall_ms.map(|_| self.used.wall_ms),
        };
        let (used, limits) = (money::limits(&used), money::limits(&self.limits));
        format!("{scope} {}  {percent} %: {used} of {limits}\n", near.painted(screen))
    }

    fn json(&self) -> Value {
        let near = self.nearness();
        json!({
            "scope": self.scope, "limits": self.limits, "used": self.used, "held": self.held,
            "percent": near.map(|(percent, _)| percent), "state": near.map(|(_, near)| near.word()),
        })
    }
}
