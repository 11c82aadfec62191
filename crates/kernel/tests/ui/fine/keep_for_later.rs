//! It can be held for as long as the call lasts.

use regent_kernel::{BoxFuture, ExecuteError, Executor, Permit, RawOutput, tier};

struct Driver;

impl Executor<tier::Host> for Driver {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Host>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            permit.cancelled().await;
            drop(permit);
            Ok(RawOutput::new(Vec::new()))
        })
    }
}

fn main() {}
