//! How long is a decision? The rule that decides is the last of many; the peers get the same rules and the same question.

use anyhow::{Result, ensure};
use regent_policy::{
    Access, ArgLabels, BudgetLeft, Caller, Class, Facts, Layer, Past, Policy, Rates, Resource, SessionFacts, Source, Tier,
    Verdict,
};
use serde_json::{Value, json};

use crate::measure::nanos;
use crate::report::Report;

/// Who asks.
pub const AGENT: &str = "worker";
/// For what.
pub const TOOL: &str = "fs.read";

/// The folder that rule `number` is about.
pub fn folder(number: usize) -> String {
    format!("src/module_{number}")
}

/// `policy.decide.*`, and the peers' figures beside ours.
pub fn measure(report: &mut Report) -> Result<()> {
    let mut ours = 0.0;
    for rules in [1, 100, 1_000] {
        ours = decide(rules)?;
        report.figure(&format!("policy.decide.rules{rules}"), ours, "ns");
    }
    peers(report, ours)
}

fn decide(rules: usize) -> Result<f64> {
    let policy = regent_policy::load(&rules_text(rules), &Source::new("bench", Layer::User))?;
    let question = Question::new(&folder(rules - 1));
    ensure!(matches!(question.put(&policy), Verdict::Allow(_)), "the last rule should allow this");
    let other = Question::new("elsewhere");
    ensure!(matches!(other.put(&policy), Verdict::Deny(_)), "nothing should allow this");
    Ok(nanos(301, 500, || question.put(&policy)))
}

fn rules_text(rules: usize) -> String {
    let mut text = String::from("version: 1\nrules:\n");
    for number in 0..rules {
        let path = folder(number);
        text.push_str(&format!(
            "  - id: read-{number}\n    effect: allow\n    match: {{ agent: {AGENT}, tool: {TOOL}, path: \"{path}/**\" }}\n"
        ));
    }
    text
}

/// Facts as the kernel gathers them for one call.
struct Question {
    args: Value,
    path: String,
    labels: ArgLabels,
    roles: Vec<String>,
    capabilities: Vec<String>,
}

impl Question {
    fn new(folder: &str) -> Self {
        let path = format!("{folder}/deep/file.rs");
        Self {
            args: json!({"path": path}),
            path,
            labels: ArgLabels::default(),
            roles: vec!["developer".to_owned()],
            capabilities: vec!["file.read".to_owned()],
        }
    }

    fn put(&self, policy: &Policy) -> Verdict {
        policy.decide(&Facts {
            caller: Caller { class: Class::Agent, agent: AGENT, roles: &self.roles, trust: 500 },
            op: "tool.run",
            tool: Some(TOOL),
            capabilities: &self.capabilities,
            args: &self.args,
            labels: &self.labels,
            resources: &[Resource::Path { path: &self.path, access: Access::Read }],
            tier: Tier::Host,
            now_ms: 1_790_000_000_000,
            utc_offset_min: 0,
            left: BudgetLeft::default(),
            session: SessionFacts::default(),
            rates: Rates::All(0),
            past: Past::default(),
        })
    }
}

#[cfg(feature = "peers")]
fn peers(report: &mut Report, ours: f64) -> Result<()> {
    let rivals = [("cedar", crate::peers::cedar(1_000)?), ("regorus", crate::peers::regorus(1_000)?)];
    for (name, mut question) in rivals {
        let theirs = nanos(51, 1, &mut question);
        report.figure(&format!("policy.{name}.rules1000"), theirs, "ns");
        report.figure(&format!("policy.{name}.rules1000.ratio"), theirs / ours, "times");
    }
    Ok(())
}

#[cfg(not(feature = "peers"))]
fn peers(report: &mut Report, _ours: f64) -> Result<()> {
    report.skip("policy.cedar, policy.regorus", "built without the feature `peers`");
    Ok(())
}
