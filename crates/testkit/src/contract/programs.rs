//! The suite for a tier that runs programs: every task is a shell command.

use std::collections::BTreeMap;
use std::sync::Arc;

use regent_kernel::{ArgumentKind, DriverKind, Executor, Op, SideEffect, Tier, ToolSpec, tier};
use serde_json::json;

use super::{Exam, HOG_BYTES, Task};
use crate::drivers::run;
use crate::test_kernel::{Builder, SetupError};

/// An executor of the process tier.
pub struct Programs(pub Arc<dyn Executor<tier::Process>>);

impl std::fmt::Debug for Programs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Programs")
    }
}

impl Exam for Programs {
    fn tier(&self) -> Tier {
        Tier::Process
    }

    fn equip(&self, kernel: Builder) -> Result<Builder, SetupError> {
        Ok(kernel.declared(program_spec(Tier::Process)).process(Arc::clone(&self.0)))
    }

    fn call(&self, task: &Task<'_>) -> Option<Op> {
        Some(run("process.exec", json!({"argv": ["/bin/sh", "-c", line(task)]})))
    }
}

/// `process.exec`, as the built-in tools declare it, at one tier.
pub fn program_spec(tier: Tier) -> ToolSpec {
    ToolSpec {
        name: "process.exec".to_owned(),
        description: "Runs a program.".to_owned(),
        input: json!({
            "type": "object",
            "properties": {"argv": {"type": "array", "items": {"type": "string"}, "minItems": 1}},
            "required": ["argv"],
            "additionalProperties": false,
        }),
        arguments: BTreeMap::from([("/argv".to_owned(), ArgumentKind::Argv)]),
        capabilities: vec!["process.exec".to_owned()],
        effect: SideEffect::Write,
        idempotent: false,
        reversible: false,
        driver: DriverKind::Process,
        tiers: vec![tier],
        output: ToolSpec::UNKNOWN_OUTPUT,
        ..ToolSpec::default()
    }
}

fn line(task: &Task<'_>) -> String {
    match task {
        Task::Hello => "echo hello; pwd".to_owned(),
        Task::Fail => "exit 3".to_owned(),
        Task::Connect(port) => format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' && echo reached"),
        Task::Touch(file) => {
            let file = file.display();
            format!("cat '{file}'; echo planted > '{file}'; cat /proc/1/environ")
        }
        Task::Inherited => "env; ls /proc/self/fd".to_owned(),
        Task::Flood => "yes | head -c 1000000".to_owned(),
        Task::Hang => "sleep 60".to_owned(),
        // `tail` buffers input without line ends completely.
        Task::Hog => format!("head -c {HOG_BYTES} /dev/zero | tail > /dev/null && echo taken"),
        // A grandchild in its own session.
        Task::Linger(workspace) => {
            let beat = "while :; do echo x >> beat; sleep 0.02; done";
            format!("cd '{}' && (setsid sh -c '{beat}' > /dev/null 2>&1 &) ; sleep 0.3", workspace.display())
        }
    }
}
