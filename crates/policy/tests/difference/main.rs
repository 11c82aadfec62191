//! Compares the indexed evaluator with a reference evaluator on random policies and calls. `cargo xtask difference` compares a million
//! pairs; an ordinary test run fewer.

#[cfg(test)]
mod compare;
#[cfg(test)]
mod generate;
#[cfg(test)]
mod reference;
