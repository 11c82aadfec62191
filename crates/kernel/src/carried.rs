//! Labels that files carry. What an agent wrote is as tainted as the agent was, for every reader and under every name: laundering through
//! a scratch file cleans nothing. What a tool of ours writes is known by its content. What a program writes isn't seen as it happens, so
//! it is known by when: whatever last changed while the program ran may be its work. What a call copies or moves keeps its label: one
//! that hangs on the time of the last change, or on the name, is noted by content before the call.

mod by_name;

use regent_ledger::Digest;
use regent_policy::{Access, ArgLabels, Confidentiality, Integrity, Label, Tier};
use regent_store::{self as store, Partition, StateError};
use regent_workspace::{Content, FileKind, PathError, TreeError, TreeLimits};
use serde::{Deserialize, Serialize};

pub use by_name::label_of_path;

use crate::executor::RawOutput;
use crate::facts::{Sheet, Target, relocates};
use crate::kernel::Core;
use crate::syscall::{Fault, Frame, Status};

/// How long the label of an unread file is kept.
const KEPT_MS: i64 = 365 * 24 * 60 * 60 * 1000;
/// Times that are kept apart. Beyond these, those with the least time between them become one.
const SPANS_MAX: usize = 128;
/// Files whose labels one call can bring along.
const TREE: TreeLimits = TreeLimits { entries_max: 20_000, bytes_max: u64::MAX };
/// Larger files outside of the workspace can't be brought into it: their content isn't known whole.
const OUTSIDE_BYTES_MAX: u64 = 8 << 20;
/// A file system's clock goes in steps, and may be this far behind.
const STEP_MS: i64 = 20;

/// When a program ran for an agent that had seen this.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Span {
    from_ms: i64,
    to_ms: i64,
    label: Label,
}

impl Core {
    /// The labels of the files that a call has read, joined.
    pub(crate) async fn carried(&self, frame: &Frame) -> Result<Option<Label>, Fault> {
        let mut all: Option<Label> = None;
        let mut add = |label: Label| all = Some(all.map_or(label, |so_far| so_far.join(label)));
        for path in paths(frame, Access::Read) {
            match self.label_of_file(path).await {
                Ok(label) => label.into_iter().for_each(&mut add),
                Err(Unlabelled::State(error)) => return Err(error.into()),
                // What can't be looked at may carry any label.
                Err(Unlabelled::Path(_)) => add(ArgLabels::default().default),
            }
        }
        Ok(all)
    }

    /// The label that a file of the workspace carries, if an agent has written what is in it.
    async fn label_of_file(&self, path: &str) -> Result<Option<Label>, Unlabelled> {
        let Some(Content { digest, changed_ms }) = self.content(path).await? else { return Ok(None) };
        let by_content: Option<Label> = self.carried_record(&label_key(digest)).await?;
        let Some(spans) = self.carried_record::<Vec<Span>>(&self.spans_key()).await? else {
            return Ok(by_content);
        };
        let then = spans
            .into_iter()
            .filter(|span| (span.from_ms.saturating_sub(STEP_MS)..=span.to_ms).contains(&changed_ms));
        Ok(then.map(|span| span.label).chain(by_content).reduce(Label::join))
    }

    async fn carried_record<T: serde::de::DeserializeOwned>(
        &self,
        key: &str,
    ) -> Result<Option<T>, StateError> {
        store::load(&*self.state, key, &Partition::containing(key)).await
    }

    /// Changes one record; steps of this kernel on it take turns.
    async fn raise_record<T: Serialize + serde::de::DeserializeOwned>(
        &self,
        key: &str,
        until_ms: i64,
        mut raise: impl FnMut(Option<T>) -> T + Send,
    ) -> Result<(), StateError> {
        let keys = [key.to_owned()];
        let _turn = self.gate.turns.take(&keys).await;
        store::change(&*self.state, &Partition::containing(key), &keys, |records| {
            let before = records.load(key)?;
            records.save(key, &raise(before), until_ms)
        })
        .await
    }

