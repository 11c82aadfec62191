//! What the kernel hears of a run: output, failure, label, and a receipt that states what was obtained.
//!
//! The output is the tool's result; after it come its log lines, as a program's standard error comes after its standard output.
//! `ended.stdout_bytes` in the receipt tells the two apart.

use regent_kernel::{ExecuteError, RawOutput, Spent};
use serde_json::{Value, json};
use wasmtime::{PoolConcurrencyLimitError, Trap};

use super::WasmTool;
use super::guest::{Broke, ExceededLimit, WasmGuest};
use super::machine::fuel;
use super::run::{GuestEnd, GuestRun};
use super::wasi::{Exited, NotOffered};

/// How much of a message from below is passed on.
const MESSAGE_BYTES_MAX: usize = 400;

impl GuestRun {
    pub(super) fn into_output(self, driver: &WasmTool) -> Result<RawOutput, ExecuteError> {
        let (status, failure) = match &self.how {
            GuestEnd::Said(Ok(_)) => ("returned", None),
            GuestEnd::Said(Err(why)) => ("failed", Some(("tool.failed", why.clone()))),
            GuestEnd::Stopped => ("stopped", Some(("wasm.stopped", "the call was stopped".to_owned()))),
            GuestEnd::Trapped(error) => {
                let (code, message) = explain(error, &self.guest)?;
                ("trapped", Some((code, message)))
            }
        };
        let (label, wall_ms) = (self.guest.label, self.wall_ms);
        let mut receipt = self.receipt(driver);
        let (mut bytes, log) = self.into_words();
        if let Some(ended) = receipt.get_mut("ended").and_then(Value::as_object_mut) {
            ended.insert("status".to_owned(), json!(status));
            ended.insert("stdout_bytes".to_owned(), json!(bytes.len()));
            ended.insert("stderr_bytes".to_owned(), json!(log.len()));
        }
        bytes.extend_from_slice(&log);
        let mut output =
            RawOutput::new(bytes).with_obtained(receipt).with_spent(Spent { wall_ms, ..Spent::default() });
        if let Some(label) = label {
            output = output.with_label(label);
        }
        Ok(match failure {
            Some((code, message)) => output.with_failure(code, message),
            None => output,
        })
    }

    fn receipt(&self, driver: &WasmTool) -> Value {
        let source = driver.source.as_ref().map(|source| source.digest);
        json!({
            "tier": "wasm",
            "world": driver.compiled.world(),
            "sha256": driver.compiled.digest(),
            "source_sha256": source,
            "fuel_max": fuel(&self.limits),
            "memory_bytes_max": self.limits.memory_bytes_max,
            "ended": {
                "fuel_used": self.fuel_used,
                "memory_bytes_peak": self.guest.held.memory_bytes_peak,
                "host_calls": self.guest.calls,
                "truncated": self.guest.said.cut,
                "wall_ms": self.wall_ms,
            },
        })
    }

    /// The result, and the lines around it.
    fn into_words(self) -> (Vec<u8>, Vec<u8>) {
        let WasmGuest { said, .. } = self.guest;
        let mut output = said.output;
        if let GuestEnd::Said(Ok(text)) = self.how {
            if output.is_empty() {
                output = text.into_bytes();
            } else {
                output.extend_from_slice(text.as_bytes());
            }
        }
        (output, said.log)
    }
}

/// A stable word and a sentence for what ended a guest; an error if it was us.
fn explain(error: &wasmtime::Error, guest: &WasmGuest) -> Result<(&'static str, String), ExecuteError> {
    if let Some(broke) = error.downcast_ref::<Broke>() {
        return Err(ExecuteError::Broken(broke.to_string()));
    }
    if let Some(missing) = error.downcast_ref::<NotOffered>() {
        return Ok(("wasm.import", missing.to_string()));
    }
    if let Some(Exited(code)) = error.downcast_ref::<Exited>() {
        return Ok(("wasm.exit", format!("it exited with code {code}")));
    }
    if error.is::<PoolConcurrencyLimitError>() {
        return Ok(("wasm.busy", "too many guests are running".to_owned()));
    }
    let trap = error.downcast_ref::<Trap>();
    // What it was refused explains a trap, and a guest that never began; not an answer of ours that it could not take.
    let refused = guest.held.refused.filter(|_| trap.is_some() || !guest.begun);
    match (trap, refused) {
        (Some(Trap::OutOfFuel), _) => {
            return Ok(("wasm.fuel", "it reached its CPU limit".to_owned()));
        }
        (Some(Trap::StackOverflow), _) => {
            return Ok(("wasm.stack", "it overflowed its stack".to_owned()));
        }
        // A program that gets no memory gives up: what it was refused says more than how it gave up.
        (_, Some(ExceededLimit::Memory)) => {
            return Ok(("wasm.memory", "it reached its memory limit".to_owned()));
        }
        (_, Some(ExceededLimit::Table)) => {
            return Ok(("wasm.table", "it reached its table limit".to_owned()));
        }
        (_, None) => {}
    }
    let mut message = trap.map_or_else(|| error.root_cause().to_string(), ToString::to_string);
    message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
    Ok(("wasm.trap", message))
}
