//! It can be read.

use regent_kernel::{BoxFuture, ExecuteError, Executor, Permit, RawOutput, tier};

struct Driver;

impl Executor<tier::Host> for Driver {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Host>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move { Ok(RawOutput::json(permit.args())) })
    }
}

fn main() {}
