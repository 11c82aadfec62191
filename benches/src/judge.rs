//! The judge as a host meets it: the real program, its pipe, and a ledger on disk.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::crashed::killed_session;
use crate::home::Home;
use crate::measure::{median, once};
use crate::report::Report;

/// Entries of the ledger that the program starts on.
const ENTRIES: u64 = 1_000_000;
const STARTS: usize = 5;
/// Pairs of decide and observe that a rate is measured over.
const PAIRS: usize = 6_000;
const PAIRS_ALONE: usize = 1_000;
const SIDE_BY_SIDE: usize = 32;
const SYNCS: usize = 200;
/// Decisions that a median is taken of.
const DECISIONS: usize = 101;
const MANY: usize = 10_000;
/// Sessions of the many that are used again.
const AGAIN: usize = 201;

/// `judge.*`.
pub fn measure(report: &mut Report) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("rg").tempdir()?;
    let home = Home::create(folder.path())?;
    syncs(report, &home)?;
    pairs(report, &home)?;
    decide(report, &home)?;
    observe(report, &home)?;
    many(report, &home)?;
    start(report)
}

/// How often the disk syncs a file that grows, in the same run. A commit with payloads takes two such syncs.
fn syncs(report: &mut Report, home: &Home) -> Result<()> {
    let mut file = std::fs::File::create(home.path().join("syncs"))?;
    let (took_s, done) = once(|| {
        (0..SYNCS).try_for_each(|_| {
            file.write_all(&[b'x'; 8_000])?;
            file.sync_data()
        })
    });
    done?;
    report.figure("judge.disk.syncs", SYNCS as f64 / took_s, "syncs/s");
    Ok(())
}

/// Decide and observe, from one session and from many: what those record at the same time is committed together.
fn pairs(report: &mut Report, home: &Home) -> Result<()> {
    for (sessions, pairs) in [(1, PAIRS_ALONE), (SIDE_BY_SIDE, PAIRS)] {
        let mut judge = Judge::start(home)?;
        (0..sessions).try_for_each(|session| judge.begin(session))?;
        let (took_s, done) = once(|| judge.pairs(sessions, pairs));
        done?;
        report.figure(&format!("judge.pairs.sessions{sessions}"), pairs as f64 / took_s, "pairs/s");
        judge.end()?;
    }
    Ok(())
}

/// A decision after a session has heard more and more.
fn decide(report: &mut Report, home: &Home) -> Result<()> {
    let mut judge = Judge::start(home)?;
    judge.begin(0)?;
    let (mut heard, mut medians) = (0, Vec::new());
    for observations in [1, 10, 100, 1_000] {
        while heard < observations {
            judge.ask(&decision(0, heard))?;
            judge.ask(&observation(0, heard, &text(1_000, heard)))?;
            heard += 1;
        }
        let mut samples = Vec::new();
        for _ in 0..DECISIONS {
            samples.push(judge.ask(&sending("decide"))? * 1e6);
            judge.ask(&sending("observe"))?;
        }
        let middle = median(samples);
        report.figure(&format!("judge.decide.observations{observations}"), middle, "us");
        medians.push(middle);
    }
    if let (Some(first), Some(last)) = (medians.first(), medians.last()) {
        report.figure("judge.decide.flatness", last / first, "ratio");
    }
    judge.end()
}

/// One result, by its size. Each is heard by a session of its own.
fn observe(report: &mut Report, home: &Home) -> Result<()> {
    let sizes = [
        ("1k", 1_000, 51),
        ("10k", 10_000, 51),
        ("100k", 100_000, 21),
        ("1m", 1_000_000, 9),
        ("4m", 4_000_000, 5),
    ];
    for (name, bytes, rounds) in sizes {
        let mut judge = Judge::start(home)?;
        let mut samples = Vec::new();
        for round in 0..rounds {
            judge.begin(round)?;
            judge.ask(&decision(round, 0))?;
            samples.push(judge.ask(&observation(round, 0, &text(bytes, round)))? * 1e3);
        }
        report.figure(&format!("judge.observe.{name}"), median(samples), "ms");
        judge.end()?;
    }
    Ok(())
}

