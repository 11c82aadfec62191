//! What an operator has Regent do beside running agents: erase a payload, download a model, remove what is no longer kept.
//!
//! Each is a tool that only the operator may call ([`FOR_OPERATOR`](regent_kernel::FOR_OPERATOR)). So policy judges it, and the ledger has its
//! intent, with the operator's name, before anything happens.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use regent_kernel::{BoxFuture, Clock, Confidentiality, Integrity, Label, Op, Reply, Status, ToolCall};
use regent_ledger::{Digest, Ledger};
use regent_models::pull::{self, Package, Packages, ProgressSink, PullError};
use regent_tools::{Context as Permit, HostTool, ToolError, tool};
use serde_json::{Value, json};

use crate::codes;
use crate::failure::Failure;

/// One package may take so long.
const PACKAGE_MS_MAX: u64 = 30 * 60_000;
/// The programs that download packages, in the order in which they are tried.
const PIPS: &[(&str, &[&str])] = &[("pip", &[]), ("pip3", &[]), ("python3", &["-m", "pip"])];
/// What the tools themselves say.
const OWN: Label = Label { integrity: Integrity::Tool, confidentiality: Confidentiality::Internal };

/// The ledger that payloads are erased from.
pub(crate) struct Eraser {
    pub(crate) ledger: Ledger,
    pub(crate) clock: Arc<dyn Clock>,
}

/// The tools that every kernel of a project has.
pub(crate) fn tools(eraser: Eraser) -> Vec<Arc<dyn HostTool>> {
    vec![Arc::new(erase(Arc::new(eraser)))]
}

/// The tools that download models into this folder. `told` gets the progress of a download.
pub(crate) fn model_tools(folder: PathBuf, told: ProgressSink) -> Vec<Arc<dyn HostTool>> {
    vec![Arc::new(pull_model(Arc::new(ModelShelf { folder, told }))), Arc::new(download_package())]
}

/// Erase a payload from the ledger, wherever it is stored. The entries keep its digest. Returns JSON: records (how many were overwritten), erased_before (how many had been).
///
/// - digest: the SHA-256 of the payload
/// - because: why; recorded for good
#[tool(name = "audit.erase", effect = "delete", capabilities = ["for.operator", "audit.erase"], idempotent, output = OWN)]
async fn erase(
    #[state] eraser: &Arc<Eraser>,
    context: &Permit<'_>,
    #[schemars(length(max = 64))] digest: String,
    #[schemars(length(min = 1, max = 1000))] because: String,
) -> Result<Value, ToolError> {
    let digest: Digest = digest
        .parse()
        .map_err(|_| ToolError::failed("args.invalid", format!("`{digest}` is not a SHA-256")))?;
    let reason = format!("{because} (erased by {})", context.call().principal().sponsor());
    let eraser = Arc::clone(eraser);
    let erased =
        tokio::task::spawn_blocking(move || eraser.ledger.erase(&digest, &reason, eraser.clock.now_ms()));
    let erased = erased.await.map_err(|error| ToolError::failed("audit.not_erased", error.to_string()))?;
    let erased = erased.map_err(|error| ToolError::failed("audit.not_erased", error.to_string()))?;
    Ok(json!({"digest": digest, "records": erased.records, "erased_before": erased.erased_before}))
}

/// What `regent gc` has planned, and how it is done.
pub(crate) trait Removing: Send + Sync {
    /// Removes the group that these arguments describe, and says what went. `by` is who asked for it.
    fn remove(&self, group: &Value, by: &str) -> Result<Removed, Failure>;
}

/// What a removal has removed.
#[derive(Debug, Clone, Copy, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Removed {
    /// How many things.
    #[serde(rename = "removed")]
    pub(crate) count: u64,
    /// How much room they took.
    pub(crate) bytes: u64,
}

/// The tool that removes what is no longer kept.
pub(crate) fn gc_tool(removing: Arc<dyn Removing>) -> Arc<dyn HostTool> {
    Arc::new(remove_group(removing))
}

/// Remove one group of what the settings `gc.*` no longer keep. Returns JSON: removed, bytes.
///
/// - what: which group
/// - rule: the setting that says so, with its value
/// - items: the first of their names
/// - sha256: over all of their names
#[tool(name = "gc.remove", effect = "delete", capabilities = ["for.operator", "gc.remove"], idempotent, output = OWN)]
async fn remove_group(
    #[state] removing: &Arc<dyn Removing>,
    context: &Permit<'_>,
    #[schemars(length(max = 100))] what: String,
    #[schemars(length(max = 100))] rule: String,
    #[schemars(length(max = 200))] items: Vec<String>,
    #[schemars(length(max = 64))] sha256: String,
) -> Result<Value, ToolError> {
    let group = json!({"what": what, "rule": rule, "items": items, "sha256": sha256});
    let (removing, by) = (Arc::clone(removing), context.call().principal().sponsor().to_owned());
    let removed = tokio::task::spawn_blocking(move || removing.remove(&group, &by));
    let removed =
        removed.await.map_err(|error| ToolError::failed(codes::GC_NOT_REMOVED.id, error.to_string()))?;
    let removed = removed.map_err(|failure| ToolError::failed(codes::GC_NOT_REMOVED.id, failure.message))?;
    Ok(json!(removed))
}

