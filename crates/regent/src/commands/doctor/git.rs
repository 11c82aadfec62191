//! Whether git obeys the `config` of any folder that looks like a bare repository.

use std::path::{Path, PathBuf};

use super::Check;

const ID: &str = "git.bare";
/// A configuration file larger than this isn't one.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Recommends `safe.bareRepository=explicit`: without it `git status` in a folder with `HEAD`, `objects` and `refs` runs what that folder's
/// `config` says. Regent keeps agents from making such folders; this setting also covers those that come with a download.
pub(super) fn bare_repositories() -> Check {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|folder| folder.join("git").is_file()) {
        return Check::good(ID, "git is not installed");
    }
    let set = files().iter().filter_map(|file| value_in(file)).next_back();
    if set.is_some_and(|value| value.eq_ignore_ascii_case("explicit")) {
        return Check::good(
            ID,
            "git ignores repositories that are embedded in a folder (safe.bareRepository=explicit)",
        );
    }
    Check::warning(
        ID,
        "git obeys the config of any folder that looks like a bare repository",
        "git config --global safe.bareRepository explicit",
    )
}

/// Git's configuration files that are not a repository's own; later ones win.
fn files() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let xdg = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let xdg = xdg.or_else(|| home.as_ref().map(|home| home.join(".config")));
    let system =
        std::env::var_os("GIT_CONFIG_SYSTEM").map_or_else(|| PathBuf::from("/etc/gitconfig"), PathBuf::from);
    let mut files = vec![system];
    match std::env::var_os("GIT_CONFIG_GLOBAL") {
        Some(global) => files.push(PathBuf::from(global)),
        None => {
            files.extend(xdg.map(|xdg| xdg.join("git/config")));
            files.extend(home.map(|home| home.join(".gitconfig")));
        }
    }
    files
}

fn value_in(file: &Path) -> Option<String> {
    let is_small =
        std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.len() <= CONFIG_BYTES_MAX);
    let text = is_small.then(|| std::fs::read_to_string(file).ok()).flatten()?;
    value_of(&text)
}

/// The last value of `safe.bareRepository` in a configuration file. Included files are not followed.
fn value_of(text: &str) -> Option<String> {
    let (mut in_safe, mut found) = (false, None);
    for line in text.lines().map(str::trim) {
        let mut rest = line;
        if let Some((section, after)) = line.strip_prefix('[').and_then(|header| header.split_once(']')) {
            in_safe = section.trim().eq_ignore_ascii_case("safe");
            rest = after.trim();
        }
        let Some((key, value)) = rest.split_once('=').filter(|_| in_safe) else { continue };
        if key.trim().eq_ignore_ascii_case("bareRepository") {
            let value = value.split(['#', ';']).next().unwrap_or_default();
            found = Some(value.trim().trim_matches('"').to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::value_of;

    #[test]
    fn the_last_value_in_the_section_counts() {
        let cases = [
            ("[safe]\n\tbareRepository = explicit\n", Some("explicit")),
            ("[SAFE]\nbarerepository=\"explicit\" # sure\n", Some("explicit")),
            ("[safe] bareRepository = all\n[safe]\nbareRepository = explicit", Some("explicit")),
            ("[core]\nbareRepository = explicit\n", None),
            ("# [safe]\n", None),
            ("[safe \"x\"]\nbareRepository = explicit\n", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(value_of(text).as_deref(), expected, "{text:?}");
        }
    }
}