/// Many sessions at once: each hears 10 kB, and some are used again after all others were.
fn many(report: &mut Report, home: &Home) -> Result<()> {
    let mut judge = Judge::start(home)?;
    let (took_s, done) = once(|| {
        judge.round(0..MANY, begin)?;
        judge.round(0..MANY, |session| decision(session, 0))?;
        judge.round(0..MANY, |session| observation(session, 0, &text(10_000, session)))
    });
    done?;
    report.figure("judge.sessions10000", took_s, "s");
    report.figure("judge.sessions10000.rss", judge.resident_mb()?, "MB");
    let mut samples = Vec::new();
    for number in 0..AGAIN {
        samples.push(judge.ask(&decision(number * 37, 1))? * 1e3);
    }
    report.figure("judge.sessions10000.again", median(samples), "ms");
    judge.end()
}

/// From the start of the program to its first answer, on a ledger of a million entries.
fn start(report: &mut Report) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("rg").tempdir()?;
    let home = Home::create(folder.path())?;
    killed_session(&home, ENTRIES)?;
    let mut samples = Vec::new();
    for round in 0..=STARTS {
        let started = Instant::now();
        let mut judge = Judge::start(&home)?;
        judge.begin(0)?;
        let took_s = started.elapsed().as_secs_f64();
        // The session that wrote the entries was killed: the first start is the first that reads them.
        if round == 0 {
            report.figure("judge.start.entries1m.first", took_s, "s");
        } else {
            samples.push(took_s);
        }
        judge.end()?;
    }
    report.figure("judge.start.entries1m", median(samples), "s");
    Ok(())
}

/// A running judge, and the host's end of its pipe.
struct Judge {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Judge {
    fn start(home: &Home) -> Result<Self> {
        let mut command = home.command(&["judge", "--stdio"])?;
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
        let to = child.stdin.take().context("no pipe")?;
        let from = BufReader::new(child.stdout.take().context("no pipe")?);
        Ok(Self { child, to, from })
    }

    fn begin(&mut self, session: usize) -> Result<()> {
        self.ask(&begin(session)).map(|_took_s| ())
    }

    /// Asks, waits for the answer, and gives back how long that took.
    fn ask(&mut self, message: &str) -> Result<f64> {
        let started = Instant::now();
        self.to.write_all(message.as_bytes())?;
        self.answer()?;
        Ok(started.elapsed().as_secs_f64())
    }

    fn answer(&mut self) -> Result<()> {
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        let answer: Value = serde_json::from_str(&line).context("the judge gave no answer")?;
        let is_fine = answer.get("error").is_none() && answer.get("decision").is_none_or(|one| one == "allow");
        ensure!(is_fine, "the judge says {answer}");
        Ok(())
    }

    /// Every session has one message under way; its next one is sent when that is answered.
    fn pairs(&mut self, sessions: usize, pairs: usize) -> Result<()> {
        let mut under_way: VecDeque<(usize, usize, bool)> = VecDeque::new();
        for session in 0..sessions {
            self.to.write_all(decision(session, 0).as_bytes())?;
            under_way.push_back((session, 0, true));
        }
        let mut done = 0;
        while let Some((session, number, was_decision)) = under_way.pop_front() {
            self.answer()?;
            if was_decision {
                let message = observation(session, number, &text(1_000, number));
                self.to.write_all(message.as_bytes())?;
                under_way.push_back((session, number, false));
                continue;
            }
            done += 1;
            if done + under_way.len() < pairs {
                self.to.write_all(decision(session, number + 1).as_bytes())?;
                under_way.push_back((session, number + 1, true));
            }
        }
        ensure!(done == pairs, "{done} pairs were made");
        Ok(())
    }

