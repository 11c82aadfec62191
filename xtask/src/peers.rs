//! `cargo xtask peers`: tasks of the real program against model servers that nobody here wrote, all on loopback.
//!
//! A recorder (`xtask/peers/recorder.py`) stands before each of them and validates every request by the types of the vendors' own packages.

mod misbehaving;
mod models;
mod servers;
mod task;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

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

/// A finding that is known and not fixed yet.
struct Known {
    wires: &'static [&'static str],
    /// Each of its lines has one of these.
    lines: &'static [&'static str],
    why: &'static str,
}

/// Each is to be deleted with its fix: one that no longer occurs fails the run.
const KNOWN: &[Known] = &[Known {
    wires: &["responses"],
    lines: &["ResponseOutputMessageParam"],
    why: "wire/openai_responses.rs sends the model's words back as `output_text` without `id`, `status` and `annotations`",
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
    let mut bench =
        Bench { servers: &servers, program: &program, faults: 0, known: BTreeMap::new(), runs: 0 };
    for part in &parts {
        match *part {
            "vendors" => bench.all(&models::vendors())?,
            "aimock" => bench.all(&models::aimock())?,
            "litellm" => {
                bench.rules()?;
                bench.all(&models::litellm()?)?;
            }
            _misbehaving => bench.misbehaving()?,
        }
    }
    bench.finish(parts.len() == PARTS.len())
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
    faults: usize,
    /// How many requests have each finding of `KNOWN`.
    known: BTreeMap<&'static str, usize>,
    runs: usize,
}

impl Bench<'_> {
    /// Runs tasks that must go well.
    fn all(&mut self, runs: &[Run]) -> Result<()> {
        for (run, ended) in runs.iter().zip(self.side_by_side(runs)?) {
            let (faults, known) = ended.as_ref().map(faults).unwrap_or_default();
            self.report(run, ended, faults);
            for why in known {
                let count = self.known.entry(why).or_default();
                *count = count.saturating_add(1);
            }
        }
        Ok(())
    }

    fn misbehaving(&mut self) -> Result<()> {
        let (cases, runs): (Vec<_>, Vec<_>) =
            misbehaving::CASES.iter().flat_map(|case| case.runs().map(move |run| (case, run))).unzip();
        for ((case, run), ended) in cases.iter().zip(&runs).zip(self.side_by_side(&runs)?) {
            let faults = ended.as_ref().map(|ended| case.faults(ended)).unwrap_or_default();
            self.report(run, ended, faults);
        }
        if !self.servers.records("redirected")?.is_empty() {
            self.fault("redirect: Regent followed it");
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
                self.fault(format!("litellm takes {name}, so its rules are not in force: {said}"));
            }
        }
        Ok(())
    }

    fn report(&mut self, run: &Run, ended: Result<Ended>, mut faults: Vec<String>) {
        let (requests, refused, code) = match ended {
            Ok(ended) => {
                let refused = ended.requests.iter().filter(|record| record.is_refused()).count();
                (ended.requests.len(), refused, ended.code.to_string())
            }
            Err(error) => {
                faults.push(format!("{error:#}"));
                (0, 0, "-".to_owned())
            }
        };
        let shown = format!("{:<11} {:<16} {:<28}", run.target, run.kind, run.shown());
        // A server that misbehaves refuses by design.
        let refused = if run.case.is_some() { String::new() } else { format!("  {refused} refused") };
        let word = word_of(faults.is_empty());
        say(format!("{word} {shown} exit {code:>2}  {requests} requests{refused}"));
        faults.iter().for_each(|fault| self.fault(fault));
        self.runs = self.runs.saturating_add(1);
    }

    fn fault(&mut self, fault: impl std::fmt::Display) {
        say(format!("       {fault}"));
        self.faults = self.faults.saturating_add(1);
    }

    /// Runs tasks on all processors, and gives the results in order.
    fn side_by_side(&self, runs: &[Run]) -> Result<Vec<Result<Ended>>> {
        let (next, ended) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
        let work = || {
            while let at = next.fetch_add(1, Ordering::Relaxed)
                && let Some(run) = runs.get(at)
            {
                let result = task::run(self.servers, self.program, run);
                ended.lock().unwrap_or_else(PoisonError::into_inner).insert(at, result);
            }
        };
        let threads = std::thread::available_parallelism()?.get();
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
        Ok(ended.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect())
    }

    fn finish(mut self, is_whole: bool) -> Result<()> {
        for record in self.servers.records("outside")? {
            self.fault(format!("a server tried to reach the network: {}", record.findings.join(", ")));
        }
        for Known { why, .. } in KNOWN {
            match self.known.get(why) {
                Some(count) => say(format!("known: {count} requests: {why}")),
                None if is_whole => self.fault(format!("`KNOWN` names what is fixed; delete it: {why}")),
                None => {}
            }
        }
        say(format!("peers: {} tasks, {} faults", self.runs, self.faults));
        if self.faults == 0 {
            return Ok(());
        }
        bail!("{} faults; requests, answers and logs: {}", self.faults, self.servers.keep().display())
    }
}

fn word_of(is_fine: bool) -> &'static str {
    if is_fine { "ok    " } else { "FAULT " }
}

/// What is wrong with a task that must go well; and for each of its requests with a known finding, why.
fn faults(ended: &Ended) -> (Vec<String>, Vec<&'static str>) {
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

/// What types and servers have against requests; and for each request with a known finding, why.
fn objections(requests: &[Record]) -> (Vec<String>, Vec<&'static str>) {
    let (mut objections, mut known) = (Vec::new(), Vec::new());
    for (number, record) in (1_usize..).zip(requests) {
        let is_hit = |known: &Known, finding: &String| {
            known.wires.contains(&record.wire.as_str())
                && known.lines.iter().any(|line| finding.contains(line))
        };
        let is_here = |one: &&Known| record.findings.iter().any(|finding| is_hit(one, finding));
        known.extend(KNOWN.iter().filter(is_here).map(|one| one.why));
        let unknown = record.findings.iter().filter(|finding| !KNOWN.iter().any(|one| is_hit(one, finding)));
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
        assert_eq!(faults(&well(fine())), (vec![], vec![]));
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
            assert_eq!((found.len(), known.len()), (unknown, counted), "{wire} {lines:?}");
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
