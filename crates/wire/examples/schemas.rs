//! Prints the JSON Schemas of everything that travels, as one JSON object: a schema for each file of `docs/schemas`.
//!
//! `cargo xtask schemas` runs it and writes the files, or compares them.

use std::io::Write as _;

use regent_wire::body::{AgentBody, InDoubtBody, IntentBody, KernelBody, OutcomeBody, PolicyBody};
use regent_wire::event::EventLine;
use regent_wire::result::{self, AgentView, Begun};
use regent_wire::{Completion, Inference, Op, OpenQuestion, Reply, TokenSummary, judge};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

type Describe = fn(&mut SchemaGenerator) -> Schema;

/// What is a message, a line or an entry by itself.
const TOP: &[(&str, Describe)] = &[
    ("op", subschema::<Op>),
    ("reply", subschema::<Reply>),
    ("inference", subschema::<Inference>),
    ("question", subschema::<OpenQuestion>),
    ("event", subschema::<EventLine>),
    ("judge-message", subschema::<judge::JudgeMessage>),
    ("judge-answer", subschema::<judge::JudgeAnswer>),
    ("ledger-intent", subschema::<IntentBody<'static>>),
    ("ledger-outcome", subschema::<OutcomeBody<'static>>),
    ("ledger-in-doubt", subschema::<InDoubtBody<'static>>),
    ("ledger-agent", subschema::<AgentBody<'static>>),
    ("ledger-policy", subschema::<PolicyBody<'static>>),
    ("ledger-kernel", subschema::<KernelBody<'static>>),
];

/// The output of each operation that succeeds.
const RESULTS: &[(&str, Describe)] = &[
    ("tool.run", bytes),
    ("tool.elsewhere", bytes),
    ("request.begin", subschema::<Begun>),
    ("label.declassify", subschema::<result::LabelLowered>),
    ("model.infer", subschema::<Completion>),
    ("memory.remember", subschema::<result::Remembered>),
    ("memory.recall", subschema::<result::Recollection>),
    ("vfs.open", subschema::<result::Opened>),
    ("vfs.close", subschema::<result::Closed>),
    ("vfs.read", bytes),
    ("vfs.write", subschema::<result::WrittenFile>),
    ("vfs.stat", subschema::<result::FileStat>),
    ("vfs.list", subschema::<result::FolderNames>),
    ("vfs.mount", subschema::<result::Mounted>),
    ("vfs.unmount", subschema::<result::Unmounted>),
    ("agent.spawn", subschema::<result::Spawned>),
    ("agent.wait", subschema::<result::Waited>),
    ("agent.exit", subschema::<result::Exited>),
    ("agent.list", subschema::<Vec<AgentView>>),
    ("pipe.open", subschema::<result::Piped>),
    ("pipe.send", subschema::<result::Sent>),
    ("pipe.recv", bytes),
    ("signal.send", subschema::<result::Signalled>),
    ("signal.action", subschema::<result::SignalAction>),
    ("signal.mask", subschema::<result::SignalMask>),
    ("signal.pending", subschema::<result::PendingSignals>),
    ("policy.get", subschema::<result::PolicyView>),
    ("policy.check", subschema::<result::Checked>),
    ("approval.answer", subschema::<result::AnswerTaken>),
    ("approval.list", subschema::<Vec<OpenQuestion>>),
    ("budget.set", subschema::<result::BudgetSet>),
    ("token.create", subschema::<TokenSummary>),
    ("token.list", subschema::<Vec<TokenSummary>>),
    ("token.revoke", subschema::<TokenSummary>),
    ("token.rotate", subschema::<TokenSummary>),
    ("auth.whoami", subschema::<result::Identity>),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let without: Vec<&&str> =
        Op::NAMES.iter().filter(|name| !RESULTS.iter().any(|(op, _)| op == *name)).collect();
    if !without.is_empty() {
        return Err(format!("no result is listed for {without:?}").into());
    }
    let mut files = Map::new();
    for (name, describe) in TOP {
        files.insert(format!("{name}.json"), whole(*describe));
    }
    files.insert("results.json".to_owned(), results());
    files.insert("openapi.json".to_owned(), openapi());
    let text = serde_json::to_vec(&files)?;
    Ok(std::io::stdout().write_all(&text)?)
}

fn subschema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// What a tool, a file or a message holds.
fn bytes(_: &mut SchemaGenerator) -> Schema {
    true.into()
}

/// One type, with all that it refers to.
fn whole(describe: Describe) -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let schema = describe(&mut generator);
    with_definitions(schema, &mut generator)
}

fn with_definitions(schema: Schema, generator: &mut SchemaGenerator) -> Value {
    let mut whole = Value::from(schema);
    if let Some(fields) = whole.as_object_mut() {
        fields.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
        fields.insert("$defs".to_owned(), Value::Object(generator.take_definitions(true)));
    }
    whole
}

/// The results of all operations, by the operation's name.
fn results() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let all: Map<String, Value> =
        RESULTS.iter().map(|(op, describe)| ((*op).to_owned(), describe(&mut generator).into())).collect();
    let schema = schemars::json_schema!({
        "title": "Results",
        "description": "The output of each operation that succeeds, by the operation's name.",
        "type": "object",
        "properties": all,
        "additionalProperties": false,
    });
    with_definitions(schema, &mut generator)
}

/// The same types as the components of an OpenAPI document. A server adds the paths.
fn openapi() -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut generator = settings.into_generator();
    for (_, describe) in TOP.iter().chain(RESULTS) {
        describe(&mut generator);
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Regent", "version": "1"},
        "paths": {},
        "components": {"schemas": generator.take_definitions(true)},
    })
}
