//! What does a command run? Reads a command line without running it: which files its words may name, and whether it is ordinary work.

mod ordinary;
mod plain;
mod shell;
mod words;

pub(crate) use ordinary::is_ordinary;
pub(crate) use words::{WORDS_MAX, Words};
