//! The open ledger: appending, and its current head.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use serde::Serialize;

use crate::entry::{AT_MS_MAX, BODY_BYTES_MAX, Prepared};
use crate::index::check_witness;
use crate::open::{OpenError, Opening};
use crate::options::Options;
use crate::payload::PAYLOAD_BYTES_MAX;
use crate::queue::{Appending, Lane};
use crate::storage::{Files, Memory, Storage};
use crate::witness::Witnessed;
use crate::writer::{Home, Item, LaneWriter};
use crate::{Digest, EntryDraft, EntryKind, LaneId, LedgerKey, Receipt};

/// An open ledger. Clones are handles to the same ledger.
#[derive(Debug, Clone)]
pub struct Ledger {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) lane: Arc<Lane>,
    pub(crate) home: Home,
    /// The lane's thread; `None` if callers commit drafts on their own threads.
    thread: Mutex<Option<JoinHandle<()>>>,
    inline: bool,
    pub(crate) packs: Mutex<crate::packs::Packs>,
}

/// Which thread commits drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Commits {
    /// The lane's own thread, or a single caller without competition.
    OnThread,
    /// Each caller, immediately.
    Inline,
    /// The caller of [`Ledger::step`].
    Stepped,
}

/// The head of the lane that an open ledger writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Head {
    /// The lane being written.
    pub lane: LaneId,
    /// Number of entries.
    pub size: u64,
    /// Hash of the last entry.
    pub hash: Digest,
}

impl Ledger {
    /// Opens the ledger in a folder, or creates one, and takes a lane of it.
    ///
    /// Opening verifies every lane. Damage that a crash explains is settled in a new lane. Any other damage is [`OpenError::Broken`], and
    /// the files stay unchanged.
    pub fn open(root: &Path, key: LedgerKey, options: Options) -> Result<Ledger, OpenError> {
        // Before the folder is created: if a ledger is gone, a restore should find nothing at its path.
        if matches!(root.symlink_metadata(), Err(error) if error.kind() == std::io::ErrorKind::NotFound)
            && let Some(witnessed) = options.witness.as_deref().map(Witnessed::read).transpose()?.flatten()
        {
            check_witness(&witnessed, None)?;
        }
        Ledger::open_on(Arc::new(Files::create(root)?), key, options)
    }

    /// [`Ledger::open`] on any storage.
    pub fn open_on(storage: Arc<dyn Storage>, key: LedgerKey, options: Options) -> Result<Ledger, OpenError> {
        Ok(Ledger::start(crate::open::open(storage, key, options, Opening::Usual)?)?)
    }

    /// [`Ledger::open_on`] that commits only in [`step`](Self::step): for simulations, which control disk access.
    pub fn open_stepped(
        storage: Arc<dyn Storage>,
        key: LedgerKey,
        options: Options,
    ) -> Result<Ledger, OpenError> {
        Ok(Ledger::on_lane(crate::open::open(storage, key, options, Opening::Usual)?, Commits::Stepped))
    }

    /// Commits pending drafts as one batch on this thread. Returns their number.
    pub fn step(&self) -> usize {
        self.shared.lane.step()
    }

    /// A ledger in memory that ends with the process. Callers commit drafts on their own threads; the ledger signs at intervals and on
    /// close.
    pub fn in_memory(key: LedgerKey) -> Ledger {
        let options = Options { checkpoint_every_batch: false, ..Options::default() };
        Ledger::in_memory_with(key, options)
    }

    /// [`Ledger::in_memory`] with options.
    pub fn in_memory_with(key: LedgerKey, options: Options) -> Ledger {
        Ledger::on_lane(LaneWriter::in_memory(Arc::new(Memory::default()), key, options), Commits::Inline)
    }

    pub(crate) fn start(writer: LaneWriter) -> std::io::Result<Ledger> {
        let ledger = Ledger::on_lane(writer, Commits::OnThread);
        let lane = ledger.shared.lane.clone();
        let thread = std::thread::Builder::new().name("ledger".to_owned()).spawn(move || lane.run())?;
        *ledger.shared.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(ledger)
    }

    fn on_lane(writer: LaneWriter, commits: Commits) -> Ledger {
        let home = writer.home.clone();
        let (lane, thread, packs) =
            (Arc::new(Lane::new(writer, commits == Commits::Stepped)), Mutex::new(None), Mutex::default());
        let inline = commits == Commits::Inline;
        Ledger { shared: Arc::new(Shared { lane, home, thread, inline, packs }) }
    }

    /// Records a draft. The draft is recorded once the future resolves; dropping the future does not cancel it.
    pub fn append(&self, draft: EntryDraft) -> Appending {
        match prepare(draft) {
            Err(error) => Appending::ready(Err(error)),
            Ok(item) => self.append_item(item),
        }
    }

    /// Records a draft without its own signature. Once the future resolves, the draft is durable and known to the witness; the next signed
    /// entry covers it. Use it for drafts that a signed entry follows soon. A crash before that leaves the draft without proof, and the
    /// next writer treats it as recorded.
    pub fn append_unsigned(&self, draft: EntryDraft) -> Appending {
        match prepare(draft) {
            Err(error) => Appending::ready(Err(error)),
            Ok(item) => self.append_item(Item { signed: false, ..item }),
        }
    }

