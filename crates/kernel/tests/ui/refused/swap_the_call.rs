//! What was judged can't be changed afterwards.

use regent_kernel::{BoxFuture, ExecuteError, Executor, Permit, RawOutput, tier};

struct Driver;

impl Executor<tier::Host> for Driver {
    fn execute<'s>(&'s self, permit: Permit<'s, tier::Host>) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            permit.frame.call.op = regent_kernel::Op::Agents;
            Ok(RawOutput::new(Vec::new()))
        })
    }
}

fn main() {}
