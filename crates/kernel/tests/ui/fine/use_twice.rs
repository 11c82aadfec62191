//! Once is fine.

use regent_kernel::{BoxFuture, ExecuteError, Executor, Permit, RawOutput, tier};

struct Driver(std::sync::Arc<dyn Executor<tier::Host>>);

impl Executor<tier::Host> for Driver {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Host>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move { self.0.execute(permit).await })
    }
}

fn main() {}
