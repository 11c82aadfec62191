//! How well do agents work? Each task of `evals/` is given to the real program in a folder of its own, and its outcome is looked at.

mod plain;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::machine::{capture, cargo, command, target};
use crate::{root, say};

/// The model, where none is named.
const MODEL: &str = "local/qwen2.5-coder-0.5b";
/// The part of the tasks that must pass, in percent.
const PASS_PERCENT_MIN: usize = 70;

/// `cargo xtask eval [--model NAME] [--json] [TASK…]`
pub(crate) fn run(rest: &[String]) -> Result<()> {
    if rest.first().is_some_and(|word| word == "plain") {
        return plain::run(rest.get(1..).unwrap_or_default());
    }
    let mut model = MODEL.to_owned();
    let mut as_json = false;
    let mut named = Vec::new();
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--model" => model = words.next().context("--model needs a name")?.clone(),
            "--json" => as_json = true,
            flag if flag.starts_with("--") => bail!("there is no flag `{flag}`"),
            name => named.push(name.to_owned()),
        }
    }
    cargo(&["build", "--quiet", "--release", "-p", "regent"])?;
    let text = fs::read_to_string(root().join("evals/small.json"))?;
    let set: Value = serde_json::from_str(&text).context("evals/small.json")?;
    let tasks = value_at(&set, "/tasks").as_array().context("evals/small.json has no tasks")?;
    let chosen =
        |task: &&Value| named.is_empty() || named.iter().any(|name| value_at(task, "/name") == name.as_str());
    let chosen: Vec<&Value> = tasks.iter().filter(chosen).collect();
    ensure!(!chosen.is_empty(), "no task is named so");
    let place = EvalFolder::new(&model)?;
    let mut passed = 0;
    for task in &chosen {
        let started = Instant::now();
        let seen = place.try_task(task)?;
        let took_s = started.elapsed().as_secs_f32();
        passed += usize::from(seen.why.is_none());
        let name = value_at(task, "/name").as_str().unwrap_or_default();
        if as_json {
            let line = serde_json::json!({"task": name, "passed": seen.why.is_none(), "why": seen.why, "answer": seen.answer, "seconds": took_s});
            say(line);
        } else {
            let word = if seen.why.is_none() { "pass" } else { "FAIL" };
            let why = seen.why.as_deref().unwrap_or(&seen.answer).replace('\n', " ");
            say(format!("{word} {name:<18} {took_s:>6.1} s  {}", why.chars().take(100).collect::<String>()));
        }
    }
    let percent = passed * 100 / chosen.len();
    say(format!("eval.small.passed {passed} of {}", chosen.len()));
    say(format!("eval.small.percent {percent} %"));
    if !named.is_empty() || percent >= PASS_PERCENT_MIN {
        return Ok(());
    }
    bail!("{percent} % passed; {PASS_PERCENT_MIN} % must");
}

/// `cargo xtask eval task [--debug] [--why] [--ordinary]`: our own agents with a model that obeys whatever it reads.
pub(crate) fn under_attack(rest: &[String]) -> Result<()> {
    let is_debug = rest.iter().any(|word| word == "--debug");
    // The debug build is the one that CI has made of the whole workspace.
    let (selected, built): (&[&str], _) = match is_debug {
        true => (&["--workspace", "--bins"], "debug/regent"),
        false => (&["--release", "-p", "regent"], "release/regent"),
    };
    cargo(&[&["build", "--quiet"], selected].concat())?;
    let mut run = command("python3");
    run.current_dir(root().join("evals")).env("PYTHONDONTWRITEBYTECODE", "1");
    run.env("REGENT_PROGRAM", target().join(built)).arg("task.py");
    run.args(rest.iter().filter(|word| ["--why", "--ordinary"].contains(&word.as_str())));
    let output = capture(&mut run, "the evaluation")?;
    say(String::from_utf8_lossy(&output.stdout).trim_end());
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim_end());
    Ok(())
}

/// The same in the build that CI has made anyway.
pub(crate) fn under_attack_smoke() -> Result<()> {
    under_attack(&["--debug".to_owned()])
}

/// The result of a task.
struct EvalResult {
    answer: String,
    /// Why it doesn't count.
    why: Option<String>,
}

/// A home of its own, so that nobody's settings and policy are in the way.
struct EvalFolder {
    program: PathBuf,
    model: String,
    folder: tempfile::TempDir,
}

impl EvalFolder {
    fn new(model: &str) -> Result<Self> {
        let place = Self {
            program: target().join("release/regent"),
            model: model.to_owned(),
            folder: tempfile::tempdir()?,
        };
        Ok(place)
    }

