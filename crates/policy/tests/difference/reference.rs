//! A reference evaluator, written only from the manual. It reads the policy and the call as JSON, evaluates all rules, and uses no index,
//! no compiled pattern and none of the crate's types. It is slow and easy to review.

use serde_json::Value;

/// The reference evaluator's verdict.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReferenceVerdict {
    pub(crate) verdict: &'static str,
    pub(crate) rule: Option<String>,
    /// The grant of an allow; empty for a deny.
    pub(crate) grant: Option<Given>,
}

/// The grant of an allow, as far as generated policies set it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Given {
    pub(crate) wall_ms_max: u64,
    pub(crate) pids_max: u32,
    pub(crate) tier: usize,
    pub(crate) transforms: usize,
    pub(crate) charges: usize,
    pub(crate) warned: usize,
    pub(crate) approvers: u64,
}

const TIERS: [&str; 5] = ["instruction", "host", "process", "wasm", "microvm"];
const ORIGINS: [&str; 10] =
    ["system", "operator", "user", "signed_skill", "own_model", "tool", "file", "memory", "peer", "web"];
const LEVELS: [&str; 8] =
    ["public", "internal", "private", "unknown", "pii", "regulated", "secret", "credential"];

fn place(all: &[&str], word: &Value) -> usize {
    all.iter()
        .position(|one| Some(*one) == word.as_str())
        .unwrap_or_else(|| panic!("{word} is none of {all:?}"))
}

/// Decides by several files: each on its own, and the strictest verdict applies.
pub(crate) fn decide(policies: &[&Value], call: &Value, used: u64) -> ReferenceVerdict {
    let answers: Vec<ReferenceVerdict> = policies.iter().map(|policy| of_file(policy, call, used)).collect();
    if let Some(denied) = answers.iter().find(|answer| answer.verdict == "deny") {
        return denied.clone();
    }
    let asks = answers.iter().find(|answer| answer.verdict == "ask");
    let given: Vec<&Given> = answers.iter().filter_map(|answer| answer.grant.as_ref()).collect();
    let sum = |count: fn(&Given) -> usize| given.iter().map(|given| count(given)).sum();
    ReferenceVerdict {
        verdict: if asks.is_some() { "ask" } else { "allow" },
        rule: match asks {
            Some(asks) => asks.rule.clone(),
            None => answers.iter().find_map(|answer| answer.rule.clone()),
        },
        grant: Some(Given {
            wall_ms_max: given.iter().map(|given| given.wall_ms_max).min().unwrap(),
            pids_max: given.iter().map(|given| given.pids_max).min().unwrap(),
            tier: given.iter().map(|given| given.tier).max().unwrap(),
            transforms: sum(|given| given.transforms),
            charges: sum(|given| given.charges),
            warned: sum(|given| given.warned),
            approvers: given.iter().map(|given| given.approvers).max().unwrap(),
        }),
    }
}

fn of_file(policy: &Value, call: &Value, used: u64) -> ReferenceVerdict {
    let all: Vec<&Value> = policy["rules"].as_array().unwrap().iter().collect();
    let matching: Vec<&Value> = all.into_iter().filter(|rule| matches(rule, call)).collect();
    let effect = |rule: &Value, word: &str| rule["effect"] == word;
    // With a rate, a deny denies only calls beyond the rate.
    let decides = |rule: &&&Value| {
        effect(rule, "allow") || effect(rule, "ask") || (effect(rule, "deny") && rule["rate"].is_null())
    };
    let deciding: Vec<&Value> = matching.iter().filter(decides).copied().collect();
    let used_up = matching.iter().find(|rule| !rule["rate"].is_null() && used >= 3).copied();
    let winner = winner(policy["conflicts"].as_str().unwrap_or("deny-overrides"), &deciding);
    let id = |rule: &Value| rule["id"].as_str().unwrap().to_owned();
    let said = winner.map_or("silence", |rule| rule["effect"].as_str().unwrap());
    // A deny comes before an exhausted rate, and an exhausted rate before everything else.
    let (verdict, rule) = match (said, used_up) {
        ("deny", _) => ("deny", winner.map(id)),
        (_, Some(rate)) => ("deny", Some(id(rate))),
        ("silence", None) if policy["mode"] == "permissive" && secrets(call).is_empty() => ("allow", None),
        ("silence", None) => ("deny", None),
        ("ask", None) => ("ask", winner.map(id)),
        (_, None) => ("allow", winner.map(id)),
    };
    let (verdict, rule) = match policy["mode"].as_str() {
        Some("audit") => ("allow", rule.filter(|_| verdict == "allow")),
        _ => (verdict, rule),
    };
    let grant = (verdict != "deny").then(|| given(&matching, &deciding, call, verdict));
    ReferenceVerdict { verdict, rule, grant }
}

