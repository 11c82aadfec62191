//! Signed bundles of policies: a signed note, the files in one line of JSON, then an Ed25519 signature. One can be in force: it is kept as
//! it was signed, and believed again each time that policies are loaded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use regent_ledger::note::Note;
use regent_ledger::{Digest, LedgerKey, PublicKey};
use regent_policy::{Layer, Policy, Source};
use serde::{Deserialize, Serialize};

use crate::codes;
use crate::compose;
use crate::controls;
use crate::failure::Failure;
use crate::paths::{self, Paths};
use crate::settings::Settings;
use crate::term;

/// The name that bundles are signed under: a signature on anything else is none on a bundle.
pub(crate) const NAME: &str = "regent/policy-bundle";
const SCHEMA: &str = "regent.policy-bundle/v1";
/// A bundle from later than this is from a wrong clock, and would keep out all that come after it.
const AHEAD_MS_MAX: i64 = 24 * 60 * 60 * 1000;

/// What is signed.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bundle {
    schema: String,
    /// When it was made, which is also its version: a later one takes an earlier one's place.
    pub(crate) made_at_ms: i64,
    pub(crate) files: Vec<PolicyFile>,
}

/// A policy file, and the files that it refers to.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyFile {
    pub(crate) name: String,
    sha256: String,
    pub(crate) text: String,
    /// What it refers to, by the names that it has for them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) beside: BTreeMap<String, String>,
}

impl PolicyFile {
    pub(crate) fn new(name: String, text: String, beside: BTreeMap<String, String>) -> Self {
        Self { name, sha256: Digest::compute(text.as_bytes()).to_string(), text, beside }
    }

    /// What doesn't load isn't worth signing, and isn't put in force.
    pub(crate) fn load(&self, from: &str) -> Result<Policy, Failure> {
        let source = Source::new(format!("{from}{}", self.name), Layer::User).beside(self.beside.clone());
        regent_policy::load(&self.text, &source)
            .map_err(|error| compose::invalid_policy(&self.name, self.text.clone(), &error))
    }
}

impl Bundle {
    pub(crate) fn new(files: Vec<PolicyFile>, made_at_ms: i64) -> Self {
        Self { schema: SCHEMA.to_owned(), made_at_ms, files }
    }

    pub(crate) fn sign(&self, key: &LedgerKey) -> Result<String, Failure> {
        let line =
            serde_json::to_string(self).map_err(|error| Failure::new(codes::INTERNAL, error.to_string()))?;
        Ok(Note::sign(&format!("{line}\n"), NAME, key))
    }
}

/// A bundle whose signature was checked.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) bundle: Bundle,
    /// Of the whole text.
    pub(crate) digest: String,
    /// Who signed it, as `policy bundle` prints it.
    pub(crate) publisher: String,
}

impl Opened {
    /// Its policies, named so that the ledger says where they are from.
    pub(crate) fn policies(&self) -> Result<Vec<Policy>, Failure> {
        let from = format!("bundle {}, {}: ", self.digest.get(..12).unwrap_or(&self.digest), self.made());
        self.bundle.files.iter().map(|file| file.load(&from)).collect()
    }

    /// When it was made, for people.
    pub(crate) fn made(&self) -> String {
        crate::commands::audit::lines::rfc3339(self.bundle.made_at_ms)
    }
}

fn refused(why: impl Into<String>) -> Failure {
    Failure::new(codes::POLICY_BUNDLE, why)
}

/// A publisher's key, for this and nothing else.
pub(crate) fn publisher(text: &str) -> Result<PublicKey, String> {
    match PublicKey::from_vkey(text) {
        Ok((name, key)) if name == NAME => Ok(key),
        Ok((name, _)) => Err(format!("the key is for `{}`, not for `{NAME}`", term::inline(&name))),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads a bundle that one of these keys has signed, and checks that every file in it is what it says.
pub(crate) fn open(text: &str, keys: &[PublicKey]) -> Result<Opened, Failure> {
    let note = Note::parse(text).map_err(|error| refused(format!("not a bundle: {error}")))?;
    let (signed, key) =
        note.verify(NAME, keys).map_err(|error| refused(format!("the bundle can't be verified: {error}")))?;
    let bundle: Bundle = serde_json::from_str(signed).map_err(|error| refused(error.to_string()))?;
    if bundle.schema != SCHEMA {
        return Err(refused(format!("unknown bundle format `{}`", term::inline(&bundle.schema))));
    }
    if bundle.files.is_empty() {
        return Err(refused("the bundle has no files"));
    }
    for one in &bundle.files {
        let plain = !one.name.is_empty() && !one.name.contains(['/', '\0']) && !one.name.starts_with('.');
        let inside = |name: &String| {
            Path::new(name).components().all(|part| matches!(part, std::path::Component::Normal(_)))
        };
        let plain = plain && one.beside.keys().all(inside);
        if !plain || Digest::compute(one.text.as_bytes()).to_string() != one.sha256 {
            return Err(refused(format!(
                "`{}` in the bundle doesn't match its digest",
                term::inline(&one.name)
            )));
        }
    }
    let (digest, publisher) = (Digest::compute(text.as_bytes()).to_string(), key.vkey(NAME));
    Ok(Opened { bundle, digest, publisher })
}

/// Which bundle was put in force last. It stays when the bundle is withdrawn: what is older stays older.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Applied {
    made_at_ms: i64,
    digest: String,
    /// It was taken out of force on purpose, so its file may be gone.
    #[serde(default)]
    withdrawn: bool,
}

impl Applied {
    fn load(paths: &Paths) -> Result<Option<Self>, Failure> {
        let path = paths.bundle_record();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::io("read", &path, &error)),
        };
        serde_json::from_str(&text).map(Some).map_err(|error| {
            Failure::new(codes::STATE_FILE, format!("`{}` is damaged: {error}", path.display()))
                .help("remove it and apply the bundle again")
        })
    }

    fn save(&self, paths: &Paths) -> Result<(), Failure> {
        let record =
            serde_json::to_vec(self).map_err(|error| Failure::new(codes::INTERNAL, error.to_string()))?;
        paths::write_private(&paths.bundle_record(), &record)
    }
}

