//! The entries that the ledger writes about itself, and the tip after each.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::canonical::CanonicalJson;
use crate::entry::{FORMAT, genesis};
use crate::lane::Tail;
use crate::line::Line;
use crate::note::Checkpoint;
use crate::tree::Frontier;
use crate::{Digest, EntryKind, LaneId, LedgerKey};

/// The state of a lane between two entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tip {
    /// Hash of the last entry.
    pub(crate) prev: Digest,
    /// The tree over all entries.
    pub(crate) frontier: Frontier,
    /// The timestamp of the last entry.
    pub(crate) at_ms: i64,
}

impl Tip {
    pub(crate) fn start(origin: &str) -> Tip {
        Tip { prev: genesis(origin), frontier: Frontier::default(), at_ms: 0 }
    }

    pub(crate) fn size(&self) -> u64 {
        self.frontier.size()
    }

    pub(crate) fn push(&mut self, hash: Digest, at_ms: i64) {
        self.frontier.push(hash);
        self.prev = hash;
        self.at_ms = at_ms;
    }

    /// The tip right after a checkpoint entry, rebuilt from the entry alone.
    pub(crate) fn after_checkpoint(line: &Line<'_>, origin: &str) -> Option<(Tip, Checkpoint)> {
        if line.kind != EntryKind::Checkpoint {
            return None;
        }
        let body: CheckpointBody = serde_json::from_slice(line.body).ok()?;
        let frontier = Frontier::from_parts(line.seq, body.frontier.nodes()?)?;
        let root = frontier.root();
        if !line.body.starts_with(&spell_checkpoint(&frontier, &root, origin, line.version)) {
            return None;
        }
        let checkpoint = Checkpoint { origin: origin.to_owned(), size: line.seq, root };
        let mut tip = Tip { prev: line.prev, frontier, at_ms: line.at_ms };
        tip.push(line.hash(), line.at_ms);
        Some((tip, checkpoint))
    }
}

/// The body of a checkpoint entry up to its signature.
///
/// The state before the checkpoint determines everything else in it. A change to the very last checkpoint, which no entry links to yet, is
/// therefore detected as well.
pub(crate) fn spell_checkpoint(frontier: &Frontier, root: &Digest, origin: &str, version: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(256 + 67 * frontier.roots().len());
    if version == 1 {
        out.extend_from_slice(b"{\"frontier\":[");
        for (number, node) in frontier.roots().iter().enumerate() {
            out.extend_from_slice(if number == 0 { b"\"" } else { b",\"" });
            out.extend_from_slice(&node.hex());
            out.push(b'"');
        }
        out.push(b']');
    } else {
        let nodes: Vec<u8> = frontier.roots().iter().flat_map(Digest::as_bytes).copied().collect();
        out.extend_from_slice(format!("{{\"frontier\":\"{}\"", STANDARD.encode(nodes)).as_bytes());
    }
    let root = STANDARD.encode(root.as_bytes());
    let size = frontier.size();
    out.extend_from_slice(format!(",\"note\":\"{origin}\\n{size}\\n{root}\\n\\n— {origin} ").as_bytes());
    out
}

