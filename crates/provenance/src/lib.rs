//! Provenance: where each value of a call comes from, and what follows from it.
//!
//! A [`Session`] receives the trusted request, an optional [`Plan`], and every output. For each call it reports the origin of each value
//! ([`Origin`]) and whether the call may run ([`Ruling`]). A value is trusted only if it is found in a trusted source: a value that is
//! found nowhere is untrusted, because text can be encoded. The crate is pure: no clock, no file, no network, no lock.
#![forbid(unsafe_code)]

mod begin;
mod date;
mod flow;
mod hash;
mod infer;
mod intent;
mod labels;
mod made;
mod plan;
mod quote;
mod records;
mod resumable;
mod ruling;
mod said;
mod session;
mod spans;
mod stored;
mod text;
mod texts;
mod transcript;
mod whole;

pub use begin::{Begin, Declared};
pub use flow::{DerivedFrom, FlowError, FlowSource};
pub use labels::{
    ALL_FIELDS, Cleared, Effect, FieldLabels, SchemaNames, Taint, Whole, names_in, strangers_fields,
};
pub use plan::{Argument, Pick, Plan, PlanError, PlanStep, ProposedStep, Selection, Where};
pub use quote::Quote;
pub use resumable::{History, Resumable, ResumeError};
pub use ruling::{ArgumentOrigin, Ruling, Stance};
pub use session::{CallId, Observed, Reading, Session, SessionError, Trusted};
pub use stored::StoredLabel;
pub use transcript::{Origin, OutputField, Transcript};
