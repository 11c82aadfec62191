//! `cargo xtask peers`: tasks of the real program against model servers that nobody here wrote, all on loopback.
//!
//! A recorder (`xtask/peers/recorder.py`) stands before each of them and validates every request by the types of the vendors' own packages.

mod misbehaving;
mod models;
mod servers;
mod task;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, bail};

use crate::machine::{cargo, target};
use crate::say;
use servers::{Record, Servers};
use task::{Ended, Run};

const PARTS: &[&str] = &["vendors", "aimock", "litellm", "misbehaving"];

/// What every task that goes well has written, and said in the end.
const WRITTEN: (&str, &str) = ("written ü.txt", "ü 漢字 🙂 \"quoted\" \\ back\n");
const ANSWER: &str = "Done: ü 漢字 🙂";
/// Findings that are shown of one request.
const SHOWN_MAX: usize = 4;

/// A finding of the types that is known and not fixed yet.
struct Known {
    wire: &'static str,
    /// Each of its lines has one of these.
    lines: &'static [&'static str],
    why: &'static str,
}

/// Each is to be deleted with its fix: one that no longer occurs fails the run.
const KNOWN: &[Known] = &[Known {
    wire: "responses",
    lines: &["ResponseOutputMessageParam", "EasyInputMessageParam.content.str", "input.str: "],
    why: "a turn of the model goes back as a list of `output_text` without `id`, `status` and `annotations`",
}];

/// `cargo xtask peers [--program PATH] [PART…]`
pub(crate) fn run(rest: &[String]) -> Result<()> {
    let (program, parts) = chosen(rest)?;
    let program = match program {
        Some(program) => std::path::absolute(program)?,
        None => {
            cargo(&["build", "--quiet", "--workspace", "--bins", "--locked"])?;
            target().join("debug/regent")
        }
    };
    let servers = Servers::start()?;
    let mut bench = Bench { servers: &servers, program: &program, faults: Vec::new(), known: 0, runs: 0 };
    for part in parts {
        match part {
            "vendors" => bench.all(models::vendors())?,
            "aimock" => bench.all(models::aimock())?,
            "litellm" => {
                bench.rules()?;
                bench.all(models::litellm()?)?;
            }
            _misbehaving => bench.misbehaving()?,
        }
    }
    bench.finish()
}

/// What CI runs.
pub(crate) fn check() -> Result<()> {
    run(&[])
}

/// The program and the parts that the words name; all parts where they name none.
fn chosen(words: &[String]) -> Result<(Option<PathBuf>, Vec<&'static str>)> {
    let (mut program, mut parts) = (None, Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--program" {
            program = Some(PathBuf::from(words.next().context("`--program` needs a path")?));
            continue;
        }
        let Some(part) = PARTS.iter().find(|part| *part == word) else {
            bail!("there is no part `{word}`; there are {}", PARTS.join(", "));
        };
        parts.push(*part);
    }
    Ok((program, if parts.is_empty() { PARTS.to_vec() } else { parts }))
}

/// The servers, the program, and what was found so far.
struct Bench<'s> {
    servers: &'s Servers,
    program: &'s Path,
    faults: Vec<String>,
    /// Requests with a finding of `KNOWN`.
    known: usize,
    runs: usize,
}

