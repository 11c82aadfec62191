//! A permit can't outlive the call it was minted for.

use regent_kernel::{BoxFuture, ExecuteError, Executor, Permit, RawOutput, tier};

struct Driver(std::sync::Mutex<Option<Permit<'static, tier::Host>>>);

impl Executor<tier::Host> for Driver {
    fn execute<'s>(&'s self, permit: Permit<'s, tier::Host>) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        *self.0.lock().unwrap() = Some(permit);
        Box::pin(async { Ok(RawOutput::new(Vec::new())) })
    }
}

fn main() {}
