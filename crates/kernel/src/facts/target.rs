//! What a call reaches for: how it is found in arguments, and how much of it an entry of the ledger says.

use regent_policy::Access;
pub(crate) use regent_policy::Target;
use serde_json::Value;

use crate::catalogue::ArgumentKind;

/// The program that an argument runs: a list of words, or a line for a shell.
pub(crate) fn program_target(kind: ArgumentKind, value: &Value) -> Option<Target> {
    match (kind, value) {
        (ArgumentKind::Argv, Value::Array(items)) => {
            Some(Target::Argv(items.iter().filter_map(Value::as_str).map(str::to_owned).collect()))
        }
        (ArgumentKind::Shell, Value::String(line)) => {
            Some(Target::Argv(vec!["/bin/sh".to_owned(), "-c".to_owned(), line.clone()]))
        }
        (ArgumentKind::Argv | ArgumentKind::Shell | ArgumentKind::Path(_) | ArgumentKind::Url, _) => None,
    }
}

/// Whether a call that reaches for these brings the content of one path to another: it copies or moves.
pub(crate) fn relocates(targets: &[Target]) -> bool {
    let has = |wanted: &[Access]| {
        targets.iter().any(|target| matches!(target, Target::Path { access, .. } if wanted.contains(access)))
    };
    has(&[Access::Write]) && has(&[Access::Read, Access::Delete])
}

/// About how much an entry would say about it.
pub(crate) fn text_bytes(target: &Target) -> usize {
    match target {
        Target::Path { path, .. } => path.len(),
        Target::Endpoint { host, path, .. } => host.len().saturating_add(path.len()),
        Target::Argv(argv) => argv.iter().map(|word| word.len().saturating_add(4)).sum(),
        Target::Secret(name) => name.len(),
    }
}

/// The same with every word put another way, and at most so many of a program's.
pub(crate) fn reworded(target: &Target, words_max: usize, word: &impl Fn(&String) -> String) -> Target {
    match target {
        Target::Path { path, access } => Target::Path { path: word(path), access: *access },
        Target::Endpoint { scheme, host, port, method, path } => Target::Endpoint {
            scheme: word(scheme),
            host: word(host),
            port: *port,
            method: word(method),
            path: word(path),
        },
        Target::Argv(argv) => Target::Argv(argv.iter().take(words_max).map(word).collect()),
        Target::Secret(name) => Target::Secret(name.clone()),
    }
}

/// The same without its free text: the name of a program stays, and the host of an address.
pub(crate) fn sealed(target: Target) -> Target {
    const ENCRYPTED: &str = "[encrypted]";
    match target {
        Target::Argv(argv) => {
            let words = argv.len();
            let program = argv.into_iter().next().filter(|word| !word.contains(char::is_whitespace));
            let program = program.unwrap_or_else(|| ENCRYPTED.to_owned());
            Target::Argv(if words > 1 { vec![program, ENCRYPTED.to_owned()] } else { vec![program] })
        }
        Target::Endpoint { scheme, host, port, method, .. } => {
            Target::Endpoint { scheme, host, port, method, path: ENCRYPTED.to_owned() }
        }
        other @ (Target::Path { .. } | Target::Secret(_)) => other,
    }
}