fn given(matching: &[&Value], deciding: &[&Value], call: &Value, verdict: &str) -> Given {
    let count = |wanted: &dyn Fn(&Value) -> bool| matching.iter().filter(|rule| wanted(rule)).count();
    let asking = deciding.iter().filter(|rule| rule["effect"] == "ask");
    Given {
        wall_ms_max: if count(&|rule| !rule["limits"]["wall"].is_null()) > 0 { 1_000 } else { 600_000 },
        pids_max: if count(&|rule| !rule["limits"]["pids"].is_null()) > 0 { 7 } else { 512 },
        tier: matching
            .iter()
            .filter(|rule| !rule["tier"].is_null())
            .map(|rule| place(&TIERS, &rule["tier"]))
            .fold(place(&TIERS, &call["tier"]), usize::max),
        transforms: count(&|rule| rule["effect"] == "transform"),
        charges: count(&|rule| !rule["rate"].is_null()),
        warned: count(&|rule| rule["effect"] == "warn"),
        approvers: match verdict {
            "ask" => asking.map(|rule| rule["approvers"].as_u64().unwrap_or(1)).max().unwrap_or(1),
            _ => 0,
        },
    }
}

/// The deciding rule among the matching ones.
fn winner<'r>(strategy: &str, deciding: &[&'r Value]) -> Option<&'r Value> {
    let first = |effect: &str| deciding.iter().find(|rule| rule["effect"] == effect).copied();
    let strictness = |rule: &Value| match rule["effect"].as_str() {
        Some("deny") => 2,
        Some("ask") => 1,
        _ => 0,
    };
    match strategy {
        "deny-overrides" => first("deny").or(first("ask")).or(first("allow")),
        "allow-overrides" => first("allow").or(first("deny")).or(first("ask")),
        "first-match" => {
            let most = deciding.iter().map(|rule| rule["priority"].as_u64().unwrap_or(0)).max()?;
            deciding.iter().find(|rule| rule["priority"].as_u64().unwrap_or(0) == most).copied()
        }
        "most-specific" => {
            let rank = |rule: &Value| (specificity(&rule["match"]), strictness(rule));
            let most = deciding.iter().map(|rule| rank(rule)).max()?;
            deciding.iter().find(|rule| rank(rule) == most).copied()
        }
        other => panic!("there is no strategy {other}"),
    }
}

/// Each condition counts one, or two without wildcards; `any` counts its least specific branch, `all` the sum.
fn specificity(when: &Value) -> u64 {
    let Some(fields) = when.as_object() else { return 0 };
    let is_plain = |value: &Value| {
        let wild = |text: &str| text.contains(['*', '?', '[', '$']);
        expanded(value).iter().all(|text| !wild(text))
    };
    let mut sum = 0;
    for (key, value) in fields {
        sum += match key.as_str() {
            "op" | "tool" | "agent" | "role" | "capability" | "secret" | "path" | "host" | "program" => {
                1 + u64::from(is_plain(value))
            }
            "access" if fields.contains_key("path") => 0,
            "method" if fields.contains_key("host") => 0,
            "access" | "method" => 1,
            // The programs of the patterns have no wildcard here.
            "argv" => 2,
            "args" | "labels" => 2 * value.as_object().unwrap().len() as u64,
            "any" => value.as_array().unwrap().iter().map(specificity).min().unwrap(),
            "all" => value.as_array().unwrap().iter().map(specificity).sum(),
            _ => 2,
        };
    }
    sum
}

