//! Settings: defaults, then the user's file, the project's, the environment and flags; each value knows where it came from.
//!
//! A project's file may only make things stricter. Every key here changes what the program does; there are no others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use regent_ledger::PublicKey;
use regent_models::SettingsError;
use regent_skills::TrustedKey;
use toml_edit::{Document, DocumentMut, Item};

use crate::bundles;
use crate::codes;
use crate::controls::{self, Controls};
use crate::failure::{Excerpt, ExcerptMark, Failure, did_you_mean};
use crate::output::Color;
use crate::paths::Paths;

/// What is never removed.
const FOREVER: &str = "forever";

/// One setting that exists.
#[derive(Debug)]
pub(crate) struct SettingKey {
    /// `section.name`.
    pub(crate) name: &'static str,
    /// What it is when nobody says otherwise.
    pub(crate) default: &'static str,
    /// What it does.
    pub(crate) help: &'static str,
    kind: SettingKind,
    in_project: InProject,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SettingKind {
    /// One of these words, the strictest last.
    Word(&'static [&'static str]),
    /// `90s`, `10m`, `2h`, `1d`.
    Duration,
    /// The same, or `forever`.
    Keeping,
    /// `host:port`, separated by commas.
    Endpoints,
    /// `name+id+key`, separated by commas.
    Keys,
    /// The same, for bundles of policies.
    Publishers,
    /// The absolute path of a file that holds a secret. A value that isn't a path may be the secret, so no error repeats it.
    SecretFile,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InProject {
    Refused,
    OnlyStricter,
}

/// All settings.
pub(crate) const KEYS: &[SettingKey] = &[
    SettingKey {
        name: "approve.valid_for",
        default: "10m",
        help: "how long an approval is valid unless `--for` is given",
        kind: SettingKind::Duration,
        in_project: InProject::OnlyStricter,
    },
    SettingKey {
        name: "gc.dead_projects",
        default: "90d",
        help: "how long `regent gc` keeps data of deleted projects (witnesses, snapshots, lookup indexes, pins): a time such as `90d`, or `forever`",
        kind: SettingKind::Keeping,
        in_project: InProject::Refused,
    },
    SettingKey {
        name: "gc.payloads",
        default: "forever",
        help: "how long `regent gc` keeps arguments and results in the ledger (entries with their digests stay): a time such as `365d`, or `forever`",
        kind: SettingKind::Keeping,
        in_project: InProject::Refused,
    },
    SettingKey {
        name: "gc.snapshots",
        default: "30d",
        help: "how long `regent gc` keeps the snapshots of finished tasks, which `regent task rollback` needs (those of the 20 newest tasks always stay): a time such as `30d`, or `forever`",
        kind: SettingKind::Keeping,
        in_project: InProject::Refused,
    },
    SettingKey {
        name: "ledger.encrypt",
        default: "false",
        help: "encrypt the payloads of the ledger (arguments and results) with a key that the vault keeps: `true` or `false`",
        kind: SettingKind::Word(&["false", "true"]),
        in_project: InProject::OnlyStricter,
    },
    SettingKey {
        name: "network.allow_private",
        default: "",
        help: "private addresses that `http.fetch` and programs may contact, as `host:port`, separated by commas",
        kind: SettingKind::Endpoints,
        in_project: InProject::Refused,
    },
    SettingKey {
        name: "policy.publishers",
        default: "",
        help: "keys whose bundles `regent policy apply` accepts, as `regent policy bundle` prints them, separated by commas",
        kind: SettingKind::Publishers,
        in_project: InProject::Refused,
    },
    SettingKey {
        name: "sandbox.floor",
        default: "landlock-seccomp",
        help: "the minimum confinement of programs: `landlock-seccomp`, or `full` (with namespaces)",
        kind: SettingKind::Word(&["landlock-seccomp", "full"]),
        in_project: InProject::OnlyStricter,
    },
    SettingKey {
        name: "sandbox.memory",
        default: "any",
        help: "the minimum enforcement of a program's memory limit: `any`, `watch` (monitors its processes), or `cgroup` (the kernel); otherwise programs are refused",
        kind: SettingKind::Word(&["any", "watch", "cgroup"]),
        in_project: InProject::OnlyStricter,
    },
    SettingKey {
        name: "skills.trusted_keys",
        default: "",
        help: "keys whose signatures make a skill verified, as `regent skill sign` prints them, separated by commas",
        kind: SettingKind::Keys,
        in_project: InProject::Refused,
    },
    SettingKey {
        name: "state.accept_loss",
        default: "false",
        help: "accept a server of the shared state that can lose acknowledged commits in a crash, such as a Redis without `appendfsync always`: `true` or `false`",
        kind: SettingKind::Word(&["true", "false"]),
        in_project: InProject::Refused,
    },
    SettingKey {
        name: "state.url_file",
        default: "",
        help: "a file of mode 0600 with the address of a server for approvals, rates and budgets (`postgres://`, `redis://`, `rediss://` or `dynamodb://`), so that several machines share them; without it they are in a file of this machine",
        kind: SettingKind::SecretFile,
        in_project: InProject::Refused,
    },
    SettingKey {
        name: "task.unattended",
        default: "wait",
        help: "what a task without a terminal does with a call that needs an approval: `wait` (it stops, and can be resumed), or `deny` (it continues, and lists what was left undone)",
        kind: SettingKind::Word(&["wait", "deny"]),
        in_project: InProject::Refused,
    },
    SettingKey {
        name: "ui.color",
        default: "auto",
        help: "colours: `auto`, `always` or `never`",
        kind: SettingKind::Word(&["auto", "always", "never"]),
        in_project: InProject::Refused,
    },
];

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Built in.
    Default,
    /// A file, by path and line.
    File(PathBuf, usize),
    /// An environment variable.
    Environment(String),
    /// A flag of this command.
    Flag(&'static str),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}

/// The settings in force, and the models that are set up.
#[derive(Debug, Clone)]
pub(crate) struct Settings(BTreeMap<&'static str, (String, Origin)>, regent_models::Settings);

/// Sections that are about models, and not of single values.
const MODEL_SECTIONS: [&str; 2] = ["models", "router"];

impl Settings {
    /// Everything that applies, the project's file only if one is given (it must be trusted by then).
    pub(crate) fn load(paths: &Paths, project: Option<&Controls>, no_color: bool) -> Result<Self, Failure> {
        let mut settings = Self(
            KEYS.iter().map(|key| (key.name, (key.default.to_owned(), Origin::Default))).collect(),
            models(&paths.settings())?,
        );
        for (key, value, origin) in read_file(&paths.settings())? {
            settings.0.insert(key.name, (value, origin));
        }
        for (key, value, origin) in project.map(read_project).transpose()?.into_iter().flatten() {
            settings.narrow(key, value, origin)?;
        }
        for key in KEYS {
            let name = variable(key);
            if let Ok(value) = std::env::var(&name) {
                check(key, &value)
                    .map_err(|why| Failure::new(codes::CONFIG_VALUE, format!("{name}: {why}")))?;
                settings.0.insert(key.name, (value, Origin::Environment(name)));
            }
        }
        if no_color {
            settings.0.insert("ui.color", ("never".to_owned(), Origin::Flag("--no-color")));
        }
        Ok(settings)
    }

    /// A project's value counts if it is stricter than the user's; a looser one is not an error, it has no effect.
    fn narrow(&mut self, key: &'static SettingKey, value: String, origin: Origin) -> Result<(), Failure> {
        if key.in_project == InProject::Refused {
            let message = format!("`{}` can't be set by a project ({origin})", key.name);
            return Err(Failure::new(codes::CONFIG_INVALID, message)
                .help("set it in your own file: `regent config set`"));
        }
        let Some((users, _)) = self.0.get(key.name) else { return Ok(()) };
        let rank = |text: &str| match key.kind {
            SettingKind::Word(words) => words.iter().position(|word| *word == text).map(|at| at as u64),
            SettingKind::Duration => duration_ms(text).map(|ms| u64::MAX - ms),
            SettingKind::Keeping
            | SettingKind::Endpoints
            | SettingKind::Keys
            | SettingKind::Publishers
            | SettingKind::SecretFile => None,
        };
        if rank(&value) > rank(users) {
            self.0.insert(key.name, (value, origin));
        }
        Ok(())
    }

    /// All of them, with where they come from.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, &str, &Origin)> {
        self.0.iter().map(|(name, (value, origin))| (*name, value.as_str(), origin))
    }

    /// A value as it is written in the settings.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", |(value, _)| value.as_str())
    }

    /// How long an approval is valid.
    pub(crate) fn approve_valid_ms(&self) -> u64 {
        // Checked when it was read; if it weren't, an approval would expire at once.
        duration_ms(self.text("approve.valid_for")).unwrap_or(0)
    }

    /// Whether a task without a terminal continues without the calls that need an approval.
    pub(crate) fn denies_unattended(&self) -> bool {
        self.text("task.unattended") == "deny"
    }

    /// How long `regent gc` keeps something; nothing means for ever.
    pub(crate) fn kept_ms(&self, name: &str) -> Option<u64> {
        duration_ms(self.text(name))
    }

    /// Whether programs need namespaces.
    pub(crate) fn needs_namespaces(&self) -> bool {
        self.text("sandbox.floor") != "landlock-seccomp"
    }

    /// The least that has to hold a program's memory limit.
    pub(crate) fn memory_floor(&self) -> regent_sandbox::MemoryFloor {
        use regent_sandbox::MemoryFloor;
        match self.text("sandbox.memory") {
            "any" => MemoryFloor::Any,
            "watch" => MemoryFloor::Watch,
            _cgroup => MemoryFloor::Cgroup,
        }
    }

    /// The file with the address of the server that has the shared state, if there is one.
    pub(crate) fn state_url_file(&self) -> Option<&Path> {
        Some(self.text("state.url_file")).filter(|path| !path.is_empty()).map(Path::new)
    }

    /// Whether that server may lose commits in a crash.
    pub(crate) fn accepts_loss(&self) -> bool {
        self.text("state.accept_loss") == "true"
    }

    /// Whether payloads are encrypted.
    pub(crate) fn encrypts_payloads(&self) -> bool {
        self.text("ledger.encrypt") != "false"
    }

    /// Private addresses that may be contacted.
    pub(crate) fn allow_private(&self) -> Vec<String> {
        items(self.text("network.allow_private")).map(str::to_owned).collect()
    }

    /// Keys whose signatures make a skill verified.
    pub(crate) fn trusted_keys(&self) -> Vec<TrustedKey> {
        // Checked when they were read; one that isn't a key vouches for nothing.
        items(self.text("skills.trusted_keys")).filter_map(|key| TrustedKey::parse(key).ok()).collect()
    }

    /// Keys whose bundles of policies are believed.
    pub(crate) fn publishers(&self) -> Vec<PublicKey> {
        items(self.text("policy.publishers")).filter_map(|key| bundles::publisher(key).ok()).collect()
    }

    /// The models that are set up.
    pub(crate) fn models(&self) -> &regent_models::Settings {
        &self.1
    }

    /// Whether colours are wanted.
    pub(crate) fn color(&self) -> Color {
        match self.text("ui.color") {
            "always" => Color::Always,
            "never" => Color::Never,
            _auto => Color::Auto,
        }
    }
}

/// The setting of that name.
pub(crate) fn key(name: &str) -> Result<&'static SettingKey, Failure> {
    KEYS.iter().find(|key| key.name == name).ok_or_else(|| {
        let names: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
        let all = format!("the settings are {}", names.join(", "));
        Failure::new(codes::CONFIG_KEY, format!("unknown setting `{name}`")).help(did_you_mean(
            name,
            names.iter().copied(),
            &all,
        ))
    })
}

