//! Real tasks of the real program, killed at every write and at random. Each must end with the same result as an undisturbed one, make
//! every mark once, and cost what its receipts add up to.
//!
//! The marks are edits whose repetition would show. A call that was killed halfway is in doubt, and the harness plays the operator: it
//! reads the file, and approves only if the mark isn't there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::points::{Blow, Point, enumerate_calls};
use super::{Broken, Tally, finish, program};
use crate::random::Random;

/// The calls by which a task writes to the disk. Opening is left out: it writes nothing, and mostly the loader does it.
const WRITES: &str = "write,pwrite64,writev,pwritev,pwritev2,fdatasync,fsync,rename,renameat,renameat2,ftruncate,fallocate,\
    mkdir,mkdirat,unlink,unlinkat,link,linkat";
const MARKS: [&str; 3] = ["1", "2", "3"];
const RESULT: &str = "123|";
const ANSWER: &str = "made three marks";
/// How often a task may be resumed before it counts as stuck.
const ROUNDS_MAX: usize = 40;
/// Concurrent tasks of one project, each in its own process.
const LOAD: usize = 3;
/// Projects without a kill, after which the harness itself counts as broken.
const UNHARMED_MAX: u64 = 20;

/// A project with a scripted model and its own home.
struct Scene {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Scene {
    fn new(program: &Path) -> Result<Self, Broken> {
        let scene = Self { folder: tempfile::tempdir()?, program: program.to_owned() };
        let config = scene.folder.path().join("home/.config/regent");
        fs::create_dir_all(&config)?;
        fs::create_dir_all(scene.folder.path().join("run"))?;
        fs::create_dir_all(scene.project())?;
        let script = scene.folder.path().join("script.json");
        fs::write(&script, script_text().to_string())?;
        let models = format!(
            "[models.play]\nkind = 'scripted'\nfile = '{}'\nmodels = ['m']\ncapabilities.m.price = {{ input = 1000000, output = 2000000 }}\n",
            script.display()
        );
        fs::write(config.join("config.toml"), models)?;
        for worker in 0..LOAD {
            fs::write(scene.counter(worker), "|")?;
        }
        let made = scene.finish(&["init", "--quick"])?;
        if made.0 { Ok(scene) } else { Err(format!("`regent init`: {}", made.2).into()) }
    }

    /// Keeps the folder of a scene that went wrong, for the person who looks into it.
    fn kept_after(mut self, broken: &Broken) -> Broken {
        self.folder.disable_cleanup(true);
        format!("{broken} (kept: {})", self.folder.path().display()).into()
    }

