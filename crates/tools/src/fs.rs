//! Files of the workspace: read, write, edit, list, search, describe, make folders, copy, move, delete.

pub(crate) mod append;
pub(crate) mod copy;
pub(crate) mod delete;
pub(crate) mod edit;
pub(crate) mod list;
pub(crate) mod mkdir;
pub(crate) mod read;
pub(crate) mod relocate;
pub(crate) mod search;
pub(crate) mod stat;
mod tree;
pub(crate) mod write;

use regent_kernel::{Digest, FileKind, FolderEntry, Op, Permit, ToolFailure, Workspace, escape_name, tier};

use crate::output::{DriverResult, failure, is_cancelled, on_files, path_failure};

/// The largest file that is edited, or written in one go.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// Folders below folders.
const DEPTH_MAX: usize = 64;
/// Things in one folder that a walk looks at.
const FOLDER_ITEMS_MAX: usize = 20_000;

/// Something met on a walk through a folder.
#[derive(Debug)]
struct Met {
    /// Its spelling, escaped where it isn't plain text; such a thing is shown but not opened.
    path: String,
    /// The spelling is the real one.
    plain: bool,
    item: FolderEntry,
}

/// A walk through a folder and what is below it, one folder at a time. Links are not followed, other mounts not entered, `.git` not
/// looked into unless it was named, and what policy doesn't allow the caller by itself is left out.
#[derive(Debug)]
struct Tour {
    waiting: Vec<(String, usize)>,
    /// Folders that were not gone into, and why that may matter: policy, permissions, depth.
    left_out: u64,
}

impl Tour {
    fn new(from: &str) -> Self {
        Self { waiting: vec![(from.to_owned(), 0)], left_out: 0 }
    }

    /// The next folder's content, or `None` at the end. The first folder must be readable; others are left out if not.
    async fn next(
        &mut self,
        permit: &Permit<'_, tier::Host>,
        below: Below,
    ) -> DriverResult<Option<Vec<Met>>> {
        while let Some((folder, depth)) = self.waiting.pop() {
            if is_cancelled(permit) {
                self.waiting.clear();
                self.left_out += 1;
                break;
            }
            if depth > 0 && !permit.would_allow(elsewhere(permit, &folder)).await {
                self.left_out += 1;
                continue;
            }
            let place = folder.clone();
            let list = move |workspace: &Workspace| workspace.list(&place, FOLDER_ITEMS_MAX);
            let listing = match on_files(permit, list).await? {
                Ok(listing) => listing,
                Err(error) if depth == 0 => return Err(path_failure(&folder, &error).into()),
                Err(_) => {
                    self.left_out += 1;
                    continue;
                }
            };
            self.left_out += u64::from(listing.more);
            let met: Vec<Met> = listing.items.into_iter().map(|item| Met::new(&folder, item)).collect();
            if matches!(below, Below::Enter) {
                self.enter(&met, depth);
            }
            return Ok(Some(met));
        }
        Ok(None)
    }

    fn enter(&mut self, met: &[Met], depth: usize) {
        // In reverse, because the last one waiting is the next one visited.
        for folder in met.iter().rev().filter(|met| met.item.kind == FileKind::Folder) {
            if folder.item.name == b".git" {
                continue;
            }
            if folder.plain && depth < DEPTH_MAX {
                self.waiting.push((folder.path.clone(), depth + 1));
            } else {
                self.left_out += 1;
            }
        }
    }
}

/// Whether a walk goes into the folders that it meets.
#[derive(Debug, Clone, Copy)]
enum Below {
    Enter,
    Stay,
}

impl Met {
    fn new(folder: &str, item: FolderEntry) -> Self {
        let name = escape_name(&item.name);
        let plain = name.as_bytes() == item.name;
        let path = match folder {
            "." => name,
            "/" => format!("/{name}"),
            folder => format!("{folder}/{name}"),
        };
        Self { path, plain, item }
    }
}

/// The same call, asked about another path.
fn elsewhere(permit: &Permit<'_, tier::Host>, path: &str) -> Op {
    let mut op = permit.call().op().clone();
    if let Op::RunTool(run) = &mut op
        && let Some(slot) = run.args.get_mut("path")
    {
        *slot = path.into();
    }
    op
}

/// A whole file, if it isn't larger than that.
fn read_whole(workspace: &Workspace, path: &str, bytes_max: u64) -> Result<Vec<u8>, ToolFailure> {
    workspace.read_whole(path, bytes_max).map_err(|error| path_failure(path, &error))
}

/// What a file holds after the call, for the receipt. A later write can require this content.
fn content_is(sha256: &Digest) -> serde_json::Value {
    serde_json::json!({"sha256": sha256})
}

/// Refuses to write more than policy lets one file be.
fn check_size(permit: &Permit<'_, tier::Host>, bytes: usize) -> Result<(), ToolFailure> {
    let bytes_max = permit.limits().file_bytes_max.min(FILE_BYTES_MAX);
    if bytes as u64 > bytes_max {
        return Err(failure("fs.too_large", format!("{bytes} bytes are more than the {bytes_max} allowed")));
    }
    Ok(())
}
