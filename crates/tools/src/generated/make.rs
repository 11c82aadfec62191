//! The tools that make, roll back and remove tools.

use std::sync::Arc;

use regent_kernel::{
    Catalogue, Confidentiality, Digest, ExecuteError, Integrity, Label, Op, Outcome, RawOutput, Reply,
    Status, ToolCall, ToolSet,
};
use serde_json::{Value, json};

use super::manifest::{Example, GenerateRequest, Manifest, same};
use super::{Generated, GeneratedError, source_of};
use crate::manifest::integer;
use crate::output::blocking;
use crate::{Context, HostTool, ToolError, tool};

const SOURCE_BYTES_MAX: u64 = 1 << 20;
/// How much of a result the error quotes when an example fails.
const SHOWN_BYTES_MAX: usize = 300;
/// What these tools say is what we know.
const OWN: Label = Label { integrity: Integrity::Tool, confidentiality: Confidentiality::Internal };

/// The tools `tool.generate`, `tool.rollback` and `tool.remove`.
pub fn host_tools(generated: &Arc<Generated>) -> Vec<Arc<dyn HostTool>> {
    vec![
        Arc::new(generate(Arc::clone(generated))),
        Arc::new(roll_back(Arc::clone(generated))),
        Arc::new(remove(Arc::clone(generated))),
    ]
}

fn name_schema() -> Value {
    json!({"type": "string", "minLength": 5, "maxLength": 64, "description": "the tool's name, e.g. gen.word_count"})
}

fn text_schema(chars_max: u64) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": chars_max})
}

fn examples_schema() -> Value {
    let fields =
        json!({"input": {"type": "object"}, "output": {"description": "the JSON that must come back"}});
    let example = json!({"type": "object", "additionalProperties": false, "required": ["input", "output"], "properties": fields});
    json!({"type": "array", "minItems": 1, "maxItems": 50, "items": example})
}

/// Make a tool out of source in a strict subset of JavaScript: `export function run(input) { … }` gets JSON and returns JSON. It is read,
/// tried on every example in the WASM tier, and only then kept as a new version. No imports, no eval; the host is `regent.readFile,
/// writeFile, appendFile, listDir, stat, fetch, callTool, kv.get, kv.set, log, now`, each of which needs its capability: file.read,
/// file.write, file.list, network.request, memory. Returns JSON: name, version, sha256, examples.
///
/// - description: one sentence: what it does and what it returns
/// - source: the program
/// - input: JSON Schema of the arguments; any object if absent
/// - capabilities: what it shall be granted; nothing if absent
#[tool(name = "tool.generate", effect = "write", capabilities = ["tool.generate"], cost = "moderate", output = OWN)]
#[expect(clippy::too_many_arguments, reason = "a model names each argument of a tool")]
async fn generate(
    #[arg(schema = name_schema())] name: String,
    #[arg(schema = text_schema(2000))] description: String,
    #[arg(schema = text_schema(SOURCE_BYTES_MAX))] source: String,
    #[arg(schema = examples_schema())] examples: Vec<Example>,
    #[arg(schema = json!({"type": "object"}))] input: Option<Value>,
    #[arg(schema = json!({"type": "array", "maxItems": 32, "items": {"type": "string", "maxLength": 64}}))]
    capabilities: Option<Vec<String>>,
    #[state] generated: &Arc<Generated>,
    permit: &Context<'_>,
) -> Result<RawOutput, ToolError> {
    let input = input.unwrap_or_else(|| json!({"type": "object"}));
    let capabilities = capabilities.unwrap_or_default();
    generated
        .generate(permit, GenerateRequest { name, description, source, input, examples, capabilities })
        .await
}

/// Make an earlier version of a generated tool the active one. Returns JSON: name, version, sha256.
///
/// - version: the version to go back to; the one before the active one if absent
#[tool(name = "tool.rollback", effect = "write", capabilities = ["tool.generate"], cost = "moderate", output = OWN)]
async fn roll_back(
    #[arg(schema = name_schema())] name: String,
    #[arg(schema = integer(1, 10_000))] version: Option<u32>,
    #[state] generated: &Arc<Generated>,
    permit: &Context<'_>,
) -> Result<Value, ToolError> {
    let (registry, interpreter) = (generated.registry.clone(), generated.digest);
    let kept = blocking(permit, move |_| registry.roll_back(&name, version, interpreter)).await??;
    let told = json!({"name": kept.manifest.name, "version": kept.manifest.version, "sha256": kept.digest});
    generated.enact(permit.catalogue(), kept)?;
    Ok(told)
}

