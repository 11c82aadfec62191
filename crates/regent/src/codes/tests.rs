//! Every code that can be met is explained.

use std::path::Path;

use super::*;

/// Calls whose first text is a code.
const CODE_COMES_AFTER: [&str; 9] = [
    "refuse(",
    "refusal(",
    "failed(",
    "with_failure(",
    "failure(",
    "code: ",
    "is_the_person(who, ",
    "Some((",
    "Self::Refused { code: ",
];

fn sources(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" && name != "bin" {
            sources(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" && !name.starts_with("test_") {
            found.push(path);
        }
    }
}

fn is_code(word: &str) -> bool {
    let fine = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    word.split_once('.').is_some_and(|(left, right)| fine(left) && fine(right))
}

#[test]
fn every_code_that_other_parts_answer_with_is_explained() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for part in
        ["kernel/src", "tools/src", "sandbox/src", "microvm/src", "egress/src", "skills/src", "models/src"]
    {
        sources(&crates.join(part), &mut files);
    }
    let mut missing = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for after in CODE_COMES_AFTER {
            for piece in text.split(after).skip(1) {
                let Some(word) = piece.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next())
                else {
                    continue;
                };
                if is_code(word) && find(word).is_none() {
                    missing.push(format!("{}: {word}", file.display()));
                }
            }
        }
    }
    assert!(missing.is_empty(), "codes without explanation: {missing:#?}");
}

#[test]
fn codes_are_unique_and_their_exit_codes_are_documented() {
    let mut ids: Vec<&str> =
        OWN.iter().chain(OTHERS).chain(MODELS).chain(GUESTS).map(|code| code.id).collect();
    ids.extend(regent_policy::codes::ALL.iter().map(|(id, _)| *id));
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "a code is there twice");
    for code in all() {
        assert!(
            [1, 2, 3, 4, 5, 6, 10, 11, 12, 13, 14, 15, 16, 17, 20, 21, 75, 130].contains(&code.exit),
            "{}",
            code.id
        );
        assert!(!code.text.trim().is_empty(), "{}", code.id);
    }
}
