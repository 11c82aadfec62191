//! How long do rules take that look back, rules in other languages, and a back-test on a real ledger?

use anyhow::{Context as _, Result, ensure};
use regent_ledger::{CanonicalJson, EntryDraft, EntryKind, Ledger, LedgerKey, Options, Reader};
use regent_policy::{
    CallSketch, Confidentiality, Facts, History, Integrity, Label, Layer, Notes, Past, Policy, Replay, Source,
    Verdict,
};
use regent_wire::body::EntryBody;
use serde_json::{Value, json};

use crate::measure::{nanos, once};
use crate::report::Report;

/// Rules that look back, all of them with something noted.
const LOOKING_BACK: usize = 100;
/// Of a real session's ledger: as many intents as outcomes.
const ENTRIES: usize = 100_000;
const BATCH: usize = 1_000;

/// `policy.sequence.*`, `policy.rego.indexed1000`, `policy.cedar.indexed1000`, `policy.sim`.
pub fn measure(report: &mut Report) -> Result<()> {
    sequences(report)?;
    languages(report)?;
    back_test(report)
}

fn loaded(text: &str, name: &str) -> Result<Policy> {
    Ok(regent_policy::load(text, &Source::new(name, Layer::User))?)
}

fn sequences(report: &mut Report) -> Result<()> {
    let mut text = String::from("version: 1\nrules:\n  - { id: all, effect: allow }\n");
    for number in 0..LOOKING_BACK {
        // A tenth of them are about the call that is measured.
        let tool = if number % 10 == 0 { "pay.send".to_owned() } else { format!("tool.n{number}") };
        let looks_back = match number % 3 {
            0 => "after: { tool: start }",
            1 => "at_most: 1000000",
            _ => "needs: { tool: start }, same: /id",
        };
        let effect = if number % 10 == 0 { "ask" } else { "deny" };
        text.push_str(&format!("  - {{ id: r{number}, effect: {effect}, match: {{ tool: {tool} }}, {looks_back} }}\n"));
    }
    let policy = loaded(&text, "sequences.yml")?;
    let (mut session, mut lasting) = (History::new(), History::new());
    let label = Label { integrity: Integrity::Tool, confidentiality: Confidentiality::Secret };
    let start = CallSketch::parse("{ tool: start, args: { id: 7 } }")?;
    let awaited = start
        .with_facts(|facts| policy.begin(facts, false, Notes { session: &mut session, lasting: &mut lasting }))
        .map_err(|reason| anyhow::anyhow!("{reason}"))?;
    awaited.ended(label, true, Notes { session: &mut session, lasting: &mut lasting });
    let pay = CallSketch::parse("{ tool: pay.send, args: { id: 7 } }")?;
    pay.with_facts(|facts| {
        let facts = Facts { past: Past { session: &session, lasting: &lasting }, ..*facts };
        ensure!(matches!(policy.decide(&facts), Verdict::Ask(_)), "the rules that look back should ask");
        report.figure("policy.sequence.decide", nanos(301, 200, || policy.decide(&facts)), "ns");
        Ok(())
    })?;
    let mut changing = session.clone();
    let step = pay.with_facts(|facts| {
        nanos(301, 200, || {
            let awaited = policy.begin(facts, true, Notes { session: &mut changing, lasting: &mut lasting });
            awaited.map(|awaited| {
                awaited.ended(label, true, Notes { session: &mut changing, lasting: &mut lasting });
            })
        })
    });
    report.figure("policy.sequence.step", step, "ns");
    Ok(())
}

