//! Counts the bytes of one exchange against its limits, and collects what the ledger records about it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use regent_kernel::{Label, Permit, RawOutput, Spent, ToolFailure, tier};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::reach::{Network, ReachError};
use crate::specs::WEB_PRIVATE;

/// A failure with a stable code.
pub(crate) fn failure(code: &str, message: impl Into<String>) -> ToolFailure {
    ToolFailure { code: code.to_owned(), message: message.into() }
}

/// The failure for a host that wasn't reached.
pub(crate) fn unreached(error: &ReachError) -> ToolFailure {
    failure(&format!("net.{}", error.word()), error.to_string())
}

/// The counters of an exchange.
#[derive(Debug)]
pub(crate) struct ExchangeTally<'p> {
    permit: &'p Permit<'p, tier::Host>,
    bytes_out_max: u64,
    bytes_in_max: u64,
    bytes_out: AtomicU64,
    bytes_in: AtomicU64,
    near_ended: AtomicBool,
    recorded: Mutex<RecordedRequest>,
}

#[derive(Debug, Default)]
struct RecordedRequest {
    fields: Map<String, Value>,
    label: Option<Label>,
    digest: Sha256,
    digested: bool,
}

impl<'p> ExchangeTally<'p> {
    pub(crate) fn new(permit: &'p Permit<'p, tier::Host>, network: &Network) -> Self {
        Self {
            permit,
            bytes_out_max: network.bytes_out_max,
            bytes_in_max: network.bytes_in_max,
            bytes_out: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            near_ended: AtomicBool::new(false),
            recorded: Mutex::default(),
        }
    }

    /// Accounts for bytes about to be sent. Fails if they exceed the limit or the budget.
    pub(crate) async fn leave(&self, bytes: u64) -> Result<(), ToolFailure> {
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

    /// Accounts for received bytes.
    pub(crate) fn come(&self, bytes: u64) -> Result<(), ToolFailure> {
        let total = self.bytes_in.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if total > self.bytes_in_max {
            return Err(failure(
                "net.too_large",
                format!("it received more than {} bytes", self.bytes_in_max),
            ));
        }
        Ok(())
    }

    /// The program has finished sending.
    pub(crate) fn near_ends(&self) {
        self.near_ended.store(true, Ordering::Relaxed);
    }

    /// Whether the program has finished sending.
    pub(crate) fn near_has_ended(&self) -> bool {
        self.near_ended.load(Ordering::Relaxed)
    }

    /// Adds bytes passed to the program to the digest.
    pub(crate) fn given(&self, bytes: &[u8]) {
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        recorded.digest.update(bytes);
        recorded.digested = true;
    }

    /// Records a field for the ledger.
    pub(crate) fn record(&self, field: &str, value: impl Into<Value>) {
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        recorded.fields.insert(field.to_owned(), value.into());
    }

    /// Records the actual address.
    pub(crate) fn connected(&self, address: SocketAddr, private: bool) {
        self.record("address", address.to_string());
        if private {
            self.label_private();
        }
    }

    /// Labels the response as private.
    pub(crate) fn label_private(&self) {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).label = Some(WEB_PRIVATE);
    }

    /// The output of the call.
    pub(crate) fn output(self, result: Result<(), ToolFailure>) -> RawOutput {
        let RecordedRequest { mut fields, label, digest, digested } =
            self.recorded.into_inner().unwrap_or_else(PoisonError::into_inner);
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
