//! Labels that files carry. What an agent wrote is as tainted as the agent was, for every reader and under every name: laundering through
//! a scratch file cleans nothing. What a tool of ours writes is known by its content, and its label is noted before it is written. What an
//! edit leaves in a file keeps its label, too. What a program writes isn't seen as it happens, so it is known by when: whatever last
//! changed while the program ran may be its work. What a call copies or moves keeps its label: one that hangs on the time of the last
//! change, or on the name, is noted by content before the call.

mod ahead;
mod by_name;

use std::collections::BTreeMap;

use regent_ledger::Digest;
use regent_policy::{Access, ArgLabels, Confidentiality, Integrity, Label, Tier};
use regent_store::{self as store, Partition, StateError};
use regent_workspace::{Content, FileState, PathError};
use serde::{Deserialize, Serialize};

pub(crate) use ahead::Ahead;
pub use by_name::label_of_path;

use crate::facts::{Sheet, Target};
use crate::kernel::Core;
use crate::outlast::{TRIES_MAX, outlasting};
use crate::syscall::{Fault, Frame, Status};

/// How long the label of an unread file is kept.
const KEPT_MS: i64 = 365 * 24 * 60 * 60 * 1000;
/// Times that are kept apart. Beyond these, those with the least time between them become one.
const SPANS_MAX: usize = 128;
/// A file system's clock goes in steps, and may be this far behind.
const STEP_MS: i64 = 20;

/// When a program ran for an agent that had seen this.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Span {
    pub(crate) from_ms: i64,
    pub(crate) to_ms: i64,
    pub(crate) label: Label,
    /// The intent of its call, while that runs. Spans that became one have none: they stay as they were foreseen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<Digest>,
}

/// The times by the wall clock between which a program ran, also if that clock was set meanwhile: both how it stood before and how it
/// stands now.
fn span_of(began_ms: i64, now_ms: i64, took_ms: u128) -> (i64, i64) {
    let took_ms = i64::try_from(took_ms).unwrap_or(i64::MAX);
    (began_ms.min(now_ms.saturating_sub(took_ms)), now_ms.max(began_ms.saturating_add(took_ms)))
}

impl Core {
    /// The labels of the files that a call has read, joined: those that its arguments name, and those that the tool says it has read.
    pub(crate) async fn carried(
        &self,
        frame: &Frame,
        read: &[(String, FileState)],
    ) -> Result<Option<Label>, Fault> {
        let reports = if frame.call.principal.life().is_some() { read } else { &[] };
        let named = paths(frame, Access::Read).map(|path| (path, None));
        let mut files: BTreeMap<&String, Option<FileState>> = named.collect();
        files.extend(reports.iter().map(|(path, state)| (path, Some(*state))));
        if files.is_empty() {
            return Ok(None);
        }
        let (spans, mut all, mut keys) = (self.spans().await?, Vec::new(), Vec::new());
        let mut has_changed = false;
        for (path, read) in files {
            match self.content(path).await {
                Ok(content) => {
                    // What was read may not be there any more: somebody has changed the file since.
                    has_changed |= read.is_some() && read != content.map(|content| content.state);
                    keys.extend(content.map(|content| label_key(content.digest)));
                    all.extend(content.and_then(|content| by_time(&spans, content.changed_ms)));
                }
                // What can't be looked at may carry any label.
                Err(_) => all.push(ArgLabels::default().default),
            }
        }
        // Only an agent that was misled leaves a label to lose.
        if has_changed && self.was_misled().await? {
            all.push(ArgLabels::default().default);
        }
        for some in keys.chunks(store::CHANGE_WRITES_MAX) {
            let found = self.state.read(&Partition::containing("label/"), some).await?;
            for (key, found) in some.iter().zip(found) {
                all.extend(found.map(|found| store::parse::<Label>(key, &found.value)).transpose()?);
            }
        }
        Ok(all.into_iter().reduce(Label::join))
    }

    /// The label of such content, if an agent has written it.
    async fn label_of_content(&self, content: Content) -> Result<Option<Label>, StateError> {
        let Content { digest, changed_ms, .. } = content;
        let by_content: Option<Label> = self.carried_record(&label_key(digest)).await?;
        let spans = self.spans().await?;
        Ok(by_content.into_iter().chain(by_time(&spans, changed_ms)).reduce(Label::join))
    }

