//! `regent gc`: removes what the settings say is no longer kept. Each group is a call of the operator's tool `gc.remove`: judged by policy, and in
//! the ledger before anything goes.
//!
//! Entries of a ledger are never removed: it verifies from its first entry on. What goes is what entries name (payloads), what can be made
//! again (lookup indexes), and data of deleted projects.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

use clap::Args;
use regent_kernel::{Host, Op, ToolCall};
use regent_ledger::canonical::CanonicalJson;
use regent_ledger::{Digest, EntryDraft, EntryKind, Ledger, OldPack, Reader};
use regent_runtime::snapshot::{Retention, SnapshotOptions, Snapshots, YOUNG_MS};
use regent_wire::Version;
use regent_wire::body::{InUse, RemovalBody, RemovalGroup};
use serde_json::{Value, json};

use crate::caller;
use crate::calls;
use crate::chores::{self, Removed, Removing};
use crate::codes;
use crate::commands::audit::unreadable;
use crate::compose::{self, LedgerStart};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{CommandResult, Done};
use crate::past::Past;
use crate::paths::{self, Project};
use crate::term;
use crate::trust::Trust;

/// Remove old payloads and snapshots, and data of deleted projects, as the settings `gc.*` say
#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    /// List what would be removed, without removing it
    #[arg(long)]
    dry_run: bool,
}

/// Names that one entry lists; the rest are counted.
const NAMED_MAX: usize = 200;
/// Folders in the state folder that have something of each project, by a digest of its path.
const BY_PROJECT: [(&str, &str); 5] = [
    ("witness", "witnesses of deleted projects"),
    ("lookup", "lookup indexes of deleted projects"),
    ("tasks", "snapshots and task locks of deleted projects"),
    ("generated", "pinned generated tools of deleted projects"),
    ("skills", "pinned skills of deleted projects"),
];
const DIGEST_CHARS: usize = 64;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// What goes for one reason.
#[derive(Debug)]
struct GcGroup {
    what: &'static str,
    /// The setting that says so, with its value.
    rule: String,
    items: Vec<GcItem>,
    /// What the setting no longer keeps and can't be removed yet: a running process writes to it.
    in_use: Vec<GcItem>,
}

#[derive(Debug)]
struct GcItem {
    path: PathBuf,
    bytes: u64,
}

fn bytes(items: &[GcItem]) -> u64 {
    items.iter().fold(0, |sum, item| sum.saturating_add(item.bytes))
}

impl GcGroup {
    /// All of it.
    fn planned(&self) -> Removed {
        Removed { count: self.items.len() as u64, bytes: bytes(&self.items) }
    }

    /// What the call has: enough to tell what went, and to tell this plan from another.
    fn args(&self, state: &Path) -> Value {
        let items = self.note(state, Removed::default()).items;
        let names = self.items.iter().flat_map(|item| [item.path.as_os_str().as_encoded_bytes(), b"\0"]);
        let digest = Digest::compute(&names.collect::<Vec<_>>().concat());
        json!({
            "what": self.what, "rule": self.rule, "items": items, "sha256": digest.to_string(),
        })
    }

    /// As it is recorded and shown, with what went.
    fn note(&self, state: &Path, removed: Removed) -> RemovalGroup<'_> {
        let name = |item: &GcItem| item.path.strip_prefix(state).unwrap_or(&item.path).display().to_string();
        RemovalGroup {
            bytes: removed.bytes,
            in_use: InUse { bytes: bytes(&self.in_use), count: self.in_use.len() as u64 },
            items: self.items.iter().take(NAMED_MAX).map(name).collect(),
            items_left_out: self.items.len().saturating_sub(NAMED_MAX) as u64,
            removed: removed.count,
            rule: Cow::Borrowed(&self.rule),
            what: self.what.into(),
        }
    }
}

