//! The process sandbox against the real thing.
//!
//! Nothing is skipped: where the host lacks a feature, tests fail. Run by root, all of it runs a second time as an
//! ordinary user (`hosts::an_ordinary_user_gets_the_same`).

#[cfg(test)]
mod adversarial;
#[cfg(test)]
mod behaviour;
#[cfg(test)]
mod egress_proxy;
#[cfg(test)]
mod guards;
#[cfg(test)]
mod hosts;
#[cfg(test)]
mod kit;
#[cfg(test)]
mod labour;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod moves;
#[cfg(test)]
mod repository;
#[cfg(test)]
mod tier;
#[cfg(test)]
mod writes;
