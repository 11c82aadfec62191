//! The kernel's own effects: what the operations that aren't tools do, once they are permitted.

use std::sync::Arc;

use crate::executor::{BoxFuture, ExecuteError, RawOutput};
use crate::kernel::Core;
use crate::syscall::{Permit, tier};

pub(crate) fn perform<'s>(
    _core: &'s Arc<Core>,
    permit: Permit<'s, tier::Host>,
) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
    Box::pin(async move { Err(ExecuteError::NoDriver(permit.call().op().name().to_owned())) })
}
