//! Calls to models through a whole kernel: real policy, ledger, vault and sockets; the other side is a server on this machine that
//! speaks each protocol and fails as told.

mod faults;
mod protocols;
mod rules;
mod server;
mod world;
