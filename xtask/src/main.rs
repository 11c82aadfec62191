//! The project's own chores: `cargo xtask ci`, `tidy`, `bench`, `torture`.
fn main() {}
