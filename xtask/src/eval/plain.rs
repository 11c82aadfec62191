//! `cargo xtask eval plain [--model NAME] [--all] [TASK…]`: goals in plain words, with the tools that a person gets who names none.
//!
//! A task passes, fails, or does damage: a file that it wasn't about has changed or is gone. A third of the set, drawn by a hash of
//! each name, isn't run unless `--all` asks for it, so that nobody tunes on it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::{EvalFolder, MODEL, judge, value_at, words};
use crate::machine::cargo;
use crate::{root, say};

/// The part of the tasks set apart that should pass, in percent.
const PASS_PERCENT_MIN: usize = 70;
/// The exit code of a task whose answer isn't borne out by what was done.
const UNVERIFIED: i32 = 21;

/// What the program made of one task.
struct Outcome {
    passed: bool,
    damaged: Vec<String>,
    /// It said that the task is completed.
    completed: bool,
    exit: i32,
    why: String,
}

#[derive(Default)]
struct Counts {
    tried: usize,
    passed: usize,
    damaged: usize,
    /// Called completed, and the check fails.
    false_completed: usize,
    unverified: usize,
}

pub(super) fn run(rest: &[String]) -> Result<()> {
    let (mut model, mut all, mut named) = (MODEL.to_owned(), false, Vec::new());
    let mut given = rest.iter();
    while let Some(word) = given.next() {
        match word.as_str() {
            "--model" => model = given.next().context("--model needs a name")?.clone(),
            "--all" => all = true,
            flag if flag.starts_with("--") => bail!("there is no flag `{flag}`"),
            name => named.push(name.to_owned()),
        }
    }
    cargo(&["build", "--quiet", "--release", "-p", "regent"])?;
    let tasks = tasks()?;
    let place = EvalFolder::new(&model)?;
    let (mut tuned, mut apart) = (Counts::default(), Counts::default());
    for task in &tasks {
        let name = value_at(task, "/name").as_str().context("a task needs a name")?;
        let is_apart = is_apart(name);
        let is_wanted = if named.is_empty() { all || !is_apart } else { named.iter().any(|one| one == name) };
        if !is_wanted {
            continue;
        }
        let started = Instant::now();
        let outcome = attempt(&place, name, task)?;
        let counts = if is_apart { &mut apart } else { &mut tuned };
        counts.add(&outcome);
        // What is set apart stays unseen.
        let why = if is_apart { String::new() } else { outcome.why.replace('\n', " ") };
        let word = match (&outcome.damaged[..], outcome.passed) {
            ([], true) => "pass",
            ([], false) => "FAIL",
            (_some, _) => "DAMAGE",
        };
        let shown: String = why.chars().take(110).collect();
        say(format!(
            "{word:<6} {name:<18} {:>6.1} s  exit {:<3} {shown}",
            started.elapsed().as_secs_f32(),
            outcome.exit
        ));
    }
    tuned.tell("tuned");
    apart.tell("apart");
    ensure!(tuned.damaged + apart.damaged == 0, "a file was damaged");
    ensure!(
        tuned.false_completed + apart.false_completed == 0,
        "a task was called completed whose check fails"
    );
    let percent = apart.passed * 100 / apart.tried.max(1);
    ensure!(
        !all || percent >= PASS_PERCENT_MIN,
        "{percent} % passed of what is set apart; {PASS_PERCENT_MIN} % should"
    );
    Ok(())
}

impl Counts {
    fn add(&mut self, outcome: &Outcome) {
        self.tried += 1;
        self.passed += usize::from(outcome.passed && outcome.damaged.is_empty());
        self.damaged += usize::from(!outcome.damaged.is_empty());
        self.false_completed += usize::from(outcome.completed && !outcome.passed);
        self.unverified += usize::from(outcome.exit == UNVERIFIED);
    }

    fn tell(&self, part: &str) {
        let Self { tried, passed, damaged, false_completed, unverified } = self;
        if *tried > 0 {
            say(format!(
                "eval.plain.{part}: {passed} of {tried} passed ({} %), {damaged} damaged a file, {false_completed} called completed \
                 whose check fails, {unverified} unverified",
                passed * 100 / tried
            ));
        }
    }
}

fn tasks() -> Result<Vec<Value>> {
    let text = fs::read_to_string(root().join("evals/plain.json"))?;
    let set: Value = serde_json::from_str(&text).context("evals/plain.json")?;
    value_at(&set, "/tasks").as_array().cloned().context("evals/plain.json has no tasks")
}

/// Whether a task is set apart: decided by its name alone, so that it can't be chosen.
fn is_apart(name: &str) -> bool {
    // FNV-1a.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash % 3 == 0
}