    /// The program, in a project, in a home of its own but with the weights of the user's.
    fn regent(&self, project: &Path, arguments: &[&str]) -> Result<std::process::Output> {
        let mut regent = command(&self.program.display().to_string());
        regent.current_dir(project).args(arguments);
        for (name, folder) in
            [("XDG_CONFIG_HOME", "config"), ("XDG_STATE_HOME", "state"), ("XDG_RUNTIME_DIR", "run")]
        {
            let folder = self.folder.path().join(folder);
            fs::create_dir_all(&folder)?;
            regent.env(name, folder);
        }
        capture(&mut regent, "regent")
    }

    /// A project with the files of a task.
    fn project(&self, name: &str, task: &Value) -> Result<PathBuf> {
        let project = self.folder.path().join(name);
        fs::create_dir_all(&project)?;
        for (path, content) in value_at(task, "/files").as_object().into_iter().flatten() {
            let path = project.join(path);
            fs::create_dir_all(path.parent().context("a file lies nowhere")?)?;
            fs::write(path, content.as_str().context("a file is a text")?)?;
        }
        let made = self.regent(&project, &["init", "--quick"])?;
        ensure!(made.status.success(), "`regent init`: {}", String::from_utf8_lossy(&made.stderr));
        Ok(project)
    }

    fn try_task(&self, task: &Value) -> Result<EvalResult> {
        let project = self.project(value_at(task, "/name").as_str().context("a task needs a name")?, task)?;
        let tools: Vec<&str> =
            value_at(task, "/tools").as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let goal = value_at(task, "/goal").as_str().context("a task needs a goal")?;
        let arguments = ["task", "run", goal, "--model", &self.model, "--tools", &tools.join(","), "--json"];
        let ended = self.regent(&project, &arguments)?;
        let said = String::from_utf8_lossy(&ended.stdout);
        let end: Value =
            said.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
        let answer = value_at(&end, "/data/answer")
            .as_str()
            .or(value_at(&end, "/answer").as_str())
            .unwrap_or_default()
            .to_owned();
        let why = if ended.status.success() {
            judge(value_at(task, "/expect"), &answer, &project)
        } else {
            Some(format!("{} {}", ended.status, String::from_utf8_lossy(&ended.stderr).trim()))
        };
        Ok(EvalResult { answer, why })
    }
}

/// Says what isn't as it was to be.
fn judge(expect: &Value, answer: &str, project: &Path) -> Option<String> {
    for word in words(value_at(expect, "/answer")) {
        if !answer.to_lowercase().contains(&word.to_lowercase()) {
            return Some(format!("the answer lacks `{word}`: {answer}"));
        }
    }
    if let Some(number) = value_at(expect, "/answer_number").as_u64()
        && !numbers(answer).contains(&number)
    {
        return Some(format!("the answer is not {number}: {answer}"));
    }
    for (path, text) in value_at(expect, "/files").as_object().into_iter().flatten() {
        let held = fs::read_to_string(project.join(path)).unwrap_or_default();
        if held.trim_end() != text.as_str().unwrap_or_default().trim_end() {
            return Some(format!("`{path}` holds `{}`", held.trim_end()));
        }
    }
    for (path, wanted) in value_at(expect, "/has").as_object().into_iter().flatten() {
        let held = fs::read_to_string(project.join(path)).unwrap_or_default();
        if let Some(lacking) = words(wanted).into_iter().find(|word| !held.contains(word)) {
            return Some(format!("`{path}` lacks `{lacking}`: `{}`", held.trim_end()));
        }
    }
    None
}

fn words(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The whole numbers in a text.
fn numbers(text: &str) -> Vec<u64> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// What lies there, or nothing.
fn value_at<'v>(value: &'v Value, pointer: &str) -> &'v Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reports_what_differs_from_the_expected_result() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.txt"), "red\n").unwrap();
        let cases = [
            (json!({"answer": ["Oak"]}), "under the oak", None),
            (json!({"answer": ["oak"]}), "under the elm", Some("lacks `oak`")),
            (json!({"answer_number": 5}), "there are 5 lines", None),
            (json!({"answer_number": 5}), "there are 15 lines", Some("not 5")),
            (json!({"files": {"a.txt": "red"}}), "", None),
            (json!({"files": {"b.txt": "red"}}), "", Some("`b.txt` holds ``")),
            (json!({"has": {"a.txt": ["red", "blue"]}}), "", Some("lacks `blue`")),
        ];
        for (expect, answer, why) in cases {
            let found = judge(&expect, answer, folder.path());
            match why {
                None => assert_eq!(found, None, "{expect}"),
                Some(part) => assert!(found.unwrap().contains(part), "{expect}"),
            }
        }
    }

    #[test]
    fn every_task_can_fail() {
        let text = fs::read_to_string(root().join("evals/small.json")).unwrap();
        let set: Value = serde_json::from_str(&text).unwrap();
        let tasks = set["tasks"].as_array().unwrap();
        assert!(tasks.len() >= 20);
        let empty = tempfile::tempdir().unwrap();
        for task in tasks {
            assert!(judge(&task["expect"], "", empty.path()).is_some(), "{}", task["name"]);
        }
    }
}
