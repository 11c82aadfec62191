//! The program as people and other programs meet it: the real binary, real files, a home of its own for each test.

#[cfg(test)]
mod approvals;
#[cfg(test)]
mod audit;
#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod batches;
#[cfg(test)]
mod callers;
#[cfg(test)]
mod change;
#[cfg(test)]
mod chat;
#[cfg(test)]
mod commands;
#[cfg(test)]
mod conversation;
#[cfg(test)]
mod costs;
#[cfg(test)]
mod envelopes;
#[cfg(test)]
mod exit_codes;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod generated;
#[cfg(test)]
mod injected;
#[cfg(test)]
mod interrupted;
#[cfg(test)]
mod judge_state;
#[cfg(test)]
mod judging;
#[cfg(test)]
mod labels;
#[cfg(test)]
mod long;
#[cfg(test)]
mod manifests;
#[cfg(test)]
mod models;
#[cfg(test)]
mod modes;
#[cfg(test)]
mod network;
#[cfg(test)]
mod people;
#[cfg(test)]
mod places;
#[cfg(test)]
mod retention;
#[cfg(test)]
mod running;
#[cfg(test)]
mod secrets;
#[cfg(test)]
#[cfg(all(feature = "postgres", feature = "redis"))]
mod servers;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod skills;
#[cfg(test)]
#[path = "../../../testkit/src/skip.rs"]
mod skip;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod tasks;
#[cfg(test)]
mod terminal;
#[cfg(test)]
mod trusting;
#[cfg(test)]
mod world;
