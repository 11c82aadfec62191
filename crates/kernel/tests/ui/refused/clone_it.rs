//! A permit is for one call, so there is only one of it.

use regent_kernel::{Permit, tier};

fn copies<T: Clone>(one: &T) -> (T, T) {
    (one.clone(), one.clone())
}

fn main() {
    let _copy = copies::<Permit<'static, tier::Host>>;
}