    /// One message for each session, a few under way at a time: more than the pipe holds would block both ends.
    fn round(&mut self, sessions: std::ops::Range<usize>, message: impl Fn(usize) -> String) -> Result<()> {
        const UNDER_WAY: usize = 4;
        let mut waiting = 0;
        for session in sessions {
            self.to.write_all(message(session).as_bytes())?;
            waiting += 1;
            if waiting >= UNDER_WAY {
                self.answer()?;
                waiting -= 1;
            }
        }
        (0..waiting).try_for_each(|_| self.answer())
    }

    fn resident_mb(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
        Ok(resident.trim().trim_end_matches("kB").trim().parse::<f64>()? / 1_024.0)
    }

    /// The input ends, and so does the program.
    fn end(mut self) -> Result<()> {
        drop(self.to);
        let status = self.child.wait()?;
        ensure!(status.success(), "the judge ended with {status}");
        Ok(())
    }
}

fn line(message: &Value) -> String {
    format!("{message}\n")
}

fn begin(session: usize) -> String {
    let text = json!({"type": "string"});
    let tools = json!({
        "mail.read": {
            "description": "Reads the mail of a folder.",
            "schema": {"type": "object", "properties": {"folder": text, "since": text}},
            "labels": {"effect": "read", "taint": ["subject", "body"], "secret": true},
        },
        "mail.send": {
            "description": "Sends a mail.",
            "schema": {"type": "object", "properties": {"to": text, "subject": text, "body": text}, "required": ["to"]},
            "labels": {"effect": "write", "taint": "none", "sinks": ["to"]},
        },
        "files.search": {
            "description": "Looks for files.",
            "schema": {"type": "object", "properties": {"query": text}},
            "labels": {"effect": "read", "taint": "all"},
        },
    });
    let prompt = "Read my mail in the inbox since May 3rd and send a summary to ann@example.test";
    line(&json!({"op": "begin", "session": format!("s{session}"), "prompt": prompt, "tools": tools}))
}

fn reading(number: usize) -> Value {
    json!({"id": number, "tool": "mail.read", "args": {"folder": "inbox"}})
}

fn decision(session: usize, number: usize) -> String {
    line(&json!({"op": "decide", "session": format!("s{session}"), "call": reading(number)}))
}

fn observation(session: usize, number: usize, body: &str) -> String {
    let data = json!({"id": number, "from": "bob@example.test", "subject": "The report", "body": body});
    let output = json!({"text": "", "data": data, "error": null});
    line(&json!({"op": "observe", "session": format!("s{session}"), "call": reading(number), "output": output}))
}

/// A call with a sink that the request names. It fails, so that it may be decided again.
fn sending(op: &str) -> String {
    let args = json!({"to": "ann@example.test", "body": "a summary"});
    let call = json!({"id": "send", "tool": "mail.send", "args": args});
    let output = json!({"text": "", "data": null, "error": "no connection"});
    let mut message = json!({"op": op, "session": "s0", "call": call});
    if op == "observe" {
        message["output"] = output;
    }
    line(&message)
}

/// Prose of so many bytes: common words, and now and then one that stands nowhere else.
fn text(bytes: usize, seed: usize) -> String {
    const COMMON: &[&str] = &[
        "the", "report", "of", "our", "meeting", "is", "ready", "and", "we", "should", "look", "at", "its", "figures",
        "before", "Friday", "because", "they", "changed", "since", "March", "please", "tell", "me", "what", "you", "think",
    ];
    let mut all = String::with_capacity(bytes + 16);
    let mut state = (seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while all.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let roll = (state >> 33) as usize;
        if roll % 12 == 0 {
            all.push_str(&format!("x{roll:x}"));
        } else {
            all.push_str(COMMON[roll % COMMON.len()]);
        }
        all.push(if roll % 17 == 0 { '\n' } else { ' ' });
    }
    all.truncate(bytes);
    all
}
