//! Makes the component that generated tools run in: compiles the interpreter for WASM with a cargo of its own, and wraps the module.
//!
//! Where the target for WASM isn't installed the build goes on without it: an empty file stands in, and generated tools are refused.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const TARGET: &str = "wasm32-unknown-unknown";
const PACKAGE: &str = "regent-script-component";

fn main() {
    let Some(out) = std::env::var_os("OUT_DIR").map(PathBuf::from) else { return };
    // Asked at run time: a build folder may have been filled from another clone.
    let own = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let guest = own.join("../../guests/script");
    let wit = own.join("../sandbox/wit");
    for watched in ["src", "component/src", "component/Cargo.toml", "Cargo.toml", "Cargo.lock"] {
        note(&format!("cargo::rerun-if-changed={}", guest.join(watched).display()));
    }
    note(&format!("cargo::rerun-if-changed={}", wit.display()));
    let made = if std::env::var_os("CARGO_FEATURE_GENERATED").is_some() {
        component(&guest, &out)
    } else {
        Err("the feature `generated` is off".to_owned())
    };
    let wasm = match made {
        Ok(wasm) => wasm,
        Err(why) => {
            if std::env::var_os("CARGO_FEATURE_GENERATED").is_some() {
                note(&format!("cargo::warning=without generated tools: {why}"));
            }
            Vec::new()
        }
    };
    if let Err(error) = std::fs::write(out.join("script.wasm"), wasm) {
        note(&format!("cargo::error=the interpreter can't be written: {error}"));
    }
}

/// What a build script says to cargo.
fn note(line: &str) {
    println!("{line}");
}

fn component(guest: &Path, out: &Path) -> Result<Vec<u8>, String> {
    has_target()?;
    let target = out.join("guest");
    // What lies in the local cache is enough most of the time; only where it isn't, the network is asked.
    if let Err(first) = compile(guest, &target, true) {
        compile(guest, &target, false).map_err(|second| format!("{second} (and offline: {first})"))?;
    }
    let module = target.join(TARGET).join("release/regent_script_component.wasm");
    let module = std::fs::read(&module).map_err(|error| format!("`{}`: {error}", module.display()))?;
    wit_component::ComponentEncoder::default()
        .module(&module)
        .and_then(|encoder| encoder.validate(true).encode())
        .map_err(|error| format!("the interpreter is no component: {error:#}"))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a build script may start the compiler; nothing of what ships does so here"
)]
fn program(variable: &str, usual: &str) -> Command {
    Command::new(std::env::var_os(variable).unwrap_or_else(|| usual.into()))
}

fn has_target() -> Result<(), String> {
    let asked = program("RUSTC", "rustc")
        .args(["--print", "target-libdir", "--target", TARGET])
        .output()
        .map_err(|error| format!("rustc can't be asked: {error}"))?;
    let folder = PathBuf::from(String::from_utf8_lossy(&asked.stdout).trim());
    if asked.status.success() && folder.is_dir() {
        return Ok(());
    }
    Err(format!("the target {TARGET} is not installed: `rustup target add {TARGET}`, then build again"))
}

fn compile(guest: &Path, target: &Path, offline: bool) -> Result<(), String> {
    let mut cargo = program("CARGO", "cargo");
    cargo.args(["build", "--release", "--locked", "-p", PACKAGE, "--target", TARGET]);
    if offline {
        cargo.arg("--offline");
    }
    // The same bytes wherever it is built: no folder of this machine in them.
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    let mut flags = format!("--remap-path-prefix={}=guests/script", guest.display());
    if let Some(home) = home {
        flags.push_str(&format!("\u{1f}--remap-path-prefix={}=cargo", home.display()));
    }
    cargo
        .current_dir(guest)
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_ENCODED_RUSTFLAGS", flags)
        // What checks or measures the host's code has no business here.
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("CARGO_BUILD_TARGET")
        .stdin(Stdio::null());
    let ended = cargo.output().map_err(|error| format!("cargo can't be started: {error}"))?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let why = said.lines().find(|line| line.starts_with("error")).unwrap_or("cargo failed");
    Err(format!("the interpreter can't be compiled: {why}"))
}