pub(crate) async fn run(context: &Context, args: &GcArgs) -> CommandResult {
    let project = context.controls()?.map(|controls| controls.project().clone());
    if let Some(project) = &project {
        Trust::demand(&context.paths, project)?;
    }
    let groups = plan(context, project.as_ref())?;
    let state = &context.paths.state;
    let planned: Vec<Removed> = groups.iter().map(GcGroup::planned).collect();
    if args.dry_run || groups.iter().all(|group| group.items.is_empty()) {
        let rows: Vec<Value> =
            groups.iter().zip(&planned).map(|(group, count)| json!(group.note(state, *count))).collect();
        let text = render(&groups, &planned, if args.dry_run { "would be removed" } else { "removed" });
        return Ok(Done::new(json!({"dry_run": args.dry_run, "groups": rows}), text));
    }
    let remover = Arc::new(Remover { context: context.clone(), project, groups, ledger: OnceLock::new() });
    let removing = Arc::clone(&remover) as Arc<dyn Removing>;
    // The payloads of its own calls must not keep the others.
    let tools = vec![chores::gc_tool(removing)];
    let host = compose::for_chores(context, tools, LedgerStart::Apart).await?;
    remover.ledger.get_or_init(|| host.ledger().clone());
    let removed = remove_all(context, &host, &remover).await;
    let removed = calls::settled(removed, host.shutdown().await)?;
    let groups = &remover.groups;
    let rows: Vec<Value> =
        groups.iter().zip(&removed).map(|(group, count)| json!(group.note(state, *count))).collect();
    Ok(Done::new(json!({"dry_run": false, "groups": rows}), render(groups, &removed, "removed")))
}

/// One call for each group, as the operator.
async fn remove_all(context: &Context, host: &Host, remover: &Remover) -> Result<Vec<Removed>, Failure> {
    let mut removed = Vec::new();
    for group in &remover.groups {
        if group.items.is_empty() {
            removed.push(Removed::default());
            continue;
        }
        let args = group.args(&context.paths.state);
        let op = Op::RunTool(ToolCall { tool: "gc.remove".to_owned(), args });
        let outcome = calls::call_on(context, host, &caller::authenticate(context, host).await?, op).await?;
        removed.push(calls::result(&outcome)?);
    }
    Ok(removed)
}

fn render(groups: &[GcGroup], removed: &[Removed], verb: &str) -> String {
    let mut text = String::new();
    for (group, removed) in groups.iter().zip(removed) {
        let (what, rule) = (group.what, term::inline(&group.rule));
        if !group.items.is_empty() {
            let kib = removed.bytes.div_ceil(1024);
            text.push_str(&format!("{:>6} {verb}, {kib} KiB: {what} ({rule})\n", removed.count));
        }
        if !group.in_use.is_empty() {
            let kib = bytes(&group.in_use).div_ceil(1024);
            text.push_str(&format!(
                "{:>6} in use, {kib} KiB: {what}; kept while a running process writes to them\n",
                group.in_use.len()
            ));
        }
    }
    if groups.is_empty() {
        text.push_str("nothing to remove; `regent config show` lists the settings gc.*\n");
    }
    text
}

fn plan(context: &Context, project: Option<&Project>) -> Result<Vec<GcGroup>, Failure> {
    let mut groups = Vec::new();
    let now_ms = context.clock.now_ms();
    let before =
        |kept: Option<u64>| kept.map(|ms| now_ms.saturating_sub(i64::try_from(ms).unwrap_or(i64::MAX)));
    let rule = |name: &str| format!("{name}={}", context.settings.text(name));
    if let Some(project) = project {
        if let Some(before_ms) = before(context.settings.kept_ms("gc.payloads")) {
            let (in_use, items) = old_packs(&project.audit(), before_ms)?;
            groups.push(GcGroup { what: PAYLOADS, rule: rule("gc.payloads"), items, in_use });
        }
        if let Some(kept_ms) = context.settings.kept_ms("gc.snapshots") {
            let items = old_snapshots(context, project, kept_ms)?;
            groups.push(GcGroup { what: SNAPSHOTS, rule: rule("gc.snapshots"), items, in_use: Vec::new() });
        }
    }
    if let Some(before_ms) = before(context.settings.kept_ms("gc.dead_projects")) {
        let live = live(context, project)?;
        for (folder, what) in BY_PROJECT {
            let all = list(&context.paths.state.join(folder))?;
            let dead = |item: &(GcItem, i64)| !live.contains(&digest_of(&item.0.path));
            let items = older(all.into_iter().filter(dead).collect(), before_ms);
            groups.push(GcGroup { what, rule: rule("gc.dead_projects"), items, in_use: Vec::new() });
        }
    }
    groups.retain(|group| !group.items.is_empty() || !group.in_use.is_empty());
    Ok(groups)
}