/// An allow must cover the entire call; other effects match any part; exceptions are reversed.
fn matches(rule: &Value, call: &Value) -> bool {
    let is_allow = rule["effect"] == "allow";
    all_hold(&rule["match"], call, is_allow)
        && (!is_allow || secrets(call).is_empty() || names_secrets(&rule["match"], call))
        && (rule["unless"].is_null() || !all_hold(&rule["unless"], call, !is_allow))
}

/// `every`: a condition must hold for all of its items, of which there must be one; otherwise for any.
fn all_hold(when: &Value, call: &Value, every: bool) -> bool {
    let Some(fields) = when.as_object() else { return true };
    fields.iter().all(|(key, value)| holds(key, value, when, call, every))
}

fn over<T>(every: bool, items: &[T], fits: impl Fn(&T) -> bool) -> bool {
    if every { !items.is_empty() && items.iter().all(fits) } else { items.iter().any(fits) }
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(items) => items.iter().map(|item| item.as_str().unwrap().to_owned()).collect(),
        Value::String(one) => vec![one.clone()],
        other @ (Value::Bool(_) | Value::Number(_) | Value::Object(_)) => panic!("{other} is no text"),
    }
}

fn holds(key: &str, value: &Value, when: &Value, call: &Value, every: bool) -> bool {
    let named = |text: &str| expanded(value).iter().any(|glob| is_like(glob, text));
    let branches = || value.as_array().unwrap().iter();
    match key {
        "op" => named(call["op"].as_str().unwrap_or("tool.run")),
        "tool" => call["tool"].as_str().is_some_and(named),
        "agent" => named(call["agent"].as_str().unwrap()),
        "role" => texts(&call["roles"]).iter().any(|role| named(role)),
        "capability" => over(every, &capabilities(call), |one| named(one)),
        "secret" => over(every, &secrets(call), |one| named(one)),
        "path" | "access" => over(every, &texts(&call["path"]), |path| {
            let agent = call["agent"].as_str().unwrap();
            let globs = expanded(&when["path"]);
            (globs.is_empty() || globs.iter().any(|glob| is_path_like(glob, path, agent)))
                && (when["access"].is_null()
                    || texts(&when["access"]).contains(&call["access"].as_str().unwrap().to_owned()))
        }),
        "host" | "method" => {
            let hosts: Vec<String> = call["url"].as_str().map(host_of).into_iter().collect();
            over(every, &hosts, |host| {
                let like = |pattern: &String| match pattern.strip_prefix("*.") {
                    Some(domain) => host.ends_with(&format!(".{domain}")),
                    None => pattern == "*" || pattern == host,
                };
                (when["host"].is_null() || texts(&when["host"]).iter().any(like))
                    && (when["method"].is_null()
                        || texts(&when["method"]).contains(&call["method"].as_str().unwrap().to_owned()))
            })
        }
        "program" | "argv" => {
            let argvs: Vec<Vec<String>> =
                call["argv"].is_array().then(|| texts(&call["argv"])).into_iter().collect();
            over(every, &argvs, |argv| match key {
                "program" => expanded(value).iter().any(|program| is_program(program, &argv[0], every)),
                _ => argv_patterns(value).iter().any(|pattern| {
                    is_program(&pattern[0], &argv[0], every) && in_order(&pattern[1..], &argv[1..])
                }),
            })
        }
        "args" => value.as_object().unwrap().iter().all(|(path, tests)| argument(path, tests, call, every)),
        "labels" => {
            value.as_object().unwrap().iter().all(|(pointer, test)| label(pointer, test, call, every))
        }
        "tier" => texts(value).contains(&call["tier"].as_str().unwrap().to_owned()),
        "trust" => call["trust"].as_u64() >= value["min"].as_u64(),
        "any" => branches().any(|branch| all_hold(branch, call, every)),
        "all" => branches().all(|branch| all_hold(branch, call, every)),
        other => panic!("the plain evaluator doesn't know `{other}`"),
    }
}

