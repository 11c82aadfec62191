//! A program's output through the kernel: how soon its first byte is there, also from the start of `regent`, how fast the rest follows, how
//! much is held meanwhile, and how soon a key is answered on a terminal.

use std::fs::File;
use std::io::{Read, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;

use crate::home::Home;
use crate::measure::median;
use crate::report::Report;

/// What goes through.
const BYTES: u64 = 1 << 30;
/// The program says when it wrote, and lives on: a reader that got it only in the end would be late.
const SAYS_WHEN: &str = "date +%s%N; sleep 0.5";
/// Says something at once, and lives on.
const STARTS: [&str; 3] = ["sh", "-c", "echo a; sleep 5"];
const STARTS_MEASURED: usize = 25;
/// Answers each key itself: the terminal echoes none.
const ANSWERS: [&str; 3] = ["sh", "-c", "stty raw -echo; echo ready; exec cat"];
const KEYS: usize = 300;
const WIDE: &str = "version: 1\nlimits: { output: 2GiB }\nrules:\n  - { id: all, effect: allow }\n";

/// `stream.*`
pub fn measure(report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let home = Home::create(folder.path())?;
    for policy in [home.path().join(".config/regent/policy.yml"), home.project().join(".regent/policy.yml")] {
        std::fs::write(policy, WIDE)?;
    }
    home.run(&["trust", "--yes"])?;
    let regent = |words: &[&str]| home.command(&[&["run", "--"], words].concat());
    let plain = |words: &[&str]| {
        let mut command = Command::new("/usr/bin/env");
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(command)
    };
    let bwrap = |words: &[&str]| plain(&[&["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--unshare-all"], words].concat());
    let script = |words: &[&str]| plain(&["script", "--quiet", "--return", "--command", &words.join(" "), "/dev/null"]);
    first_byte(report, "stream.first_byte", || regent(&["sh", "-c", SAYS_WHEN]))?;
    first_byte(report, "stream.sh.first_byte", || plain(&["sh", "-c", SAYS_WHEN]))?;
    start(report, "stream.start.first_byte", || regent(&STARTS))?;
    start(report, "stream.sh.start.first_byte", || plain(&STARTS))?;
    if let Err(error) = start(report, "stream.bwrap.start.first_byte", || bwrap(&STARTS)) {
        report.skip("stream.bwrap.start.first_byte", format!("{error:#}"));
    }
    key_answer(report, "stream.key.answer", &regent(&ANSWERS)?)?;
    key_answer(report, "stream.sh.key.answer", &plain(&ANSWERS)?)?;
    let zeros = ["head", "-c", &BYTES.to_string(), "/dev/zero"];
    let peak_mb = through(report, "stream.throughput", regent(&zeros)?)?;
    report.figure("stream.rss.peak", peak_mb, "MB");
    through(report, "stream.sh.throughput", plain(&zeros)?)?;
    for (name, peer) in
        [("stream.bwrap.throughput", bwrap(&zeros)), ("stream.script.throughput", script(&zeros))]
    {
        if let Err(error) = peer.and_then(|peer| through(report, name, peer)) {
            report.skip(name, format!("{error:#}"));
        }
    }
    Ok(())
}

/// From the program's own clock to ours.
fn first_byte(report: &mut Report, name: &str, command: impl Fn() -> Result<Command>) -> Result<()> {
    let mut samples = Vec::new();
    for _ in 0..15 {
        let mut child = command()?.spawn()?;
        let mut line = [0; 19];
        output(&mut child)?.read_exact(&mut line)?;
        let now_ns = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as f64;
        let written_ns: f64 = std::str::from_utf8(&line)?.parse()?;
        samples.push((now_ns - written_ns) / 1e6);
        child.wait()?;
    }
    report.figure(name, median(samples), "ms");
    Ok(())
}

/// From the start of the first process to the first byte that it passes on.
fn start(report: &mut Report, name: &str, command: impl Fn() -> Result<Command>) -> Result<()> {
    let mut samples = Vec::new();
    for _ in 0..STARTS_MEASURED {
        let mut command = command()?;
        let began = Instant::now();
        let mut child = command.spawn()?;
        let mut byte = [0; 1];
        output(&mut child)?.read_exact(&mut byte)?;
        samples.push(began.elapsed().as_secs_f64() * 1e3);
        // Not killed: the next start would have a crash to recover from.
        Command::new("kill").arg(child.id().to_string()).status()?;
        child.wait()?;
    }
    report.figure(name, median(samples), "ms");
    Ok(())
}

/// From a key on a terminal to what the program answers.
fn key_answer(report: &mut Report, name: &str, command: &Command) -> Result<()> {
    let (mut ours, theirs) = terminal()?;
    let mut child = Command::new("setsid");
    child.arg("--ctty").arg(command.get_program()).args(command.get_args()).env_clear();
    child.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    child.env("PATH", "/usr/bin:/bin").current_dir(command.get_current_dir().unwrap_or("/".as_ref()));
    child.stdin(theirs.try_clone()?).stdout(theirs.try_clone()?).stderr(theirs);
    let mut running = child.spawn()?;
    drop(child);
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    while !seen.windows(5).any(|window| window == b"ready") {
        let count = ours.read(&mut buffer)?;
        seen.extend_from_slice(buffer.get(..count).unwrap_or_default());
    }
    // The rest of that line, and whatever the first key still waits for.
    let mut samples = Vec::new();
    for round in 0..KEYS {
        let key = [b'a' + u8::try_from(round % 26)?];
        let began = Instant::now();
        ours.write_all(&key)?;
        loop {
            let count = ours.read(&mut buffer)?;
            if buffer.get(..count).unwrap_or_default().contains(&key[0]) {
                break;
            }
        }
        samples.push(began.elapsed().as_secs_f64() * 1e3);
    }
    report.figure(name, median(samples), "ms");
    Command::new("kill").arg(running.id().to_string()).status()?;
    // What it still says must not fill the terminal.
    drop(ours);
    running.wait()?;
    Ok(())
}

/// A terminal: the person's end, and the program's.
fn terminal() -> Result<(File, File)> {
    let ours = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::grantpt(&ours)?;
    rustix::pty::unlockpt(&ours)?;
    let name = rustix::pty::ptsname(&ours, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok((ours.into(), rustix::fs::open(name, flags, Mode::empty())?.into()))
}

/// Reads everything, and tells the most that the first process held, in MB.
fn through(report: &mut Report, name: &str, mut command: Command) -> Result<f64> {
    let began = Instant::now();
    let mut child = command.spawn()?;
    let mut output = output(&mut child)?;
    let (mut buffer, mut bytes, mut peak_mb) = (vec![0; 1 << 20], 0, 0.0_f64);
    loop {
        let count = output.read(&mut buffer)? as u64;
        if count == 0 {
            break;
        }
        // Each 64 MiB, so that looking costs nothing that shows.
        if (bytes + count) >> 26 != bytes >> 26 {
            peak_mb = peak_mb.max(peak(child.id()).unwrap_or(0.0));
        }
        bytes += count;
    }
    let took_s = began.elapsed().as_secs_f64();
    let status = child.wait()?;
    ensure!(status.success() && bytes >= BYTES, "{bytes} bytes came, and it ended with {status}");
    report.figure(name, bytes as f64 / took_s / f64::from(1 << 20), "MiB/s");
    Ok(peak_mb)
}

fn output(child: &mut Child) -> Result<impl Read + use<>> {
    child.stdout.take().context("no pipe")
}

fn peak(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(peak.trim().trim_end_matches("kB").trim().parse::<f64>()? / 1_024.0)
}
