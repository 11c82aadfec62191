//! At its own tier it can be passed on.

use regent_kernel::{BoxFuture, ExecuteError, Executor, Permit, RawOutput, tier};

struct Driver(std::sync::Arc<dyn Executor<tier::Process>>);

impl Executor<tier::Process> for Driver {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Process>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        self.0.execute(permit)
    }
}

fn main() {}