fn secrets(call: &Value) -> Vec<String> {
    texts(&call["secret"])
}

fn capabilities(call: &Value) -> Vec<String> {
    let mut all = texts(&call["capabilities"]);
    if !secrets(call).is_empty() {
        all.push("secret.use".to_owned());
    }
    all
}

/// Matching conditions must name every secret.
fn names_secrets(when: &Value, call: &Value) -> bool {
    let Some(fields) = when.as_object() else { return false };
    fields.iter().any(|(key, value)| match key.as_str() {
        "secret" => {
            let globs = expanded(value);
            secrets(call).iter().all(|name| globs.iter().any(|glob| is_like(glob, name)))
        }
        "any" => value
            .as_array()
            .unwrap()
            .iter()
            .any(|branch| names_secrets(branch, call) && all_hold(branch, call, true)),
        "all" => value.as_array().unwrap().iter().any(|branch| names_secrets(branch, call)),
        _ => false,
    })
}

/// Expands the brace groups of patterns; here, a pattern has at most one.
fn expanded(value: &Value) -> Vec<String> {
    let one = |text: String| match text.split_once('{').filter(|(before, _)| !before.ends_with('$')) {
        None => vec![text],
        Some((before, rest)) => {
            let (group, after) = rest.split_once('}').unwrap();
            group.split(',').map(|part| format!("{before}{part}{after}")).collect()
        }
    };
    texts(value).into_iter().flat_map(one).collect()
}

/// `*` matches anything.
fn is_like(glob: &str, text: &str) -> bool {
    match glob.split_once('*') {
        None => glob == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| is_like(rest, &text[at..]))
        }),
    }
}

