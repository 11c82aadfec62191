//! Random policies and calls as JSON, from a vocabulary small enough for matches.

use serde_json::{Map, Value, json};

/// A small seeded generator, so that a difference can be reproduced.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.roll() % bound as u64).unwrap()
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, words: &[&'a T]) -> &'a T {
        words[self.below(words.len())]
    }

    fn value(&mut self, values: &[&str]) -> Value {
        let text = self.pick(values);
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// One word, or sometimes a list.
    fn words(&mut self, words: &[&str]) -> Value {
        if self.one_in(4) {
            let count = 1 + self.below(3);
            return (0..count).map(|_| self.pick(words)).collect();
        }
        json!(self.pick(words))
    }
}

const ARGS: &[&str] = &[
    r#"{"/n": 1}"#,
    r#"{"/n": {"lt": 2}}"#,
    r#"{"/n": {"in": [1, 2.0, "x"]}}"#,
    r#"{"/n": {"not_in": [1, "1"]}}"#,
    r#"{"/s": {"eq": "x"}}"#,
    r#"{"/s": {"ne": "x"}}"#,
    r#"{"/s": {"exists": false}}"#,
    r#"{"/s": {"matches": "^[x-z]$"}}"#,
    r#"{"/s": {"matches": "x", "ne": "xx"}}"#,
    r#"{"/n": {"matches": "1"}}"#,
    r#"{"$.l[*]": {"gt": 1}}"#,
    r#"{"$..k": {"starts_with": "a"}}"#,
    r#"{"/s": {"any": [{"eq": "y"}, {"ends_with": "x"}]}}"#,
    r#"{"/l": {"contains": 2}}"#,
];

fn condition(dice: &mut Dice, out: &mut Map<String, Value>) {
    let (key, value) = match dice.below(16) {
        0 => ("op", dice.words(&["tool.run", "vfs.*", "vfs.read", "*"])),
        1 | 2 => ("tool", dice.words(&["fs.read", "fs.*", "fs.{read,write}", "http.fetch", "*", "f*"])),
        3 => ("agent", dice.words(&["ada", "bob", "a*", "team-x.*", "team-*"])),
        4 => ("role", dice.words(&["dev", "ops", "*"])),
        5 => ("capability", dice.words(&["file.*", "file.read", "network.request"])),
        6 | 7 => ("path", dice.words(PATTERNS)),
        8 => ("access", dice.words(&["read", "write"])),
        9 => ("host", dice.words(&["example.com", "*.example.com", "*", "a.example.com"])),
        10 => ("method", dice.words(&["GET", "POST"])),
        11 => ("secret", dice.words(&["aws", "github/*", "*", "github/token"])),
        12 => match dice.below(2) {
            0 => ("program", dice.words(&["git", "/usr/bin/git", "g*", "{ls,git}"])),
            _ => (
                "argv",
                dice.value(&[r#"["git", "..."]"#, r#"["git", "status"]"#, r#"[["ls"], ["git", "*"]]"#]),
            ),
        },
        13 => ("args", dice.value(ARGS)),
        14 => (
            "labels",
            dice.value(&[
                r#"{"*": {"less_trusted_than": "user"}}"#,
                r#"{"/s": {"min_confidentiality": "secret"}}"#,
                r#"{"*": {"max_confidentiality": "internal"}}"#,
            ]),
        ),
        _ => match dice.below(2) {
            0 => ("tier", dice.words(&["host", "process"])),
            _ => ("trust", json!({"min": dice.below(1000)})),
        },
    };
    out.insert(key.to_owned(), value);
}

const PATTERNS: &[&str] = &[
    "src/**",
    "**",
    "src/*.rs",
    "**/*.pem",
    "**/.env",
    "src/a/b",
    "/etc/**",
    "/**",
    "vfs:/agent/${agent}/**",
    "{src,docs}/**",
    "*/a",
];

fn flat(dice: &mut Dice) -> Value {
    let mut out = Map::new();
    for _ in 0..=dice.below(3) {
        condition(dice, &mut out);
    }
    Value::Object(out)
}

fn conditions(dice: &mut Dice) -> Value {
    let mut outer = flat(dice);
    if dice.one_in(5) {
        let branches: Vec<Value> = (0..=dice.below(2)).map(|_| flat(dice)).collect();
        outer[dice.pick(&["any", "all"])] = json!(branches);
    }
    outer
}

fn rule(dice: &mut Dice, number: usize) -> Value {
    let effect = dice.pick(&["allow", "allow", "allow", "deny", "ask", "transform", "raise-tier", "warn"]);
    let mut rule = json!({"id": format!("r{number}"), "effect": effect});
    if !dice.one_in(10) {
        rule["match"] = conditions(dice);
    }
    if dice.one_in(5) {
        rule["unless"] = conditions(dice);
    }
    if dice.one_in(3) && ["allow", "deny", "ask"].contains(&effect) {
        rule["priority"] = json!(dice.below(4));
    }
    match (effect, dice.below(6)) {
        ("warn", _) => rule["reason"] = json!("hear this"),
        ("transform", extra) => rule["set"] = json!({"/timeout_ms": {"clamp": {"max": extra}}}),
        ("raise-tier", extra) => rule["tier"] = json!(if extra < 3 { "process" } else { "wasm" }),
        ("allow" | "deny" | "ask", 0) => rule["rate"] = json!("3/min"),
        ("allow" | "ask", 1) => rule["limits"] = json!({"wall": "1s"}),
        ("allow" | "ask", 2) => rule["limits"] = json!({"pids": 7}),
        ("ask", 3) => rule["approvers"] = json!(2),
        (_, _) => {}
    }
    rule
}

/// A policy file.
pub(crate) fn policy(dice: &mut Dice) -> Value {
    let count = if dice.one_in(4) { dice.below(40) } else { dice.below(12) };
    let rules: Vec<Value> = (0..count).map(|number| rule(dice, number)).collect();
    let mut policy = json!({
        "version": 1,
        "mode": dice.pick(&["strict", "strict", "permissive", "audit"]),
        "rules": rules,
    });
    if dice.one_in(2) {
        policy["conflicts"] =
            json!(dice.pick(&["deny-overrides", "allow-overrides", "first-match", "most-specific"]));
    }
    policy
}

const PATHS: &[&str] = &include!("paths.in");

/// A call without omitted parts.
pub(crate) fn call(dice: &mut Dice) -> Value {
    let mut call = json!({
        "agent": dice.pick(&["ada", "bob", "team-x.1", "al"]),
        "trust": dice.below(1001),
        "tier": dice.pick(&["host", "host", "process", "wasm"]),
        "args": dice.value(&[
            "{}",
            r#"{"n": 1, "s": "x"}"#,
            r#"{"n": 2.0, "l": [1, 2]}"#,
            r#"{"n": "1", "m": {"k": "ab"}}"#,
            r#"{"s": "y", "l": []}"#,
            r#"{"s": ["x"], "k": {"k": "b"}}"#,
        ]),
        "labels": dice.value(&[
            "{}",
            r#"{"/s": {"confidentiality": "secret"}}"#,
            r#"{"*": {"integrity": "web"}}"#,
        ]),
    });
    let words = |dice: &mut Dice, all: &[&str], most: usize| -> Value {
        (0..=dice.below(most)).map(|_| dice.pick(all)).collect()
    };
    match dice.below(5) {
        0 => call["op"] = json!(dice.pick(&["vfs.read", "agent.exit"])),
        _ => call["tool"] = json!(dice.pick(&["fs.read", "fs.write", "http.fetch", "x"])),
    }
    call["capabilities"] = words(dice, &["file.read", "network.request", "other"], 2);
    if dice.one_in(2) {
        call["roles"] = words(dice, &["dev", "ops"], 2);
    }
    if !dice.one_in(3) {
        call["path"] = words(dice, PATHS, 2);
        call["access"] = json!(dice.pick(&["read", "write", "list"]));
    }
    if dice.one_in(3) {
        call["url"] =
            json!(dice.pick(&["https://example.com/", "https://a.example.com/v1", "http://x.test/"]));
        call["method"] = json!(dice.pick(&["GET", "POST"]));
    }
    if dice.one_in(3) {
        call["argv"] =
            dice.value(&[r#"["git", "status"]"#, r#"["/usr/bin/git", "x"]"#, r#"["./git"]"#, r#"["ls"]"#]);
    }
    if dice.one_in(4) {
        call["secret"] = words(dice, &["aws", "github/token", "other"], 2);
    }
    call
}