/// Changes one value in a file and leaves everything else in it as it is, comments too.
pub(crate) fn set(path: &Path, name: &str, value: &str) -> Result<(), Failure> {
    let key = key(name)?;
    check(key, value).map_err(|why| Failure::new(codes::CONFIG_VALUE, why))?;
    read_file(path)?;
    let text = controls::read_if_there(path)?.unwrap_or_default();
    let mut document: DocumentMut = text
        .parse()
        .map_err(|error: toml_edit::TomlError| invalid(path, &text, error.span(), error.message()))?;
    let (section, field) = name.split_once('.').unwrap_or((name, ""));
    let table = document.entry(section).or_insert_with(toml_edit::table);
    let Some(table) = table.as_table_like_mut() else {
        return Err(invalid(path, &text, None, &format!("`{section}` is not a table")));
    };
    table.insert(field, toml_edit::value(value));
    crate::paths::write_private(path, document.to_string().as_bytes())
}

/// The environment variable that overrides a setting.
pub(crate) fn variable(key: &SettingKey) -> String {
    format!("REGENT_{}", key.name.replace('.', "_").to_ascii_uppercase())
}

/// `90s`, `10m`, `2h`, `1d` in milliseconds.
pub(crate) fn duration_ms(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds: u64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        _unknown => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(seconds)?.checked_mul(1000)
}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

