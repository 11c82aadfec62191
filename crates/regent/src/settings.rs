//! Settings: defaults, then the user's file, the project's, the environment and flags; each value knows where it came from.
//!
//! A project's file may only make things stricter. Every key here changes what the program does; there are no others.

mod file;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use regent_egress::{Proxy, authorities, system_authorities};
use regent_ledger::PublicKey;
use regent_skills::TrustedKey;

use crate::bundles;
use crate::codes;
use crate::controls::Controls;
use crate::failure::{Failure, did_you_mean};
use crate::output::Color;
use crate::paths::Paths;

pub(crate) use file::{SettingsFile, check_project, invalid, set, unset};

/// What is never removed.
const FOREVER: &str = "forever";
/// The authorities that the system trusts.
const SYSTEM: &str = "system";

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
    /// The absolute path of a file with certificates, or `system`.
    Authorities,
    /// Words separated by commas.
    Words,
    /// `http://host:port`.
    Proxy,
    /// `name+id+key`, separated by commas.
    Keys,
    /// The same, for bundles of policies.
    Publishers,
    /// A positive number, or one of these words.
    Number(&'static [&'static str]),
    /// Texts, separated by commas.
    Texts,
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
        name: "network.ca",
        default: "",
        help: "further certificate authorities that model providers may have certificates of: the absolute path of a PEM file, or `system`",
        kind: SettingKind::Authorities,
        in_project: InProject::Refused,
    },
    SettingKey {
        name: "network.no_proxy",
        default: "",
        help: "hosts of model providers that are reached without the proxy: `host`, `host:port` or `.domain`, separated by commas",
        kind: SettingKind::Words,
        in_project: InProject::Refused,
    },
    SettingKey {
        name: "network.proxy",
        default: "",
        help: "an HTTP proxy on the way to model providers on other machines, as `http://host:port`; calls of agents don't go through it",
        kind: SettingKind::Proxy,
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
        name: "task.forbidden",
        default: "",
        help: "texts that no prompt may contain, separated by commas; a task stops before it sends one",
        kind: SettingKind::Texts,
        in_project: InProject::Refused,
    },
    SettingKey {
        name: "task.max_answer",
        default: "auto",
        help: "how many tokens one answer of a model may have in a task: a number, or `auto` (what the model and the task's budget allow)",
        kind: SettingKind::Number(&["auto"]),
        in_project: InProject::Refused,
    },
    SettingKey {
        name: "task.turns",
        default: "200",
        help: "how many turns an agent may take",
        kind: SettingKind::Number(&[]),
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
        name: "task.window",
        default: "auto",
        help: "how many tokens a conversation may have, its answer included: a number, or `auto` (the model's window)",
        kind: SettingKind::Number(&["auto"]),
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
    /// Everything that applies, the project's file only if one is given (it must be trusted by then). The first mistake is the error.
    pub(crate) fn load(paths: &Paths, project: Option<&Controls>, no_color: bool) -> Result<Self, Failure> {
        let (settings, mistakes) = Self::read(paths, project, no_color);
        mistakes.into_iter().next().map_or(Ok(settings), Err)
    }

    /// The same for commands that help to correct mistakes: what is valid, and every mistake.
    pub(crate) fn read(paths: &Paths, project: Option<&Controls>, no_color: bool) -> (Self, Vec<Failure>) {
        let mut mistakes = Vec::new();
        let path = paths.settings();
        let mut models = file::models(&path).unwrap_or_else(|mistake| {
            mistakes.push(mistake);
            regent_models::Settings::default()
        });
        models.table = file::capabilities(&paths.capabilities()).unwrap_or_else(|mistake| {
            mistakes.push(mistake);
            None
        });
        let defaults = KEYS.iter().map(|key| (key.name, (key.default.to_owned(), Origin::Default)));
        let mut settings = Self(defaults.collect(), models);
        for (key, value, origin) in file::read_file(&path, &mut mistakes) {
            settings.0.insert(key.name, (value, origin));
        }
        for (key, value, origin) in
            project.map(|one| file::read_project(one, &mut mistakes)).unwrap_or_default()
        {
            settings.narrow(key, value, origin);
        }
        for key in KEYS {
            let name = variable(key);
            let Ok(value) = std::env::var(&name) else { continue };
            match check(key, &value) {
                Ok(()) => drop(settings.0.insert(key.name, (value, Origin::Environment(name)))),
                Err(why) => mistakes.push(Failure::new(codes::CONFIG_VALUE, format!("{name}: {why}"))),
            }
        }
        if no_color {
            settings.0.insert("ui.color", ("never".to_owned(), Origin::Flag("--no-color")));
        }
        (settings, mistakes)
    }

    /// A project's value counts if it is stricter than the user's; a looser one is not an error, it has no effect.
    fn narrow(&mut self, key: &'static SettingKey, value: String, origin: Origin) {
        let Some((users, _)) = self.0.get(key.name) else { return };
        let rank = |text: &str| match key.kind {
            SettingKind::Word(words) => words.iter().position(|word| *word == text).map(|at| at as u64),
            SettingKind::Duration => duration_ms(text).map(|ms| u64::MAX - ms),
            SettingKind::Keeping
            | SettingKind::Endpoints
            | SettingKind::Authorities
            | SettingKind::Words
            | SettingKind::Proxy
            | SettingKind::Keys
            | SettingKind::Publishers
            | SettingKind::Number(_)
            | SettingKind::Texts
            | SettingKind::SecretFile => None,
        };
        if rank(&value) > rank(users) {
            self.0.insert(key.name, (value, origin));
        }
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

    /// A number, unless it is left to Regent.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.text(name).parse().ok()
    }

    /// Texts that no prompt may contain.
    pub(crate) fn forbidden(&self) -> Vec<String> {
        items(self.text("task.forbidden")).map(str::to_owned).collect()
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

    /// Certificates of authorities that are trusted besides the public ones.
    pub(crate) fn authorities(&self) -> Result<Vec<Vec<u8>>, Failure> {
        let read = match self.text("network.ca") {
            "" => return Ok(Vec::new()),
            SYSTEM => system_authorities(),
            path => authorities(Path::new(path)),
        };
        read.map_err(|why| Failure::new(codes::CONFIG_VALUE, format!("network.ca: {why}")))
    }

    /// The proxy on the way to model providers.
    pub(crate) fn proxy(&self) -> Option<Proxy> {
        let bypass = items(self.text("network.no_proxy")).map(str::to_owned).collect();
        Proxy::new(self.text("network.proxy"), bypass).ok()
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
        SettingKind::Number(words) if words.contains(&value) => Ok(()),
        SettingKind::Number(_) if value.parse::<u32>().is_ok_and(|number| number > 0) => Ok(()),
        SettingKind::Number(words) => {
            let words: String = words.iter().map(|word| format!(", or `{word}`")).collect();
            Err(format!("`{name}` can't be `{value}`; give a positive number{words}"))
        }
        SettingKind::Texts => Ok(()),
        SettingKind::SecretFile if value.is_empty() || Path::new(value).is_absolute() => Ok(()),
        SettingKind::SecretFile => {
            Err(format!("`{name}` takes the absolute path of a file, and never its content"))
        }
        SettingKind::Authorities if matches!(value, "" | SYSTEM) || Path::new(value).is_absolute() => Ok(()),
        SettingKind::Authorities => {
            Err(format!("`{name}` takes the absolute path of a file with certificates, or `{SYSTEM}`"))
        }
        SettingKind::Words => Ok(()),
        SettingKind::Proxy if value.is_empty() => Ok(()),
        // A value that isn't understood may have a password, so no error repeats it.
        SettingKind::Proxy => {
            Proxy::new(value, Vec::new()).map(drop).map_err(|why| format!("`{name}`: {why}"))
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

#[cfg(test)]
mod tests;
