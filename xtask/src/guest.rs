//! The interpreter of generated tools as a component: built ahead and checked in, so that nobody needs a second target to build Regent.
//!
//! The same sources and compiler give the same bytes on any machine: paths are remapped, and the lock file fixes every crate.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::machine::{capture, command, finish, target};
use crate::{root, say};

/// Another compiler makes other bytes.
const RUSTC: &str = "1.95.0";
const TARGET: &str = "wasm32-unknown-unknown";
const GUEST: &str = "guests/script";
/// What is checked in.
const COMPONENT: &str = "guests/script/script.wasm";
/// Its digest, as `sha256sum` writes it.
const DIGEST: &str = "guests/script/script.wasm.sha256";

/// Builds the component and puts it in its place; with `--check` only compares.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    match arguments {
        [] => {
            let built = build()?;
            std::fs::copy(&built, root().join(COMPONENT)).with_context(|| COMPONENT.to_owned())?;
            std::fs::write(root().join(DIGEST), digest_line()?).with_context(|| DIGEST.to_owned())?;
            say(format!("guest: {COMPONENT} is built anew"));
            Ok(())
        }
        [flag] if flag == "--check" => check(),
        _other => bail!("`cargo xtask guest` takes nothing, or `--check`"),
    }
}

/// Whether the component is what its sources give, byte for byte.
pub(crate) fn check() -> Result<()> {
    let noted = std::fs::read_to_string(root().join(DIGEST)).with_context(|| DIGEST.to_owned())?;
    if noted != digest_line()? {
        bail!("{COMPONENT} is not the file that {DIGEST} is about");
    }
    let built = std::fs::read(build()?).context("the built component")?;
    let kept = std::fs::read(root().join(COMPONENT)).with_context(|| COMPONENT.to_owned())?;
    if built != kept {
        bail!("{COMPONENT} is not what its sources give: run `cargo xtask guest` and commit the result");
    }
    say(format!("guest: {COMPONENT} is what rustc {RUSTC} makes of its sources ({} bytes)", kept.len()));
    Ok(())
}

fn digest_line() -> Result<String> {
    let mut sum = command("sha256sum");
    let output = capture(sum.arg(COMPONENT), "sha256sum")?;
    if !output.status.success() {
        bail!("sha256sum: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn build() -> Result<PathBuf> {
    let version = capture(command("rustc").arg("--version"), "rustc")?;
    if !String::from_utf8_lossy(&version.stdout).starts_with(&format!("rustc {RUSTC} ")) {
        bail!("the component is built with rustc {RUSTC}: `rustup run {RUSTC} cargo xtask guest`");
    }
    let folder = target().join("guest");
    let manifest = format!("{GUEST}/Cargo.toml");
    let cargo = |arguments: &[&str], flags: &str| {
        let mut cargo = command("cargo");
        cargo.args(arguments).args(["--release", "--locked", "--manifest-path", &manifest, "-p"]);
        cargo.env("CARGO_TARGET_DIR", &folder).env("CARGO_ENCODED_RUSTFLAGS", flags);
        for variable in ["RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_TARGET"] {
            cargo.env_remove(variable);
        }
        cargo
    };
    let mut compile = cargo(&["build", "--target", TARGET], &remapped()?);
    finish(compile.arg("regent-script-component"), "the interpreter")?;
    let module = folder.join(TARGET).join("release/regent_script_component.wasm");
    let component = folder.join("script.wasm");
    let mut pack = cargo(&["run", "--quiet"], "");
    finish(pack.args(["regent-script-pack", "--"]).args([&module, &component]), "the packer")?;
    Ok(component)
}

/// No folder of this machine is in the bytes: neither this checkout nor where cargo keeps what it downloaded, by whatever name.
fn remapped() -> Result<String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")))
        .context("neither CARGO_HOME nor HOME is set")?;
    let mut flags = vec![format!("--remap-path-prefix={}=regent", root().display())];
    let registries = home.join("registry/src");
    if let Ok(entries) = std::fs::read_dir(&registries) {
        for entry in entries {
            flags.push(format!("--remap-path-prefix={}=crates", entry?.path().display()));
        }
    }
    Ok(flags.join("\u{1f}"))
}
