//! An agent's private key is not to be had.

use regent_kernel::{Did, Principal};

fn main() {
    let _identity = regent_kernel::identity::Identity::generate();
}
