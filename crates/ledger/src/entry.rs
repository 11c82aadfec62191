//! Drafts, receipts and entries: what callers append, what they get back, and what readers return.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::canonical::CanonicalJson;
use crate::digest::leaf_hasher;
use crate::payload::Payload;
use crate::{Digest, canonical};

/// Version of the line format that is written. Readers also accept version 1, whose lines have no `pack` and whose checkpoints spell the
/// frontier as a list.
pub(crate) const FORMAT: u64 = 2;
/// Maximum length of an entry's body; larger data belongs in a payload.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// The largest time in milliseconds that every JSON reader represents exactly.
pub const AT_MS_MAX: i64 = (1 << 53) - 1;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident $text:literal),* $(,)?) => {
        /// The kind of an entry.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum EntryKind { $($(#[$doc])* $name),* }

        impl EntryKind {
            /// Every kind.
            pub const ALL: &[EntryKind] = &[$(EntryKind::$name),*];

            /// The kind as spelled in an entry.
            pub const fn as_str(self) -> &'static str {
                match self { $(EntryKind::$name => $text),* }
            }

            /// The kind of this name. An unknown name is an error, never a default.
            pub fn from_bytes(name: &[u8]) -> Option<EntryKind> {
                EntryKind::ALL.iter().copied().find(|kind| kind.as_str().as_bytes() == name)
            }
        }
    };
}

kinds! {
    /// The verdict on a call, written before any effect; denied calls too.
    Intent "intent",
    /// The result of a call.
    Outcome "outcome",
    /// A reviewer's decision on a question.
    Answer "answer",
    /// A lifecycle event of an agent: started, signalled, ended.
    Agent "agent",
    /// A policy was loaded or changed.
    Policy "policy",
    /// The kernel changed its state.
    Kernel "kernel",
    /// First entry of a lane: its number, origin and key. Written by the ledger.
    Lane "lane",
    /// Settles the tail that a crash left at the end of another lane. Written by the ledger.
    Recovery "recovery",
    /// The lane's key changes after the next checkpoint. Written by the ledger.
    Key "key",
    /// A payload, or all payloads of a segment, were removed on purpose. Written by the ledger.
    Erase "erase",
    /// Payloads were packed: the current length of the segment's pack. Written by the ledger in format 1.
    Pack "pack",
    /// Continues a lane after a crash: counts the earlier entries that are unvouched. Written by the ledger.
    Resume "resume",
    /// A signed tree head over all entries before it. Written by the ledger.
    Checkpoint "checkpoint",
}

impl EntryKind {
    /// Whether only the ledger itself writes this kind.
    pub const fn is_internal(self) -> bool {
        match self {
            Self::Lane
            | Self::Recovery
            | Self::Key
            | Self::Erase
            | Self::Pack
            | Self::Resume
            | Self::Checkpoint => true,
            Self::Intent | Self::Outcome | Self::Answer | Self::Agent | Self::Policy | Self::Kernel => false,
        }
    }
}

impl fmt::Display for EntryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for EntryKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A lane's number, written with four digits like its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneId(u16);

impl LaneId {
    /// The first lane.
    pub const FIRST: LaneId = LaneId(0);
    /// The largest lane number.
    pub const MAX: LaneId = LaneId(9999);

    /// The lane with this number, if it fits four digits.
    pub const fn new(number: u16) -> Option<LaneId> {
        if number <= LaneId::MAX.0 { Some(LaneId(number)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}", self.0)
    }
}

/// Text that is not four digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a lane of four digits")]
pub struct LaneIdError(String);

impl FromStr for LaneId {
    type Err = LaneIdError;

    fn from_str(text: &str) -> Result<LaneId, LaneIdError> {
        let digits = text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_digit());
        digits
            .then(|| text.parse().ok().and_then(LaneId::new))
            .flatten()
            .ok_or_else(|| LaneIdError(text.chars().take(40).collect()))
    }
}

