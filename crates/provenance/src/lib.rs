//! Where did it come from? The provenance of every value that an agent passes on, and what follows from it.
//!
//! A [`Session`] hears the trusted request, an optional [`Plan`], and every output. For each call it says where each value comes from
//! ([`Origin`]) and whether that is good enough ([`Ruling`]). Trust needs a positive find: a value that is found nowhere is untrusted,
//! since text can be encoded. Pure: no clock, no file, no network, no lock.
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
pub use labels::{ALL_FIELDS, Cleared, Effect, FieldLabels, Taint, Whole, names_in, strangers_fields};
pub use plan::{Argument, Pick, Plan, PlanError, ProposedStep, Selection, Step, Where};
pub use quote::Quote;
pub use resumable::{History, Resumable, ResumeError};
pub use ruling::{Found, Ruling, Stance};
pub use session::{CallId, Observed, Reading, Session, SessionError, Trusted};
pub use stored::StoredLabel;
pub use transcript::{Origin, Place, Transcript};