fn is_path_like(glob: &str, path: &str, agent: &str) -> bool {
    let root = |text: &str| {
        if text.starts_with("vfs:") {
            2
        } else if text.starts_with('/') {
            1
        } else {
            0
        }
    };
    let parts = |text: &str| -> Vec<String> {
        let bare = text.strip_prefix("vfs:").unwrap_or(text);
        bare.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    root(glob) == root(path) && parts_like(&parts(glob), &parts(path), agent)
}

fn parts_like(glob: &[String], path: &[String], agent: &str) -> bool {
    match glob.split_first() {
        None => path.is_empty(),
        Some((first, rest)) if first == "**" => {
            (0..=path.len()).any(|skipped| parts_like(rest, &path[skipped..], agent))
        }
        Some((first, rest)) => path.split_first().is_some_and(|(part, below)| {
            let fits = if first == "${agent}" { part == agent } else { is_like(first, part) };
            fits && parts_like(rest, below, agent)
        }),
    }
}

fn host_of(url: &str) -> String {
    url.split("://").nth(1).unwrap().split('/').next().unwrap().to_owned()
}

/// In a deny, a bare name matches the program in any folder; in an allow, only in system folders.
fn is_program(pattern: &str, program: &str, every: bool) -> bool {
    if pattern.contains('/') {
        return is_like(pattern, program);
    }
    let (folder, name) = program.rsplit_once('/').unwrap_or(("/usr/bin", program));
    let known = ["/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin", "/sbin", "/usr/local/sbin"];
    (!every || known.contains(&folder)) && is_like(pattern, name)
}

fn argv_patterns(value: &Value) -> Vec<Vec<String>> {
    let items = value.as_array().unwrap();
    if items.iter().any(Value::is_array) { items.iter().map(texts).collect() } else { vec![texts(value)] }
}

fn in_order(pattern: &[String], words: &[String]) -> bool {
    match pattern.split_first() {
        None => words.is_empty(),
        Some((first, rest)) if first == "..." => {
            (0..=words.len()).any(|skipped| in_order(rest, &words[skipped..]))
        }
        Some((first, rest)) => {
            words.split_first().is_some_and(|(word, others)| is_like(first, word) && in_order(rest, others))
        }
    }
}

fn argument(path: &str, tests: &Value, call: &Value, every: bool) -> bool {
    let mut found = Vec::new();
    match path {
        "$.l[*]" => found.extend(call["args"]["l"].as_array().into_iter().flatten()),
        "$..k" => below(&call["args"], &mut found),
        pointer => found.extend(call["args"].pointer(pointer)),
    }
    let passes = |value: &&Value| passes(tests, Some(value), every);
    match (found.is_empty(), every) {
        (true, _) => self::passes(tests, None, every),
        (false, true) => found.iter().all(passes),
        (false, false) => found.iter().any(passes),
    }
}

fn below<'v>(value: &'v Value, found: &mut Vec<&'v Value>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("k"));
            fields.values().for_each(|field| below(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| below(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn equal(left: &Value, right: &Value) -> bool {
    match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}

/// A missing value fails every test of an allow, and passes negative tests of other effects. A non-number fails a comparison of an allow
/// and passes one of other effects.
fn passes(tests: &Value, value: Option<&Value>, every: bool) -> bool {
    let Some(tests) = tests.as_object() else { return value.is_some_and(|value| equal(value, tests)) };
    let ordered = |fits: &dyn Fn(f64) -> bool| value.is_some_and(|value| value.as_f64().map_or(!every, fits));
    let text = value.and_then(Value::as_str);
    let among = |list: &Value, value: &Value| list.as_array().unwrap().iter().any(|one| equal(one, value));
    let negative = |fits: &dyn Fn(&Value) -> bool| value.map_or(!every, fits);
    tests.iter().all(|(test, bound)| match test.as_str() {
        "eq" => value.is_some_and(|value| equal(value, bound)),
        "ne" => negative(&|value| !equal(value, bound)),
        "lt" => ordered(&|number| number < bound.as_f64().unwrap()),
        "gt" => ordered(&|number| number > bound.as_f64().unwrap()),
        "in" => value.is_some_and(|value| among(bound, value)),
        "not_in" => negative(&|value| !among(bound, value)),
        "contains" => {
            value.and_then(Value::as_array).is_some_and(|items| items.iter().any(|one| equal(one, bound)))
        }
        "exists" => bound.as_bool().unwrap() == value.is_some(),
        "starts_with" => text.is_some_and(|text| text.starts_with(bound.as_str().unwrap())),
        "ends_with" => text.is_some_and(|text| text.ends_with(bound.as_str().unwrap())),
        "matches" => text.is_some_and(|text| match bound.as_str().unwrap() {
            "^[x-z]$" => ["x", "y", "z"].contains(&text),
            other => text.contains(other),
        }),
        "any" => bound.as_array().unwrap().iter().any(|tests| passes(tests, value, every)),
        other => panic!("the plain evaluator doesn't know the test `{other}`"),
    })
}

fn label(pointer: &str, test: &Value, call: &Value, every: bool) -> bool {
    let plain = (place(&ORIGINS, &"user".into()), place(&LEVELS, &"public".into()));
    let read = |label: &Value| {
        let origin =
            if label["integrity"].is_null() { plain.0 } else { place(&ORIGINS, &label["integrity"]) };
        let level = &label["confidentiality"];
        (origin, if level.is_null() { plain.1 } else { place(&LEVELS, level) })
    };
    let labels = call["labels"].as_object().unwrap();
    let default = labels.get("*").map_or(plain, read);
    let fits = |(origin, level): &(usize, usize)| {
        let bound = |key: &str, all: &[&str]| (!test[key].is_null()).then(|| place(all, &test[key]));
        bound("less_trusted_than", &ORIGINS).is_none_or(|bound| *origin > bound)
            && bound("min_confidentiality", &LEVELS).is_none_or(|bound| *level >= bound)
            && bound("max_confidentiality", &LEVELS).is_none_or(|bound| *level <= bound)
    };
    match pointer {
        "*" => {
            let mut all = vec![default];
            all.extend(labels.iter().filter(|(key, _)| *key != "*").map(|(_, label)| read(label)));
            over(every, &all, fits)
        }
        // Labels apply to complete arguments here, so there is nothing around or inside them.
        pointer => fits(&labels.get(pointer).map_or(default, read)),
    }
}