    /// Records a draft directly before the next appended one. Without a next one, it isn't recorded.
    pub fn announce(&self, draft: EntryDraft) -> Result<(), AppendError> {
        let item = prepare(draft)?;
        self.shared.lane.with_writer(|writer| writer.announce(item));
        Ok(())
    }

    pub(crate) fn append_item(&self, item: Item) -> Appending {
        if self.shared.inline {
            Appending::ready(self.shared.lane.append_inline(item))
        } else {
            self.shared.lane.append(item)
        }
    }

    /// Records a draft and waits for it. Without competing writers, the caller's thread commits it.
    pub fn append_blocking(&self, draft: EntryDraft) -> Result<Receipt, AppendError> {
        self.append_item_blocking(prepare(draft)?)
    }

    pub(crate) fn append_item_blocking(&self, item: Item) -> Result<Receipt, AppendError> {
        if self.shared.inline {
            self.shared.lane.append_inline(item)
        } else {
            self.shared.lane.append_blocking(item)
        }
    }

    /// The current head of the lane.
    pub fn head(&self) -> Head {
        self.shared.lane.head()
    }

    /// The last signed checkpoint of the lane, to be stored elsewhere.
    pub fn checkpoint(&self) -> Option<String> {
        self.shared.lane.with_writer(|writer| writer.note())
    }

    /// Commits pending drafts, signs them, updates the index and releases the lane. Later drafts fail.
    pub fn close(&self) -> Result<(), AppendError> {
        self.shared.stop();
        self.shared.lane.with_writer(LaneWriter::close)
    }

    /// Rotates the key. No other process may be writing to the ledger.
    ///
    /// The old key signs the entry that announces the new one. From the next checkpoint on, the new key signs, and it signs the index too.
    /// Open the ledger with the new key afterwards.
    pub fn rotate_key(&self, key: LedgerKey, at_ms: i64) -> Result<(), AppendError> {
        let storage = self.shared.home.storage.as_ref();
        let own = self.head().lane;
        let io = |error: std::io::Error| AppendError::Io(error.to_string());
        let mut locks = Vec::new();
        for lane in crate::layout::lanes(storage).map_err(io)?.into_iter().filter(|lane| *lane != own) {
            let lock = storage.lock(&crate::layout::lane_lock(lane)).map_err(io)?;
            locks.push(lock.ok_or(AppendError::Busy)?);
        }
        self.shared.lane.with_writer(|writer| writer.change_key(key, at_ms))
    }

    /// Whether payloads are encrypted.
    pub fn encrypts(&self) -> bool {
        self.shared.home.options.payload_key.is_some()
    }

    /// The storage it lives in.
    pub fn storage(&self) -> Arc<dyn Storage> {
        self.shared.home.storage.clone()
    }
}

impl Shared {
    fn stop(&self) {
        self.lane.stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            // A panic in that thread has already failed its own batch; closing continues.
        }
    }
}

impl Drop for Shared {
    /// On drop of the last handle, commits pending drafts and releases the lane.
    fn drop(&mut self) {
        self.stop();
    }
}

fn prepare(draft: EntryDraft) -> Result<Item, AppendError> {
    let EntryDraft { kind, at_ms, body, payloads } = draft;
    if kind.is_internal() {
        return Err(AppendError::Reserved(kind));
    }
    if !body.as_str().starts_with('{') {
        return Err(AppendError::NotAnObject);
    }
    if body.as_str().len() > BODY_BYTES_MAX {
        return Err(AppendError::TooLarge { bytes: body.as_str().len(), bytes_max: BODY_BYTES_MAX });
    }
    if !(-AT_MS_MAX..=AT_MS_MAX).contains(&at_ms) {
        return Err(AppendError::Time(at_ms));
    }
    let largest = payloads.iter().map(|payload| payload.bytes().len()).max().unwrap_or(0);
    if largest > PAYLOAD_BYTES_MAX {
        return Err(AppendError::TooLarge { bytes: largest, bytes_max: PAYLOAD_BYTES_MAX });
    }
    Ok(Item { prepared: Prepared::new(kind, at_ms, &body), at_ms, payloads, signed: true })
}

/// Why a draft is not recorded. The effect that it announces must not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The ledger takes no more entries until it is opened again.
    #[error("the ledger is sealed: {0}")]
    Sealed(String),
    /// The disk is full. A later append may succeed.
    #[error("no space left for the ledger")]
    Full,
    /// Writing failed, and the ledger is sealed.
    #[error("can't write the ledger: {0}")]
    Io(String),
    /// The ledger was closed.
    #[error("the ledger is closed")]
    Closed,
    /// The queue is full. A later append may succeed.
    #[error("the disk is too slow for the pending entries")]
    Backlog,
    /// Another process writes to the ledger, and this operation needs exclusive access.
    #[error("another process is writing to the ledger")]
    Busy,
    /// The draft is too large.
    #[error("{bytes} bytes are more than the {bytes_max} allowed")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// Only the ledger writes entries of this kind.
    #[error("only the ledger itself writes `{0}` entries")]
    Reserved(EntryKind),
    /// The body isn't a JSON object.
    #[error("the body of an entry must be a JSON object")]
    NotAnObject,
    /// The time exceeds the range that JSON represents exactly.
    #[error("time {0} is out of range")]
    Time(i64),
}
