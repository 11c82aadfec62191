//! A program's output through the kernel: how soon its first byte is there, how fast the rest follows, and how much is held meanwhile.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};

use crate::home::Home;
use crate::measure::median;
use crate::report::Report;

/// What goes through.
const BYTES: u64 = 1 << 30;
/// The program says when it wrote, and lives on: a reader that got it only in the end would be late.
const SAYS_WHEN: &str = "date +%s%N; sleep 0.5";
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
