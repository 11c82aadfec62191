//! What was used, and what may be: from receipts, over budgets, to tasks that wait.

use serde_json::{Value, json};

use crate::tasks::{finish, first_id, last, mark, marks, playing, tasks};
use crate::world::CliFixture;

/// What all receipts of the ledger state together: tokens and money.
fn receipts(world: &CliFixture) -> (u64, u64) {
    let sum = |name: &str| -> u64 {
        let outcomes = world.entries().into_iter().filter(|entry| entry["kind"] == "outcome");
        outcomes.filter_map(|entry| entry["body"]["spent"][name].as_u64()).sum()
    };
    (sum("tokens"), sum("money_microusd"))
}

fn costs(world: &CliFixture, by: &str) -> Value {
    let ended = world.run(&["--json", "cost", "show", "--by", by]);
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.json()["data"].clone()
}

fn budgets(world: &CliFixture) -> Vec<Value> {
    world.run(&["--json", "budget", "show"]).json()["data"]["budgets"].as_array().unwrap().clone()
}

#[test]
fn costs_are_the_sum_of_receipts_however_they_are_sorted() {
    let world = playing(&[
        ("one", json!([mark("a"), finish("a")])),
        ("two", json!([mark("b"), mark("c"), finish("b")])),
    ]);
    assert_eq!(world.run(&["cost", "show"]).stdout, "nothing was used\n");
    for (model, agent) in [("one/m", "ann"), ("two/m", "bob"), ("one/m", "bob")] {
        let ran = world.run(&["task", "run", "mark", "--model", model, "--agent", agent]);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    let (tokens, money) = receipts(&world);
    assert_eq!((tokens, money), (7 * 110, 7 * 120));
    for by in ["task", "agent", "day", "model"] {
        let shown = costs(&world, by);
        assert_eq!(
            (&shown["total"]["tokens"], &shown["total"]["money_microusd"]),
            (&json!(tokens), &json!(money)),
            "{by}"
        );
        let rows = shown["costs"].as_array().unwrap();
        let sum: u64 = rows.iter().map(|row| row["money_microusd"].as_u64().unwrap()).sum();
        assert_eq!(sum, money, "{by}");
    }
    let of = |by: &str, name: &str| {
        let shown = costs(&world, by);
        let row = shown["costs"].as_array().unwrap().iter().find(|row| row["of"] == name).cloned();
        row.unwrap_or_else(|| panic!("{shown}"))["money_microusd"].as_u64().unwrap()
    };
    assert_eq!((of("model", "one/m"), of("model", "two/m")), (4 * 120, 3 * 120));
    assert_eq!((of("agent", "ann"), of("agent", "bob")), (2 * 120, 5 * 120));
    for view in tasks(&world) {
        assert_eq!(view["spent"]["money_microusd"], of("task", view["task"].as_str().unwrap()));
    }
    let table = world.run(&["cost", "show", "--by", "model", "--since", "1d"]);
    assert!(table.stdout.contains("two/m") && table.stdout.contains("0.00084 USD"), "{table:?}");
    assert_eq!(world.run(&["--json", "cost", "show", "--since", "soon"]).code, 2);
}

#[test]
fn a_budget_of_the_project_stops_a_task_until_it_is_raised() {
    let world = playing(&[("play", json!([mark("one"), mark("two"), finish("both")]))]);
    let shown = world.run(&["budget", "show"]);
    assert!(shown.stdout.contains("user/day") && shown.stdout.contains("no limits"), "{shown:?}");
    // Each turn is priced at 120; what may at most be asked for one has to be there before.
    assert_eq!(world.run(&["budget", "set", "project", "0.02usd"]).code, 0);
    let ran = world.run(&["--json", "task", "run", "mark", "--tools", "process.exec"]);
    let end = last(&ran);
    assert_eq!(ran.code, 0, "{end}");
    assert_eq!(world.run(&["budget", "set", "project", "tokens=500"]).code, 0);
    let ran = world.run(&["--json", "task", "run", "mark", "--tools", "process.exec"]);
    let end = last(&ran);
    assert_eq!((ran.code, &end["error"]["code"]), (12, &json!("task.budget")), "{end}");
    let task = end["data"]["task"].as_str().unwrap();
    let project = budgets(&world).into_iter().find(|one| one["scope"] == "project").unwrap();
    assert_eq!((&project["used"]["tokens"], &project["state"]), (&json!(330), &json!("ok")), "{project}");
    assert_eq!(world.run(&["budget", "set", "project", "tokens=1M"]).code, 0);
    let resumed = world.run(&["task", "resume", task]);
    assert_eq!((resumed.code, resumed.stdout.as_str()), (0, "both\n"), "{resumed:?}");
    assert_eq!(marks(&world), "one\ntwo\none\ntwo\n");
    assert_eq!(world.run(&["budget", "set", "project", "none"]).stdout, "project: no limits\n");
}

#[test]
fn prints_and_sets_the_budget_of_a_task() {
    let world = playing(&[("play", json!([mark("one"), mark("two"), finish("both")]))]);
    let ran = world.run(&["task", "run", "mark", "--tools", "process.exec", "--budget", "calls=4"]);
    assert_eq!(ran.code, 12, "{ran:?}");
    let task = first_id(&world);
    let own = || budgets(&world).into_iter().find(|one| one["scope"] == format!("task/{task}")).unwrap();
    assert_eq!((&own()["percent"], &own()["state"]), (&json!(100), &json!("paused")), "{}", own());
    assert!(world.run(&["task", "show", &task]).stdout.contains("paused"));
    assert_eq!(world.run(&["budget", "set", &format!("task/{task}"), "calls=5"]).code, 0);
    assert_eq!((&own()["percent"], &own()["state"]), (&json!(80), &json!("warning")), "{}", own());
    assert_eq!(world.run(&["task", "resume", &task]).code, 0);
    for (scope, limits, exit) in [
        ("session", "1usd", 2),
        ("nobody", "1usd", 2),
        ("project", "x", 2),
        ("task/t-none", "1usd", 5),
        ("agent/none", "1usd", 5),
    ] {
        let ended = world.run(&["--json", "budget", "set", scope, limits]);
        assert_eq!(ended.code, exit, "{scope}: {ended:?}");
    }
}
