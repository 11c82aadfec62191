//! Prints the JSON Schemas of everything that travels, as one JSON object: a schema for each file of `docs/schemas`.
//!
//! `cargo xtask schemas` runs it and writes the files, or compares them.

use std::io::Write as _;

use regent_wire::body::{AgentBody, InDoubtBody, IntentBody, KernelBody, OutcomeBody, PolicyBody};
use regent_wire::event::EventLine;
use regent_wire::result::{self, AgentView, Begun};
use regent_wire::{Op, OpenQuestion, Reply, TokenSummary, judge};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

type Describe = fn(&mut SchemaGenerator) -> Schema;

/// What is a message, a line or an entry by itself.
const TOP: &[(&str, Describe)] = &[
    ("op", of::<Op>),
    ("reply", of::<Reply>),
    ("question", of::<OpenQuestion>),
    ("event", of::<EventLine>),
    ("judge-message", of::<judge::Message>),
    ("judge-answer", of::<judge::Answer>),
    ("ledger-intent", of::<IntentBody<'static>>),
    ("ledger-outcome", of::<OutcomeBody<'static>>),
    ("ledger-in-doubt", of::<InDoubtBody<'static>>),
    ("ledger-agent", of::<AgentBody<'static>>),
    ("ledger-policy", of::<PolicyBody<'static>>),
    ("ledger-kernel", of::<KernelBody<'static>>),
];

/// The output of each operation that succeeds.
const RESULTS: &[(&str, Describe)] = &[
    ("tool.run", bytes),
    ("tool.elsewhere", bytes),
    ("request.begin", of::<Begun>),
    ("label.declassify", of::<result::LabelLowered>),
    ("model.infer", object),
    ("memory.remember", of::<result::Remembered>),
    ("memory.recall", of::<result::Recollection>),
    ("vfs.open", of::<result::Opened>),
    ("vfs.close", of::<result::Closed>),
    ("vfs.read", bytes),
    ("vfs.write", of::<result::WrittenFile>),
    ("vfs.stat", of::<result::FileStat>),
    ("vfs.list", of::<result::FolderNames>),
    ("vfs.mount", of::<result::Mounted>),
    ("vfs.unmount", of::<result::Unmounted>),
    ("agent.spawn", of::<result::Spawned>),
    ("agent.wait", of::<result::Waited>),
    ("agent.exit", of::<result::Exited>),
    ("agent.list", of::<Vec<AgentView>>),
    ("pipe.open", of::<result::Piped>),
    ("pipe.send", of::<result::Sent>),
    ("pipe.recv", bytes),
    ("signal.send", of::<result::Signalled>),
    ("signal.action", of::<result::SignalAction>),
    ("signal.mask", of::<result::SignalMask>),
    ("signal.pending", of::<result::PendingSignals>),
    ("policy.get", of::<result::PolicyView>),
    ("policy.check", of::<result::Checked>),
    ("approval.answer", of::<result::AnswerTaken>),
    ("approval.list", of::<Vec<OpenQuestion>>),
    ("budget.set", of::<result::BudgetSet>),
    ("token.create", of::<TokenSummary>),
    ("token.list", of::<Vec<TokenSummary>>),
    ("token.revoke", of::<TokenSummary>),
    ("token.rotate", of::<TokenSummary>),
    ("auth.whoami", of::<result::Identity>),
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

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// What a tool, a file or a message holds.
fn bytes(_: &mut SchemaGenerator) -> Schema {
    true.into()
}

/// The types of model messages have no schema of their own here.
fn object(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<Map<String, Value>>()
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

/// The same types as the components of an OpenAPI document. The paths are for whoever serves them.
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
