//! The JSON Schemas of everything that travels: `docs/schemas`, made from the types of `wire`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::machine::{capture, cargo, command, target};
use crate::{root, say};

const FOLDER: &str = "docs/schemas";
const OUTDATED: &str = "run `cargo xtask schemas` and commit the result";

/// Writes the schemas; with `--check` only compares.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    match arguments {
        [] => write(),
        [flag] if flag == "--check" => check(),
        _other => bail!("`cargo xtask schemas` takes nothing, or `--check`"),
    }
}

fn write() -> Result<()> {
    let (made, folder) = (made()?, folder());
    std::fs::create_dir_all(&folder).with_context(|| FOLDER.to_owned())?;
    for name in kept()?.keys().filter(|name| !made.contains_key(*name)) {
        std::fs::remove_file(folder.join(name)).with_context(|| name.clone())?;
    }
    for (name, text) in &made {
        std::fs::write(folder.join(name), text).with_context(|| name.clone())?;
    }
    say(format!("schemas: {} files in {FOLDER}", made.len()));
    Ok(())
}

/// Whether the files are what the types give, byte for byte.
pub(crate) fn check() -> Result<()> {
    let (made, kept) = (made()?, kept()?);
    let names = made.keys().chain(kept.keys().filter(|name| !made.contains_key(*name)));
    let differs: Vec<&str> =
        names.filter(|name| made.get(*name) != kept.get(*name)).map(String::as_str).collect();
    if !differs.is_empty() {
        bail!("{FOLDER}: {} is not what the types give: {OUTDATED}", differs.join(", "));
    }
    say(format!("schemas: {} files are what the types give", made.len()));
    Ok(())
}

fn folder() -> PathBuf {
    root().join(FOLDER)
}

/// What is checked in.
fn kept() -> Result<BTreeMap<String, String>> {
    let mut kept = BTreeMap::new();
    let entries = match std::fs::read_dir(folder()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(kept),
        Err(error) => return Err(error).context(FOLDER),
    };
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().context(FOLDER)?.to_string_lossy().into_owned();
        kept.insert(name, std::fs::read_to_string(&path).with_context(|| path.display().to_string())?);
    }
    Ok(kept)
}

/// What the types give. The program is built with the workspace: a selection would unite other features, and all dependencies would be
/// built once more.
fn made() -> Result<BTreeMap<String, String>> {
    cargo(&["build", "--quiet", "--workspace", "--example", "schemas", "--locked"])?;
    let program = target().join("debug/examples/schemas");
    let output = capture(&mut command(&program.to_string_lossy()), "schemas")?;
    if !output.status.success() {
        bail!("schemas: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let files: BTreeMap<String, Value> =
        serde_json::from_slice(&output.stdout).context("the schemas are not JSON")?;
    let text = |(name, schema): (String, Value)| (name, format!("{schema:#}\n"));
    Ok(files.into_iter().map(text).collect())
}