impl Bench<'_> {
    /// Runs tasks that must go well.
    fn all(&mut self, runs: Vec<Run>) -> Result<()> {
        for (run, ended) in side_by_side(&runs, |run| task::run(self.servers, self.program, run))? {
            let (faults, known) = faults(&ended);
            self.report(run, &ended, faults);
            self.known = self.known.saturating_add(known);
        }
        Ok(())
    }

    fn misbehaving(&mut self) -> Result<()> {
        let runs: Vec<Run> = misbehaving::CASES.iter().map(misbehaving::Case::run).collect();
        let ended = side_by_side(&runs, |run| task::run(self.servers, self.program, run))?;
        for (case, (run, ended)) in misbehaving::CASES.iter().zip(ended) {
            self.report(run, &ended, case.faults(&ended));
        }
        if !self.servers.records("redirected")?.is_empty() {
            self.faults.push("redirect: Regent followed it".to_owned());
        }
        Ok(())
    }

    /// Asks LiteLLM for what it must refuse: its rules are in force, or the runs after this prove nothing.
    fn rules(&mut self) -> Result<()> {
        for (name, body, word) in models::REFUSED {
            let said = self.servers.ask(name, body)?;
            let records = self.servers.records(name)?;
            let is_refused = records.iter().any(|record| record.status == 400) && said.contains(word);
            say(format!(
                "{} litellm refuses {name}: {}",
                word_of(is_refused),
                said.chars().take(100).collect::<String>()
            ));
            if !is_refused {
                self.faults.push(format!("litellm: it takes {name}, so its rules are not in force: {said}"));
            }
        }
        Ok(())
    }

    fn report(&mut self, run: &Run, ended: &Ended, faults: Vec<String>) {
        let refused = ended.requests.iter().filter(|record| record.is_refused()).count();
        say(format!(
            "{} {:<11} {:<16} {:<28} {:>2} requests {refused:>2} refused  exit {:>2}",
            word_of(faults.is_empty()),
            run.target,
            run.kind,
            run.shown(),
            ended.requests.len(),
            ended.code
        ));
        faults.iter().for_each(|fault| say(format!("       {fault}")));
        let name = format!("{} {} {}", run.target, run.kind, run.shown());
        self.faults.extend(faults.into_iter().map(|fault| format!("{name}: {fault}")));
        self.runs = self.runs.saturating_add(1);
    }

    fn finish(mut self) -> Result<()> {
        for record in self.servers.records("outside")? {
            self.faults.push(format!("a server tried to reach the network: {}", record.findings.join(", ")));
        }
        let is_whole = self.runs > misbehaving::CASES.len();
        match (KNOWN.first(), self.known) {
            (Some(known), 0) if is_whole => {
                self.faults.push(format!("`KNOWN` names what is fixed; delete it: {}", known.why));
            }
            (Some(known), count) if count > 0 => {
                say(format!("known: {count} requests on `{}`: {}", known.wire, known.why))
            }
            (Some(_) | None, _) => {}
        }
        say(format!("peers: {} tasks, {} faults", self.runs, self.faults.len()));
        if self.faults.is_empty() {
            return Ok(());
        }
        self.faults.iter().for_each(|fault| say(format!("FAULT {fault}")));
        say(format!("requests, answers and logs: {}", self.servers.keep().display()));
        bail!("{} faults", self.faults.len())
    }
}

fn word_of(is_fine: bool) -> &'static str {
    if is_fine { "ok    " } else { "FAULT " }
}

/// Runs on all processors, and gives the results in order.
fn side_by_side(runs: &[Run], run: impl Fn(&Run) -> Result<Ended> + Sync) -> Result<Vec<(&Run, Ended)>> {
    let next = AtomicUsize::new(0);
    let ended: Mutex<Vec<(usize, Result<Ended>)>> = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((at, one)) = Some(next.fetch_add(1, Ordering::Relaxed))
                    .and_then(|at| runs.get(at).map(|one| (at, one)))
                {
                    let result = run(one);
                    ended.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((at, result));
                }
            });
        }
    });
    let mut ended = ended.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    ended.sort_by_key(|(at, _)| *at);
    runs.iter().zip(ended).map(|(run, (_, result))| Ok((run, result.with_context(|| run.name())?))).collect()
}

/// What is wrong with a task that must go well, and how many of its requests have a known finding.
fn faults(ended: &Ended) -> (Vec<String>, usize) {
    let mut faults = Vec::new();
    if ended.code != 0 {
        faults.push(format!("exit code {}: {}", ended.code, ended.said));
    }
    if ended.answer != ANSWER {
        faults.push(format!("the answer is `{}`", ended.answer));
    }
    let (name, content) = WRITTEN;
    if ended.files.get(name).is_none_or(|written| written != content) {
        faults.push(format!("`{name}` should be there with {content:?}; there is {:?}", ended.files));
    }
    if ended.requests.len() < 3 {
        faults.push(format!("{} requests; a task with tools takes at least 3", ended.requests.len()));
    }
    let (found, known) = objections(&ended.requests);
    faults.extend(found);
    (faults, known)
}

