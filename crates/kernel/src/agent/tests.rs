//! Agents and signals through a whole kernel.

use regent_ledger::EntryKind;
use serde_json::{Value, json};

use super::*;
use crate::tests::alone::{KernelFixture, named, run};
use crate::{Disposition, MaskChange, OpenMode, Reply, Status};
use regent_wire::Priority;

fn id(who: &Principal) -> AgentId {
    who.agent_id().unwrap().clone()
}

fn signal(to: &Principal, signal: Signal) -> Op {
    Op::Signal { agent: id(to), signal, group: false }
}

fn with_roles(name: &str, roles: &[&str]) -> SpawnSpec {
    SpawnSpec { roles: roles.iter().map(|&role| role.to_owned()).collect(), ..named(name) }
}

fn stage(world: &KernelFixture, who: &Principal) -> Lifecycle {
    world.kernel.lifecycle_of(&world.person(), &id(who)).unwrap()
}

#[tokio::test]
async fn a_child_has_no_more_than_its_parent() {
    let world = KernelFixture::new().await;
    let person = world.person();
    let parent = world
        .spawn(&person, SpawnSpec { trust: Some(400), ..with_roles("lead", &["dev", "reviewer"]) })
        .await;
    assert_eq!((parent.name(), parent.sponsor()), ("lead", "ada"));

    let cases = [
        (with_roles("a", &["admin"]), "agent.roles"),
        (with_roles("a", &["dev", "operator"]), "agent.roles"),
        (with_roles("a", &["dev "]), "agent.roles"),
        (named("operator"), "agent.name"),
        (named(""), "agent.name"),
        (named("../lead"), "agent.name"),
        (named("<script>"), "agent.name"),
        (named(&"a".repeat(65)), "agent.name"),
    ];
    for (spec, code) in cases {
        assert_eq!(world.denied(&parent, Op::Spawn(spec.clone())).await, code, "{spec:?}");
    }
    for role in crate::PersonRole::ALL {
        let spec = with_roles("a", &[role.as_str()]);
        assert_eq!(world.denied(&person, Op::Spawn(spec)).await, "agent.roles", "an operator's own: {role}");
    }

    let child = world.spawn(&parent, SpawnSpec { trust: Some(900), ..with_roles("a", &["dev"]) }).await;
    assert_eq!((child.name(), child.roles()), ("lead/a", &["dev".to_owned()][..]));
    assert_eq!(world.kernel.0.society.agents.trust(&child), 400);
    assert_eq!(child.chain().len(), 3);
    assert_eq!(child.chain()[1..], [parent.did().unwrap().to_string(), child.did().unwrap().to_string()]);
}

#[tokio::test]
async fn a_child_starts_with_what_its_parent_has_seen() {
    let world = KernelFixture::new().await;
    let parent = world.spawn(&world.person(), named("lead")).await;
    world.outcome(&parent, run("test.web")).await;
    let child = world.spawn(&parent, named("a")).await;
    assert_eq!(world.kernel.0.society.agents.context(&child).integrity, Integrity::Web);
}

#[tokio::test]
async fn agents_are_bounded_in_depth_and_number() {
    let world = KernelFixture::new().await;
    let mut line = vec![world.spawn(&world.person(), named("a")).await];
    while line.len() < GENERATIONS_MAX {
        line.push(world.spawn(line.last().unwrap(), named("a")).await);
    }
    assert_eq!(world.failed(line.last().unwrap(), Op::Spawn(named("a"))).await, "agent.too_deep");
    for _ in 0..CHILDREN_MAX - 1 {
        world.done(&line[0], Op::Spawn(named("b"))).await;
    }
    assert_eq!(world.failed(&line[0], Op::Spawn(named("b"))).await, "agent.too_many");
}

#[tokio::test]
async fn only_its_parent_can_act_as_an_agent() {
    let world = KernelFixture::new().await;
    let (person, kernel) = (world.person(), &world.kernel);
    let one = world.spawn(&person, named("one")).await;
    let other = world.spawn(&person, named("other")).await;
    let child = world.spawn(&one, named("child")).await;
    assert!(kernel.principal_of(&person, &id(&child)).is_some());
    assert!(kernel.principal_of(&one, &id(&child)).is_some());
    assert!(kernel.principal_of(&other, &id(&child)).is_none());
    assert!(kernel.principal_of(&child, &id(&one)).is_none());
    assert!(kernel.principal_of(&child, &id(&child)).is_none());
    assert!(kernel.lifecycle_of(&other, &id(&child)).is_none());
}

