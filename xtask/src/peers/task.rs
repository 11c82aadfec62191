//! One `regent task run` in a home and a project of its own.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::servers::{Record, Servers};
use crate::machine::{capture, command};
use crate::root;

/// Longer than anything that a model server may do to a task with `PATIENCE`.
const TASK: Duration = Duration::from_secs(120);
/// Short waits, so that cases which use them up take seconds. Servers that behave answer well within.
pub(super) const PATIENCE: &str = "first_byte_ms_max = 30000, wait_ms = 20";

/// It asks for a change, so that tools that write are offered; and names no file, as servers tell by those how far a task is.
const GOAL: &str = "Write a file with a greeting, then list this folder.";

/// A task to be run.
pub(super) struct Run {
    /// Regent's word for the provider.
    pub(super) kind: &'static str,
    /// The recorder's word for the protocol.
    pub(super) wire: &'static str,
    /// Who answers.
    pub(super) target: &'static str,
    pub(super) model: String,
    /// Whether it is planned first: then the model is given a schema.
    pub(super) plan: bool,
    /// The way to misbehave, if it is about one.
    pub(super) case: Option<&'static str>,
    pub(super) patience: &'static str,
}

/// What became of it.
pub(super) struct Ended {
    pub(super) code: i32,
    pub(super) answer: String,
    /// The error, or why it ended so.
    pub(super) said: String,
    pub(super) tokens: u64,
    /// The project's files, by name.
    pub(super) files: BTreeMap<String, String>,
    pub(super) requests: Vec<Record>,
}

impl Run {
    /// The name in the recorder's log. No two runs have the same.
    pub(super) fn name(&self) -> String {
        match self.case {
            Some(case) => format!("{case}@{}", self.kind),
            None => format!("{}-{}-{}{}", self.target, self.kind, self.model, self.suffix()),
        }
    }

    pub(super) fn shown(&self) -> String {
        format!("{}{}", self.case.unwrap_or(&self.model), self.suffix())
    }

    fn suffix(&self) -> &'static str {
        if self.plan { "-plan" } else { "" }
    }

    /// The address of the provider: it depends on the protocol how much of the path is part of it.
    fn url(&self, recorder: &str) -> String {
        let version = match self.wire {
            "gemini" => "/v1beta",
            "ollama" => "",
            _others => "/v1",
        };
        format!("{recorder}/{}/{}/{}{version}", self.name(), self.wire, self.target)
    }

    fn settings(&self, recorder: &str) -> String {
        format!(
            "[models.peer]\nkind = \"{}\"\nurl = \"{}\"\nmodels = [\"{}\"]\npatience = {{ {} }}\n",
            self.kind,
            self.url(recorder),
            self.model,
            self.patience
        )
    }
}

pub(super) fn run(servers: &Servers, program: &Path, run: &Run) -> Result<Ended> {
    let home = servers.folder().join("tasks").join(run.name());
    let (project, settings) = (home.join("project"), home.join(".config/regent"));
    std::fs::create_dir_all(&project)?;
    std::fs::create_dir_all(&settings)?;
    std::fs::write(settings.join("config.toml"), run.settings(&servers.recorder()))?;
    std::fs::copy(root().join("xtask/peers/picture.png"), project.join("picture.png"))?;
    let regent = |arguments: &[&str]| {
        let mut regent = command(&program.to_string_lossy());
        regent.args(arguments).current_dir(&project).env_clear().env("HOME", &home);
        regent.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        regent
    };
    let init = capture(&mut regent(&["init"]), "regent init")?;
    if !init.status.success() {
        bail!("`regent init`: {}", String::from_utf8_lossy(&init.stderr));
    }
    let model = format!("peer/{}", run.model);
    let mut started = regent(&["task", "run", GOAL, "--model", &model, "--json", "--unattended", "deny"]);
    if run.plan {
        started.arg("--plan");
    }
    let output = std::fs::File::create(home.join("stdout"))?;
    started.stdin(Stdio::null()).stdout(output).stderr(std::fs::File::create(home.join("stderr"))?);
    let code = code(started.spawn().context("regent can't be started")?)?;
    let last = last_line(&std::fs::read_to_string(home.join("stdout"))?);
    let text = |pointer: &str| last.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    Ok(Ended {
        code,
        answer: text("/data/answer").unwrap_or_default(),
        said: text("/error/message").or_else(|| text("/data/why")).unwrap_or_default(),
        tokens: last.pointer("/data/spent/tokens").and_then(Value::as_u64).unwrap_or_default(),
        files: files(&project)?,
        requests: servers.records(&run.name())?,
    })
}

/// The exit code, within the time.
fn code(mut child: std::process::Child) -> Result<i32> {
    let until = Instant::now() + TASK;
    loop {
        if let Some(status) = child.try_wait()? {
            return status.code().context("a signal ended it");
        }
        if Instant::now() > until {
            child.kill()?;
            child.wait()?;
            bail!("it hangs: no end after {} s", TASK.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The envelope, which ends the stream of events.
fn last_line(text: &str) -> Value {
    text.lines().next_back().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default()
}

fn files(project: &Path) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(project)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_file() && name.ends_with(".txt") {
            files.insert(name, String::from_utf8_lossy(&std::fs::read(entry.path())?).into_owned());
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    //! Addresses and settings are what the program takes.

    use super::*;

    #[test]
    fn addresses_name_the_run_the_wire_and_who_answers() {
        let cases = [
            ("chat", None, "http://r/litellm-openai-m/chat/litellm/v1"),
            ("gemini", None, "http://r/litellm-openai-m/gemini/litellm/v1beta"),
            ("ollama", Some("cut"), "http://r/cut@openai/ollama/litellm"),
        ];
        for (wire, case, url) in cases {
            let model = "m".to_owned();
            let run =
                Run { kind: "openai", wire, target: "litellm", model, plan: false, case, patience: PATIENCE };
            assert_eq!(run.url("http://r"), url);
            assert!(run.settings("http://r").contains(&format!("url = \"{url}\"")));
        }
    }

    #[test]
    fn the_envelope_is_the_last_line() {
        let text = "{\"event\":\"turn\"}\n{\"data\":{\"answer\":\"A\"}}\n";
        assert_eq!(last_line(text).pointer("/data/answer"), Some(&Value::from("A")));
        assert_eq!(last_line("no json"), Value::Null);
        assert_eq!(last_line(""), Value::Null);
    }
}
