//! What processes of `regent judge --stdio` share: limits, budgets, tokens, and questions that need people here.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout};

use serde_json::{Value, json};

use crate::world::{CliFixture, CliOutput};

/// A project in which these are the user's rules.
fn with_rules(rules: &[&str]) -> CliFixture {
    let world = CliFixture::ready();
    let rules: String = rules.iter().map(|rule| format!("  - {rule}\n")).collect();
    std::fs::write(world.home(".config/regent/policy.yml"), format!("version: 1\nrules:\n{rules}")).unwrap();
    world.write(".regent/policy.yml", "version: 1\nrules:\n  - { id: all, effect: allow }\n");
    assert_eq!(world.run(&["trust", "--yes"]).code, 0);
    world
}

fn begin() -> Value {
    let tools = json!({
        "look": {"schema": {"properties": {}}, "labels": {"effect": "read", "taint": "none"}},
        "pay": {
            "schema": {"properties": {"to": {}, "amount": {}}},
            "labels": {"effect": "write", "sinks": ["to"], "taint": "none"},
        },
    });
    json!({"op": "begin", "session": "s", "prompt": "Pay Bob 20", "tools": tools})
}

fn about(op: &str, id: u32, tool: &str) -> Value {
    let args = if tool == "pay" { json!({"to": "Bob", "amount": 20}) } else { json!({}) };
    let mut message = json!({"op": op, "session": "s", "call": {"id": id, "tool": tool, "args": args}});
    if op == "observe" {
        message["output"] = json!({"text": "done"});
    }
    message
}

fn judge(world: &CliFixture, global: &[&str], messages: &[Value]) -> CliOutput {
    let text: String = messages.iter().map(|message| format!("{message}\n")).collect();
    world.run_with(&[global, &["judge", "--stdio"]].concat(), &[], text.as_bytes())
}

/// What a process of its own answers to a payment that is then reported.
fn payment(world: &CliFixture) -> Value {
    let ended = judge(world, &[], &[begin(), about("decide", 1, "pay"), about("observe", 1, "pay")]);
    assert_eq!(ended.code, 0, "{ended:?}");
    serde_json::from_str(ended.stdout.lines().nth(1).unwrap()).unwrap()
}

#[test]
fn rates_and_lasting_counts_hold_across_judge_processes() {
    let once = "{ id: one-pay, effect: deny, match: { tool: pay }, at_most: 1, scope: lasting }";
    let all = "{ id: all, effect: allow }";
    let hourly = "{ id: pay-rate, effect: allow, rate: 1/hour, match: { tool: pay } }";
    let rest = "{ id: rest, effect: allow, match: { op: [agent.*, request.*] } }";
    for rules in [&[once, all][..], &[hourly, rest]] {
        let world = with_rules(rules);
        let decided: Vec<Value> = (0..3).map(|_| payment(&world)).collect();
        let decisions: Vec<&str> = decided.iter().map(|one| one["decision"].as_str().unwrap()).collect();
        assert_eq!(decisions, ["allow", "deny", "deny"], "{rules:?}: {decided:?}");
    }
}

#[test]
fn a_budget_that_was_set_before_holds_in_every_judge() {
    let world = with_rules(&["{ id: all, effect: allow }"]);
    // A session begins with two calls of the operator.
    assert_eq!(world.run(&["budget", "set", "project", "calls=4"]).code, 0);
    let mut messages = vec![begin()];
    for id in 1..=3 {
        messages.extend([about("decide", id, "look"), about("observe", id, "look")]);
    }
    let ended = judge(&world, &[], &messages);
    let decided = |line: &str| serde_json::from_str::<Value>(line).unwrap()["decision"].clone();
    let decisions: Vec<Value> = ended.stdout.lines().map(decided).filter(Value::is_string).collect();
    assert_eq!(decisions, ["allow", "allow", "deny"], "{ended:?}");
    let again = judge(&world, &[], &[begin()]);
    assert!(again.stdout.contains("the budget `project` is too low"), "{again:?}");
}

