//! Pipes.

use std::sync::Arc;

use regent_wire::result::{Piped, Sent};
use serde_json::Value;

use super::{HostPermit, Performed};
use crate::agent::OPERATOR;
use crate::executor::RawOutput;
use crate::kernel::Core;
use crate::pipe::{PipeError, PipeId, PipeSpec};

fn failed(error: &PipeError) -> RawOutput {
    RawOutput::failed(error.code(), error.to_string())
}

pub(super) fn make(core: &Arc<Core>, permit: HostPermit<'_>, spec: &PipeSpec) -> Performed {
    let is_there = spec.reader.as_str() == OPERATOR
        || core.society.agents.get(&spec.reader).is_some_and(|reader| !reader.life.stage().is_over());
    if !is_there {
        return Ok(RawOutput::failed("agent.unknown", "the reader is not a running agent of this kernel"));
    }
    Ok(match core.society.pipes.make(permit.call().principal().home(), spec.clone()) {
        Ok(pipe) => RawOutput::result(&Piped { pipe }),
        Err(error) => failed(&error),
    })
}

pub(super) fn send(core: &Arc<Core>, permit: HostPermit<'_>, pipe: PipeId, message: &Value) -> Performed {
    Ok(match core.society.pipes.send(pipe, message, core.label_of_input(permit.call())) {
        Ok(waiting) => RawOutput::result(&Sent { waiting: waiting as u64 }),
        Err(error) => failed(&error),
    })
}

pub(super) async fn recv(
    core: &Arc<Core>,
    permit: HostPermit<'_>,
    pipe: PipeId,
    wait_ms_max: u64,
) -> Performed {
    let received = tokio::select! {
        // Looked at first, so that a message that is there is not lost to a signal that arrives with it.
        biased;
        received = core.society.pipes.recv(pipe, wait_ms_max) => received,
        () = permit.cancelled() => Err(PipeError::Empty),
    };
    Ok(match received {
        Ok(message) => RawOutput::new(message.bytes).with_label(message.label),
        Err(error) => failed(&error),
    })
}
