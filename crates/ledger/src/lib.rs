//! The ledger: one append-only, hash-linked, signed log.
//!
//! A [`Ledger`] is a folder of *lanes*, each a chain of entries with one writer. Callers
//! [`append`](Ledger::append) drafts; many of them share one write, one sync and one signature. An
//! entry's hash links to the next one and is a leaf of the lane's Merkle tree (RFC 6962). *Checkpoints*
//! (C2SP notes) sign the head of the tree and are entries themselves. [`verify()`] checks the
//! disk and needs no secret; [`read`] reads entries; [`Proof`] and [`Export`] verify on their own.
//!
//! The ledger is never repaired: see [`Ledger::open`].
#![forbid(unsafe_code)]

mod backup;
pub mod canonical;
mod chain;
mod decision;
mod digest;
mod entry;
mod index;
mod internal;
mod key;
mod lane;
mod layout;
mod ledger;
mod line;
pub mod note;
mod open;
mod options;
mod packs;
mod payload;
mod proof;
mod queue;
pub mod read;
mod replaced;
#[cfg(feature = "schema")]
mod schema;
mod search;
mod seen;
pub mod storage;
mod survey;
pub mod tree;
pub mod verify;
mod why;
mod witness;
mod writer;

#[cfg(test)]
mod tests;

pub use canonical::{CanonicalError, CanonicalJson};
pub use decision::{DecisionReceipt, ReceiptError, UnsignedDecision};
pub use digest::{Digest, DigestError, DigestWriter, hex_string};
pub use entry::{AT_MS_MAX, BODY_BYTES_MAX, Entry, EntryDraft, EntryKind, LaneId, LaneIdError, Receipt};
pub use key::{KeyError, LedgerKey, PublicKey};
pub use lane::Tail;
pub use ledger::{AppendError, Head, Ledger};
pub use line::Line;
pub use open::OpenError;
pub use options::Options;
pub use packs::{EntryPlace, Erasure, MissingPayload, OldPack};
pub use payload::{PAYLOAD_BYTES_MAX, Payload, PayloadKey, PayloadRef, check_pack};
pub use proof::{Export, ExportedEntry, ExportedLane, Proof, ProofError};
pub use queue::Appending;
pub use read::{LaneEntries, ReadError, Reader};
pub use replaced::Replaced;
pub use verify::{LaneReport, LedgerVerdict, Report, VerifyError, VerifyOptions, verify};
pub use why::{Break, Defect};
pub use witness::{LaneHead, Witnessed};