/// What waits for CONT can only be continued by somebody who reaches it.
#[test]
fn an_agent_that_its_budget_suspended_goes_on_when_people_here_say_so() {
    let world = with_rules(&["{ id: all, effect: allow }"]);
    assert_eq!(world.run(&["budget", "set", "project", "calls=3"]).code, 0);
    let mut host = Host::start(&world);
    assert!(host.say(&begin()).get("error").is_none());
    assert_eq!(host.say(&about("decide", 1, "look"))["decision"], "allow");
    assert!(host.say(&about("observe", 1, "look"))["outcome"].is_number());
    assert_eq!(host.say(&about("decide", 2, "look"))["code"], "budget.exhausted");
    let listed = world.run(&["--json", "agent", "ps"]).json();
    let agent = listed.pointer("/data/agents/0/agent/agent").and_then(Value::as_str);
    let agent = agent.unwrap_or_else(|| panic!("no agent: {listed}"));
    assert_eq!(world.run(&["budget", "set", "project", "calls=100"]).code, 0);
    assert_eq!(world.run(&["agent", "signal", agent, "CONT"]).code, 0);
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    assert_eq!(host.say(&about("decide", 3, "look"))["decision"], "allow");
    host.end();
}

#[test]
fn a_judge_on_stdio_takes_a_token() {
    let world = with_rules(&["{ id: all, effect: allow }"]);
    let file = world.home("ops.token");
    let file = file.to_str().unwrap();
    let created = world.run(&["token", "create", "--person", "olga", "--role", "operator", "--out", file]);
    assert_eq!(created.code, 0, "{created:?}");
    let ended = judge(&world, &["--token-file", file], &[begin(), about("decide", 1, "look")]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stdout.contains("\"allow\""), "{ended:?}");
}

/// A judge on a pipe that stays open.
struct Host {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Host {
    fn start(world: &CliFixture) -> Self {
        let mut child = world.start(&["judge", "--stdio"]);
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers }
    }

    fn say(&mut self, message: &Value) -> Value {
        writeln!(self.child.stdin.as_mut().unwrap(), "{message}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn a_question_for_two_people_is_answered_here_while_the_judge_runs() {
    let world = with_rules(&[
        "{ id: all, effect: allow }",
        "{ id: two, effect: ask, match: { tool: pay }, approvers: 2 }",
    ]);
    for name in ["alice", "bob"] {
        let file = world.home(name);
        let args =
            ["token", "create", "--person", name, "--role", "approver", "--out", file.to_str().unwrap()];
        assert_eq!(world.run(&args).code, 0);
    }
    let mut host = Host::start(&world);
    assert!(host.say(&begin()).get("error").is_none());
    assert_eq!(host.say(&about("decide", 1, "pay"))["decision"], "ask");
    let listed = world.run(&["--json", "approve", "list"]).json();
    let id = listed.pointer("/data/questions/0/id").and_then(Value::as_str);
    let id = id.unwrap_or_else(|| panic!("no question: {listed}"));
    for name in ["alice", "bob"] {
        std::thread::sleep(std::time::Duration::from_millis(1_500));
        let approved = world.run(&["--token-file", world.home(name).to_str().unwrap(), "approve", id]);
        assert!([0, 11].contains(&approved.code), "{approved:?}");
    }
    assert_eq!(host.say(&about("decide", 2, "pay"))["decision"], "allow");
    host.end();
}

#[test]
fn a_question_for_the_hosts_person_is_not_put_to_people_here() {
    let world =
        with_rules(&["{ id: all, effect: allow }", "{ id: asked, effect: ask, match: { tool: pay } }"]);
    let mut host = Host::start(&world);
    assert!(host.say(&begin()).get("error").is_none());
    assert_eq!(host.say(&about("decide", 1, "pay"))["decision"], "ask");
    let listed = world.run(&["--json", "approve", "list"]).json();
    assert_eq!(listed["data"]["questions"], json!([]), "{listed}");
    let reported = host.say(&about("observe", 1, "pay"));
    assert!(reported["outcome"].is_number(), "{reported}");
    host.end();
}
