//! Plans: their order, their branches, their undoing.

use std::sync::Arc;

use proptest::prelude::*;
use regent_kernel::{Inference, Role};
use regent_testkit::{Behaviour, Marks, Puppet, Says, TestKernel};
use serde_json::json;

use super::*;
use crate::{Mode, Options, Runtime, StopCause, TaskEnd, TaskSpec, TaskState};

fn step(id: &str, needs: &[&str]) -> PlanStep {
    let needs = needs.iter().map(|name| (*name).to_owned()).collect();
    PlanStep { id: id.to_owned(), goal: format!("do {id}"), needs, tools: None, undo: None }
}

fn order(steps: Vec<PlanStep>) -> Result<Vec<String>, PlanError> {
    let graph = Plan { steps }.order()?;
    Ok(graph.steps().iter().map(|step| step.id.clone()).collect())
}

#[test]
fn steps_come_after_what_they_need() {
    let cases = [
        (vec![step("a", &[]), step("b", &["a"])], Ok(vec!["a", "b"])),
        (vec![step("b", &["a"]), step("a", &[])], Ok(vec!["a", "b"])),
        (
            vec![step("d", &["b", "c"]), step("c", &["a"]), step("b", &["a"]), step("a", &[])],
            Ok(vec!["a", "c", "b", "d"]),
        ),
        (vec![], Err(PlanError::Count)),
        (vec![step("a", &["b"]), step("b", &["a"])], Err(PlanError::Circle("a, b".to_owned()))),
        (vec![step("a", &["a"])], Err(PlanError::Circle("a".to_owned()))),
        (vec![step("a", &[]), step("a", &[])], Err(PlanError::Twice("a".to_owned()))),
        (vec![step("a", &["x"])], Err(PlanError::Unknown { step: "a".to_owned(), needs: "x".to_owned() })),
        (vec![step("A/../b", &[])], Err(PlanError::Name("A/../b".to_owned()))),
    ];
    for (steps, expected) in cases {
        let expected = expected.map(|ids| ids.into_iter().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(order(steps), expected);
    }
}

proptest! {
    #[test]
    fn an_order_never_puts_a_step_before_its_needs(edges in prop::collection::vec((0_usize..10, 0_usize..10), 0..30)) {
        let steps: Vec<PlanStep> = (0..10)
            .map(|at| {
                let needs: Vec<String> = edges.iter().filter(|(to, _)| *to == at).map(|(_, from)| format!("s{from}")).collect();
                let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
                step(&format!("s{at}"), &needs)
            })
            .collect();
        if let Ok(graph) = (Plan { steps }).order() {
            for place in 0..graph.steps().len() {
                prop_assert!(graph.needs(place).iter().all(|needs| *needs < place));
            }
        }
    }
}

struct Stage {
    puppet: Puppet,
    marks: Arc<Marks>,
    end: TaskEnd,
    replayed: Result<bool, String>,
}

async fn planned(head: impl Fn(&Inference) -> Says + Send + Sync + 'static) -> Stage {
    let (puppet, marks) = (Puppet::new(head), Arc::new(Marks::default()));
    let test = TestKernel::builder()
        .tool("mark", Behaviour::Mark(marks.clone()))
        .models(Arc::new(puppet.clone()))
        .durable()
        .boot()
        .await
        .unwrap();
    let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), Options::default());
    let spec = TaskSpec { mode: Mode::Plan, backoff_ms: 1, ..TaskSpec::new("the whole") };
    let end = runtime.run(spec).await.unwrap().ended().await.unwrap();
    let asked = puppet.asked();
    let replayed =
        runtime.replay(&end.task).await.map(|replayed| replayed.same).map_err(|error| error.to_string());
    assert_eq!(puppet.asked(), asked);
    Stage { puppet, marks, end, replayed }
}

fn goal_of(inference: &Inference) -> String {
    inference
        .messages
        .iter()
        .find(|message| message.role == Role::User)
        .map(|message| message.text().into_owned())
        .unwrap_or_default()
}

fn finish(answer: &str) -> Says {
    Says::call("task.finish", json!({"answer": answer}))
}

#[tokio::test]
async fn a_plan_is_drafted_reviewed_and_carried_out_by_children() {
    let stage = planned(|inference| {
        let goal = goal_of(inference);
        let last = inference.messages.last().map(|message| message.text().into_owned()).unwrap_or_default();
        if last.starts_with("Look at this plan") {
            let steps = json!({"steps": [{"id": "left", "goal": "do left"}, {"id": "right", "goal": "do right"},
                {"id": "both", "goal": "do both", "needs": ["left", "right"]}]});
            Says::Text(format!("Better:\n```json\n{steps}\n```"))
        } else if goal.starts_with("Take the goal apart") {
            Says::Text(json!({"steps": [{"id": "all", "goal": "do all"}]}).to_string())
        } else if goal.starts_with("do both") {
            assert!(goal.contains("left is done") && goal.contains("right is done") && goal.contains("from=peer"), "{goal}");
            finish("both are done")
        } else if goal.starts_with("do left") {
            finish("left is done")
        } else if goal.starts_with("do right") {
            finish("right is done")
        } else {
            assert!(goal.contains("both are done"), "{goal}");
            finish("all is done")
        }
    })
    .await;
    assert_eq!(stage.end.state, TaskState::Finalized, "{:?}", stage.end.why);
    assert_eq!(stage.end.answer.unwrap().text, "all is done");
    assert_eq!(stage.puppet.asked(), 6);
    assert_eq!(stage.replayed, Ok(true));
}

#[tokio::test]
async fn what_was_done_is_undone_in_reverse_when_a_later_step_fails() {
    let stage = planned(|inference| {
        let goal = goal_of(inference);
        let spoken = inference.messages.iter().filter(|message| message.role == Role::Assistant).count();
        let one = |id: &str, mark: u64, needs: &[&str]| {
            json!({"id": id, "goal": format!("do {id}"), "needs": needs, "undo": {"tool": "mark", "args": {"id": mark + 100}}})
        };
        if goal.starts_with("Take the goal apart") {
            let steps = [one("a", 1, &[]), one("b", 2, &["a"]), one("c", 3, &["b"])];
            return Says::Text(json!({"steps": steps}).to_string());
        }
        match (goal.lines().next().unwrap_or_default(), spoken) {
            ("do a", 0) => Says::call("mark", json!({"id": 1})),
            ("do b", 0) => Says::call("mark", json!({"id": 2})),
            ("do c", _) => Says::Text(String::new()),
            _done => finish("done"),
        }
    })
    .await;
    assert_eq!(stage.end.state, TaskState::Failed);
    let why = stage.end.why.unwrap();
    assert!(matches!(&*why, StopCause::Branch { step, .. } if step == "c"), "{why}");
    assert_eq!(stage.marks.all(), [1, 2, 102, 101]);
}

#[tokio::test]
async fn an_invalid_plan_is_reported_and_requested_once_more() {
    let stage = planned(|_| Says::Text("I would rather not".to_owned())).await;
    assert!(matches!(&*stage.end.why.unwrap(), StopCause::Plan(_)));
    assert_eq!(stage.puppet.asked(), 2);
}