/// Where models are kept.
struct ModelShelf {
    folder: PathBuf,
    told: ProgressSink,
}

/// Download the weights of a model that Regent knows by name and digest. Returns JSON: file, bytes, sha256.
///
/// - name: which model
#[tool(
    name = "model.pull",
    effect = "write",
    capabilities = ["for.operator", "model.pull"],
    idempotent,
    cost = "expensive",
    output = OWN
)]
async fn pull_model(
    #[state] shelf: &Arc<ModelShelf>,
    context: &Permit<'_>,
    #[schemars(length(max = 256))] name: String,
) -> Result<Value, ToolError> {
    let weights = pull::find(&name).map_err(failed)?;
    let packages = Downloads(context);
    let file = pull::pull(weights, &shelf.folder, Some(&packages), &shelf.told).await.map_err(failed)?;
    Ok(json!({"file": file, "bytes": weights.bytes, "sha256": weights.sha256}))
}

fn failed(error: PullError) -> ToolError {
    let code = match error {
        PullError::Unknown { .. } => codes::MODEL_WEIGHTS,
        PullError::Digest { .. } => codes::MODEL_DIGEST,
        PullError::DiskFull(_) | PullError::Write(_) => codes::MODEL_WRITE,
        PullError::Cut { .. } | PullError::Nowhere(_) => codes::MODEL_SOURCE,
    };
    ToolError::failed(code.id, error.to_string())
}

/// Downloads packages by calls of their own, made from within the call that pulls a model.
struct Downloads<'p>(&'p Permit<'p>);

impl Packages for Downloads<'_> {
    fn download<'a>(&'a self, package: &'a Package, into: &'a Path) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let args =
                json!({"name": package.name, "version": package.version, "into": into.to_string_lossy()});
            let op = Op::RunTool(ToolCall { tool: "package.download".to_owned(), args });
            match self.0.syscall(op).await {
                Ok(Reply::Done(outcome)) => match outcome.status {
                    Status::Ok => Ok(()),
                    Status::Failed(failure) => Err(failure.message),
                    other @ (Status::TimedOut | Status::Cancelled | Status::Faulted(_)) => {
                        Err(format!("{other:?}"))
                    }
                },
                Ok(Reply::Denied(denial)) => Err(format!("denied: {}", denial.reason.message)),
                Ok(Reply::Pending(ticket)) => Err(format!("approval needed: {}", ticket.reason)),
                Err(fault) => Err(fault.to_string()),
            }
        })
    }
}

/// Download one package with the operator's own `pip`, as the operator. Nothing of it is installed, built or run.
///
/// - name: which package
/// - version: which version of it
/// - into: the folder that it is put into
#[tool(
    name = "package.download",
    effect = "write",
    capabilities = ["for.operator", "package.download"],
    idempotent,
    cost = "expensive",
    output = OWN
)]
async fn download_package(
    #[schemars(length(max = 256))] name: String,
    #[schemars(length(max = 64))] version: String,
    #[schemars(length(max = 4095))] into: String,
) -> Result<Value, ToolError> {
    let mut why = "`pip` isn't installed".to_owned();
    for (program, before) in PIPS {
        let mut args: Vec<OsString> = before.iter().map(OsString::from).collect();
        let own = [
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--no-input",
            "--quiet",
            "--no-cache-dir",
            "--dest",
        ];
        args.extend(own.map(OsString::from));
        args.push(into.clone().into());
        // A name that begins with `-` is a name, not an option.
        args.push("--".into());
        args.push(format!("{name}=={version}").into());
        match regent_sandbox::run_plain(program, &args, PACKAGE_MS_MAX).await {
            Ok(ended) if ended.is_good => return Ok(json!({"with": program})),
            Ok(ended) => why = ended.said.trim().lines().next_back().unwrap_or("it failed").to_owned(),
            // Not there, or it can't be started: the next one may do.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => why = format!("`{program}` can't be started: {error}"),
        }
    }
    Err(ToolError::failed("package.not_downloaded", why))
}

#[cfg(test)]
mod tests {
    use regent_kernel::{FOR_OPERATOR, SystemClock};
    use regent_ledger::LedgerKey;

    use super::*;

    #[test]
    fn every_chore_is_for_the_operator_alone() {
        let ledger = Ledger::in_memory(LedgerKey::generate().unwrap());
        let eraser = Eraser { ledger, clock: Arc::new(SystemClock::default()) };
        struct Nothing;
        impl Removing for Nothing {
            fn remove(&self, _group: &Value, _by: &str) -> Result<Removed, Failure> {
                Ok(Removed::default())
            }
        }
        let all = tools(eraser)
            .into_iter()
            .chain(model_tools(PathBuf::new(), Arc::new(|_| {})))
            .chain([gc_tool(Arc::new(Nothing))]);
        for tool in all {
            let spec = tool.spec();
            assert!(spec.capabilities.iter().any(|one| one == FOR_OPERATOR), "{}", spec.name);
        }
    }
}
