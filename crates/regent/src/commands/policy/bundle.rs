//! `regent policy bundle` and `verify`: policies that others can check the origin of. A bundle is a signed note: the files in one line of
//! JSON, then an Ed25519 signature by the key that signs ledgers.

use std::path::{Path, PathBuf};

use regent_ledger::note::Note;
use regent_ledger::{Digest, PublicKey};
use regent_policy::{Layer, Source};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::codes;
use crate::compose;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{CommandResult, Done};
use crate::term;
use crate::trust;

/// The name that bundles are signed under: a signature on anything else is none on a bundle.
const NAME: &str = "regent/policy-bundle";
const SCHEMA: &str = "regent.policy-bundle/v1";

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bundle {
    schema: String,
    made_at_ms: i64,
    files: Vec<File>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    sha256: String,
    text: String,
}

pub(super) fn make(context: &Context, files: &[PathBuf], out: &Path) -> CommandResult {
    let mut packed = Vec::new();
    for file in files {
        let text = trust::read_control_file(&context.cwd.join(file))?;
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        // What doesn't load isn't worth signing.
        regent_policy::load(&text, &Source::new(name.as_str(), Layer::User))
            .map_err(|error| compose::invalid_policy(&name, text.clone(), &error))?;
        packed.push(File { name, sha256: Digest::of(text.as_bytes()).to_string(), text });
    }
    let bundle = Bundle { schema: SCHEMA.to_owned(), made_at_ms: context.clock.now_ms(), files: packed };
    let line =
        serde_json::to_string(&bundle).map_err(|error| Failure::new(codes::INTERNAL, error.to_string()))?;
    context.paths.make()?;
    let key = compose::ledger_key(&context.paths)?;
    let signed = Note::sign(&format!("{line}\n"), NAME, &key);
    let path = context.cwd.join(out);
    std::fs::write(&path, signed).map_err(|error| Failure::io("write", &path, &error))?;
    let vkey = key.public().vkey(NAME);
    let shown = term::inline(&out.display().to_string()).into_owned();
    let text = format!("{shown}: {} files, signed by\n{vkey}\n", bundle.files.len());
    Ok(Done::new(
        json!({"bundle": out.display().to_string(), "files": bundle.files.len(), "key": vkey}),
        text,
    ))
}

pub(super) fn verify(context: &Context, file: &Path, key: &str, out: Option<&Path>) -> CommandResult {
    let refused = |why: String| Failure::new(codes::POLICY_BUNDLE, why);
    let (name, key) = PublicKey::from_vkey(key).map_err(|error| refused(error.to_string()))?;
    if name != NAME {
        return Err(refused(format!("the key is for `{}`, not for `{NAME}`", term::inline(&name))));
    }
    let text = trust::read_control_file(&context.cwd.join(file))?;
    let note = Note::parse(&text).map_err(|error| refused(error.to_string()))?;
    let (signed, _) = note.verify(NAME, &[key]).map_err(|error| refused(error.to_string()))?;
    let bundle: Bundle = serde_json::from_str(signed).map_err(|error| refused(error.to_string()))?;
    if bundle.schema != SCHEMA {
        return Err(refused(format!("`{}` is not a bundle that is known", term::inline(&bundle.schema))));
    }
    for one in &bundle.files {
        let plain = !one.name.is_empty() && !one.name.contains(['/', '\0']) && !one.name.starts_with('.');
        if !plain || Digest::of(one.text.as_bytes()).to_string() != one.sha256 {
            return Err(refused(format!("`{}` in the bundle is not what it says", term::inline(&one.name))));
        }
        regent_policy::load(&one.text, &Source::new(one.name.as_str(), Layer::User))
            .map_err(|error| compose::invalid_policy(&one.name, one.text.clone(), &error))?;
    }
    if let Some(out) = out {
        let folder = context.cwd.join(out);
        std::fs::create_dir_all(&folder).map_err(|error| Failure::io("make", &folder, &error))?;
        for one in &bundle.files {
            let path = folder.join(&one.name);
            std::fs::write(&path, &one.text).map_err(|error| Failure::io("write", &path, &error))?;
        }
    }
    let names: Vec<&str> = bundle.files.iter().map(|file| file.name.as_str()).collect();
    let text = format!("{} {}\n", context.screen.good("ok"), term::inline(&names.join(", ")));
    Ok(Done::new(json!({"files": names, "made_at_ms": bundle.made_at_ms}), text))
}