/// Remove a generated tool, all its versions. Returns JSON: name, removed.
#[tool(name = "tool.remove", effect = "write", capabilities = ["tool.generate"], cost = "moderate", output = OWN)]
async fn remove(
    #[arg(schema = name_schema())] name: String,
    #[state] generated: &Arc<Generated>,
    permit: &Context<'_>,
) -> Result<Value, ToolError> {
    let (registry, gone) = (generated.registry.clone(), name.clone());
    blocking(permit, move |_| registry.remove(&gone)).await??;
    permit.catalogue().withdraw(&source_of(&name));
    Ok(json!({"name": name, "removed": true}))
}

/// A tool that is being tried: callable under a name of its own until this is dropped.
struct ToolTrial<'t> {
    catalogue: &'t Catalogue,
    source: String,
}

impl Drop for ToolTrial<'_> {
    fn drop(&mut self) {
        self.catalogue.withdraw(&self.source);
    }
}

impl Generated {
    /// Reads, checks, tries, and only then keeps.
    async fn generate(&self, permit: &Context<'_>, wanted: GenerateRequest) -> Result<RawOutput, ToolError> {
        let (wanted, uses) = blocking(permit, move |_| wanted.check().map(|uses| (wanted, uses))).await??;
        let manifest = Manifest {
            format: 1,
            name: wanted.name,
            version: 0,
            description: wanted.description,
            input: wanted.input,
            capabilities: wanted.capabilities,
            uses,
            examples: wanted.examples,
            source_sha256: Digest::compute(wanted.source.as_bytes()),
            interpreter_sha256: self.digest,
            made_ms: permit.clock().now_ms(),
            made_by: permit.call().principal().name().to_owned(),
        };
        self.try_out(permit, &manifest, &wanted.source).await?;
        let registry = self.registry.clone();
        let kept = blocking(permit, move |_| registry.add(manifest, &wanted.source)).await??;
        let told = json!({
            "name": kept.manifest.name, "version": kept.manifest.version, "sha256": kept.digest,
            "examples": kept.manifest.examples.len(), "capabilities": kept.manifest.capabilities, "uses": kept.manifest.uses,
        });
        self.enact(permit.catalogue(), kept)?;
        Ok(RawOutput::json(&told))
    }

    /// Runs every example where and as the tool would run: as calls of the same caller, judged and recorded.
    async fn try_out(
        &self,
        permit: &Context<'_>,
        manifest: &Manifest,
        source: &str,
    ) -> Result<(), ToolError> {
        let name = format!("{}.trial-{}", manifest.name, permit.intent().seq);
        let trial = ToolTrial { catalogue: permit.catalogue(), source: format!("trial:{name}") };
        let spec = Manifest { name: name.clone(), ..manifest.clone() }.spec(manifest.source_sha256);
        let set = ToolSet::new(&trial.source).with(spec, self.driver(&name, source.to_owned(), None));
        permit.catalogue().admit_own(set).map_err(GeneratedError::from)?;
        for (index, example) in manifest.examples.iter().enumerate() {
            let op = Op::RunTool(ToolCall { tool: name.clone(), args: example.input.clone() });
            let reply = permit.syscall(op).await;
            let reply = reply.map_err(|fault| ExecuteError::Broken(fault.to_string()))?;
            compared(example, reply)
                .map_err(|why| GeneratedError::Example { number: index.saturating_add(1), why })?;
        }
        drop(trial);
        Ok(())
    }
}

fn compared(example: &Example, reply: Reply) -> Result<(), String> {
    let outcome = match reply {
        Reply::Done(outcome) => outcome,
        Reply::Denied(denial) => return Err(format!("denied: {}", denial.reason.message)),
        Reply::Pending(ticket) => return Err(format!("needs an approval: {}", ticket.reason)),
    };
    match &outcome.status {
        Status::Ok => {}
        Status::Failed(failure) => return Err(format!("{}: {}", failure.code, failure.message)),
        Status::TimedOut => return Err("it ran out of time".to_owned()),
        Status::Cancelled => return Err("the call was stopped".to_owned()),
        Status::Faulted(message) => return Err(message.clone()),
    }
    let text = result_of(&outcome);
    let given: Value =
        serde_json::from_slice(text).map_err(|error| format!("the result is not JSON: {error}"))?;
    if same(&given, &example.output) {
        return Ok(());
    }
    Err(format!("expected {}, got {}", shorten(&example.output), shorten(&given)))
}

/// The result without the log lines that come after it.
fn result_of(outcome: &Outcome) -> &[u8] {
    let bytes = outcome.output.bytes();
    let length = outcome.obtained.as_ref().and_then(|receipt| receipt.pointer("/ended/stdout_bytes"));
    let length = length.and_then(Value::as_u64).and_then(|length| usize::try_from(length).ok());
    length.and_then(|length| bytes.get(..length)).unwrap_or(bytes)
}

fn shorten(value: &Value) -> String {
    let mut text = value.to_string();
    if text.len() > SHOWN_BYTES_MAX {
        text.truncate(text.floor_char_boundary(SHOWN_BYTES_MAX));
        text.push('…');
    }
    text
}