fn check(key: &SettingKey, value: &str) -> Result<(), String> {
    let name = key.name;
    match key.kind {
        SettingKind::Word(words) if words.contains(&value) => Ok(()),
        SettingKind::Word(words) => {
            Err(format!("`{name}` can't be `{value}`; use one of {}", words.join(", ")))
        }
        SettingKind::Duration if duration_ms(value).is_some_and(|ms| ms > 0) => Ok(()),
        SettingKind::Duration => {
            Err(format!("`{name}` can't be `{value}`; give a time such as 90s, 10m, 2h or 1d"))
        }
        SettingKind::Keeping if value == FOREVER || duration_ms(value).is_some_and(|ms| ms > 0) => Ok(()),
        SettingKind::Keeping => {
            Err(format!("`{name}` can't be `{value}`; give a time such as 30d, or `{FOREVER}`"))
        }
        SettingKind::SecretFile if value.is_empty() || Path::new(value).is_absolute() => Ok(()),
        SettingKind::SecretFile => {
            Err(format!("`{name}` takes the absolute path of a file, and never its content"))
        }
        SettingKind::Endpoints => {
            let is_endpoint = |part: &str| {
                part.rsplit_once(':')
                    .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
            };
            match items(value).find(|part| !is_endpoint(part)) {
                None => Ok(()),
                Some(part) => Err(format!("`{name}` can't have `{part}`; give `host:port`")),
            }
        }
        SettingKind::Publishers => match items(value).find_map(|key| bundles::publisher(key).err()) {
            None => Ok(()),
            Some(why) => Err(format!("`{name}` takes keys as `regent policy bundle` prints them: {why}")),
        },
        SettingKind::Keys => match items(value).find(|key| TrustedKey::parse(key).is_err()) {
            None => Ok(()),
            Some(key) => {
                Err(format!("`{name}` can't have `{key}`; give a key as `regent skill sign` prints it"))
            }
        },
    }
}

