//! A permit can't be put together from its parts.

use std::marker::PhantomData;

use regent_kernel::{Permit, tier};

fn forge() -> Permit<'static, tier::Host> {
    Permit { frame: todo!(), tier: PhantomData }
}

fn main() {}