    /// Notes before a program runs that whatever changes meanwhile may be its work: if we die, it has been noted. Until it has ended,
    /// it is taken to run as long as it may. Gives the failure of a call whose tree can't be read: nothing of it may move without its label.
    pub(crate) async fn carry_ahead(
        &self,
        frame: &Frame,
        sheet: &Sheet,
        tier: Tier,
    ) -> Result<Option<RawOutput>, Fault> {
        if frame.flow.is_read() {
            // What is read as it comes has its label from the first byte on.
            self.carried(frame).await?.into_iter().for_each(|label| frame.flow.raise(label));
        }
        let refused = if relocates(&frame.targets) { self.keep_labels(frame).await? } else { None };
        if let Some(label) = label_to_carry(frame, sheet).filter(|_| runs_program(frame, Some(tier))) {
            let most_ms = i64::try_from(frame.limits.wall_ms_max).unwrap_or(i64::MAX);
            self.carry_span(frame.began_ms, frame.began_ms.saturating_add(most_ms), label).await?;
        }
        Ok(refused)
    }

    /// Notes the labels of files that are about to be copied or moved by their content, which is all that stays the same.
    async fn keep_labels(&self, frame: &Frame) -> Result<Option<RawOutput>, StateError> {
        let until_ms = self.clock.now_ms().saturating_add(KEPT_MS);
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
                let known = match self.label_of_file(&path).await {
                    Ok(known) => known,
                    Err(Unlabelled::State(error)) => return Err(error),
                    Err(Unlabelled::Path(error)) => return Err(unlabelled(error)),
                };
                let Some(label) = known.into_iter().chain(by_name).reduce(Label::join) else { continue };
                let Some(digest) = self.digest(&path).await.map_err(unlabelled)? else { continue };
                let joined = |before: Option<Label>| before.map_or(label, |before| before.join(label));
                self.raise_record(&label_key(digest), until_ms, joined).await?;
            }
        }
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

    /// What a file's label is kept under, wherever the file is.
    async fn digest(&self, path: &str) -> Result<Option<Digest>, PathError> {
        if !path.starts_with('/') {
            return Ok(self.content(path).await?.map(|content| content.digest));
        }
        let (workspace, path) = (self.workspace.clone(), path.to_owned());
        let read = tokio::task::spawn_blocking(move || workspace.read_whole(&path, OUTSIDE_BYTES_MAX)).await;
        read.unwrap_or(Err(PathError::Swapped)).map(|content| Some(Digest::compute(&content)))
    }

    /// Notes the label of what a call has written. It only rises.
    pub(crate) async fn carry(
        &self,
        frame: &Frame,
        sheet: &Sheet,
        status: &Status,
        tier: Option<Tier>,
    ) -> Result<(), Fault> {
        let Some(label) = label_to_carry(frame, sheet) else { return Ok(()) };
        if runs_program(frame, tier) {
            // However it ended: it may have written before that.
            self.carry_span(frame.began_ms, self.clock.now_ms().max(frame.began_ms), label).await?;
        }
        let until_ms = self.clock.now_ms().saturating_add(KEPT_MS);
        if !self.was_misled().await? {
            self.raise_record(&self.misled_key(), until_ms, |_: Option<bool>| true).await?;
        }
        if *status != Status::Ok {
            return Ok(());
        }
        let mut written: Vec<String> = paths(frame, Access::Write).cloned().collect();
        if relocates(&frame.targets) {
            let mut files = Vec::new();
            for path in &written {
                files.extend(self.files_below(path).await.map_err(|error| unlabelled(error.why))?);
            }
            written = files;
        }
        for path in &written {
            let Some(content) = self.content(path).await.map_err(unlabelled)? else { continue };
            let joined = |before: Option<Label>| before.map_or(label, |before| before.join(label));
            self.raise_record(&label_key(content.digest), until_ms, joined).await?;
        }
        Ok(())
    }

    /// Notes that a program runs or ran between these times, for an agent that had seen this. Its end takes the place of what was foreseen.
    async fn carry_span(&self, from_ms: i64, to_ms: i64, label: Label) -> Result<(), StateError> {
        let (key, now_ms) = (self.spans_key(), self.clock.now_ms());
        self.raise_record(&key, now_ms.saturating_add(KEPT_MS), |spans: Option<Vec<Span>>| {
            let mut spans = spans.unwrap_or_default();
            spans.retain(|span| {
                let is_foreseen = span.from_ms == from_ms && span.to_ms > now_ms && span.label == label;
                span.to_ms.saturating_add(KEPT_MS) > now_ms && !is_foreseen
            });
            spans.push(Span { from_ms, to_ms, label });
            at_most(SPANS_MAX, spans)
        })
        .await
    }

    /// Whether an agent has worked here after it received untrusted input.
    pub(crate) async fn was_misled(&self) -> Result<bool, StateError> {
        Ok(self.carried_record::<bool>(&self.misled_key()).await?.is_some())
    }

    fn misled_key(&self) -> String {
        self.workspace_key("misled")
    }

    fn spans_key(&self) -> String {
        self.workspace_key("wrote")
    }

    fn workspace_key(&self, what: &str) -> String {
        format!("{what}/{}", Digest::compute(self.workspace.root().as_os_str().as_encoded_bytes()))
    }

    /// Reads and hashes the file, on a thread that may wait for a disk.
    async fn content(&self, path: &str) -> Result<Option<Content>, PathError> {
        let (workspace, path) = (self.workspace.clone(), path.to_owned());
        let content = tokio::task::spawn_blocking(move || workspace.content(&path)).await;
        match content.unwrap_or(Err(PathError::Swapped)) {
            // No tool reads or writes these.
            Err(PathError::Special | PathError::Reserved | PathError::OtherMount) => Ok(None),
            found => found,
        }
    }
}

