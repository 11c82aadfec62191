//! Pure crates reach for nothing: no clock, file, socket, thread or shared variable, also not by a grouped import, and call nothing back that
//! isn't listed.

use super::tables::{AMBIENT, AMBIENT_ALLOWED, CALL_BACKS_ALLOWED, FACTS, PURE};
use super::{is_test, numbered};

/// What a file of a pure crate reaches for, each with its line.
pub(super) fn findings(file: &str, text: &str) -> Vec<(usize, String)> {
    if !is_pure(file) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let is_allowed =
        |word: &str| AMBIENT_ALLOWED.iter().any(|(one, place, _)| *one == word && *place == file);
    let ambient = |code: &str| AMBIENT.iter().find(|word| code.contains(**word) && !is_allowed(word));
    let mut import: Option<(usize, String)> = None;
    for (number, line) in numbered(text) {
        let code = line.split("//").next().unwrap_or("").trim();
        if let Some(word) = ambient(code) {
            found.push((number, format!("`{word}` in a pure crate: hand it in as data")));
        }
        let is_listed = |what: &&str| {
            CALL_BACKS_ALLOWED.iter().any(|(place, one, _)| *place == file && what.starts_with(one))
        };
        if file == FACTS && code.contains("dyn ") {
            found.push((number, "a call-back in `Facts`: hand in what it would answer as data".to_owned()));
        } else if let Some(what) = code.split("dyn ").skip(1).find(|what| !is_listed(what)) {
            let name = what.split(['(', ')', '<', '>', ',', ' ']).next().unwrap_or_default();
            found.push((number, format!("`dyn {name}` in a pure crate: a call-back can reach for anything")));
        }
        if import.is_none() && is_import(code) {
            import = Some((number, String::new()));
        }
        if let Some((_, whole)) = &mut import {
            whole.push_str(code);
            whole.push(' ');
        }
        if code.ends_with(';')
            && let Some((first, whole)) = import.take()
        {
            let paths = imported(&whole);
            let is_known = found.iter().any(|(number, _)| (first..).contains(number));
            if let Some(path) = paths.iter().find(|path| is_wide(path) || ambient(path).is_some())
                && !is_known
            {
                found.push((first, format!("`{path}` in a pure crate: hand it in as data")));
            }
        }
    }
    found
}

fn is_import(code: &str) -> bool {
    let code =
        code.strip_prefix("pub").map_or(code, |rest| rest.split_once(' ').map_or("", |(_, rest)| rest));
    code.starts_with("use ") || code.starts_with("extern crate ")
}

/// All of the standard library, under its own name or another.
fn is_wide(path: &str) -> bool {
    let root = path.split(" as ").next().unwrap_or_default().trim().trim_start_matches("::");
    ["std", "core", "alloc"].iter().any(|library| {
        root.strip_prefix(library).is_some_and(|rest| {
            rest.is_empty() || rest == "::self" || (rest.starts_with("::") && rest.ends_with('*'))
        })
    })
}

/// The paths of an import, its groups taken apart.
fn imported(whole: &str) -> Vec<String> {
    let tree = whole.trim().trim_end_matches(';');
    let tree =
        tree.split_once("use ").or_else(|| tree.split_once("extern crate ")).map_or("", |(_, tree)| tree);
    let mut paths = Vec::new();
    take_apart("", tree.trim(), &mut paths);
    paths
}

fn take_apart(before: &str, tree: &str, paths: &mut Vec<String>) {
    let Some((path, group)) = tree.split_once('{') else {
        return paths.push(format!("{before}{}", tree.trim()));
    };
    let group = group.rsplit_once('}').map_or(group, |(group, _)| group);
    let (before, mut depth, mut from) = (format!("{before}{}", path.trim()), 0_usize, 0);
    for (at, letter) in group.char_indices().chain([(group.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = group.get(from..at).unwrap_or_default().trim();
                if !part.is_empty() {
                    take_apart(&before, part, paths);
                }
                from = at + 1;
            }
            _ => {}
        }
    }
}

/// The code of a pure crate, without its tests.
fn is_pure(file: &str) -> bool {
    let is_of = |krate: &&str| {
        file.strip_prefix("crates/").is_some_and(|rest| rest.starts_with(&format!("{krate}/src/")))
    };
    PURE.iter().any(is_of) && !is_test(file)
}
