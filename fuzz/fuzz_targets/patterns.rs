//! Globs, host patterns, argv patterns and regexes, each against a text: two lines of input.
#![no_main]

use libfuzzer_sys::fuzz_target;
use regent_policy::{
    Access, ArgLabels, BudgetLeft, Caller, Class, Facts, Layer, Past, Rates, Resource, SessionFacts, Source, Tier, load,
};
use serde_json::json;

fuzz_target!(|text: &str| {
    let Some((pattern, subject)) = text.split_once('\n') else { return };
    let quoted = json!(pattern);
    let rules = [
        format!("match: {{ path: {quoted} }}"),
        format!("match: {{ host: {quoted} }}"),
        format!("match: {{ argv: [[{quoted}, \"...\"]] }}"),
        format!("match: {{ agent: {quoted} }}"),
        format!("match: {{ args: {{ \"/text\": {{ matches: {quoted} }} }} }}"),
        format!("match: {{ args: {{ {quoted}: {{ exists: true }} }} }}"),
    ];
    for rule in rules {
        let text = format!("version: 1\nrules:\n  - {{ id: one, effect: allow, {rule} }}\n");
        let Ok(policy) = load(&text, &Source::new("policy.yml", Layer::User)) else { continue };
        let argv: Vec<String> = subject.split(' ').map(str::to_owned).collect();
        let resources = [
            Resource::Path { path: subject, access: Access::Read },
            Resource::Endpoint { scheme: "https", host: subject, port: 443, method: "GET", path: subject },
            Resource::Argv(&argv),
        ];
        drop(policy.decide(&Facts {
            caller: Caller { class: Class::Agent, agent: subject, roles: &[], trust: 500 },
            op: "tool.run",
            tool: Some("any"),
            capabilities: &[],
            args: &json!({"text": subject, "list": [subject]}),
            labels: &ArgLabels::default(),
            resources: &resources,
            tier: Tier::Host,
            now_ms: 0,
            utc_offset_min: 0,
            left: BudgetLeft::default(),
            session: SessionFacts::default(),
            rates: Rates::All(0),
            past: Past::default(),
        }));
    }
});