#[tokio::test]
async fn adv_038_an_agent_signals_itself_and_its_descendants_only() {
    let world = KernelFixture::new().await;
    let person = world.person();
    let one = world.spawn(&person, named("one")).await;
    let other = world.spawn(&person, named("other")).await;
    let child = world.spawn(&one, named("child")).await;
    let grandchild = world.spawn(&child, named("grandchild")).await;
    for (from, to) in [(&one, &other), (&child, &one), (&grandchild, &child), (&other, &grandchild)] {
        assert_eq!(world.denied(from, signal(to, Signal::Kill)).await, "agent.not_yours");
        assert_eq!(world.denied(from, Op::Wait { agent: id(to) }).await, "agent.not_yours");
    }
    // A foreign agent and a missing one look alike.
    let nobody = Op::Signal { agent: "lusab-babad-gutih".into(), signal: Signal::Kill, group: false };
    assert_eq!(world.denied(&one, nobody.clone()).await, "agent.not_yours");
    assert_eq!(world.failed(&person, nobody).await, "agent.unknown");
    // The group of a child is its parent's, so a signal to it would reach upwards.
    let group = Op::Signal { agent: id(&child), signal: Signal::Kill, group: true };
    assert_eq!(world.denied(&child, group).await, "agent.not_yours");
    assert_eq!(world.done(&one, signal(&grandchild, Signal::Usr2)).await["to"][0]["delivered"], "done");
    assert_eq!([&one, &other, &child].map(|who| stage(&world, who)), [Lifecycle::Active; 3]);
}

