//! Everything that must hold, in the order in which a failure is cheapest to find.

use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::machine::{capture, cargo, cargo_with, command, finish, has, install, target};
use crate::{
    backends, bench, difference, eval, fuzz, guest, injection, ordinary, peers, say, schemas, skips, tidy_up,
    tui,
};

type CiStep = fn() -> Result<()>;

const STEPS: &[(&str, CiStep)] = &[
    ("install", install),
    ("fmt", || cargo(&["fmt", "--all", "--check"])),
    ("tidy", tidy_up),
    ("deny", deny),
    ("clippy", || cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])),
    ("build", || cargo(&["build", "--workspace", "--bins", "--locked"])),
    ("test", || {
        let excused = skips::excused(&[])?;
        cargo_with(&["test", "--workspace", "--locked", "--no-fail-fast"], &[("REGENT_MAY_SKIP", &excused)])
    }),
    ("ordinary", ordinary::run),
    ("languages", || {
        let policy = ["test", "-p", "regent-policy", "--locked", "--features", "rego,cedar", "--lib"];
        cargo(&[&policy[..], &["tests::languages"]].concat())
    }),
    ("guests", || {
        let manifest = ["--manifest-path", "guests/script/Cargo.toml", "--locked"];
        cargo(&[&["clippy", "--all-targets"], &manifest[..], &["--", "-D", "warnings"]].concat())?;
        cargo(&[&["test"], &manifest[..]].concat())?;
        guest::check()
    }),
    ("schemas", schemas::check),
    ("doc", || {
        cargo_with(&["doc", "--workspace", "--no-deps", "--locked"], &[("RUSTDOCFLAGS", "-D warnings")])
    }),
    ("demo", demo),
    ("doctor", doctor),
    ("tui", tui::run),
    ("sim", || built("sim", &["--seeds", "300"])),
    ("crowd", || built("sim", &["--crowd", "--seeds", "300"])),
    ("backends", backends::check),
    ("peers", peers::check),
    ("torture", || built("torture", &["--quick"])),
    ("difference", || difference::run(&[])),
    ("injection", injection::smoke),
    ("misled", eval::under_attack_smoke),
    ("fuzz", fuzz::smoke),
    ("bench", bench::check),
];

/// Runs all steps, or those named, and counts. A failed step doesn't hide what the later ones would say.
pub(crate) fn run(named: &[String]) -> Result<()> {
    if let Some(unknown) = named.iter().find(|name| !STEPS.iter().any(|(step, _)| step == name)) {
        let known: Vec<&str> = STEPS.iter().map(|(step, _)| *step).collect();
        bail!("there is no step `{unknown}`; there are {}", known.join(", "));
    }
    let mut summary = Vec::new();
    let mut failed = 0;
    for (name, step) in STEPS.iter().filter(|(name, _)| named.is_empty() || named.iter().any(|n| n == name)) {
        say(format!("\n== {name}"));
        let started = Instant::now();
        let result = step();
        let took_s = started.elapsed().as_secs_f32();
        if let Err(error) = &result {
            failed += 1;
            say(format!("{name}: {error:#}"));
        }
        let word = if result.is_ok() { "ok" } else { "FAILED" };
        summary.push(format!("{name:<10} {word:<7} {took_s:>7.1} s"));
    }
    say(format!("\n{}", summary.join("\n")));
    say(format!("ci: {} passed, {failed} failed", summary.len() - failed));
    if failed == 0 { Ok(()) } else { bail!("{failed} of {} steps failed", summary.len()) }
}

/// Advisories and sources, where `cargo-deny` is installed. Tidy checks licences and bans on every machine.
fn deny() -> Result<()> {
    if has("cargo-deny") {
        return cargo(&["deny", "check"]);
    }
    say("not run: install cargo-deny");
    Ok(())
}

/// Runs a program of the workspace. It is built with all the others: a selection would unite other features, and all dependencies
/// would be built once more.
fn built(program: &str, arguments: &[&str]) -> Result<()> {
    cargo(&["build", "--quiet", "--workspace", "--bins", "--locked"])?;
    let path = target().join("debug").join(program);
    finish(command(&path.to_string_lossy()).args(arguments), program)
}

/// The demo checks itself: it ends well only if every call went as it should.
fn demo() -> Result<()> {
    let output = regent(&["demo"])?;
    say(String::from_utf8_lossy(&output.stdout));
    if output.status.success() {
        return Ok(());
    }
    bail!("`regent demo` ended with {}\n{}", output.status, String::from_utf8_lossy(&output.stderr))
}

/// What `doctor` finds wrong with this machine is its business; that it says so in one JSON object is ours.
fn doctor() -> Result<()> {
    let output = regent(&["doctor", "--json"])?;
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).with_context(|| {
        format!("`regent doctor --json` said {:?}", String::from_utf8_lossy(&output.stdout))
    })?;
    let checks = said.pointer("/data/checks").and_then(serde_json::Value::as_array).map_or(0, Vec::len);
    say(format!("doctor: {checks} checks, {}", output.status));
    if checks >= 20 { Ok(()) } else { bail!("`regent doctor` made {checks} checks; 20 are promised") }
}

/// Runs the built program with a home of its own, so that nothing of the user's is touched.
fn regent(arguments: &[&str]) -> Result<std::process::Output> {
    let home = target().join("ci-home");
    std::fs::create_dir_all(&home)?;
    let program = target().join("debug/regent");
    let program = program.to_str().context("the target folder's name is not text")?;
    let mut regent = command(program);
    regent.args(arguments).current_dir(&home).env("HOME", &home);
    for (name, folder) in [
        ("XDG_CONFIG_HOME", "config"),
        ("XDG_DATA_HOME", "data"),
        ("XDG_STATE_HOME", "state"),
        ("XDG_CACHE_HOME", "cache"),
        ("XDG_RUNTIME_DIR", "run"),
    ] {
        let folder = home.join(folder);
        std::fs::create_dir_all(&folder)?;
        private(&folder)?;
        regent.env(name, folder);
    }
    capture(&mut regent, "regent")
}

fn private(folder: &std::path::Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))?)
}