/// What types and servers have against requests, and how many requests have a known finding.
fn objections(requests: &[Record]) -> (Vec<String>, usize) {
    let mut objections = Vec::new();
    let mut known = 0_usize;
    for (number, record) in requests.iter().enumerate() {
        let is_known = |finding: &&String| {
            KNOWN.iter().any(|known| {
                known.wire == record.wire && known.lines.iter().any(|line| finding.contains(line))
            })
        };
        known = known.saturating_add(usize::from(record.findings.iter().any(|finding| is_known(&finding))));
        let number = number.saturating_add(1);
        let unknown = record.findings.iter().filter(|finding| !is_known(finding));
        objections.extend(unknown.take(SHOWN_MAX).map(|finding| format!("request {number}: {finding}")));
        if record.is_refused() {
            objections.push(format!("request {number}: refused with {}: {}", record.status, record.refusal));
        }
    }
    (objections, known)
}

#[cfg(test)]
mod tests {
    //! A fault shows whatever it is in, and known findings hide nothing else.

    use super::*;

    fn record(wire: &str, status: u64, findings: &[&str]) -> Record {
        let findings = findings.iter().map(|&finding| finding.to_owned()).collect();
        Record { run: "r".to_owned(), wire: wire.to_owned(), status, findings, refusal: String::new() }
    }

    fn well(requests: Vec<Record>) -> Ended {
        let files = [(WRITTEN.0.to_owned(), WRITTEN.1.to_owned())].into();
        Ended { code: 0, answer: ANSWER.to_owned(), said: String::new(), tokens: 0, files, requests }
    }

    #[test]
    fn any_one_fault_fails_a_task() {
        let fine = || vec![record("chat", 200, &[]), record("chat", 200, &[]), record("chat", 200, &[])];
        assert_eq!(faults(&well(fine())), (vec![], 0));
        let worse: [fn(&mut Ended); 7] = [
            |ended| ended.code = 20,
            |ended| ended.answer = "Done".to_owned(),
            |ended| ended.files.clear(),
            |ended| drop(ended.files.insert(WRITTEN.0.to_owned(), "ue".to_owned())),
            |ended| drop(ended.requests.pop()),
            |ended| ended.requests[1].status = 400,
            |ended| ended.requests[2].findings.push("messages.0.x: Extra inputs".to_owned()),
        ];
        for (at, worsen) in worse.iter().enumerate() {
            let mut ended = well(fine());
            worsen(&mut ended);
            assert_eq!(faults(&ended).0.len(), 1, "{at}");
        }
    }

    #[test]
    fn a_known_finding_hides_no_other() {
        let known = "input.3.ResponseOutputMessageParam.id: Field required";
        let cases = [
            ("responses", vec![known], 0, 1),
            ("responses", vec![known, "input.4.FunctionCallOutput.x: Extra inputs"], 1, 1),
            ("chat", vec![known], 1, 0),
        ];
        for (wire, lines, unknown, counted) in cases {
            let (found, known) = objections(&[record(wire, 200, &lines)]);
            assert_eq!((found.len(), known), (unknown, counted), "{wire} {lines:?}");
        }
    }

    #[test]
    fn words_choose_parts_and_a_program() {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        assert_eq!(chosen(&[]).unwrap(), (None, PARTS.to_vec()));
        let (program, parts) = chosen(&words(&["aimock", "--program", "/x"])).unwrap();
        assert_eq!((program, parts), (Some(PathBuf::from("/x")), vec!["aimock"]));
        assert!(chosen(&words(&["vendor"])).is_err());
        assert!(chosen(&words(&["--program"])).is_err());
    }
}
