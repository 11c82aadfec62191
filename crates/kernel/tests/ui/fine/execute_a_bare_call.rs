//! And so it goes with one.

use regent_kernel::{Executor, Permit, tier};

fn run<'s>(executor: &'s dyn Executor<tier::Host>, permit: Permit<'s, tier::Host>) {
    let _running = executor.execute(permit);
}

fn main() {
    let _run = run;
}