    pub(crate) async fn spans(&self) -> Result<Vec<Span>, StateError> {
        Ok(self.carried_record(&self.spans_key()).await?.unwrap_or_default())
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

    /// Raises the labels of these contents, in as few commits as the state takes.
    async fn raise_labels(&self, labels: &BTreeMap<Digest, Label>) -> Result<(), StateError> {
        let until_ms = self.clock.now_ms().saturating_add(KEPT_MS);
        let labels: Vec<(String, Label)> =
            labels.iter().map(|(digest, label)| (label_key(*digest), *label)).collect();
        for batch in labels.chunks(store::CHANGE_WRITES_MAX) {
            let keys: Vec<String> = batch.iter().map(|(key, _)| key.clone()).collect();
            let _turn = self.gate.turns.take(&keys).await;
            store::change(&*self.state, &Partition::containing("label/"), &keys, |records| {
                for (key, label) in batch {
                    let before: Option<Label> = records.load(key)?;
                    let joined = before.map_or(*label, |before| before.join(*label));
                    records.save(key, &joined, until_ms)?;
                }
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Notes the labels of what a call has written, however it ended. They only rise.
    pub(crate) async fn carry(
        &self,
        frame: &Frame,
        sheet: &Sheet,
        status: &Status,
        (tier, ahead): (Option<Tier>, &Ahead),
    ) -> Result<(), Fault> {
        if let Some(label) = label_to_carry(frame, sheet).filter(|_| runs_program(frame, tier)) {
            let took_ms = self.clock.elapsed().saturating_sub(frame.began).as_millis();
            // Otherwise the program is taken to have run as long as it might: that is noted.
            let (from_ms, to_ms) = span_of(frame.began_ms, self.clock.now_ms(), took_ms);
            let span = Span { from_ms, to_ms, label, call: None };
            let _stays_foreseen = self.carry_span(span, frame.intent.hash).await.is_err();
        }
        Ok(outlasting(TRIES_MAX, || self.label_written(ahead, status)).await?)
    }

    /// Notes that the program of a call runs or ran at a time, for an agent that had seen this. Its end takes the place of what was foreseen.
    pub(crate) async fn carry_span(&self, span: Span, intent: Digest) -> Result<(), StateError> {
        let (key, now_ms) = (self.spans_key(), self.clock.now_ms());
        self.raise_record(&key, now_ms.saturating_add(KEPT_MS), |spans: Option<Vec<Span>>| {
            let mut spans = spans.unwrap_or_default();
            spans.retain(|span| {
                span.to_ms.saturating_add(KEPT_MS) > now_ms && span.call.is_none_or(|call| call != intent)
            });
            spans.push(span);
            at_most(SPANS_MAX, spans)
        })
        .await
    }

    /// Whether an agent has worked here after it received untrusted input.
    pub(crate) async fn was_misled(&self) -> Result<bool, StateError> {
        Ok(self.carried_record::<bool>(&self.misled_key()).await?.is_some())
    }

    async fn note_misled(&self) -> Result<(), StateError> {
        if self.was_misled().await? {
            return Ok(());
        }
        let until_ms = self.clock.now_ms().saturating_add(KEPT_MS);
        self.raise_record(&self.misled_key(), until_ms, |_: Option<bool>| true).await
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

/// The label of a file that last changed then: programs that ran at that time may have written it.
fn by_time(spans: &[Span], changed_ms: i64) -> Option<Label> {
    let then = |span: &&Span| (span.from_ms.saturating_sub(STEP_MS)..=span.to_ms).contains(&changed_ms);
    spans.iter().filter(then).map(|span| span.label).reduce(Label::join)
}

fn unlabelled(error: PathError) -> StateError {
    StateError::Unusable(format!("a label can't be recorded: {error}"))
}

fn runs_program(frame: &Frame, tier: Option<Tier>) -> bool {
    matches!(tier, Some(Tier::Process | Tier::Microvm))
        || frame.targets.iter().any(|target| matches!(target, Target::Argv(_)))
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
            call: None,
        };
        spans.splice(at..=at.saturating_add(1), [joined]);
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_covers_a_run_in_which_the_clock_was_set() {
        // (began, now, took): on time, set back by 30 s, set forward by 30 s.
        assert_eq!(span_of(100_000, 160_000, 60_000), (100_000, 160_000));
        assert_eq!(span_of(100_000, 130_000, 60_000), (70_000, 160_000));
        assert_eq!(span_of(100_000, 190_000, 60_000), (100_000, 190_000));
    }

    #[test]
    fn spans_that_are_joined_cover_what_they_covered() {
        let label = |integrity| Label { integrity, confidentiality: Confidentiality::Internal };
        let span = |from_ms, to_ms, integrity| Span { from_ms, to_ms, label: label(integrity), call: None };
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
