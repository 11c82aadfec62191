//! Calls to models through a whole kernel: real policy, ledger, vault and sockets; the other side is a server on this machine that
//! speaks each protocol and fails as each test configures.

#[cfg(test)]
mod capabilities;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod parts;
#[cfg(test)]
mod placeholders;
#[cfg(test)]
mod priorities;
#[cfg(test)]
mod protocols;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod server;
#[cfg(test)]
mod world;