impl Serialize for LaneId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LaneId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LaneId, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Something to be recorded.
#[derive(Debug, Clone)]
pub struct EntryDraft {
    /// What it is about.
    pub kind: EntryKind,
    /// When, in milliseconds since 1970, by the caller's clock: data, never order.
    pub at_ms: i64,
    /// What to say: a JSON object.
    pub body: CanonicalJson,
    /// Bytes that the body names by their digests.
    pub payloads: Vec<Payload>,
}

/// Proof towards the caller that a draft is recorded: durable, and under a signature unless it was appended without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Receipt {
    /// The lane it is in.
    pub lane: LaneId,
    /// Its place there.
    pub seq: u64,
    /// Its hash: chain link and tree leaf.
    pub hash: Digest,
}

/// An entry read back.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    /// The lane it is in.
    pub lane: LaneId,
    /// Its place there.
    pub seq: u64,
    /// The writer's clock, in milliseconds since 1970.
    pub at_ms: i64,
    /// What it is about.
    pub kind: EntryKind,
    /// Hash of the entry before it.
    pub prev: Digest,
    /// Its own hash.
    pub hash: Digest,
    /// What it says.
    pub body: serde_json::Value,
    /// Whether a checkpoint covers the entry and nothing contradicts it. Otherwise a crash or a failed write left the entry behind, and its
    /// writer may or may not have received an acknowledgement.
    pub proven: bool,
    /// The writer reported the entry as not recorded. The effect that it announces did not happen.
    pub refused: bool,
}

/// A prepared line that lacks only its position in the chain.
///
/// The caller's thread serializes and hashes everything up to `prev`; the writer adds a few hundred bytes.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    bytes: Vec<u8>,
    hasher: Sha256,
}

impl Prepared {
    pub(crate) fn new(kind: EntryKind, at_ms: i64, body: &CanonicalJson) -> Prepared {
        let mut bytes = Vec::with_capacity(body.as_str().len() + 64);
        bytes.extend_from_slice(b"{\"at\":");
        if at_ms < 0 {
            bytes.push(b'-');
        }
        canonical::push_decimal(at_ms.unsigned_abs(), &mut bytes);
        bytes.extend_from_slice(b",\"body\":");
        bytes.extend_from_slice(body.as_str().as_bytes());
        bytes.extend_from_slice(b",\"kind\":\"");
        bytes.extend_from_slice(kind.as_str().as_bytes());
        let mut hasher = leaf_hasher();
        hasher.update(&bytes);
        Prepared { bytes, hasher }
    }

    /// Approximate length of the line.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + 128
    }

    /// Writes the line to `out` and returns its hash. `pack` is the length of the segment's pack including the entry's payloads.
    pub(crate) fn finish(mut self, prev: &Digest, seq: u64, pack: Option<u64>, out: &mut Vec<u8>) -> Digest {
        out.extend_from_slice(&self.bytes);
        let start = out.len();
        if let Some(pack) = pack {
            out.extend_from_slice(b"\",\"pack\":");
            canonical::push_decimal(pack, out);
            out.extend_from_slice(b",\"prev\":\"");
        } else {
            out.extend_from_slice(b"\",\"prev\":\"");
        }
        out.extend_from_slice(&prev.hex());
        out.extend_from_slice(b"\",\"seq\":");
        canonical::push_decimal(seq, out);
        out.extend_from_slice(b",\"v\":2}");
        self.hasher.update(out.get(start..).unwrap_or_default());
        out.push(b'\n');
        Digest::finish(self.hasher)
    }
}

/// The name under which a lane signs its checkpoints.
pub(crate) fn lane_origin(ledger: &str, lane: LaneId) -> String {
    format!("regent/{ledger}/{lane}")
}

/// The predecessor hash of a lane's first entry. It differs per lane, so that one lane's entries can't pass as another's.
pub(crate) fn genesis(origin: &str) -> Digest {
    Digest::compute(format!("regent ledger lane\n{origin}\n").as_bytes())
}