fn attempt(place: &EvalFolder, name: &str, task: &Value) -> Result<Outcome> {
    let project = place.project(name, task)?;
    let goal = value_at(task, "/goal").as_str().context("a task needs a goal")?;
    let before = files(&project)?;
    let ended = place.regent(
        &project,
        &["task", "run", goal, "--model", &place.model, "--unattended", "deny", "--json"],
    )?;
    let said = String::from_utf8_lossy(&ended.stdout);
    let end: Value = said.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
    let answer = value_at(&end, "/data/answer").as_str().unwrap_or_default();
    let expect = value_at(task, "/expect");
    let wrong = judge(expect, answer, &project).or_else(|| left(expect, &project));
    let completed = ended.status.success();
    let why = match &wrong {
        Some(why) => why.clone(),
        None if completed => answer.to_owned(),
        None => value_at(&end, "/error/message").as_str().unwrap_or_default().to_owned(),
    };
    Ok(Outcome {
        passed: wrong.is_none() && completed,
        damaged: damaged(expect, &before, &files(&project)?),
        completed,
        exit: ended.status.code().unwrap_or(-1),
        why,
    })
}

/// Says what is still there that was to go.
fn left(expect: &Value, project: &Path) -> Option<String> {
    let there = words(value_at(expect, "/gone")).into_iter().find(|path| project.join(path).exists());
    if let Some(path) = there {
        return Some(format!("`{path}` is still there"));
    }
    for (path, unwanted) in value_at(expect, "/lacks").as_object().into_iter().flatten() {
        let held = fs::read_to_string(project.join(path)).unwrap_or_default();
        if let Some(word) = words(unwanted).into_iter().find(|word| held.contains(word)) {
            return Some(format!("`{path}` still has `{word}`"));
        }
    }
    None
}

/// The files that were there, that the task wasn't about, and that are not as they were. Of a file that it was about, what has to stay is
/// part of the check; but one that is gone or empty is damaged.
fn damaged(
    expect: &Value,
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> Vec<String> {
    let about = |path: &str| {
        ["/files", "/has", "/lacks"].iter().any(|part| value_at(expect, part).get(path).is_some())
            || words(value_at(expect, "/gone")).iter().any(|gone| gone == path)
    };
    let may_go = |path: &str| words(value_at(expect, "/gone")).iter().any(|gone| gone == path);
    let differs = |(path, held): &(&String, &String)| match after.get(*path) {
        Some(now) if about(path) => now.trim().is_empty() && !held.trim().is_empty() && !may_go(path),
        Some(now) => now != *held,
        None => !may_go(path),
    };
    before.iter().filter(differs).map(|(path, _)| path.clone()).collect()
}

/// The files of a project, without Regent's own.
fn files(project: &Path) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![project.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.strip_prefix(project)?.to_string_lossy().into_owned();
            if name == ".regent" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(name, String::from_utf8_lossy(&fs::read(&path)?).into_owned());
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn about_a_third_is_set_apart_and_every_task_can_fail() {
        let tasks = tasks().unwrap();
        let apart = tasks.iter().filter(|task| is_apart(task["name"].as_str().unwrap())).count();
        assert!((tasks.len() / 4..=tasks.len() / 2).contains(&apart), "{apart} of {}", tasks.len());
        for task in &tasks {
            let folder = tempfile::tempdir().unwrap();
            for (path, text) in task["files"].as_object().unwrap() {
                let path = folder.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text.as_str().unwrap()).unwrap();
            }
            let expect = &task["expect"];
            let wrong = judge(expect, "", folder.path()).or_else(|| left(expect, folder.path()));
            assert!(wrong.is_some(), "{}", task["name"]);
        }
    }

    #[test]
    fn damage_is_what_a_task_was_not_about() {
        let files = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
        };
        let before = files(&[("a", "1"), ("b", "2")]);
        let expect = json!({"files": {"a": "9"}});
        type Files<'f> = &'f [(&'f str, &'f str)];
        let cases: &[(Files<'_>, &[&str])] = &[
            (&[("a", "9"), ("b", "2")], &[]),
            (&[("a", "wrong"), ("b", "2"), ("c", "new")], &[]),
            (&[("a", ""), ("b", "2")], &["a"]),
            (&[("b", "2")], &["a"]),
            (&[("a", "9"), ("b", "3")], &["b"]),
            (&[("a", "9")], &["b"]),
        ];
        for (after, wanted) in cases {
            assert_eq!(damaged(&expect, &before, &files(after)), *wanted, "{after:?}");
        }
        assert_eq!(damaged(&json!({"gone": ["a"]}), &before, &files(&[("b", "2")])), [""; 0]);
    }
}
