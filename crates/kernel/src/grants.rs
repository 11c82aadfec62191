//! What agents were granted when they were started. A word in a prompt binds nobody; this does: it is looked at for every call, before
//! policy, and holds for whatever the agent starts.

use regent_policy::{Class, Layer, Question, Reason, RuleRef, Tier, Verdict};
use regent_wire::{Changes, Grants};

use crate::call::{Call, Op};
use crate::catalogue::SideEffect;
use crate::facts::{Sheet, Target, refusal};
use crate::principal::Principal;

/// Writes into the agent's own memory, which ends with it.
const OWN_MEMORY: &str = "memory.remember";

/// Says no to a call that the agent, or one that started it, wasn't granted.
pub(crate) fn beyond(call: &Call, sheet: &Sheet) -> Option<Reason> {
    let grants = held(call)?;
    let name = sheet.tool.as_ref().map_or(call.op.name(), |tool| tool.spec().name.as_str());
    let is_tool = matches!(call.op, Op::RunTool(_) | Op::Elsewhere(_));
    // What a tool calls itself is held to what that tool was granted.
    let is_own = is_tool && call.within.is_empty();
    if is_own && grants.tools.as_ref().is_some_and(|tools| !tools.contains(name)) {
        let message = format!("the agent wasn't granted the tool `{name}`");
        return Some(refusal("agent.not_granted", message, "do without it, or say that it is needed"));
    }
    if grants.changes == Changes::Denied && is_tool && changes(call, sheet) && !is_confined(call, sheet) {
        let message = format!("the agent may only read, and `{name}` can change something");
        return Some(refusal("agent.read_only", message, "say what you would change instead of changing it"));
    }
    None
}

/// Asks about a change where the agent may make none unasked.
pub(crate) fn asked(verdict: Verdict, call: &Call, sheet: &Sheet) -> Verdict {
    let is_asked = held(call).is_some_and(|grants| grants.changes == Changes::Asked);
    match verdict {
        Verdict::Allow(grant)
            if is_asked && matches!(call.op, Op::RunTool(_) | Op::Elsewhere(_)) && changes(call, sheet) =>
        {
            Verdict::Ask(Question {
                rule: RuleRef { id: "grants".into(), layer: Layer::Builtin, line: 0 },
                reason: "the agent was started so that each change is asked about".to_owned(),
                grant,
                approvers: 1,
            })
        }
        verdict @ (Verdict::Allow(_) | Verdict::Ask(_) | Verdict::Deny(_)) => verdict,
    }
}

/// Whether an agent was granted to change anything.
pub(crate) fn may_change(who: &Principal) -> bool {
    who.life().is_none_or(|life| life.grants().changes != Changes::Denied)
}

/// What the calling agent holds, if that isn't everything.
fn held(call: &Call) -> Option<&Grants> {
    let who = &call.principal;
    let grants = who.life().filter(|_| who.class() == Class::Agent)?.grants();
    (!grants.is_all()).then_some(grants)
}

/// Whether a tool may change something by this call. A tool that doesn't say what it does may.
fn changes(call: &Call, sheet: &Sheet) -> bool {
    let Some(spec) = sheet.tool.as_ref().map(|tool| tool.spec()) else { return true };
    let is_own = matches!(call.op, Op::RunTool(_)) && spec.name == OWN_MEMORY;
    match spec.effect {
        SideEffect::None | SideEffect::Read => false,
        SideEffect::Write | SideEffect::Delete => !is_own,
        // To fetch a page changes nothing by the rules of HTTP; policy asks about it because it tells something.
        SideEffect::Network => !fetches(sheet),
    }
}

/// Whether the call runs where each effect is judged by itself: guests make system calls, and programs get the workspace read-only
/// ([`Permit::may_change`](crate::syscall::Permit::may_change)).
fn is_confined(call: &Call, sheet: &Sheet) -> bool {
    matches!(call.op, Op::RunTool(_)) && matches!(sheet.tier, Tier::Process | Tier::Wasm | Tier::Microvm)
}

