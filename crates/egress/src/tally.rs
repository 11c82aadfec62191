//! What one exchange has moved, held against what it may move; and what the ledger is told of it in the end.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use regent_kernel::{Failure, Label, Permit, RawOutput, Spent, tier};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::reach::{Network, ReachError};
use crate::specs::WEB_PRIVATE;

/// A failure with a stable code.
pub(crate) fn failure(code: &str, message: impl Into<String>) -> Failure {
    Failure { code: code.to_owned(), message: message.into() }
}

/// A host that wasn't reached, as the broker's tools say it.
pub(crate) fn unreached(error: &ReachError) -> Failure {
    failure(&format!("net.{}", error.word()), error.to_string())
}

/// Counts.
#[derive(Debug)]
pub(crate) struct Tally<'p> {
    permit: &'p Permit<'p, tier::Host>,
    bytes_out_max: u64,
    bytes_in_max: u64,
    bytes_out: AtomicU64,
    bytes_in: AtomicU64,
    near_ended: AtomicBool,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    fields: Map<String, Value>,
    label: Option<Label>,
    digest: Sha256,
    digested: bool,
}

impl<'p> Tally<'p> {
    pub(crate) fn new(permit: &'p Permit<'p, tier::Host>, network: &Network) -> Self {
        Self {
            permit,
            bytes_out_max: network.bytes_out_max,
            bytes_in_max: network.bytes_in_max,
            bytes_out: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            near_ended: AtomicBool::new(false),
            told: Mutex::default(),
        }
    }

    /// So much is about to leave: within the limit, and with budget set aside for it, or not at all.
    pub(crate) async fn leave(&self, bytes: u64) -> Result<(), Failure> {
        let total = self.bytes_out.load(Ordering::Relaxed).saturating_add(bytes);
        if total > self.bytes_out_max {
            let message = format!("it would send more than {} bytes", self.bytes_out_max);
            return Err(failure("net.too_large", message));
        }
        let reserved = self.permit.reserve_bytes_out(total).await;
        reserved.map_err(|reason| failure(&reason.code, reason.to_string()))?;
        self.bytes_out.store(total, Ordering::Relaxed);
        Ok(())
    }

    /// So much has come.
    pub(crate) fn come(&self, bytes: u64) -> Result<(), Failure> {
        let total = self.bytes_in.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if total > self.bytes_in_max {
            return Err(failure(
                "net.too_large",
                format!("it received more than {} bytes", self.bytes_in_max),
            ));
        }
        Ok(())
    }

    /// The program has said all that it had to say.
    pub(crate) fn near_ends(&self) {
        self.near_ended.store(true, Ordering::Relaxed);
    }

    /// Whether it has.
    pub(crate) fn near_has_ended(&self) -> bool {
        self.near_ended.load(Ordering::Relaxed)
    }

    /// What the program was given.
    pub(crate) fn given(&self, bytes: &[u8]) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.digest.update(bytes);
        told.digested = true;
    }

    /// Something for the ledger.
    pub(crate) fn tell(&self, field: &str, value: impl Into<Value>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.fields.insert(field.to_owned(), value.into());
    }

    /// Where it really went.
    pub(crate) fn connected(&self, address: SocketAddr, private: bool) {
        self.tell("address", address.to_string());
        if private {
            self.not_for_everybody();
        }
    }

    /// What comes back is not everybody's.
    pub(crate) fn not_for_everybody(&self) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).label = Some(WEB_PRIVATE);
    }

    /// The end of it.
    pub(crate) fn output(self, result: Result<(), Failure>) -> RawOutput {
        let Told { mut fields, label, digest, digested } =
            self.told.into_inner().unwrap_or_else(PoisonError::into_inner);
        let bytes_out = self.bytes_out.into_inner();
        fields.insert("bytes_out".to_owned(), bytes_out.into());
        fields.insert("bytes_in".to_owned(), self.bytes_in.into_inner().into());
        if digested {
            let hex: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
            fields.insert("sha256".to_owned(), hex.into());
        }
        let mut output =
            RawOutput::json(&Value::Object(fields)).with_spent(Spent { bytes_out, ..Spent::default() });
        if let Some(label) = label {
            output = output.with_label(label);
        }
        match result {
            Ok(()) => output,
            Err(failure) => output.with_failure(&failure.code, failure.message),
        }
    }
}
