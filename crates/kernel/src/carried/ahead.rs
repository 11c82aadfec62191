//! What is noted before a tool of ours changes files, so that no file is there without its label: not after a crash, and not if the call was
//! told to stop half-way.

use std::collections::BTreeMap;

use regent_ledger::Digest;
use regent_policy::{Access, ArgLabels, Confidentiality, Label, Tier};
use regent_store::StateError;
use regent_workspace::{Content, FileKind, PathError, TreeError, TreeLimits};

use super::{Span, by_time, label_of_path, label_to_carry, runs_program, unlabelled};
use crate::evidence::Foresight;
use crate::executor::RawOutput;
use crate::facts::{Sheet, Target, relocates};
use crate::kernel::Core;
use crate::syscall::{Fault, Frame, Status};

/// Files whose labels one call can bring along: as many as a tool copies or moves.
const TREE: TreeLimits = TreeLimits { entries_max: 10_000, bytes_max: u64::MAX };
/// Larger files outside of the workspace can't be brought into it: their content isn't known whole.
const OUTSIDE_BYTES_MAX: u64 = 8 << 20;
/// What a tool needs to read files. One that has it learns something of a file that it changes.
const FILE_READ: &str = "file.read";

/// The files that a call writes, as they were before it.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    written: Vec<Written>,
    /// The label of what the tool reads of them.
    pub(crate) seen: Option<Label>,
}

/// One file that a call writes.
#[derive(Debug)]
struct Written {
    path: String,
    /// What it held.
    before: Option<Digest>,
    /// Somebody could look at it. Otherwise `before` says nothing.
    was_readable: bool,
    /// What it will hold, and whether some of that was there before. Noted with its label.
    foreseen: Option<Foresight>,
    /// What is there afterwards gets at least this.
    label: Option<Label>,
}

impl Ahead {
    /// For a call that took effect before a crash, which nobody has looked ahead of.
    pub(crate) fn unknown(frame: &Frame, sheet: &Sheet) -> Self {
        let label = label_to_carry(frame, sheet);
        let written = |path: &String| Written {
            path: path.clone(),
            before: None,
            was_readable: false,
            foreseen: None,
            label,
        };
        Self { written: written_paths(frame).map(written).collect(), seen: None }
    }
}

impl Core {
    /// Notes labels before an effect. Programs: whatever changes while they run may be their work, and until they have ended, they are taken
    /// to run as long as they may. Copies and moves: the labels of what they bring along. Gives the failure of a call whose tree can't be
    /// read: nothing of it may move without its label.
    pub(crate) async fn carry_ahead(
        &self,
        frame: &Frame,
        sheet: &Sheet,
        tier: Tier,
    ) -> Result<Result<Ahead, RawOutput>, Fault> {
        let own = label_to_carry(frame, sheet);
        if let Some(label) = own {
            self.note_misled().await?;
            if runs_program(frame, Some(tier)) {
                let most_ms = i64::try_from(frame.wall_ms_foreseen()).unwrap_or(i64::MAX);
                let (from_ms, intent) = (frame.began_ms, frame.intent.hash);
                let span =
                    Span { from_ms, to_ms: from_ms.saturating_add(most_ms), label, call: Some(intent) };
                self.carry_span(span, intent).await?;
            }
        }
        let ahead = if relocates(&frame.targets) {
            if let Some(refused) = self.keep_labels(frame, own).await? {
                return Ok(Err(refused));
            }
            Ahead::default()
        } else {
            self.look_ahead(frame, sheet, own).await?
        };
        if frame.flow.is_read() {
            // What is read as it comes has its label from the first byte on.
            let read = self.carried(frame, &[]).await?;
            read.into_iter().chain(ahead.seen).for_each(|label| frame.flow.raise(label));
        }
        Ok(Ok(ahead))
    }

    /// Looks at the files that a call writes. What an edit leaves of the old content keeps its label, whoever edits.
    async fn look_ahead(
        &self,
        frame: &Frame,
        sheet: &Sheet,
        own: Option<Label>,
    ) -> Result<Ahead, StateError> {
        let mut ahead = Ahead::default();
        let reads = frame.call.principal.life().is_some()
            && frame.tool.iter().any(|tool| tool.spec().capabilities.iter().any(|one| one == FILE_READ));
        for path in written_paths(frame) {
            let (before, held) = match self.content(path).await {
                Ok(Some(content)) => (Ok(Some(content.digest)), self.label_of_content(content).await?),
                Ok(None) => (Ok(None), None),
                // What can't be looked at may carry any label.
                Err(error) => (Err(error), Some(ArgLabels::default().default)),
            };
            let foreseen = sheet.foresight;
            let kept = held.filter(|_| foreseen.is_none_or(|foreseen| foreseen.keeps));
            let label = own.into_iter().chain(kept).reduce(Label::join);
            if let (Some(label), Some(foreseen)) = (label, foreseen) {
                self.raise_labels(&BTreeMap::from([(foreseen.digest, label)])).await?;
            }
            ahead.seen = ahead.seen.into_iter().chain(held.filter(|_| reads)).reduce(Label::join);
            let was_readable = before.is_ok();
            let before = before.unwrap_or_default();
            ahead.written.push(Written { path: path.clone(), before, was_readable, foreseen, label });
        }
        Ok(ahead)
    }

