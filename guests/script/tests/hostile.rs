//! Hostile and random sources: none makes the interpreter panic, hang or overflow.

use proptest::prelude::*;
use regent_script::{Limits, NoHost, Script};

const LIMITS: Limits = Limits { steps_max: 20_000, depth_max: 300 };

fn try_it(source: &str) {
    if let Ok(script) = Script::new(source) {
        let ended = script.run(r#"{"a":[1,"x",null,{"b":2.5}]}"#, &mut NoHost, LIMITS);
        // Success and failure are both fine; the run must only end.
        drop(ended);
    }
}

/// Tokens of random programs.
const PIECES: &[&str] = &[
    "let",
    "const",
    "x",
    "y",
    "input",
    "=",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "=>",
    "function",
    "return",
    "if",
    "else",
    "for",
    "of",
    "in",
    "while",
    "class",
    "extends",
    "super",
    "this",
    "new",
    "try",
    "catch",
    "finally",
    "throw",
    "async",
    "await",
    "typeof",
    "delete",
    "switch",
    "case",
    "default",
    ":",
    ";",
    ",",
    ".",
    "?.",
    "??",
    "...",
    "+",
    "-",
    "*",
    "**",
    "/",
    "%",
    "==",
    "===",
    "!",
    "<",
    ">",
    "&&",
    "||",
    "+=",
    "??=",
    "++",
    "1",
    "0.5",
    "1e400",
    "'s'",
    "`t${x}`",
    "/r+/g",
    "null",
    "undefined",
    "true",
    "Math",
    "JSON",
    "Object",
    "Array",
    "regent",
    "Map",
    "Date",
    "map",
    "length",
    "push",
    "sort",
    "toString",
    "constructor",
    "__proto__",
    "prototype",
    "\n",
    "break",
    "continue",
    "l:",
    "#p",
    "static",
    "get",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text(source in "\\PC{0,200}") {
        try_it(&source);
        try_it(&format!("function run(input) {{ {source} }}"));
    }

    #[test]
    fn any_pieces(picks in proptest::collection::vec(0..PIECES.len(), 0..60)) {
        let source: Vec<&str> = picks.iter().map(|pick| PIECES[*pick]).collect();
        try_it(&format!("function run(input) {{ {} }}", source.join(" ")));
    }

    #[test]
    fn any_regex(pattern in "[\\[\\](){}^$.*+?|\\\\a-c0-9,:=!<>dwsbpu-]{0,30}", text in "\\PC{0,40}") {
        let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        try_it(&format!(
            "function run() {{ const re = new RegExp(\"{}\", \"g\"); const t = \"{}\"; return [t.replace(re, '-$1-$&'), t.split(re), t.match(re)]; }}",
            quoted(&pattern), quoted(&text)
        ));
    }

    #[test]
    fn numbers_read_back_as_themselves(bits in any::<u64>()) {
        let number = f64::from_bits(bits);
        prop_assume!(number.is_finite());
        let script = Script::new("function run(x) { return [String(x), Number(String(x)) === x]; }").unwrap();
        let got = script.run(&format!("{number:e}"), &mut NoHost, LIMITS).unwrap();
        prop_assert!(got.ends_with(",true]"), "{}", got);
    }

    #[test]
    fn dates_read_back_as_themselves(ms in -8_640_000_000_000_000_i64..8_640_000_000_000_000) {
        let script = Script::new("function run(x) { return new Date(new Date(x).toISOString()).getTime() === x; }").unwrap();
        prop_assert_eq!(script.run(&ms.to_string(), &mut NoHost, LIMITS).unwrap(), "true");
    }

    #[test]
    fn sorting_never_loses_anything(items in proptest::collection::vec(-50..50_i32, 0..60), pick in 0..4_usize) {
        // Also with inconsistent comparators.
        let compare = ["(a, b) => a - b", "() => 1", "() => -1", "(a, b) => (a * 7 + b) % 3 - 1"][pick];
        let source = format!("function run(x) {{ return x.sort({compare}); }}");
        let input = format!("{items:?}");
        let got = Script::new(&source).unwrap().run(&input, &mut NoHost, LIMITS).unwrap();
        let mut got: Vec<i32> = got.trim_matches(['[', ']']).split(',').filter_map(|n| n.parse().ok()).collect();
        let mut wanted = items.clone();
        wanted.sort_unstable();
        if pick == 0 {
            prop_assert_eq!(&got, &wanted);
        }
        got.sort_unstable();
        prop_assert_eq!(got, wanted);
    }
}

#[test]
fn deep_nesting_is_refused_or_survived() {
    let times = 20_000;
    for (open, close) in [
        ("(", ")"),
        ("[", "]"),
        ("{", "}"),
        ("!", ""),
        ("-", ""),
        ("a=>", ""),
        ("`${", "}`"),
        ("f(", ")"),
        ("if(1)", ""),
        ("x?", ":1"),
        ("{a:", "}"),
        ("new ", ""),
        ("1+", ""),
        ("a.", ""),
        ("function f(){", "}"),
        ("class A{x=", "}"),
        ("typeof ", ""),
        ("1**", ""),
        ("await ", ""),
        ("a?.", ""),
    ] {
        let source = format!("function run(a) {{ return {}1{}; }}", open.repeat(times), close.repeat(times));
        try_it(&source);
        try_it(&format!("function run(a) {{ {}{} }}", open.repeat(times), close.repeat(times)));
        try_it(&open.repeat(times));
    }
    let long = format!("function run() {{ return {}1; }}", "1 + ".repeat(100));
    assert_eq!(Script::new(&long).unwrap().run("null", &mut NoHost, LIMITS).unwrap(), "101");
    let deep_input = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    assert!(
        Script::new("function run(x) { return x; }").unwrap().run(&deep_input, &mut NoHost, LIMITS).is_err()
    );
}

#[test]
fn large_things_are_refused() {
    for source in [
        "'x'.repeat(2 ** 30)",
        "'x'.padEnd(1e9)",
        "new Array(1e9)",
        "Array.from({ length: 1e12 })",
        "(() => { const a = []; a[1e8] = 1; return a; })()",
        "(() => { const a = []; a.length = 1e9; return a; })()",
        "(() => { let s = 'ab'; for (let i = 0; i < 40; i++) s += s; return s; })()",
        "(() => { let s = 'ab'; for (let i = 0; i < 40; i++) s = `${s}${s}`; return s; })()",
        "(() => { let a = [1, 2]; for (let i = 0; i < 40; i++) a = a.concat(a); return a; })()",
        "new RegExp('(a{1,1000}){1,1000}')",
        "/(((a{100}){100}){100})/.test('a')",
        "'a'.replaceAll('', 'x'.repeat(1e7)).replaceAll('x', 'y'.repeat(1e4))",
    ] {
        let source = format!("function run() {{ return ({source}).length; }}");
        let ended = Script::new(&source).and_then(|script| script.run("null", &mut NoHost, LIMITS));
        assert!(ended.is_err(), "{source}: {ended:?}");
    }
}

#[test]
fn nothing_leaks_between_kinds() {
    for source in [
        "Object.getPrototypeOf([]).push",
        "[].constructor",
        "(() => {}).constructor",
        "(() => {}).prototype",
        "({}).__proto__",
        "({}).constructor",
        "''.constructor",
    ] {
        let source = format!("function run() {{ return typeof ({source}); }}");
        let got = Script::new(&source).unwrap().run("null", &mut NoHost, LIMITS);
        assert!(matches!(got.as_deref(), Ok("\"undefined\"") | Err(_)), "{source}: {got:?}");
    }
    // Built-ins can't be changed.
    for source in [
        "Array.prototype.map = 1",
        "Math.max = 1",
        "JSON.parse = 1",
        "Object.prototype.x = 1",
        "console.log = 1",
    ] {
        let source = format!("function run() {{ {source}; }}");
        assert!(Script::new(&source).unwrap().run("null", &mut NoHost, LIMITS).is_err(), "{source}");
    }
}