#[tokio::test]
async fn adv_081_an_agent_can_not_answer_questions_or_set_budgets() {
    let world = KernelFixture::new().await;
    let agent = world.spawn(&world.person(), named("a")).await;
    assert_eq!(world.denied(&agent, Op::Questions).await, "approval.not_a_person");
    let answer = crate::ApprovalAnswer::Deny { because: None };
    let op = Op::Answer { ticket: crate::TicketId("x".into()), with: Vec::new(), answer };
    assert_eq!(world.denied(&agent, op).await, "approval.not_a_person");
    for op in [Op::Exit { code: 0 }, Op::Sigpending] {
        assert_eq!(world.denied(&world.person(), op).await, "agent.not_an_agent");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_stops_the_running_call_and_the_outcome_says_so() {
    let world = KernelFixture::new().await;
    let person = world.person();
    let agent = world.spawn(&person, named("a")).await;
    let call = world.outcome(&agent, run("test.hang"));
    let kill = async {
        world.started().await;
        world.done(&person, signal(&agent, Signal::Kill)).await
    };
    let (outcome, killed) = tokio::join!(call, kill);
    assert_eq!(outcome.status, Status::Cancelled);
    assert_eq!(outcome.output.bytes(), b"stopped on cancellation");
    assert!(outcome.receipt.seq > outcome.intent.seq);
    let report = json!([{"agent": id(&agent), "delivered": "done", "over": true}]);
    assert_eq!(killed["to"], report);
    assert_eq!(stage(&world, &agent), Lifecycle::Terminated);
    assert_eq!(world.denied(&agent, run("test.echo")).await, "agent.ended");
    assert_eq!(world.done(&person, signal(&agent, Signal::Kill)).await["to"][0]["delivered"], "nothing");
    let waited = world.done(&person, Op::Wait { agent: id(&agent) }).await;
    assert_eq!(waited["end"], json!({"signal": "KILL"}));
    assert_eq!(world.life_of(&agent), ["spawned", "active", "retiring", "terminated"]);
    let recorded = world.entries().into_iter().find(|entry| entry.seq == outcome.receipt.seq).unwrap();
    assert_eq!((recorded.kind, &recorded.body["status"]), (EntryKind::Outcome, &json!("cancelled")));
}

#[tokio::test]
async fn the_birth_of_an_agent_is_signed_by_its_own_key() {
    use base64::Engine as _;
    let world = KernelFixture::new().await;
    let agent = world.spawn(&world.person(), with_roles("a", &["dev"])).await;
    let born = world.entries().into_iter().find(|entry| entry.body["event"] == "spawned").unwrap().body;
    let did = crate::Did::parse(born["did"].as_str().unwrap()).unwrap();
    assert_eq!((Some(&did), &born["sponsor"], &born["roles"]), (agent.did(), &json!("ada"), &json!(["dev"])));
    let proof = base64::engine::general_purpose::STANDARD.decode(born["proof"].as_str().unwrap()).unwrap();
    let claim = format!("regent agent v1\n{}\n{did}\nada\n", id(&agent));
    assert!(did.verify(claim.as_bytes(), &proof.try_into().unwrap()));
}

#[tokio::test]
async fn what_a_parent_may_not_do_its_children_may_not_either() {
    let policy = r#"
version: 1
rules:
  - { id: all, effect: allow, match: { op: "*" } }
  - { id: not-lead, effect: deny, match: { agent: lead, tool: test.send } }
  - { id: not-interns, effect: deny, match: { role: intern, tool: test.web } }
  - { id: ask-lead, effect: ask, match: { agent: lead, tool: test.secret } }
  - { id: seldom, effect: allow, match: { tool: test.echo }, rate: 3/hour }
"#;
    let world = KernelFixture::with(policy).await;
    let lead = world.spawn(&world.person(), with_roles("lead", &["intern"])).await;
    let child = world.spawn(&lead, named("child")).await;
    let grandchild = world.spawn(&child, named("x")).await;
    let free = world.spawn(&world.person(), named("free")).await;
    for who in [&lead, &child, &grandchild] {
        assert_eq!(world.denied(who, run("test.send")).await, "policy.denied");
        assert_eq!(world.denied(who, run("test.web")).await, "policy.denied");
        assert!(matches!(world.kernel.syscall(who, run("test.secret")).await.unwrap(), Reply::Pending(_)));
    }
    for tool in ["test.send", "test.web", "test.secret"] {
        assert_eq!(world.outcome(&free, run(tool)).await.status, Status::Ok);
    }
    for who in [&lead, &child, &grandchild] {
        assert_eq!(world.outcome(who, run("test.echo")).await.status, Status::Ok);
    }
    assert!(matches!(world.kernel.syscall(&grandchild, run("test.echo")).await.unwrap(), Reply::Denied(_)));
    assert_eq!(world.outcome(&free, run("test.echo")).await.status, Status::Ok);
}

#[tokio::test]
async fn an_executor_that_does_not_listen_is_dropped_all_the_same() {
    let world = KernelFixture::new().await;
    let agent = world.spawn(&world.person(), named("a")).await;
    let call = world.outcome(&agent, run("test.stubborn"));
    let (person, kernel) = (world.person(), &world.kernel);
    let kill = async {
        world.started().await;
        tokio::time::pause();
        kernel.syscall(&person, signal(&agent, Signal::Kill)).await.unwrap()
    };
    let (outcome, _) = tokio::join!(call, kill);
    assert_eq!(outcome.status, Status::Cancelled);
}

#[tokio::test]
async fn an_interrupt_stops_the_call_and_not_the_agent() {
    for interrupting in [Signal::Int, Signal::Loop] {
        let world = KernelFixture::new().await;
        let agent = world.spawn(&world.person(), named("a")).await;
        let call = world.outcome(&agent, run("test.hang"));
        let interrupt = async {
            world.started().await;
            world.done(&world.person(), signal(&agent, interrupting)).await
        };
        assert_eq!(tokio::join!(call, interrupt).0.status, Status::Cancelled);
        assert_eq!(world.outcome(&agent, run("test.echo")).await.status, Status::Ok);
        let again = world.done(&world.person(), signal(&agent, interrupting)).await;
        // Between two calls there is nothing to interrupt; a loop is noted all the same.
        let expected = if interrupting == Signal::Loop { "done" } else { "nothing" };
        assert_eq!(again["to"][0]["delivered"], expected);
    }
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_a_call_that_still_ends() {
    let world = KernelFixture::new().await;
    let agent = world.spawn(&world.person(), named("a")).await;
    let (kernel, caller) = (world.kernel.clone(), agent.clone());
    let waiting = tokio::spawn(async move { kernel.syscall(&caller, run("test.hang")).await });
    world.started().await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    assert_eq!(world.kernel.0.society.calls.running(&id(&agent)), 1);
    world.done(&world.person(), signal(&agent, Signal::Int)).await;
    world.kernel.0.society.calls.idle(&id(&agent)).await;
    let ended = || world.entries().into_iter().rev().find(|entry| entry.body["op"] == "tool.run").unwrap();
    while ended().kind != EntryKind::Outcome {
        tokio::task::yield_now().await;
    }
    assert_eq!(ended().body["status"], "cancelled");
}

#[tokio::test]
async fn a_panic_in_an_executor_is_a_fault_and_the_kernel_goes_on() {
    let world = KernelFixture::new().await;
    let agent = world.spawn(&world.person(), named("a")).await;
    let fault = world.kernel.syscall(&agent, run("test.panic")).await.unwrap_err();
    assert!(
        matches!(&fault, Fault::Executor { message, .. } if message.contains("the tool has a bug")),
        "{fault}"
    );
    assert_eq!(world.outcome(&agent, run("test.echo")).await.status, Status::Ok);
    assert_eq!(world.kernel.0.society.calls.running(&id(&agent)), 0);
    let faulted = |entry: &regent_ledger::Entry| !entry.body["status"]["faulted"].is_null();
    assert_eq!(world.entries().iter().filter(|entry| faulted(entry)).count(), 1);
}

#[tokio::test]
async fn a_stopped_agent_waits_and_goes_on() {
    for stopping in [Signal::Stop, Signal::Budget, Signal::Drift] {
        let world = KernelFixture::new().await;
        let (person, kernel) = (world.person(), world.kernel.clone());
        let agent = world.spawn(&person, named("a")).await;
        let stopped = world.done(&person, signal(&agent, stopping)).await;
        assert_eq!(stopped["to"][0]["delivered"], "done");
        assert_eq!(world.done(&person, signal(&agent, stopping)).await["to"][0]["delivered"], "nothing");
        assert_eq!(stage(&world, &agent), Lifecycle::Suspended);
        let caller = agent.clone();
        let call = tokio::spawn(async move { kernel.syscall(&caller, run("test.echo")).await });
        tokio::task::yield_now().await;
        assert!(!call.is_finished());
        assert_eq!(world.done(&person, signal(&agent, Signal::Cont)).await["to"][0]["delivered"], "done");
        assert_eq!(world.done(&person, signal(&agent, Signal::Cont)).await["to"][0]["delivered"], "nothing");
        assert!(matches!(call.await.unwrap().unwrap(), Reply::Done(_)));
        assert_eq!(world.life_of(&agent), ["spawned", "suspended", "resumed"]);
    }
}

#[tokio::test]
async fn the_waiting_call_of_a_stopped_agent_is_refused_when_the_agent_ends() {
    for ending in [Signal::Kill, Signal::Term, Signal::Policy, Signal::Trust] {
        let world = KernelFixture::new().await;
        let (person, kernel) = (world.person(), world.kernel.clone());
        let agent = world.spawn(&person, named("a")).await;
        world.done(&person, signal(&agent, Signal::Stop)).await;
        let caller = agent.clone();
        let call = tokio::spawn(async move { kernel.syscall(&caller, run("test.echo")).await });
        tokio::task::yield_now().await;
        world.done(&person, signal(&agent, ending)).await;
        let reply = call.await.unwrap().unwrap();
        assert!(matches!(&reply, Reply::Denied(denial) if denial.reason.code == "agent.ended"), "{reply:?}");
        assert_eq!(stage(&world, &agent), Lifecycle::Terminated);
    }
}

#[tokio::test]
async fn a_masked_signal_waits_and_a_handled_one_is_the_agents_own() {
    let world = KernelFixture::new().await;
    let person = world.person();
    let agent = world.spawn(&person, named("a")).await;
    let mask = |change| Op::Sigprocmask { change };
    assert_eq!(
        world.done(&agent, mask(MaskChange::Block(vec![Signal::Stop, Signal::Kill]))).await["masked"],
        json!(["STOP"])
    );
    assert_eq!(world.done(&person, signal(&agent, Signal::Stop)).await["to"][0]["delivered"], "held");
    let handle = Op::Sigaction { signal: Signal::Term, disposition: Disposition::Handle };
    world.done(&agent, handle).await;
    assert_eq!(world.done(&person, signal(&agent, Signal::Term)).await["to"][0]["delivered"], "for_agent");
    assert_eq!(world.done(&agent, Op::Sigpending).await["signals"], json!(["TERM"]));
    let ignore = |signal| Op::Sigaction { signal, disposition: Disposition::Ignore };
    assert_eq!(world.failed(&agent, ignore(Signal::Kill)).await, "signal.fixed");
    assert_eq!(world.failed(&agent, ignore(Signal::Stop)).await, "signal.fixed");
    // Letting it through suspends the agent there and then.
    world.done(&agent, mask(MaskChange::Set(vec![]))).await;
    assert_eq!(stage(&world, &agent), Lifecycle::Suspended);
}

#[tokio::test]
async fn a_signal_to_a_group_reaches_those_who_live_in_it() {
    let world = KernelFixture::new().await;
    let person = world.person();
    let lead = world.spawn(&person, named("lead")).await;
    let child = world.spawn(&lead, named("child")).await;
    let apart = world.spawn(&lead, SpawnSpec { new_group: true, ..named("apart") }).await;
    let stop = Op::Signal { agent: id(&lead), signal: Signal::Stop, group: true };
    assert_eq!(world.done(&person, stop).await["to"].as_array().unwrap().len(), 2);
    let stages = [&lead, &child, &apart].map(|who| stage(&world, who));
    assert_eq!(stages, [Lifecycle::Suspended, Lifecycle::Suspended, Lifecycle::Ready]);
}

#[tokio::test]
async fn children_end_with_their_parent() {
    let world = KernelFixture::new().await;
    let person = world.person();
    let lead = world.spawn(&person, named("lead")).await;
    let child = world.spawn(&lead, named("child")).await;
    let deaf = world.spawn(&lead, named("deaf")).await;
    let grandchild = world.spawn(&child, named("grandchild")).await;
    world.done(&deaf, Op::Sigaction { signal: Signal::Term, disposition: Disposition::Ignore }).await;
    assert_eq!(world.done(&lead, Op::Exit { code: 3 }).await, json!({"ended": true}));
    let end = world.done(&person, Op::Wait { agent: id(&lead) }).await;
    assert_eq!(end, json!({"agent": id(&lead), "end": {"code": 3}, "state": "terminated"}));
    for (who, by) in [(&child, "TERM"), (&grandchild, "TERM")] {
        assert_eq!(world.done(&person, Op::Wait { agent: id(who) }).await["end"], json!({"signal": by}));
    }
    tokio::time::pause();
    assert_eq!(world.done(&person, Op::Wait { agent: id(&deaf) }).await["end"], json!({"signal": "KILL"}));
}

#[tokio::test]
async fn calls_that_the_kernel_forbids_cost_trust_and_sound_calls_give_it_back() {
    let world = KernelFixture::with(NO_ECHO).await;
    let agent = world.spawn(&world.person(), named("a")).await;
    let child = world.spawn(&agent, named("child")).await;
    let stranger = world.spawn(&world.person(), named("b")).await;
    let trust = |who: &Principal| world.kernel.0.society.agents.trust(who);
    // What only policy denies is no violation.
    assert_eq!(world.denied(&agent, run("test.echo")).await, "policy.denied");
    assert_eq!(trust(&agent), TRUST_DEFAULT);
    let violate = async |who: &Principal| {
        assert_eq!(world.denied(who, signal(&stranger, Signal::Kill)).await, "agent.not_yours");
    };
    violate(&child).await;
    assert_eq!(
        [trust(&child), trust(&agent)],
        [TRUST_DEFAULT - trust::STEP; 2],
        "who is above answers for it"
    );
    assert_eq!(trust(&stranger), TRUST_DEFAULT);
    for _ in 0..3 * trust::SOUND_CALLS {
        world.outcome(&agent, run("test.web")).await;
        world.done(&agent, Op::Agents).await;
    }
    assert_eq!(trust(&agent), TRUST_DEFAULT, "never above where it started");
    assert_eq!(trust(&child), TRUST_DEFAULT - trust::STEP, "a parent's work is not the child's");
    assert_eq!(
        world.life_of(&agent).iter().filter(|event| *event == "trust").count(),
        2,
        "each move is recorded"
    );
}

#[tokio::test]
async fn an_agent_that_loses_its_trust_is_suspended_until_a_person_lets_it_carry_on() {
    let world = KernelFixture::new().await;
    let spec = SpawnSpec { trust: Some(TRUST_LOST + 1), ..named("a") };
    let agent = world.spawn(&world.person(), spec).await;
    let stranger = world.spawn(&world.person(), named("b")).await;
    for _ in 0..2 {
        assert_eq!(world.denied(&agent, signal(&stranger, Signal::Kill)).await, "agent.not_yours");
        assert_eq!(stage(&world, &agent), Lifecycle::Suspended);
        let raised =
            world.entries().into_iter().rev().find(|entry| entry.body["event"] == "signalled").unwrap();
        assert_eq!(raised.body["signal"], "TRUST");
        assert!(raised.body["why"].as_str().unwrap().contains("below 300"), "{}", raised.body["why"]);
        world.done(&world.person(), signal(&agent, Signal::Cont)).await;
        world.outcome(&agent, run("test.echo")).await;
    }
}

#[tokio::test]
async fn a_priority_is_inherited_and_never_above_the_parent_s() {
    let world = KernelFixture::new().await;
    let of = |name: &str, priority| SpawnSpec { priority, ..named(name) };
    let cases = [
        (None, Priority::Normal, None, Priority::Normal),
        (Some(Priority::High), Priority::High, None, Priority::High),
        (Some(Priority::Low), Priority::Low, Some(Priority::High), Priority::Low),
        (Some(Priority::High), Priority::High, Some(Priority::Low), Priority::Low),
    ];
    for (given, own, wanted, childs) in cases {
        let parent = world.spawn(&world.person(), of("lead", given)).await;
        let child = world.spawn(&parent, of("child", wanted)).await;
        assert_eq!((parent.priority(), child.priority()), (own, childs), "{given:?} {wanted:?}");
    }
}

#[tokio::test]
async fn agents_see_themselves_and_their_descendants() {
    let world = KernelFixture::new().await;
    let person = world.person();
    let one = world.spawn(&person, named("one")).await;
    let child = world.spawn(&one, named("child")).await;
    let other = world.spawn(&person, named("other")).await;
    let seen = async |who: &Principal| -> Vec<Value> {
        let listed = world.done(who, Op::Agents).await;
        let mut names: Vec<_> =
            listed.as_array().unwrap().iter().map(|agent| agent["name"].clone()).collect();
        names.sort_by_key(ToString::to_string);
        names
    };
    assert_eq!(seen(&person).await, ["one", "one/child", "other"]);
    assert_eq!(seen(&one).await, ["one", "one/child"]);
    assert_eq!(seen(&child).await, ["one/child"]);
    assert_eq!(seen(&other).await, ["other"]);
}

#[tokio::test]
async fn tool_calls_side_by_side_can_not_share_a_place_in_the_count() {
    let policy = format!("{}max_tool_calls_per_request: 3\n", crate::tests::alone::ALLOW_ALL);
    let world = KernelFixture::with(&policy).await;
    let agent = world.spawn(&world.person(), named("a")).await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let (kernel, caller) = (world.kernel.clone(), agent.clone());
        calls.spawn(async move { kernel.syscall(&caller, run("test.echo")).await.unwrap() });
    }
    let replies = calls.join_all().await;
    assert_eq!(replies.iter().filter(|reply| matches!(reply, Reply::Done(_))).count(), 3);
    agent.life().unwrap().begin_request();
    assert_eq!(world.outcome(&agent, run("test.echo")).await.status, Status::Ok);
}

#[tokio::test]
async fn a_checkpoint_keeps_what_the_agent_was_working_with() {
    let world = KernelFixture::new().await;
    let person = world.person();
    let agent = world.spawn(&person, named("a")).await;
    let memory =
        crate::Memory { region: crate::Region::Working, key: "plan".into(), content: "step 2".into() };
    world.done(&agent, Op::Remember(memory)).await;
    for asked in [Signal::Usr1, Signal::Usr2] {
        assert_eq!(world.done(&person, signal(&agent, asked)).await["to"][0]["delivered"], "done");
    }
    let path = |name: &str| format!("/agent/{}/state/{name}", id(&agent));
    let open = |name: &str, mode| Op::Open { path: path(name), mode };
    let fd = world.done(&person, open("checkpoints/1", OpenMode::Read)).await["fd"].as_u64().unwrap();
    let fd = crate::Fd(u32::try_from(fd).unwrap());
    let kept = world.done(&person, Op::Read { fd, offset: 0, bytes_max: 1 << 20 }).await;
    assert_eq!(kept["working"]["working/plan"], "step 2");
    assert_eq!(kept["agent"]["name"], "a");
    assert_eq!(world.done(&person, Op::List { path: path("diagnostics") }).await["names"], json!(["2"]));
    assert_eq!(world.failed(&agent, open("checkpoints/1", OpenMode::Write)).await, "vfs.read_only");
}

#[tokio::test]
async fn a_shutdown_ends_the_agents_and_their_calls() {
    let world = KernelFixture::new().await;
    let agent = world.spawn(&world.person(), named("a")).await;
    let call = world.outcome(&agent, run("test.hang"));
    let down = async {
        world.started().await;
        world.kernel.shutdown().await.unwrap();
    };
    assert_eq!(tokio::join!(call, down).0.status, Status::Cancelled);
    assert_eq!(stage(&world, &agent), Lifecycle::Terminated);
    assert!(matches!(world.kernel.syscall(&agent, run("test.echo")).await, Err(Fault::NotRunning(_))));
}

#[tokio::test]
async fn a_kill_is_recorded_as_delivered_although_the_kernel_goes_down_with_the_agent() {
    let world = KernelFixture::new().await;
    let (person, agent) = (world.person(), world.spawn(&world.person(), named("a")).await);
    // As `regent run --agent` does: when the program is over, the kernel closes.
    let ran = async {
        let ran = world.outcome(&agent, run("test.hang")).await;
        world.kernel.shutdown().await.unwrap();
        ran.status
    };
    let sent = async {
        world.started().await;
        world.outcome(&person, signal(&agent, Signal::Kill)).await.status
    };
    assert_eq!(tokio::join!(ran, sent), (Status::Cancelled, Status::Ok));
}

/// Denied to all; everything else is allowed.
const NO_ECHO: &str =
    "version: 1\nmode: permissive\nrules:\n  - { id: no-echo, effect: deny, match: { tool: test.echo } }\n";

#[tokio::test(start_paused = true)]
async fn m9_a_lineage_that_collects_denials_is_slowed_and_then_suspended() {
    let world = KernelFixture::with(NO_ECHO).await;
    let agent = world.spawn(&world.person(), named("prober")).await;
    let child = world.spawn(&agent, named("child")).await;
    let bystander = world.spawn(&world.person(), named("bystander")).await;
    let began = tokio::time::Instant::now();
    for _ in 0..denials::SLOWED_FROM {
        assert_eq!(world.denied(&agent, run("test.echo")).await, "policy.denied");
    }
    assert_eq!(began.elapsed(), std::time::Duration::ZERO, "some denials cost an agent nothing");
    // Its child is no way round: the lineage counts.
    let mut waits = Vec::new();
    for number in denials::SLOWED_FROM..denials::SUSPENDED_FROM - 1 {
        let (before, who) = (tokio::time::Instant::now(), if number % 2 == 0 { &child } else { &agent });
        assert_eq!(world.denied(who, run("test.echo")).await, "policy.denied");
        waits.push(before.elapsed());
    }
    assert!(waits.is_sorted() && waits.first() > Some(&std::time::Duration::ZERO), "{waits:?}");
    assert_eq!(stage(&world, &agent), Lifecycle::Active);
    world.denied(&agent, run("test.echo")).await;
    for who in [&agent, &child] {
        assert_eq!(stage(&world, who), Lifecycle::Suspended);
    }
    assert_ne!(stage(&world, &bystander), Lifecycle::Suspended);
    // It is recorded, with the signal and the reason, and a person lets it continue.
    let notes =
        world.entries().into_iter().filter(|entry| entry.kind == EntryKind::Agent).map(|entry| entry.body);
    let notes: Vec<Value> = notes.collect();
    assert!(notes.iter().any(|note| note["event"] == "slowed"), "{notes:?}");
    let raised =
        notes.iter().find(|note| note["signal"] == "POLICY" && note["event"] == "signalled").unwrap();
    assert!(raised["why"].as_str().unwrap().contains("300 denials"), "{raised}");
    world.kernel.raise(&id(&agent), Signal::Cont, "looked at").await.unwrap();
    assert_eq!(world.denied(&agent, run("test.echo")).await, "policy.denied");
    assert_eq!(stage(&world, &agent), Lifecycle::Active);
}

#[tokio::test(start_paused = true)]
async fn m9_an_operator_is_never_slowed() {
    let world = KernelFixture::with(NO_ECHO).await;
    let began = tokio::time::Instant::now();
    for _ in 0..denials::SUSPENDED_FROM + 10 {
        assert_eq!(world.denied(&world.person(), run("test.echo")).await, "policy.denied");
    }
    assert_eq!(began.elapsed(), std::time::Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn m9_a_service_that_collects_denials_is_slowed_and_others_are_not() {
    let world = KernelFixture::with(NO_ECHO).await;
    let program = |name| Principal::program(regent_policy::Class::Service, name, "s-1".into());
    let (prober, other) = (program("prober"), program("other"));
    let began = tokio::time::Instant::now();
    for _ in 0..=denials::SLOWED_FROM {
        assert_eq!(world.denied(&prober, run("test.echo")).await, "policy.denied");
    }
    let slowed = began.elapsed();
    assert!(slowed > std::time::Duration::ZERO);
    assert_eq!(world.denied(&other, run("test.echo")).await, "policy.denied");
    assert_eq!(began.elapsed(), slowed);
}

#[tokio::test(start_paused = true)]
async fn m9_denials_over_time_and_refusals_that_pass_are_never_slowed() {
    use crate::tests::shared;

    let policy = "version: 1\nmode: permissive\nrules:\n  - { id: no, effect: deny, match: { tool: work, args: { /text: no } } }\n  - { id: few, effect: allow, match: { tool: work }, rate: 1/hour }\n";
    let world = shared::ProjectFixture::new(policy, Arc::new(regent_store::MemoryState::default())).await;
    let agent = world.agent(&world.kernel.operator(), "steady", None).await;
    let began = tokio::time::Instant::now();
    let denied = async |text: &str| {
        shared::code_of(world.kernel.syscall(&agent, shared::work(json!({"text": text}))).await.unwrap())
    };
    // As many as fit into every ten minutes without suspension, for an hour.
    for number in 0..60 * (denials::SUSPENDED_FROM - 1) / 10 {
        assert_eq!(denied("no").await, "policy.denied", "{number}");
        world.clock.advance_ms(i64::try_from(600_000 / (denials::SUSPENDED_FROM - 1)).unwrap() + 1);
    }
    world.kernel.syscall(&agent, shared::work(json!({}))).await.unwrap();
    for _ in 0..denials::SUSPENDED_FROM + 10 {
        assert_eq!(denied("yes").await, "policy.rate");
    }
    assert_eq!(began.elapsed(), std::time::Duration::ZERO);
    assert_eq!(world.kernel.lifecycle_of(&world.kernel.operator(), &id(&agent)).unwrap(), Lifecycle::Active);
}

#[tokio::test]
async fn a_loop_is_delivered_also_between_two_calls() {
    let world = KernelFixture::new().await;
    let agent = world.spawn(&world.person(), named("one")).await;
    world.done(&agent, run("test.echo")).await;
    let delivered = world.kernel.raise(&id(&agent), Signal::Loop, "the same again").await.unwrap();
    assert_eq!(delivered, Delivered::Done);
    assert!(world.life_of(&agent).contains(&"looped".to_owned()));
    // An interrupt with nothing to interrupt still is nothing.
    assert_eq!(world.kernel.raise(&id(&agent), Signal::Int, "test").await.unwrap(), Delivered::Nothing);
}

#[tokio::test]
async fn an_agent_that_has_used_up_its_tokens_may_still_exit() {
    let policy = "version: 1\nmode: permissive\nmax_tokens_per_request: 10\n";
    let world = KernelFixture::with(policy).await;
    let agent = world.spawn(&world.person(), named("one")).await;
    agent.life().unwrap().saw(OWN_WORDS, 11);
    assert_eq!(world.denied(&agent, run("test.echo")).await, "governance.max_tokens");
    world.done(&agent, Op::Exit { code: 0 }).await;
}
