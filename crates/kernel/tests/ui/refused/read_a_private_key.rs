//! An agent's private key is not to be had.

fn main() {
    let _identity = regent_kernel::identity::Identity::generate();
}
