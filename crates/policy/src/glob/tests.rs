//! Cases for globs, and limits on hostile patterns.

use super::*;
use proptest::prelude::*;

fn path(pattern: &str, path: &str) -> bool {
    expand(pattern).unwrap().iter().any(|one| PathGlob::new(one).unwrap().matches(path, "ada"))
}

#[test]
fn names() {
    let cases = [
        ("fs.read", "fs.read", true),
        ("fs.read", "fs.reads", false),
        ("fs.*", "fs.read", true),
        ("fs.*", "fs.", true),
        ("fs.*", "fs", false),
        ("*", "", true),
        ("a*b*c", "axxbyyc", true),
        ("a*b*c", "axxbyy", false),
        ("?", "ä", true),
        ("?", "", false),
        ("[a-c]x", "bx", true),
        ("[!a-c]x", "bx", false),
        ("[^a-c]x", "dx", true),
        ("[]]", "]", true),
        ("[a-]", "-", true),
        (r"\*", "*", true),
        (r"\*", "x", false),
        ("**", "anything", true),
    ];
    for (pattern, text, expected) in cases {
        assert_eq!(NameGlob::new(pattern).unwrap().matches(text), expected, "{pattern} on {text}");
    }
}

#[test]
fn paths() {
    let cases = [
        ("src/**", "src/a/b.rs", true),
        ("src/**", "src", true),
        ("src/**", "srcx/a", false),
        ("src/*.rs", "src/a.rs", true),
        ("src/*.rs", "src/a/b.rs", false),
        ("**", "", true),
        ("**", ".", true),
        ("**", ".env", true),
        ("**", "/etc/passwd", false),
        ("**", "vfs:/agent/ada", false),
        ("/**", "/etc/passwd", true),
        ("/**", "etc/passwd", false),
        ("vfs:/**", "vfs:/agent/bob/mem", true),
        ("vfs:/**", "/agent/bob/mem", false),
        ("vfs:/agent/${agent}/**", "vfs:/agent/ada/mem/x", true),
        ("vfs:/agent/${agent}/**", "vfs:/agent/bob/mem/x", false),
        ("vfs:/agent/${agent}/{mem,state}/**", "vfs:/agent/ada/state/x", true),
        ("vfs:/agent/${agent}/{mem,state}/**", "vfs:/agent/ada/policy/x", false),
        ("**/*.pem", "a/b/c.pem", true),
        ("**/*.pem", "c.pem", true),
        ("**/.env", ".env", true),
        ("**/.git/**", "a/.git/config", true),
        ("**/.git/**", "a/.gitx/config", false),
        ("a/**/b/**/c", "a/b/x/b/y/c", true),
        ("a/**/b/**/c", "a/x/y/c", false),
        ("{a,b/{c,d}}/x", "b/d/x", true),
        ("{a,b/{c,d}}/x", "b/x", false),
        ("a/?", "a//", false),
        ("Src/**", "src/a", false),
        ("x\ny/*", "x\ny/z", true),
    ];
    for (pattern, text, expected) in cases {
        assert_eq!(path(pattern, text), expected, "{pattern} on {text}");
    }
}

#[test]
fn a_set_matches_if_any_pattern_does() {
    let patterns = [
        "**/.env",
        "**/*.pem",
        "**/.git/**",
        "/**/.ssh/**",
        "src/*.rs",
        "vfs:/**",
        "**/*.tar.gz",
        "**/a*",
        "**/x.y",
    ];
    let globs: Vec<PathGlob> = patterns.iter().map(|pattern| PathGlob::new(pattern).unwrap()).collect();
    let set = PathSet::new(globs.clone());
    let trees = ["", "/", "vfs:/"];
    let paths = [
        "",
        ".env",
        "b/.env",
        ".env/c",
        "c.pem",
        "b/.pem",
        "pem",
        "c.pem/d",
        ".git",
        "b/.git/c",
        ".ssh/k",
        "b/.ssh",
        "src/m.rs",
        "src/m/n.rs",
        "b.tar.gz",
        "b.gz",
        "d/ab",
        "b/",
        "b//.env",
        "x.y",
        "d/x.y",
        "d/x.z",
    ];
    for path in trees.iter().flat_map(|tree| paths.iter().map(move |path| format!("{tree}{path}"))) {
        let plainly = globs.iter().any(|glob| glob.matches(&path, "ada"));
        assert_eq!(set.matches(&path, "ada"), plainly, "{path}");
    }
}

#[test]
fn a_caller_without_a_name_owns_nothing() {
    let glob = PathGlob::new("vfs:/agent/${agent}/**").unwrap();
    assert!(!glob.matches("vfs:/agent//mem", ""));
    assert!(!glob.matches("vfs:/agent/mem", ""));
    assert!(!glob.matches("vfs:/agent/a/b/mem", "a/b"));
}

#[test]
fn rejects_invalid_patterns() {
    let cases = [
        ("", GlobError::Empty),
        ("a/../b", GlobError::Dots),
        ("./a", GlobError::Dots),
        ("a//b", GlobError::Dots),
        ("a/", GlobError::Dots),
        ("a/b**", GlobError::Stars),
        ("[a", GlobError::OpenClass),
        ("a[/]b", GlobError::OpenClass),
        ("[z-a]", GlobError::Range('z', 'a')),
        ("~/.ssh/**", GlobError::Home),
        ("a\\", GlobError::Escape),
    ];
    for (pattern, error) in cases {
        assert_eq!(PathGlob::new(pattern), Err(error), "{pattern}");
    }
    assert_eq!(expand("{a"), Err(GlobError::OpenBrace));
    assert_eq!(expand("a}"), Err(GlobError::OpenBrace));
    assert_eq!(expand("[{]x"), Ok(vec!["[{]x".to_owned()]));
}

#[test]
fn adv_006_pathological_globs_are_rejected_or_fast() {
    assert_eq!(expand(&"{a,b}".repeat(20)), Err(GlobError::TooMany));
    assert_eq!(NameGlob::new(&"a".repeat(PATTERN_BYTES_MAX + 1)), Err(GlobError::TooLong));
    // Exponential for a matcher that backtracks to every star.
    let name = NameGlob::new(&"*a".repeat(500)).unwrap();
    assert!(!name.matches(&format!("{}b", "a".repeat(4096))));
    let deep = PathGlob::new("**/a/".repeat(100).trim_end_matches('/')).unwrap();
    assert!(!deep.matches(&format!("{}b", "a/".repeat(2000)), ""));
}

/// The textbook matcher: exponential and obviously correct.
fn plainly(pattern: &[char], text: &[char]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some(('*', rest)) => (0..=text.len()).any(|skip| plainly(rest, &text[skip..])),
        Some(('?', rest)) => !text.is_empty() && plainly(rest, &text[1..]),
        Some((literal, rest)) => text.first() == Some(literal) && plainly(rest, &text[1..]),
    }
}

proptest! {
    #[test]
    fn a_name_glob_agrees_with_the_textbook_matcher(pattern in "[ab*?]{0,8}", text in "[ab]{0,8}") {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        prop_assert_eq!(NameGlob::new(&pattern).unwrap().matches(&text), plainly(&chars(&pattern), &chars(&text)));
    }

    #[test]
    fn matching_never_panics(pattern in ".{0,40}", text in ".{0,40}") {
        if let Ok(patterns) = expand(&pattern) {
            for one in patterns {
                if let Ok(glob) = PathGlob::new(&one) { let _ = glob.matches(&text, &text); }
                if let Ok(glob) = NameGlob::new(&one) { let _ = glob.matches(&text); }
            }
        }
    }
}
