//! Labels of what hosts keep in stores of their own. The process that runs the kernel keeps the labels; here the label of what a call wrote is
//! found, and what a call read gets at least the label that is kept.

use regent_policy::{Confidentiality, Integrity, Label};
use regent_provenance::StoredLabel;
use serde_json::{Value, json};

use crate::call::{HostCall, Op};
use crate::executor::RawOutput;
use crate::facts::Sheet;
use crate::syscall::Frame;

/// What a call did with a store of the host's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUse {
    /// Which store.
    pub name: String,
    /// Which key, by its digest: a receipt can't be erased, and a key is free text. None stands for all keys.
    pub key: Option<String>,
    /// The arguments whose values the call wrote. None: it has read.
    pub wrote: Option<Vec<String>>,
    /// Of what it read, as it is kept; or of what it wrote, once the kernel has found it.
    pub label: StoredLabel,
}

impl StoreUse {
    /// The use that a call which has ended made of a store, with its label: of a write it follows from what the session knows. What was read
    /// is raised to it.
    pub(crate) fn take(raw: &mut RawOutput, frame: &Frame, sheet: &Sheet) -> Option<Self> {
        let mut used = raw.store.take()?;
        if let Some(wrote) = &used.wrote {
            let life = frame.call.principal.life();
            used.label = match (&frame.call.op, life) {
                (Op::Elsewhere(HostCall { run, .. }), Some(life)) => {
                    life.work().stored_label(&run.tool, &frame.args, sheet.ruling.as_ref(), wrote)
                }
                _no_request => StoredLabel::worst(),
            };
        }
        raw.raise(used.read_label());
        Some(used)
    }

    /// The label of what was read, beyond the tool's own.
    pub(crate) fn read(&self) -> Option<&StoredLabel> {
        Some(&self.label).filter(|label| self.wrote.is_none() && !label.is_plain())
    }

    /// The same, as results have it.
    fn read_label(&self) -> Option<Label> {
        let StoredLabel { untrusted, confidential, readers } = self.read()?;
        let is_private = *confidential || !readers.is_empty();
        Some(Label {
            integrity: if *untrusted { Integrity::Web } else { Integrity::System },
            confidentiality: if is_private { Confidentiality::Private } else { Confidentiality::Public },
        })
    }

    /// For the receipt.
    pub(crate) fn receipt(&self) -> Value {
        json!({"key": self.key, "label": self.label, "name": self.name, "wrote": self.wrote.is_some()})
    }
}
