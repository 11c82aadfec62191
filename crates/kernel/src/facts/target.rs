//! What a call reaches for, as policy sees it and the ledger names it.

use regent_policy::{Access, Resource};
use serde::Serialize;
use serde_json::Value;

use crate::catalogue::ArgumentKind;

/// A thing that the call reaches for.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    Path { path: String, access: Access },
    Endpoint { scheme: String, host: String, port: u16, method: String, path: String },
    Argv(Vec<String>),
    Secret(String),
}

impl Target {
    /// The program that an argument runs: a list of words, or a line for a shell.
    pub(crate) fn program(kind: ArgumentKind, value: &Value) -> Option<Self> {
        match (kind, value) {
            (ArgumentKind::Argv, Value::Array(items)) => {
                Some(Self::Argv(items.iter().filter_map(Value::as_str).map(str::to_owned).collect()))
            }
            (ArgumentKind::Shell, Value::String(line)) => {
                Some(Self::Argv(vec!["/bin/sh".to_owned(), "-c".to_owned(), line.clone()]))
            }
            (ArgumentKind::Argv | ArgumentKind::Shell | ArgumentKind::Path(_) | ArgumentKind::Url, _) => None,
        }
    }

    /// About how much an entry would say about it.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Path { path, .. } => path.len(),
            Self::Endpoint { host, path, .. } => host.len().saturating_add(path.len()),
            Self::Argv(argv) => argv.iter().map(|word| word.len().saturating_add(4)).sum(),
            Self::Secret(name) => name.len(),
        }
    }

    /// The same with every word put another way, and at most so many of a program's.
    pub(crate) fn reworded(&self, words_max: usize, word: &impl Fn(&String) -> String) -> Self {
        match self {
            Self::Path { path, access } => Self::Path { path: word(path), access: *access },
            Self::Endpoint { scheme, host, port, method, path } => Self::Endpoint {
                scheme: word(scheme),
                host: word(host),
                port: *port,
                method: word(method),
                path: word(path),
            },
            Self::Argv(argv) => Self::Argv(argv.iter().take(words_max).map(word).collect()),
            Self::Secret(name) => Self::Secret(name.clone()),
        }
    }

    /// The same without its free text: the name of a program stays, and the host of an address.
    pub(crate) fn sealed(self) -> Self {
        const ENCRYPTED: &str = "[encrypted]";
        match self {
            Self::Argv(argv) => {
                let words = argv.len();
                let program = argv.into_iter().next().filter(|word| !word.contains(char::is_whitespace));
                let program = program.unwrap_or_else(|| ENCRYPTED.to_owned());
                Self::Argv(if words > 1 { vec![program, ENCRYPTED.to_owned()] } else { vec![program] })
            }
            Self::Endpoint { scheme, host, port, method, .. } => {
                Self::Endpoint { scheme, host, port, method, path: ENCRYPTED.to_owned() }
            }
            other @ (Self::Path { .. } | Self::Secret(_)) => other,
        }
    }

    pub(crate) fn view(&self) -> Resource<'_> {
        match self {
            Self::Path { path, access } => Resource::Path { path, access: *access },
            Self::Endpoint { scheme, host, port, method, path } => {
                Resource::Endpoint { scheme, host, port: *port, method, path }
            }
            Self::Argv(argv) => Resource::Argv(argv),
            Self::Secret(name) => Resource::Secret(name),
        }
    }
}