/// Where the label of a file is that is known by its content.
fn label_key(digest: Digest) -> String {
    format!("label/{digest}")
}

/// What an agent writes carries the label of what it has seen, unless that is nothing but the person's words and its own.
fn label_to_carry(frame: &Frame, sheet: &Sheet) -> Option<Label> {
    let label = sheet.labels.default;
    let is_plain =
        label.integrity <= Integrity::OwnModel && label.confidentiality <= Confidentiality::Internal;
    (!is_plain && frame.call.principal.life().is_some()).then_some(label)
}

fn unlabelled(error: PathError) -> StateError {
    StateError::Unusable(format!("a label can't be recorded: {error}"))
}

fn runs_program(frame: &Frame, tier: Option<Tier>) -> bool {
    matches!(tier, Some(Tier::Process | Tier::Microvm))
        || frame.targets.iter().any(|target| matches!(target, Target::Argv(_)))
}

/// Why a file's label is unknown.
#[derive(Debug, thiserror::Error)]
enum Unlabelled {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error(transparent)]
    State(#[from] StateError),
}

/// The files that an agent's call reached for in this way.
fn paths(frame: &Frame, way: Access) -> impl Iterator<Item = &String> {
    let agents_only = frame.call.principal.life().map(|_| frame.targets.iter());
    agents_only.into_iter().flatten().filter_map(move |target| match target {
        Target::Path { path, access } if *access == way && !path.starts_with("vfs:") => Some(path),
        Target::Path { .. } | Target::Endpoint { .. } | Target::Argv(_) | Target::Secret(_) => None,
    })
}

/// So many spans that cover at least the same times.
fn at_most(most: usize, mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by_key(|span| (span.from_ms, span.to_ms));
    let gap = |pair: &[Span]| match pair {
        [one, next] => next.from_ms.saturating_sub(one.to_ms),
        _alone => i64::MAX,
    };
    while spans.len() > most {
        let closest = spans.windows(2).enumerate().min_by_key(|(_, pair)| gap(pair));
        let Some((at, &[one, next])) = closest else { break };
        let joined = Span {
            from_ms: one.from_ms,
            to_ms: one.to_ms.max(next.to_ms),
            label: one.label.join(next.label),
        };
        spans.splice(at..=at.saturating_add(1), [joined]);
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_are_joined_cover_what_they_covered() {
        let label = |integrity| Label { integrity, confidentiality: Confidentiality::Internal };
        let span = |from_ms, to_ms, integrity| Span { from_ms, to_ms, label: label(integrity) };
        let spans = vec![
            span(50, 60, Integrity::Web),
            span(0, 10, Integrity::File),
            span(12, 20, Integrity::Web),
            span(200, 210, Integrity::File),
        ];
        let expected =
            vec![span(0, 20, Integrity::Web), span(50, 60, Integrity::Web), span(200, 210, Integrity::File)];
        assert_eq!(at_most(3, spans.clone()), expected);
        let one = at_most(1, spans);
        assert_eq!(one, vec![span(0, 210, Integrity::Web)]);
        assert!(at_most(3, Vec::new()).is_empty());
    }
}