    /// Labels what a call has left in the files that it writes, however it ended, unless that was foreseen and is noted.
    pub(super) async fn label_written(&self, ahead: &Ahead, status: &Status) -> Result<(), StateError> {
        let mut labels = BTreeMap::new();
        for Written { path, before, was_readable, foreseen, label } in &ahead.written {
            let keeps = foreseen.is_some_and(|foreseen| foreseen.keeps);
            if label.is_none() && !keeps {
                continue;
            }
            let now = match self.content(path).await {
                Ok(now) => now.map(|content| content.digest),
                Err(_) if !was_readable && *status != Status::Ok => continue,
                Err(error) => return Err(unlabelled(error)),
            };
            // A call that reports success has written, even what was there before.
            let Some(now) = now.filter(|now| *status == Status::Ok || Some(*now) != *before) else {
                continue;
            };
            if foreseen.is_some_and(|foreseen| foreseen.digest == now) {
                continue;
            }
            // Somebody else wrote the file after the look ahead, and what they wrote may have stayed.
            let others = keeps && self.was_misled().await?;
            let others = others.then(|| ArgLabels::default().default);
            if let Some(label) = label.iter().copied().chain(others).reduce(Label::join) {
                join_into(&mut labels, now, label);
            }
        }
        self.raise_labels(&labels).await
    }

    /// Notes the labels of files that are about to be copied or moved by their content, which is all that stays the same. `own` is the label
    /// of who does it. If the call fails after that, the label is only too high.
    async fn keep_labels(&self, frame: &Frame, own: Option<Label>) -> Result<Option<RawOutput>, StateError> {
        let (spans, mut labels) = (self.spans().await?, BTreeMap::new());
        for target in &frame.targets {
            let Target::Path { path, access: Access::Read | Access::Delete } = target else { continue };
            let files = match self.files_below(path).await {
                Ok(files) => files,
                Err(error) => {
                    let message = format!("`{}`: {}", error.name, error.why);
                    return Ok(Some(RawOutput::failed(error.why.code(), message)));
                }
            };
            for path in files {
                let by_name = Some(label_of_path(&path));
                let by_name = by_name.filter(|label| label.confidentiality > Confidentiality::Internal);
                if own.is_none() && by_name.is_none() && spans.is_empty() {
                    continue;
                }
                let Some((digest, by_time)) = self.known_by(&path, &spans).await.map_err(unlabelled)? else {
                    continue;
                };
                // A label that hangs on the content stays with it.
                if let Some(label) = own.into_iter().chain(by_name).chain(by_time).reduce(Label::join) {
                    join_into(&mut labels, digest, label);
                }
            }
        }
        self.raise_labels(&labels).await?;
        Ok(None)
    }

    /// The files at and below a path; none if nothing is there.
    async fn files_below(&self, path: &str) -> Result<Vec<String>, TreeError> {
        let (workspace, spelling) = (self.workspace.clone(), path.to_owned());
        let surveyed = tokio::task::spawn_blocking(move || workspace.survey(&spelling, TREE)).await;
        let torn = |_| Err(TreeError { name: path.to_owned(), why: PathError::Swapped });
        match surveyed.unwrap_or_else(torn) {
            Ok(entries) => {
                let files = entries.into_iter().filter(|entry| entry.kind == FileKind::File);
                Ok(files.map(|entry| entry.path).collect())
            }
            Err(TreeError { why: PathError::NotFound, .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// What a file's label is kept under, wherever the file is, and the label that it has by the time of its last change.
    async fn known_by(
        &self,
        path: &str,
        spans: &[Span],
    ) -> Result<Option<(Digest, Option<Label>)>, PathError> {
        if !path.starts_with('/') {
            let content = self.content(path).await?;
            return Ok(content.map(|Content { digest, changed_ms, .. }| (digest, by_time(spans, changed_ms))));
        }
        let (workspace, path) = (self.workspace.clone(), path.to_owned());
        let read = tokio::task::spawn_blocking(move || workspace.read_whole(&path, OUTSIDE_BYTES_MAX)).await;
        read.unwrap_or(Err(PathError::Swapped)).map(|content| Some((Digest::compute(&content), None)))
    }
}

fn join_into(labels: &mut BTreeMap<Digest, Label>, digest: Digest, label: Label) {
    labels.entry(digest).and_modify(|before| *before = before.join(label)).or_insert(label);
}

/// The files that a call writes, whoever makes it.
fn written_paths(frame: &Frame) -> impl Iterator<Item = &String> {
    frame.targets.iter().filter_map(|target| match target {
        Target::Path { path, access: Access::Write } if !path.starts_with("vfs:") => Some(path),
        Target::Path { .. } | Target::Endpoint { .. } | Target::Argv(_) | Target::Secret(_) => None,
    })
}
