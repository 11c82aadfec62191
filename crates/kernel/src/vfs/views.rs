//! Read-only views of the kernel in an agent's tree: the policy, its own entries, the tools, its pipes.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Weak};

use regent_ledger::read::Reader;
use regent_policy::{Confidentiality, Integrity, Label};
use regent_wire::body::EntryBody;
use serde_json::json;

use super::{Content, Folder, Mount, Stat, VfsError};
use crate::agent::AgentId;
use crate::kernel::Core;
use crate::off_worker::off_worker;
use crate::principal::Principal;

/// How far back the view of the ledger looks, entries of others included. `regent audit` sees all of it.
const AUDIT_ENTRIES_MAX: usize = 10_000;
/// What the kernel itself says.
const OURS: Label = Label { integrity: Integrity::System, confidentiality: Confidentiality::Internal };
/// What the author of a tool says.
const AUTHORS: Label = Label { integrity: Integrity::Tool, confidentiality: Confidentiality::Internal };

/// The views of one agent's tree.
pub(super) fn all(core: &Arc<Core>, id: &AgentId, who: &Principal) -> BTreeMap<String, Arc<dyn Mount>> {
    let view = |what| -> Arc<dyn Mount> {
        Arc::new(View { core: Arc::downgrade(core), id: id.clone(), who: who.clone(), what })
    };
    let names = [
        ("policy", ViewKind::Policy),
        ("audit", ViewKind::Audit),
        ("tools", ViewKind::Tools),
        ("ipc", ViewKind::Ipc),
    ];
    names.into_iter().map(|(name, what)| (name.to_owned(), view(what))).collect()
}

/// A folder of files that are made when they are read. The kernel is held weakly: its trees must not keep it alive.
#[derive(Debug)]
struct View {
    core: Weak<Core>,
    id: AgentId,
    who: Principal,
    what: ViewKind,
}

#[derive(Debug, Clone, Copy)]
enum ViewKind {
    /// `digest`, `outline.json`.
    Policy,
    /// `entries.jsonl`: what the ledger has of this agent.
    Audit,
    /// A file for each tool.
    Tools,
    /// `inbox`, `outbox`: the pipes it reads and writes.
    Ipc,
}

impl View {
    fn core(&self) -> Result<Arc<Core>, VfsError> {
        self.core.upgrade().ok_or_else(|| VfsError::Broken("the kernel is gone".to_owned()))
    }

    fn names(&self) -> Result<Vec<String>, VfsError> {
        let core = self.core()?;
        let fixed = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Ok(match self.what {
            ViewKind::Policy => fixed(&["digest", "outline.json"]),
            ViewKind::Audit => fixed(&["entries.jsonl"]),
            ViewKind::Tools => core.catalogue.all().iter().map(|tool| tool.spec().name.clone()).collect(),
            ViewKind::Ipc => fixed(&["inbox", "outbox"]),
        })
    }

    fn content(&self, name: &str) -> Result<(String, Label), VfsError> {
        let core = self.core()?;
        let not_found = || VfsError::NotFound(name.to_owned());
        match (self.what, name) {
            (ViewKind::Policy, "digest") => Ok((core.policy().digest.clone(), OURS)),
            (ViewKind::Policy, "outline.json") => Ok((json!(core.outline()).to_string(), OURS)),
            (ViewKind::Audit, "entries.jsonl") => {
                // Entries hold the agent's own words (paths, reasons), so they carry what it has seen.
                Ok((core.entries_of(&self.id)?, OURS.join(core.society.agents.context(&self.who))))
            }
            (ViewKind::Ipc, "inbox") => Ok((json!(core.society.pipes.list(&self.id).0).to_string(), OURS)),
            (ViewKind::Ipc, "outbox") => Ok((json!(core.society.pipes.list(&self.id).1).to_string(), OURS)),
            (ViewKind::Tools, name) => {
                let tool = core.catalogue.get(name).ok_or_else(not_found)?;
                Ok((json!({"digest": tool.digest_hex(), "spec": tool.spec()}).to_string(), AUTHORS))
            }
            (ViewKind::Policy | ViewKind::Audit | ViewKind::Ipc, _) => Err(not_found()),
        }
    }
}

impl Core {
    /// What the newest part of the ledger has of an agent, one entry a line: its life cycle, its calls and their outcomes.
    fn entries_of(&self, id: &AgentId) -> Result<String, VfsError> {
        let newest = off_worker(|| Reader::on(self.recorder.ledger.storage()).tail(AUDIT_ENTRIES_MAX));
        let newest = newest.map_err(|error| VfsError::Broken(error.to_string()))?;
        let mut intents = HashSet::new();
        let mut lines = String::new();
        for entry in newest {
            let body = EntryBody::read_known(&entry).map_err(|error| VfsError::Broken(error.to_string()))?;
            let own = match &body {
                Some(EntryBody::Intent(intent)) => {
                    intent.caller.agent.as_ref() == Some(id) && intents.insert((entry.lane, entry.seq))
                }
                Some(end @ (EntryBody::Outcome(_) | EntryBody::InDoubt(_))) => {
                    end.intent_place(&entry).is_some_and(|place| intents.contains(&place))
                }
                Some(EntryBody::Agent(note)) => note.agent == *id,
                Some(EntryBody::Policy(_) | EntryBody::Kernel(_) | EntryBody::Internal) | None => false,
            };
            if own {
                let entry = json!({
                    "at": entry.at_ms, "body": entry.body, "hash": entry.hash, "kind": entry.kind.as_str(),
                    "lane": entry.lane, "seq": entry.seq,
                });
                lines.push_str(&entry.to_string());
                lines.push('\n');
            }
        }
        Ok(lines)
    }
}

impl Mount for View {
    fn stat(&self, path: &str) -> Result<Stat, VfsError> {
        if path.is_empty() {
            return Ok(Stat { folder: true, bytes: 0, label: OURS });
        }
        let (text, label) = self.content(path)?;
        Ok(Stat { folder: false, bytes: text.len() as u64, label })
    }

    fn list(&self, path: &str) -> Result<Folder, VfsError> {
        if !path.is_empty() {
            return Err(VfsError::NotAFolder(path.to_owned()));
        }
        let label = if matches!(self.what, ViewKind::Tools) { AUTHORS } else { OURS };
        Ok(Folder { names: self.names()?, label })
    }

    fn read(&self, path: &str, offset: u64, bytes_max: usize) -> Result<Content, VfsError> {
        let (text, label) = self.content(path)?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = text.into_bytes().into_iter().skip(start).take(bytes_max).collect();
        Ok(Content { bytes, label })
    }
}