/// Signs a checkpoint over these entries. Returns the body, the statement, and the note in the body.
pub(crate) fn sign_checkpoint(
    frontier: &Frontier,
    origin: &str,
    key: &LedgerKey,
) -> (CanonicalJson, Checkpoint, String) {
    let checkpoint = Checkpoint { origin: origin.to_owned(), size: frontier.size(), root: frontier.root() };
    let note = checkpoint.sign(key);
    let mut body = spell_checkpoint(frontier, &checkpoint.root, origin, FORMAT);
    body.extend_from_slice(note.trim_end().rsplit(' ').next().unwrap_or_default().as_bytes());
    body.extend_from_slice(b"\\n\"}");
    (CanonicalJson::spelled(String::from_utf8_lossy(&body).into_owned()), checkpoint, note)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckpointBody {
    frontier: FrontierText,
    note: String,
}

/// The roots of complete subtrees, largest first: one base64 text, or a list in format 1.
#[derive(Deserialize)]
#[serde(untagged)]
enum FrontierText {
    Joined(String),
    List(Vec<Digest>),
}

impl FrontierText {
    fn nodes(self) -> Option<Vec<Digest>> {
        match self {
            FrontierText::List(nodes) => Some(nodes),
            FrontierText::Joined(text) => {
                let bytes = STANDARD.decode(text).ok()?;
                let whole = bytes.len().is_multiple_of(32);
                let node = |chunk: &[u8]| chunk.try_into().ok().map(Digest::from_bytes);
                whole.then(|| bytes.chunks(32).map(node).collect())?
            }
        }
    }
}

/// The signed note in the body of a checkpoint entry.
pub(crate) fn note_of(body: &[u8]) -> Option<String> {
    serde_json::from_slice::<CheckpointBody>(body).ok().map(|body| body.note)
}

/// Body of the first entry of a lane.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LaneBody {
    pub(crate) key: String,
    pub(crate) lane: LaneId,
    pub(crate) origin: String,
    /// The history that this lane replaces, by an operator's decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replaces: Option<ReplacesBody>,
}

/// The known state of a ledger that was recreated or restored from a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplacesBody {
    /// Index version that the witness recorded; 0 without a witness.
    pub(crate) counter: u64,
    /// Entries in all lanes that the witness recorded.
    pub(crate) entries: u64,
    /// `begun_anew` or `restored`.
    pub(crate) how: String,
    /// Heads that the witness recorded and that this ledger lacks; the first of them.
    pub(crate) lanes: Vec<LostLane>,
    /// Number of omitted heads.
    pub(crate) lanes_left_out: u64,
    /// Name of the ledger that the witness recorded.
    pub(crate) ledger: String,
    pub(crate) reason: String,
}

/// The head of a lost lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LostLane {
    /// Entries that the witness recorded.
    pub(crate) entries: u64,
    /// Entries that remain of the lane.
    pub(crate) found: u64,
    pub(crate) lane: LaneId,
    /// The root that the witness recorded.
    pub(crate) root: Digest,
}

/// Settles the tail of a lane after a crash or a failed write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecoveryBody {
    /// Complete entries after the proven ones.
    pub(crate) entries: u64,
    pub(crate) lane: LaneId,
    /// Entries that remain valid.
    pub(crate) proven: u64,
    /// Root of the tree over those entries.
    pub(crate) root: Digest,
    /// All bytes after those entries.
    pub(crate) tail_bytes: u64,
    pub(crate) tail_sha256: Digest,
    /// Bytes after the last complete entry.
    pub(crate) torn_bytes: u64,
    /// The writer itself reported all later entries as not recorded.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) refused: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Continues the same lane after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResumeBody {
    /// Unvouched complete entries directly before this one.
    pub(crate) entries: u64,
    /// Length of this segment's pack, if it is longer than the entries record. The segment takes no more payloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pack_bytes: Option<u64>,
    /// Entries before those, covered by a checkpoint or recorded by the witness.
    pub(crate) proven: u64,
}

impl RecoveryBody {
    /// The recovery entry for the tail after a tip.
    pub(crate) fn of_tail(lane: LaneId, tip: &Tip, tail: &Tail) -> RecoveryBody {
        RecoveryBody {
            entries: tail.entries,
            lane,
            proven: tip.size(),
            root: tip.frontier.root(),
            tail_bytes: tail.bytes,
            tail_sha256: tail.sha256,
            torn_bytes: tail.torn_bytes,
            refused: false,
        }
    }
}

/// Announces the key that signs after the next checkpoint.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyBody {
    pub(crate) key: String,
}

/// Current length of this segment's pack; format 1.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PackBody {
    pub(crate) bytes: u64,
}

/// What was removed on purpose: one payload, or all payloads of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EraseBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lane: Option<LaneId>,
    pub(crate) reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) segment: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sha256: Option<Digest>,
}