type Read = (&'static SettingKey, String, Origin);

/// A project's file has no say in which models there are: where conversations go is the user's own.
fn read_project(controls: &Controls) -> Result<Vec<Read>, Failure> {
    let path = controls.project().settings();
    let text = controls.settings();
    if let Some(text) = text {
        let document =
            Document::parse(text).map_err(|error| invalid(&path, text, error.span(), error.message()))?;
        if let Some((name, item)) = document.iter().find(|(name, _)| MODEL_SECTIONS.contains(name)) {
            let why = format!("`{name}` can't be set by a project");
            return Err(invalid(&path, text, item.span(), &why).help("set it in your own file"));
        }
    }
    read_values(&path, text)
}

/// The models that a file sets up.
fn models(path: &Path) -> Result<regent_models::Settings, Failure> {
    let Some(text) = controls::read_if_there(path)? else { return Ok(regent_models::Settings::default()) };
    // The main parser reports invalid TOML with a better message.
    if Document::parse(text.as_str()).is_err() {
        return Ok(regent_models::Settings::default());
    }
    regent_models::Settings::parse(&text).map_err(|error| {
        let span = match &error {
            SettingsError::Shape { span, .. } => span.clone(),
            SettingsError::Provider { name, .. } => text.find(&format!("models.{name}")).map(|at| at..at),
        };
        invalid(path, &text, span, &error.to_string())
    })
}

fn read_file(path: &Path) -> Result<Vec<Read>, Failure> {
    read_values(path, controls::read_if_there(path)?.as_deref())
}

fn read_values(path: &Path, text: Option<&str>) -> Result<Vec<Read>, Failure> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let document =
        Document::parse(text).map_err(|error| invalid(path, text, error.span(), error.message()))?;
    let mut values = Vec::new();
    for (section, item) in document.iter().filter(|(section, _)| !MODEL_SECTIONS.contains(section)) {
        let Some(table) = item.as_table_like() else {
            return Err(invalid(
                path,
                text,
                item.span(),
                &format!("`{section}` is not a section of settings"),
            ));
        };
        for (field, item) in table.iter() {
            let fail = |why: &str| invalid(path, text, item.span(), why);
            let name = format!("{section}.{field}");
            let key = key(&name).map_err(|failure| fail(&failure.message))?;
            let value = scalar(item).ok_or_else(|| fail(&format!("`{name}` must be text")))?;
            let line = item.span().map_or(1, |span| place(text, span.start).0);
            check(key, &value).map_err(|why| match key.kind {
                // The excerpt would show the line.
                SettingKind::SecretFile => {
                    Failure::new(codes::CONFIG_INVALID, format!("`{}`, line {line}: {why}", path.display()))
                }
                SettingKind::Word(_)
                | SettingKind::Duration
                | SettingKind::Keeping
                | SettingKind::Endpoints
                | SettingKind::Keys
                | SettingKind::Publishers => fail(&why),
            })?;
            values.push((key, value, Origin::File(path.to_owned(), line)));
        }
    }
    Ok(values)
}

fn scalar(item: &Item) -> Option<String> {
    match item.as_array() {
        Some(array) => {
            let parts: Option<Vec<&str>> = array.iter().map(toml_edit::Value::as_str).collect();
            parts.map(|parts| parts.join(","))
        }
        None => item.as_str().map(str::to_owned).or_else(|| item.as_bool().map(|truth| truth.to_string())),
    }
}

/// What is wrong in a TOML file, and where.
pub(crate) fn invalid(path: &Path, text: &str, span: Option<std::ops::Range<usize>>, why: &str) -> Failure {
    let span = span.unwrap_or(0..0);
    let (line, column) = place(text, span.start);
    let mark = ExcerptMark {
        line,
        column,
        offset: span.start,
        length: span.len(),
        message: why.to_owned(),
        help: None,
    };
    let excerpt = Excerpt { name: path.display().to_string(), text: text.to_owned(), marks: vec![mark] };
    Failure::new(codes::CONFIG_INVALID, format!("`{}`, line {line}: {why}", path.display())).excerpt(excerpt)
}

/// Line and column of a byte, both from 1.
pub(crate) fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
    (line, column)
}

#[cfg(test)]
mod tests;