const PAYLOADS: &str = "packs of payloads (arguments and results)";
const SNAPSHOTS: &str = "snapshots of the workspace";

/// Snapshots of tasks that are over and older. Those of the newest tasks, and of tasks that can continue, stay; so do those that are too young to
/// be in the ledger.
fn old_snapshots(context: &Context, project: &Project, kept_ms: u64) -> Result<Vec<GcItem>, Failure> {
    let now_ms = context.clock.now_ms();
    let retention = Retention {
        days: u32::try_from(kept_ms.div_ceil(DAY_MS)).unwrap_or(u32::MAX),
        ..Retention::default()
    };
    let kept = retention.kept(&Past::open(context)?.newest(u32::MAX)?, now_ms);
    let all = list(&context.paths.tasks(&project.root).join("snapshots/trees"))?;
    let goes = |item: &GcItem| {
        let name = item.path.file_name().map(|name| name.to_string_lossy().into_owned());
        name.is_some_and(|name| !kept.contains(&name))
    };
    Ok(older(all, now_ms.saturating_sub(YOUNG_MS)).into_iter().filter(goes).collect())
}

/// The digests of everything that is still used: projects that are there, and our own ledger.
fn live(context: &Context, project: Option<&Project>) -> Result<BTreeSet<String>, Failure> {
    let mut roots = Trust::load(&context.paths)?.roots()?;
    roots.retain(|root| paths::may_exist(root));
    roots.push(context.paths.own_ledger());
    roots.extend(project.map(|project| project.root.clone()));
    let mut live = BTreeSet::new();
    for root in roots {
        let audit = Project { root: root.clone() }.audit();
        for path in [&root, &audit] {
            live.insert(Digest::compute(path.as_os_str().as_encoded_bytes()).to_string());
        }
    }
    Ok(live)
}

/// The digest that a name in the state folder begins with.
fn digest_of(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.chars().take(DIGEST_CHARS).collect()
}

/// Packs whose payloads are all older: those that are in use, and those that can go. The ledger decides, here and when they are removed.
fn old_packs(audit: &Path, before_ms: i64) -> Result<(Vec<GcItem>, Vec<GcItem>), Failure> {
    let old = Reader::new(audit).old_packs(before_ms).map_err(|error| unreadable(&error))?;
    let (in_use, free): (Vec<OldPack>, Vec<OldPack>) = old.into_iter().partition(|pack| pack.in_use);
    let items = |packs: Vec<OldPack>| {
        packs.into_iter().map(|pack| GcItem { path: audit.join(pack.path()), bytes: pack.bytes }).collect()
    };
    Ok((items(in_use), items(free)))
}

fn older(all: Vec<(GcItem, i64)>, before_ms: i64) -> Vec<GcItem> {
    all.into_iter().filter(|(_, changed_ms)| *changed_ms < before_ms).map(|(item, _)| item).collect()
}

/// What is in a folder, with the size of all of it and when any of it last changed. A folder that isn't there has nothing.
fn list(folder: &Path) -> Result<Vec<(GcItem, i64)>, Failure> {
    let fail = |error: &std::io::Error| Failure::io("read", folder, error);
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(fail(&error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| fail(&error))?.path();
        let (bytes, changed_ms) = extent(&path).map_err(|error| Failure::io("look at", &path, &error))?;
        found.push((GcItem { path, bytes }, changed_ms));
    }
    Ok(found)
}

fn extent(path: &Path) -> std::io::Result<(u64, i64)> {
    let meta = std::fs::symlink_metadata(path)?;
    let changed = meta.modified()?.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let (mut bytes, mut changed_ms) = (meta.len(), i64::try_from(changed).unwrap_or(i64::MAX));
    if meta.is_dir() {
        for entry in std::fs::read_dir(path)? {
            let (inner, inner_ms) = extent(&entry?.path())?;
            bytes = bytes.saturating_add(inner);
            changed_ms = changed_ms.max(inner_ms);
        }
    }
    Ok((bytes, changed_ms))
}