#[cfg(feature = "peers")]
fn languages(report: &mut Report) -> Result<()> {
    let body = |number: usize| match number % 2 {
        0 => "input.args.amount < 100",
        _ => "input.args.amount < 200",
    };
    let mut rego = String::from("version: 1\nrules:\n");
    for number in 0..1_000 {
        rego.push_str(&format!(
            "  - {{ id: r{number}, effect: allow, match: {{ agent: worker, tool: pay.send, path: 'src/module_{number}/**' }}, rego: '{}' }}\n",
            body(number)
        ));
    }
    let mut cedar = String::new();
    for number in 0..1_000 {
        cedar.push_str(&format!(
            "permit(principal == Agent::\"worker-{number}\", action == Action::\"pay.send\", resource) when {{ context.args.amount < 100 }};\n"
        ));
    }
    let call = |agent: &str, amount: u32| {
        CallSketch::parse(&format!(
            "{{ tool: pay.send, agent: {agent}, path: src/module_999/a.rs, args: {{ amount: {amount}, to: ada }} }}"
        ))
    };
    let cases = [
        ("policy.rego.indexed1000", loaded(&rego, "p.yml")?, "worker"),
        ("policy.cedar.indexed1000", loaded(&cedar, "p.cedar")?, "worker-999"),
    ];
    for (name, policy, agent) in cases {
        let (fine, much) = (call(agent, 5)?, call(agent, 5_000)?);
        let word = |call: &CallSketch| call.with_facts(|facts| policy.decide(facts).word());
        ensure!(word(&fine) == "allow" && word(&much) == "deny", "{name} should look at the amount");
        report.figure(name, fine.with_facts(|facts| nanos(101, 20, || policy.decide(facts))), "ns");
    }
    Ok(())
}

#[cfg(not(feature = "peers"))]
fn languages(report: &mut Report) -> Result<()> {
    report.skip("policy.rego, policy.cedar", "built without the feature `peers`");
    Ok(())
}

/// What the kernel writes about one call.
fn intent(number: usize) -> Value {
    let path = format!("src/module_{}/file_{}.rs", number % 100, number % 7);
    let tool = if number.is_multiple_of(10) { "fs.write" } else { "fs.read" };
    json!({
        "caller": {"agent": "a", "chain": ["tester"], "class": "agent", "name": format!("worker-{}", number % 8)},
        "depth": 0, "idempotent": true, "op": "tool.run", "policy": "00", "session": "bench",
        "targets": [{"path": {"path": path, "access": if tool == "fs.read" { "read" } else { "write" }}}],
        "tier": "host", "tool": {"digest": "00", "name": tool}, "verdict": {"effect": "allow", "rule": "all"},
    })
}

fn back_test(report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("audit");
    let ledger = Ledger::open(&root, LedgerKey::generate()?, Options::default())?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    for first in (0..ENTRIES / 2).step_by(BATCH) {
        let mut last = None;
        for number in first..first + BATCH {
            let outcome = json!({"intent": number * 2, "label": {"integrity": "file", "confidentiality": "internal"}, "lane": "0000", "status": "ok"});
            for (kind, body) in [(EntryKind::Intent, intent(number)), (EntryKind::Outcome, outcome)] {
                let body = CanonicalJson::encode(&body)?;
                last = Some(ledger.append(EntryDraft { kind, at_ms: 1_790_000_000_000, body, payloads: Vec::new() }));
            }
        }
        runtime.block_on(last.context("a batch")?)?;
    }
    ledger.close()?;
    let old = loaded("version: 1\nrules: [{ id: all, effect: allow }]", "old.yml")?;
    let mut text = String::from("version: 1\nrules:\n  - { id: read, effect: allow, match: { tool: fs.read } }\n");
    for number in 0..1_000 {
        text.push_str(&format!("  - {{ id: r{number}, effect: deny, match: {{ path: 'src/module_{number}/file_0.rs' }} }}\n"));
    }
    let new = loaded(&text, "new.yml")?;
    let (took_s, found) = once(|| -> Result<_> {
        let mut replay = Replay::new(old, new);
        for entry in Reader::new(&root).entries()? {
            let entry = entry?;
            let EntryBody::Intent(intent) = EntryBody::read(&entry)? else { continue };
            if let Some(call) = intent.past_call(entry.at_ms, None, Vec::new()) {
                replay.call((entry.lane.get(), entry.seq), &call);
            }
        }
        Ok(replay.finish())
    });
    let found = found?;
    // Counted by hand: every tenth is a write, and of the reads those of `file_0` are denied.
    let writes = ENTRIES / 2 / 10;
    let denied = (0..ENTRIES / 2).filter(|number| number % 10 != 0 && number % 7 == 0).count();
    ensure!(found.calls == (ENTRIES / 2) as u64, "{} calls", found.calls);
    ensure!(found.newly_denied == (writes + denied) as u64, "{} newly denied", found.newly_denied);
    report.figure("policy.sim.entries100000", took_s, "s");
    Ok(())
}
