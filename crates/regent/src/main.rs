//! How do people reach us? The command line.
fn main() {}