    fn project(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    fn counter(&self, worker: usize) -> PathBuf {
        self.project().join(format!("counter{worker}.txt"))
    }

    fn dress(&self, command: &mut Command) {
        command.current_dir(self.project()).env_clear().env("PATH", "/usr/bin:/bin");
        command.env("HOME", self.folder.path().join("home"));
        command.env("XDG_RUNTIME_DIR", self.folder.path().join("run"));
    }

    fn regent(&self, arguments: &[&str]) -> Command {
        let mut command = program(&self.program);
        command.args(arguments).stdin(Stdio::null());
        self.dress(&mut command);
        command
    }

    /// Runs a command: its success, and both output streams.
    fn finish(&self, arguments: &[&str]) -> Result<(bool, String, String), Broken> {
        let ended = finish(&mut self.regent(arguments))?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok((ended.status.success(), text(ended.stdout), text(ended.stderr)))
    }

    /// Runs a command with `--json` and parses its output.
    fn ask(&self, arguments: &[&str]) -> Result<Value, Broken> {
        let (_, stdout, stderr) = self.finish(&[arguments, &["--json"]].concat())?;
        let last = stdout.lines().last().ok_or_else(|| format!("{arguments:?} printed nothing: {stderr}"))?;
        Ok(value_at(&serde_json::from_str(last)?, "/data").clone())
    }

    /// The existing tasks: id, goal and state.
    fn tasks(&self) -> Result<Vec<(String, String, String)>, Broken> {
        let told = self.ask(&["task", "list"])?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let tasks = value_at(&told, "/tasks").as_array().ok_or("`task list` lists nothing")?;
        Ok(tasks
            .iter()
            .map(|task| {
                (text(value_at(task, "/task")), text(value_at(task, "/goal")), text(value_at(task, "/state")))
            })
            .collect())
    }

    /// Answers every question after checking the file.
    fn answer(&self) -> Result<(), Broken> {
        let told = self.ask(&["approve", "list"])?;
        for question in value_at(&told, "/questions").as_array().into_iter().flatten() {
            let id = value_at(question, "/id").as_str().ok_or("a question without an id")?;
            let asked = question.to_string();
            let of = |worker: &usize| asked.contains(&format!("counter{worker}.txt"));
            let worker =
                (0..LOAD).find(of).ok_or_else(|| format!("a question about nothing we know: {asked}"))?;
            let held = fs::read_to_string(self.counter(worker))?;
            let mark = MARKS.iter().find(|mark| asked.contains(&format!("`{mark}|`")));
            let mark = mark.ok_or_else(|| format!("the question doesn't say which mark: {asked}"))?;
            let verdict = if held.contains(mark) { ["deny", id] } else { ["approve", id] };
            let (_, _, stderr) = self.finish(&verdict)?;
            if !stderr.is_empty() && stderr.contains("panicked") {
                return Err(stderr.into());
            }
        }
        Ok(())
    }

    /// Resumes tasks until every task of every worker has ended.
    fn settle(&self, workers: usize) -> Result<(), Broken> {
        let mut last = String::new();
        for _ in 0..ROUNDS_MAX {
            let tasks = self.tasks()?;
            let mut open = false;
            for worker in 0..workers {
                let goal = goal(worker);
                match tasks.iter().find(|(_, named, _)| *named == goal) {
                    // Killed before the task was accepted: nothing was promised, so it is submitted again.
                    None => {
                        open = true;
                        self.finish(&["task", "run", &goal, "--model", "play/m"])?;
                    }
                    Some((_, _, state)) if ["completed", "finalized"].contains(&state.as_str()) => {}
                    Some((id, _, _)) => {
                        open = true;
                        self.answer()?;
                        (_, _, last) = self.finish(&["task", "resume", id])?;
                    }
                }
            }
            if !open {
                return Ok(());
            }
        }
        Err(format!("no end after {ROUNDS_MAX} rounds: {:?}: {last}", self.tasks()?).into())
    }

    /// Checks that everything is as after an undisturbed run.
    fn judge(&self, workers: usize) -> Result<(), Broken> {
        let costs = self.receipts()?;
        for worker in 0..workers {
            let held = fs::read_to_string(self.counter(worker))?;
            if held != RESULT {
                return Err(format!("worker {worker} made the marks `{held}`").into());
            }
            let goal = goal(worker);
            let own: Vec<_> = self.tasks()?.into_iter().filter(|(_, named, _)| *named == goal).collect();
            let [(id, _, _)] = own.as_slice() else {
                return Err(format!("worker {worker} has {} tasks", own.len()).into());
            };
            let shown = self.ask(&["task", "show", id])?;
            if value_at(&shown, "/task/answer") != ANSWER {
                return Err(format!("`{id}` answered {}", value_at(&shown, "/task/answer")).into());
            }
            let (cost, sum) =
                (value_at(&shown, "/task/spent/money_microusd").as_u64(), costs.get(id).copied());
            if cost != sum {
                return Err(format!("`{id}` cost {cost:?}, its receipts come to {sum:?}").into());
            }
        }
        // A kill may leave an unsigned end; the next kernel signs it.
        self.finish(&["tool", "call", "fs.read", r#"{"path":"counter0.txt"}"#])?;
        let (verified, _, stderr) = self.finish(&["audit", "verify"])?;
        if verified { Ok(()) } else { Err(format!("the ledger doesn't verify: {stderr}").into()) }
    }

    /// The sum of outcomes per task, read from the ledger's files alone.
    fn receipts(&self) -> Result<BTreeMap<String, u64>, Broken> {
        let mut steps = BTreeMap::new();
        let mut sums = BTreeMap::new();
        let mut outcomes = Vec::new();
        let lanes = self.project().join(".regent/audit/lanes");
        for lane in fs::read_dir(lanes)? {
            let lane = lane?.path();
            let name = lane.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            for segment in fs::read_dir(&lane)? {
                let segment = segment?.path();
                if segment.extension().is_none_or(|kind| kind != "jsonl") {
                    continue;
                }
                for line in fs::read_to_string(segment)?.lines() {
                    // A torn last line stays as found.
                    let Ok(entry) = serde_json::from_str::<Value>(line) else { continue };
                    let body = value_at(&entry, "/body");
                    if value_at(&entry, "/kind") == "intent"
                        && let Some(task) = value_at(body, "/step/task").as_str()
                    {
                        steps.insert((name.clone(), value_at(&entry, "/seq").as_u64()), task.to_owned());
                    }
                    if value_at(&entry, "/kind") == "outcome" {
                        let place = (
                            value_at(body, "/lane").as_str().unwrap_or(&name).to_owned(),
                            value_at(body, "/intent").as_u64(),
                        );
                        outcomes.push((place, value_at(body, "/spent/money_microusd").as_u64().unwrap_or(0)));
                    }
                }
            }
        }
        for (place, money) in outcomes {
            if let Some(task) = steps.get(&place) {
                *sums.entry(task.clone()).or_default() += money;
            }
        }
        Ok(sums)
    }
}

fn goal(worker: usize) -> String {
    format!("make the marks of worker{worker}")
}

fn script_text() -> Value {
    let mut turns = Vec::new();
    for worker in 0..LOAD {
        let about = format!("worker{worker}");
        let path = format!("counter{worker}.txt");
        let edit = |mark: &str| json!({"about": about, "calls": [{"tool": "fs.edit", "args": {"path": path, "old": "|", "new": format!("{mark}|")}}]});
        let finish = json!({"about": about, "calls": [{"tool": "task.finish", "args": {"answer": ANSWER}}]});
        let read = json!({"about": about, "calls": [{"tool": "fs.read", "args": {"path": path}}]});
        turns.extend([edit("1"), read, edit("2"), edit("3"), finish]);
    }
    json!({"turns": turns})
}

/// The program under test, beside the harness.
pub fn regent_program() -> Result<PathBuf, Broken> {
    let own = std::env::current_exe()?;
    let program = own.parent().ok_or("the harness has no folder")?.join("regent");
    if program.is_file() { Ok(program) } else { Err(format!("`{}` is not built", program.display()).into()) }
}

/// Kills a task at every write in turn; `every` samples them.
pub fn strike(regent: &Path, every: usize) -> Result<Tally, Broken> {
    let scene = Scene::new(regent)?;
    let log = scene.folder.path().join("strace.log");
    let mut traced = program("strace");
    traced.args(["-f", "-qq", "-e", &format!("trace={WRITES}"), "-o"]).arg(&log).arg(regent);
    traced.args(["task", "run", &goal(0), "--model", "play/m"]).stdin(Stdio::null());
    scene.dress(&mut traced);
    let ended = finish(&mut traced)?;
    if !ended.status.success() {
        return Err(format!("an undisturbed task: {}", String::from_utf8_lossy(&ended.stderr)).into());
    }
    scene.judge(1)?;
    let mut total = Tally::default();
    for point in enumerate_calls(&fs::read_to_string(log)?).iter().step_by(every.max(1)) {
        total.add(strike_at(regent, point).unwrap_or_else(|broken| Tally {
            cases: 1,
            breaches: vec![format!("killed at {} #{}: {broken}", point.call, point.at)],
            ..Tally::default()
        }));
    }
    Ok(total)
}

fn strike_at(regent: &Path, point: &Point) -> Result<Tally, Broken> {
    let scene = Scene::new(regent)?;
    let log = scene.folder.path().join("strace.log");
    let mut struck = program("strace");
    let inject = format!("inject={}:signal=KILL:when={}", point.call, point.at);
    struck
        .args(["-f", "-qq", "-e", &format!("trace={}", point.call), "-e", &inject, "-o"])
        .arg(&log)
        .arg(regent);
    struck.args(["task", "run", &goal(0), "--model", "play/m"]).stdin(Stdio::null());
    scene.dress(&mut struck);
    finish(&mut struck)?;
    let fell = fs::read_to_string(&log)?.lines().any(|line| line.contains(Blow::Kill.trace()));
    scene.settle(1).and_then(|()| scene.judge(1)).map_err(|broken| scene.kept_after(&broken))?;
    Ok(Tally { cases: 1, missed: u64::from(!fell), ..Tally::default() })
}

/// Kills tasks at random moments, with several processes at work in one project, until `deaths` have died.
pub fn kill(regent: &Path, deaths: u64, seed: u64) -> Result<Tally, Broken> {
    let mut random = Random::new(seed);
    let mut total = Tally::default();
    let mut unharmed = 0;
    let mut life_ms_max = undisturbed_ms(regent)?;
    while total.cases < deaths {
        let mut died = 0;
        let ended = one_project(regent, life_ms_max, &mut random, &mut died);
        total.cases += died;
        if let Err(broken) = ended {
            total.breaches.push(format!("random kills, seed {seed}, after {} deaths: {broken}", total.cases));
        }
        if died == 0 {
            // The machine was busy during the timing, so the tasks ended before the kill.
            (unharmed, life_ms_max) = (unharmed + 1, (life_ms_max / 2).max(1));
        }
        if unharmed > UNHARMED_MAX {
            return Err("no process was killed: this proves nothing".into());
        }
    }
    Ok(total)
}

/// How long the tasks of a project take undisturbed; kills happen within that time.
fn undisturbed_ms(regent: &Path) -> Result<u64, Broken> {
    let scene = Scene::new(regent)?;
    let started = Instant::now();
    scene.settle(LOAD)?;
    scene.judge(LOAD)?;
    Ok(u64::try_from(started.elapsed().as_millis())? / LOAD as u64)
}

fn one_project(regent: &Path, life_ms_max: u64, random: &mut Random, died: &mut u64) -> Result<(), Broken> {
    let scene = Scene::new(regent)?;
    for _ in 0..4 {
        let tasks = scene.tasks()?;
        let mut processes = Vec::new();
        for worker in 0..LOAD {
            let goal = goal(worker);
            let known = tasks.iter().find(|(_, named, _)| *named == goal);
            let mut command = match known {
                None => scene.regent(&["task", "run", &goal, "--model", "play/m"]),
                Some((_, _, state)) if ["completed", "finalized"].contains(&state.as_str()) => continue,
                Some((id, _, _)) => scene.regent(&["task", "resume", id]),
            };
            processes.push(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        }
        for mut process in processes {
            std::thread::sleep(Duration::from_millis(random.below(life_ms_max)));
            if process.try_wait()?.is_none() {
                process.kill()?;
                *died += 1;
            }
            process.wait()?;
        }
        scene.answer()?;
    }
    scene.settle(LOAD).and_then(|()| scene.judge(LOAD)).map_err(|broken| scene.kept_after(&broken))
}

/// The value at a pointer, or null.
fn value_at<'v>(value: &'v Value, pointer: &str) -> &'v Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}