fn fetches(sheet: &Sheet) -> bool {
    let safe = |target: &Target| match target {
        Target::Endpoint { method, .. } => matches!(method.as_str(), "GET" | "HEAD"),
        Target::Path { access, .. } => *access == regent_policy::Access::Read,
        Target::Argv(_) => false,
        Target::Secret(_) => true,
    };
    sheet.resources.iter().any(|target| matches!(target, Target::Endpoint { .. }))
        && sheet.resources.iter().all(safe)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use regent_wire::SpawnSpec;
    use serde_json::json;

    use super::*;
    use crate::call::ToolCall;
    use crate::catalogue::{ArgumentKind, ToolSpec};
    use crate::syscall::Reply;
    use crate::tests::alone::{KernelFixture, named, run};

    fn granted(changes: Changes, tools: Option<&[&str]>) -> SpawnSpec {
        let tools = tools.map(|tools| tools.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>());
        SpawnSpec { grants: Grants { tools, changes }, ..named("a") }
    }

    async fn world() -> KernelFixture {
        let world = KernelFixture::new().await;
        let url = [("/url".to_owned(), ArgumentKind::Url)].into_iter().collect();
        let tool = |name: &str, effect: SideEffect| ToolSpec {
            name: name.to_owned(),
            description: "For tests.".to_owned(),
            input: json!({"type": "object"}),
            effect,
            tiers: vec![Tier::Host],
            ..ToolSpec::default()
        };
        world.admit(tool("keep", SideEffect::Write));
        world.admit(tool("drop", SideEffect::Delete));
        world.admit(tool("look", SideEffect::Read));
        // Memory is an agent's own; a tool that calls itself alike isn't.
        world.admit(ToolSpec {
            capabilities: vec!["memory".to_owned()],
            ..tool("memory.keep", SideEffect::Write)
        });
        world.admit(ToolSpec { arguments: url, ..tool("get", SideEffect::Network) });
        world
    }

    fn fetch(method: &str) -> Op {
        let args = json!({"url": "https://example.org/", "method": method});
        Op::RunTool(ToolCall { tool: "get".to_owned(), args })
    }

    #[tokio::test]
    async fn an_agent_that_may_only_read_changes_nothing_and_starts_none_that_does() {
        let world = world().await;
        let reader = world.spawn(&world.person(), granted(Changes::Denied, None)).await;
        let child = world.spawn(&reader, granted(Changes::Allowed, None)).await;
        for who in [&reader, &child] {
            for op in [run("keep"), run("drop"), run("memory.keep"), fetch("POST")] {
                assert_eq!(world.denied(who, op.clone()).await, "agent.read_only", "{op:?}");
            }
            for op in [run("look"), run("test.echo"), fetch("GET"), fetch("HEAD")] {
                let reply = world.kernel.syscall(who, op.clone()).await.unwrap();
                assert!(matches!(reply, Reply::Done(_)), "{op:?}: {reply:?}");
            }
        }
        let free = world.spawn(&world.person(), named("b")).await;
        world.outcome(&free, run("keep")).await;
    }

    #[tokio::test]
    async fn an_agent_that_must_ask_asks_about_each_change_and_so_do_those_that_it_starts() {
        let world = world().await;
        let careful = world.spawn(&world.person(), granted(Changes::Asked, None)).await;
        let child = world.spawn(&careful, granted(Changes::Allowed, None)).await;
        for who in [&careful, &child] {
            for op in [run("keep"), run("drop"), fetch("POST")] {
                assert!(matches!(world.kernel.syscall(who, op).await.unwrap(), Reply::Pending(_)));
            }
            world.outcome(who, run("look")).await;
        }
        let none = world.spawn(&careful, granted(Changes::Denied, None)).await;
        assert_eq!(world.denied(&none, run("keep")).await, "agent.read_only");
    }

    #[tokio::test]
    async fn an_agent_calls_the_tools_that_it_was_granted_and_passes_on_no_more() {
        let world = world().await;
        let one = world.spawn(&world.person(), granted(Changes::Allowed, Some(&["look", "keep"]))).await;
        world.outcome(&one, run("look")).await;
        assert_eq!(world.denied(&one, run("drop")).await, "agent.not_granted");
        let child = world.spawn(&one, granted(Changes::Allowed, Some(&["keep", "drop"]))).await;
        world.outcome(&child, run("keep")).await;
        for tool in ["look", "drop"] {
            assert_eq!(world.denied(&child, run(tool)).await, "agent.not_granted");
        }
    }
}
