//! How do people reach us? The command line: `cli.rs` lists the commands, `commands/` has a file for each, `compose.rs` wires
//! the kernel together.
#![forbid(unsafe_code)]

mod asking;
mod bundles;
mod caller;
mod calls;
mod chores;
mod cli;
mod codes;
mod commands;
mod compose;
mod context;
mod controls;
mod covered;
mod diff;
mod egress_proxy;
mod failure;
mod json;
mod labels;
mod live;
mod manifests;
mod money;
mod output;
mod pager;
mod past;
mod paths;
mod prompt;
mod question;
mod reload;
mod secrets;
mod settings;
mod stage;
mod start;
mod state;
mod term;
mod trust;
mod user_namespace;

fn main() -> std::process::ExitCode {
    start::run(std::env::args_os().collect())
}
