//! `regent` alone: the next sensible step.

use serde_json::json;

use crate::context::Context;
use crate::controls::Controls;
use crate::output::{CommandResult, Done};
use crate::paths;
use crate::trust::{Standing, Trust};

pub(crate) fn run(context: &Context) -> CommandResult {
    let (why, commands): (String, &[(&str, &str)]) = if !paths::may_exist(&context.paths.policy()) {
        (
            "Regent governs what agents do: every act is judged by policy, run in a sandbox, and recorded."
                .to_owned(),
            &[
                ("regent demo --task", "watch a model do a task under it, in a temporary folder"),
                ("regent demo", "watch it stop what harms"),
                ("regent init", "set it up in this folder"),
                ("regent doctor", "see what this machine gives"),
            ],
        )
    } else {
        match context.project() {
            Err(_none) => (
                "This folder is not under Regent yet.".to_owned(),
                &[("regent init", "put it under Regent"), ("regent demo", "watch a demonstration")],
            ),
            Ok(project) => match Trust::load(&context.paths)?.standing(&Controls::read(&project)?) {
                Standing::Never => (
                    format!(
                        "You have not trusted {} yet; nothing in it acts before you do.",
                        project.root.display()
                    ),
                    &[("regent policy check", "look at its policy"), ("regent trust", "trust it")],
                ),
                Standing::Changed(file) => (
                    format!("{file} has changed since you trusted this folder."),
                    &[
                        ("regent policy check", "look at the policy"),
                        ("regent trust", "trust it as it is now"),
                    ],
                ),
                Standing::Trusted => (
                    format!("{} is under Regent.", project.root.display()),
                    &[
                        ("regent task run GOAL", "let an agent do something"),
                        ("regent run -- CMD…", "run any program, confined and recorded"),
                        ("regent tool list", "see what agents can call"),
                        ("regent approve list", "see what waits for you"),
                        ("regent audit tail", "see what has happened"),
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