/// The bundle that is in force, if there is one. One that isn't what was applied, or that no publisher of the user's has signed, is no
/// reason to do without.
pub(crate) fn in_force(paths: &Paths) -> Result<Option<Opened>, Failure> {
    let path = paths.bundle();
    let help = "activate a valid one with `regent policy apply FILE`, or deactivate it with `regent policy apply --withdraw`";
    let named = |failure: Failure| {
        let message = format!("`{}`: {}", path.display(), failure.message);
        Failure { message, ..failure }.help(help)
    };
    let applied = Applied::load(paths)?;
    if !paths::may_exist(&path) {
        return match applied {
            Some(Applied { withdrawn: false, .. }) => {
                Err(named(refused("the active bundle is missing; it narrowed the policy")))
            }
            Some(_) | None => Ok(None),
        };
    }
    let keys = Settings::load(paths, None, true)?.publishers();
    let opened = open(&controls::read_file(&path)?, &keys).map_err(named)?;
    match applied {
        Some(applied) if applied.digest == opened.digest => Ok(Some(opened)),
        Some(_) | None => Err(named(refused("the bundle differs from the one that was applied"))),
    }
}

/// Whether a bundle may take the place of the one before it.
pub(crate) fn check_age(
    paths: &Paths,
    opened: &Opened,
    now_ms: i64,
    allow_older: bool,
) -> Result<(), Failure> {
    if opened.bundle.made_at_ms > now_ms.saturating_add(AHEAD_MS_MAX) {
        return Err(refused(format!("the bundle's date {} is in the future", opened.made())));
    }
    match Applied::load(paths)? {
        Some(last)
            if last.digest != opened.digest
                && last.made_at_ms >= opened.bundle.made_at_ms
                && !allow_older =>
        {
            let message = format!("the bundle of {} is older than the last one", opened.made());
            Err(refused(message).help("pass `--allow-older` to go back to it"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Keeps a bundle as the one in force. The record comes first: between the two writes nothing is believed.
pub(crate) fn keep(paths: &Paths, opened: &Opened, text: &str) -> Result<(), Failure> {
    let applied =
        Applied { made_at_ms: opened.bundle.made_at_ms, digest: opened.digest.clone(), withdrawn: false };
    applied.save(paths)?;
    paths::write_private(&paths.bundle(), text.as_bytes())
}

/// The record and the bundle as they were, `None` where there was none.
pub(crate) type SavedBundle = [(PathBuf, Option<Vec<u8>>); 2];

/// What is kept now, to be put back if what follows fails.
pub(crate) fn kept(paths: &Paths) -> Result<SavedBundle, Failure> {
    let read = |path: PathBuf| match std::fs::read(&path) {
        Ok(bytes) => Ok((path, Some(bytes))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok((path, None)),
        Err(error) => Err(Failure::io("read", &path, &error)),
    };
    Ok([read(paths.bundle_record())?, read(paths.bundle())?])
}

/// Puts back what was kept.
pub(crate) fn put_back(kept: SavedBundle) -> Result<(), Failure> {
    for (path, bytes) in kept {
        match bytes {
            Some(bytes) => paths::write_private(&path, &bytes)?,
            None => drop(removed(&path)?),
        }
    }
    Ok(())
}

/// Takes the bundle out of force. Says whether there was one.
pub(crate) fn withdraw(paths: &Paths) -> Result<bool, Failure> {
    if let Some(applied) = Applied::load(paths)? {
        Applied { withdrawn: true, ..applied }.save(paths)?;
    }
    removed(&paths.bundle())
}

fn removed(path: &Path) -> Result<bool, Failure> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Failure::io("remove", path, &error)),
    }
}
