//! `regent` alone: the next sensible step.

use serde_json::json;

use crate::context::Context;
use crate::controls::Controls;
use crate::output::{CommandResult, Done};
use crate::paths;
use crate::trust::{Trust, TrustStanding};

pub(crate) fn run(context: &Context) -> CommandResult {
    let (why, commands): (String, &[(&str, &str)]) = if !paths::may_exist(&context.paths.policy()) {
        (
            "Regent governs AI agents: policy judges every call, a sandbox runs it, and a ledger records it."
                .to_owned(),
            &[
                ("regent demo --task", "watch a model do a task, in a temporary folder"),
                ("regent demo", "watch Regent stop harmful calls"),
                ("regent init", "set it up in this folder"),
                ("regent doctor", "check this machine"),
            ],
        )
    } else {
        match context.project() {
            Err(_none) => (
                "Regent is not set up in this folder yet.".to_owned(),
                &[("regent init", "set up Regent here"), ("regent demo", "watch a demonstration")],
            ),
            Ok(project) => match Trust::load(&context.paths)?.standing(&Controls::read(&project)?) {
                TrustStanding::Never => (
                    format!(
                        "You have not trusted {} yet; until then nothing in it takes effect.",
                        project.root.display()
                    ),
                    &[("regent policy check", "check its policy"), ("regent trust", "trust it")],
                ),
                TrustStanding::Changed(file) => (
                    format!("{file} has changed since you trusted this folder."),
                    &[
                        ("regent policy check", "check the policy"),
                        ("regent trust", "trust its current state"),
                    ],
                ),
                TrustStanding::Trusted => (
                    format!("Regent is set up in {}.", project.root.display()),
                    &[
                        ("regent task run GOAL", "give an agent a goal"),
                        ("regent run -- CMD…", "run any program in the sandbox"),
                        ("regent tool list", "list the tools that agents can call"),
                        ("regent approve list", "list pending approvals"),
                        ("regent audit tail", "show recent calls"),
                    ],
                ),
            },
        }
    };
    let mut text = format!("{}\n\n", crate::term::inline(&why));
    for (command, does) in commands {
        text.push_str(&format!("  {}  {does}\n", context.screen.strong(&format!("{command:<20}"))));
    }
    text.push_str("\nregent --help lists all commands.\n");
    let next: Vec<_> =
        commands.iter().map(|(command, does)| json!({"command": command, "does": does})).collect();
    Ok(Done::new(json!({"why": why, "next": next}), text))
}
