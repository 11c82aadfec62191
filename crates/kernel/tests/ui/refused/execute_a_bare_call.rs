//! An executor takes a permit, not a call.

use regent_kernel::{Call, Executor, tier};

fn run(executor: &dyn Executor<tier::Host>, call: Call) {
    let _running = executor.execute(call);
}

fn main() {}