/// The plan, and what carries it out within the calls that were judged.
struct Remover {
    context: Context,
    project: Option<Project>,
    groups: Vec<GcGroup>,
    /// The ledger of the kernel that makes the calls; there once it is up.
    ledger: OnceLock<Ledger>,
}

impl Removing for Remover {
    /// Records the group by name, then removes it. What can't be removed stops it: the entry then says more than was done, never less.
    fn remove(&self, wanted: &Value, by: &str) -> Result<Removed, Failure> {
        let (context, state) = (&self.context, &self.context.paths.state);
        let unplanned = || Failure::new(codes::INTERNAL, "this removal was not planned");
        let group = self.groups.iter().find(|group| group.args(state) == *wanted).ok_or_else(unplanned)?;
        let ledger = self.ledger.get().ok_or_else(unplanned)?;
        let now_ms = context.clock.now_ms();
        if group.what == PAYLOADS {
            let before_ms = context.settings.kept_ms("gc.payloads").and_then(|ms| i64::try_from(ms).ok());
            let before_ms = now_ms.saturating_sub(before_ms.unwrap_or(i64::MAX));
            // Recorded by the ledger itself, pack by pack. It leaves the packs of segments that are still written to.
            let gone = ledger.retain(before_ms, &group.rule, now_ms).map_err(|error| unrecorded(&error))?;
            let bytes = gone.iter().fold(0, |sum: u64, pack| sum.saturating_add(pack.bytes));
            return Ok(Removed { count: gone.len() as u64, bytes });
        }
        record(context, ledger, group, by)?;
        match &self.project {
            Some(project) if group.what == SNAPSHOTS => forget_snapshots(context, project, group)?,
            Some(_) | None => group.items.iter().try_for_each(|item| discard(&item.path))?,
        }
        Ok(group.planned())
    }
}

fn discard(path: &Path) -> Result<(), Failure> {
    let is_folder = std::fs::symlink_metadata(path).map(|meta| meta.is_dir());
    let gone = is_folder.and_then(|is_folder| {
        if is_folder { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }
    });
    match gone {
        // It went by itself, or with a call that a crash cut off.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        gone => gone.map_err(|error| Failure::io("remove", path, &error)),
    }
}

/// The names are in an entry, not only in the call's arguments: those are a payload, and payloads may be removed.
fn record(context: &Context, ledger: &Ledger, group: &GcGroup, by: &str) -> Result<(), Failure> {
    let gc = group.note(&context.paths.state, group.planned());
    let body = RemovalBody { by: by.into(), gc, v: Version::CURRENT };
    let body =
        CanonicalJson::encode(&body).map_err(|error| Failure::new(codes::INTERNAL, error.to_string()))?;
    let draft =
        EntryDraft { kind: EntryKind::Kernel, at_ms: context.clock.now_ms(), body, payloads: Vec::new() };
    ledger.append_blocking(draft).map(drop).map_err(|error| unrecorded(&error))
}

fn unrecorded(error: &dyn std::error::Error) -> Failure {
    Failure::new(codes::LEDGER_UNWRITABLE, format!("the removal can't be recorded: {error}"))
        .help("nothing more was removed; fix this and try again")
}

fn forget_snapshots(context: &Context, project: &Project, group: &GcGroup) -> Result<(), Failure> {
    let folder = context.paths.tasks(&project.root).join("snapshots");
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let gone: BTreeSet<String> = group.items.iter().filter_map(|item| name(&item.path)).collect();
    let all = list(&folder.join("trees"))?;
    let kept: BTreeSet<String> =
        all.iter().filter_map(|(item, _)| name(&item.path)).filter(|id| !gone.contains(id)).collect();
    let fail =
        |error: &dyn std::error::Error| Failure::new(codes::IO, format!("`{}`: {error}", folder.display()));
    let store = Snapshots::open(&folder, SnapshotOptions::default()).map_err(|error| fail(&error))?;
    store.keep_only(&kept, context.clock.now_ms()).map(drop).map_err(|error| fail(&error))
}
