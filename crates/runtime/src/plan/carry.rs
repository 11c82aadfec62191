//! Carrying out a plan: each step by a child agent, as many side by side as may be; what was done is undone if one fails.

use std::collections::{BTreeMap, BTreeSet};

use regent_kernel::{Budget, Op};
use tokio::task::JoinSet;

use super::graph::{Graph, PlanStep};
use crate::agent::{self, AgentAnswer, Craft, Work};
use crate::context::Finding;
use crate::door::{CallResult, Door, Patience};
use crate::stop::{Outlook, StopCause};
use crate::team::{Child, delegate};

/// Executes a plan and combines the answers. `budget` limits each step, in addition to the task's own limits.
pub async fn carry_out(
    door: &Door,
    craft: &Craft,
    work: &Work,
    graph: &Graph,
    budget: Option<Budget>,
) -> Result<AgentAnswer, StopCause> {
    let mut ran = StepResults::default();
    let failed = run_all(door, craft, work, (graph, budget), &mut ran).await?;
    if let Some((place, stop)) = failed {
        let step = graph.steps().get(place).map_or_else(String::new, |step| step.id.clone());
        let undone = undo(door, graph, &ran.done).await?;
        return Err(StopCause::Branch { step, why: format!("{stop}{undone}") });
    }
    let findings = ran.done.into_values().collect();
    let last = Work { findings, offers: Vec::new(), reserve: Vec::new(), ..work.clone() };
    agent::work(&door.below(door.who().clone(), "3/"), craft, &last).await
}

/// The results of the steps so far.
#[derive(Debug, Default)]
struct StepResults {
    done: BTreeMap<usize, Finding>,
    begun: BTreeSet<usize>,
}

impl StepResults {
    /// The next step that waits for nothing.
    fn next(&self, graph: &Graph) -> Option<usize> {
        (0..graph.steps().len()).find(|place| {
            !self.begun.contains(place)
                && graph.needs(*place).iter().all(|needs| self.done.contains_key(needs))
        })
    }
}

/// Runs the steps. After a failure none is begun any more, but those that run are waited for. What only stops for now stops the whole.
async fn run_all(
    door: &Door,
    craft: &Craft,
    work: &Work,
    (graph, budget): (&Graph, Option<Budget>),
    ran: &mut StepResults,
) -> Result<Option<(usize, StopCause)>, StopCause> {
    let most = usize::try_from(work.limits.parallel_max.max(1)).unwrap_or(1);
    let mut running = JoinSet::new();
    let (mut failed, mut stopped) = (None, None);
    loop {
        while failed.is_none() && stopped.is_none() && running.len() < most {
            let Some(place) = ran.next(graph) else { break };
            let Some(step) = graph.steps().get(place) else { break };
            ran.begun.insert(place);
            let child = child_of(step, place, budget);
            let findings =
                graph.needs(place).iter().filter_map(|needs| ran.done.get(needs).cloned()).collect();
            let (door, craft, work) = (door.clone(), craft.clone(), work_of(work, step, findings));
            running.spawn(async move { (place, delegate(&door, &craft, &work, &child).await) });
        }
        let Some(ended) = running.join_next().await else { break };
        match ended {
            Ok((place, Ok(text))) => {
                let step = graph.steps().get(place).map_or_else(String::new, |step| step.id.clone());
                ran.done.insert(place, Finding { step, text });
            }
            Ok((place, Err(stop))) if stop.outlook() == Outlook::Never => failed = Some((place, stop)),
            Ok((_, Err(stop))) => stopped = Some(stop),
            Err(_torn_down) => stopped = Some(StopCause::Passing("a step was aborted".to_owned())),
        }
    }
    stopped.map_or(Ok(failed), Err)
}

/// Makes up for what was done, the last first. Says what was left undone.
async fn undo(door: &Door, graph: &Graph, done: &BTreeMap<usize, Finding>) -> Result<String, StopCause> {
    let mut words = String::new();
    for place in done.keys().rev() {
        let Some(step) = graph.steps().get(*place) else { continue };
        let Some(call) = &step.undo else { continue };
        let (heard, _) =
            door.persist(&format!("2/undo/{place}"), Op::RunTool(call.clone()), Patience::Refusals).await?;
        let is_undone =
            matches!(&heard, CallResult::Done(outcome) if outcome.status == regent_kernel::Status::Ok);
        words.push_str(&format!(
            "; `{}` {}",
            step.id,
            if is_undone { "was undone" } else { "could not be undone" }
        ));
    }
    Ok(words)
}

fn child_of(step: &PlanStep, place: usize, budget: Option<Budget>) -> Child {
    Child { name: step.id.clone(), prefix: format!("1/{place}/"), roles: None, budget }
}

/// The step's own goal, and only the tools that it names and the task has.
fn work_of(work: &Work, step: &PlanStep, findings: Vec<Finding>) -> Work {
    let Work { offers, reserve, .. } = work.clone();
    let (offers, reserve) = match &step.tools {
        None => (offers, reserve),
        Some(tools) => {
            let all = offers.into_iter().chain(reserve);
            (all.filter(|offer| tools.contains(&offer.name)).collect(), Vec::new())
        }
    };
    Work { goal: step.goal.clone(), offers, reserve, findings, ..work.clone() }
}
