//! The indexed evaluator against a plain one: random policies, random calls, no difference. `cargo xtask difference` puts
//! a million pairs to both; a plain test run fewer.

#[cfg(test)]
mod compare;
#[cfg(test)]
mod generate;
#[cfg(test)]
mod reference;
