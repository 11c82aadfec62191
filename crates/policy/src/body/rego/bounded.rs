//! Bounds the built-ins whose result can be far larger than their call.
//!
//! The interpreter checks the clock between steps, and a built-in call is one step. The size of its result is therefore estimated from its
//! arguments. A call with a larger result is an error, and the rule's result is unknown. Otherwise the built-in itself runs.

use std::sync::{Arc, Mutex, PoisonError};

use regorus::{Engine, Value};

use super::{BodyError, invalid};

/// Maximum elements of a range.
const ELEMENTS_MAX: u64 = 100_000;
/// Maximum characters and elements of a result.
const RESULT_MAX: u64 = 1 << 20;
/// Maximum bits to shift a number by, and maximum factors of a product.
const PLACES_MAX: u64 = 4_096;
/// Maximum digits of a format's width.
const FORMAT_DIGITS_MAX: usize = 4;

type Bound = fn(&[Value]) -> Option<u64>;

/// The bounded built-ins: name, number of arguments, size of the result (`None` if the built-in itself fails), and the limit.
const BOUNDED: &[(&str, u8, Bound, u64)] = &[
    ("numbers.range", 2, range, ELEMENTS_MAX),
    ("numbers.range_step", 3, stepped, ELEMENTS_MAX),
    ("bits.lsh", 2, places, PLACES_MAX),
    ("product", 1, sum, PLACES_MAX),
    ("concat", 2, joined, RESULT_MAX),
    ("replace", 3, replaced, RESULT_MAX),
    ("regex.replace", 3, matched, RESULT_MAX),
    ("strings.replace_n", 2, replaced_in_turn, RESULT_MAX),
    ("sprintf", 2, formatted, RESULT_MAX),
    ("array.concat", 2, sum, RESULT_MAX),
    ("json.marshal", 1, sum, RESULT_MAX),
    ("json.marshal_with_options", 2, sum, RESULT_MAX),
    ("object.union", 2, sum, RESULT_MAX),
    ("object.union_n", 1, sum, RESULT_MAX),
];

/// Replaces each built-in by its bounded version.
pub(super) fn install(engine: &mut Engine) -> Result<(), BodyError> {
    for (name, count, bound, most) in BOUNDED {
        let inner = Arc::new(Mutex::new(None));
        let call = move |args: Vec<Value>| -> anyhow::Result<Value> {
            if bound(&args).is_some_and(|size| size > *most) {
                anyhow::bail!("`{name}` would create more than {most} elements or characters");
            }
            let mut inner = inner.lock().unwrap_or_else(PoisonError::into_inner);
            let engine = inner.get_or_insert_with(Engine::new);
            delegate(engine, name, args)
        };
        engine.add_extension((*name).to_owned(), *count, Box::new(call)).map_err(|error| invalid(&error))?;
    }
    Ok(())
}

/// Calls the built-in in an otherwise empty engine.
fn delegate(engine: &mut Engine, name: &str, args: Vec<Value>) -> anyhow::Result<Value> {
    const QUERY: &str = "data.regent.built_in.result";
    if engine.get_packages()?.is_empty() {
        let places: Vec<String> = (0..args.len()).map(|place| format!("input[{place}]")).collect();
        let text =
            format!("package regent.built_in\nimport rego.v1\nresult := {name}({})\n", places.join(", "));
        engine.set_strict_builtin_errors(true);
        engine.add_policy("built_in.rego".to_owned(), text)?;
    }
    engine.set_input(Value::from(args));
    engine.eval_rule(QUERY.to_owned())
}

fn integer(value: Option<&Value>) -> Option<i128> {
    let Value::Number(number) = value? else { return None };
    number.as_i64().map(i128::from)
}

fn narrow(size: u128) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

fn range(args: &[Value]) -> Option<u64> {
    let (from, to) = (integer(args.first())?, integer(args.get(1))?);
    Some(narrow(from.abs_diff(to).saturating_add(1)))
}

fn stepped(args: &[Value]) -> Option<u64> {
    let step = integer(args.get(2)).filter(|step| *step > 0)?;
    let (from, to) = (integer(args.first())?, integer(args.get(1))?);
    Some(narrow(from.abs_diff(to) / step.unsigned_abs() + 1))
}

/// A shift by anything but a small number exceeds the limit.
fn places(args: &[Value]) -> Option<u64> {
    Some(integer(args.get(1)).map_or(u64::MAX, |places| narrow(places.unsigned_abs())))
}

fn sum(args: &[Value]) -> Option<u64> {
    Some(args.iter().map(weight).fold(0, u64::saturating_add))
}

/// The delimiter occurs between all elements.
fn joined(args: &[Value]) -> Option<u64> {
    let (delimiter, elements) = (weight(args.first()?), args.get(1)?);
    let count = match elements {
        Value::Array(items) => items.len() as u64,
        Value::Set(items) => items.len() as u64,
        Value::Object(_)
        | Value::String(_)
        | Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::Undefined => return None,
    };
    Some(delimiter.saturating_mul(count).saturating_add(weight(elements)))
}

/// The replacement occurs for every match, and at most as many matches fit as the text is long.
fn replaced(args: &[Value]) -> Option<u64> {
    let [Value::String(text), Value::String(old), Value::String(new)] = args else { return None };
    Some(grown(text, old, new))
}

fn grown(text: &str, old: &str, new: &str) -> u64 {
    let times = (text.len() / old.len().max(1)).saturating_add(1);
    text.len().saturating_add(times.saturating_mul(new.len())) as u64
}

/// A pattern can match before every character, and the replacement can repeat the match.
fn matched(args: &[Value]) -> Option<u64> {
    let [text, _pattern, replacement] = args else { return None };
    Some(weight(text).saturating_mul(weight(replacement)))
}

/// Each pair works on the previous result, so growth multiplies. Only performing the replacements gives the size.
fn replaced_in_turn(args: &[Value]) -> Option<u64> {
    let [Value::Object(pairs), Value::String(text)] = args else { return None };
    let mut pairs: Vec<(&Value, &Value)> = pairs.iter().collect();
    pairs.sort();
    let (mut text, mut bound) = (text.to_string(), 0);
    for pair in pairs {
        let (Value::String(old), Value::String(new)) = pair else { return None };
        let times = text.matches(&**old).count() as u64;
        bound = times.saturating_mul(new.len() as u64).saturating_add(text.len() as u64);
        if bound > RESULT_MAX {
            break;
        }
        text = text.replace(&**old, new);
    }
    Some(bound)
}

fn formatted(args: &[Value]) -> Option<u64> {
    let digits =
        |text: &str| text.split(|letter: char| !letter.is_ascii_digit()).map(str::len).max().unwrap_or(0);
    if let Value::String(format) = args.first()?
        && digits(format) > FORMAT_DIGITS_MAX
    {
        return Some(u64::MAX);
    }
    sum(args)
}

/// Characters and elements of a value. Shared parts count each time, so counting stops at the limit.
fn weight(value: &Value) -> u64 {
    let (mut total, mut open) = (0_u64, vec![value]);
    while let Some(value) = open.pop().filter(|_| total <= RESULT_MAX) {
        total = total.saturating_add(1);
        match value {
            Value::String(text) => total = total.saturating_add(text.len() as u64),
            Value::Array(items) => open.extend(items.iter().take(RESULT_MAX as usize)),
            Value::Set(items) => open.extend(items.iter().take(RESULT_MAX as usize)),
            Value::Object(fields) => {
                open.extend(fields.iter().take(RESULT_MAX as usize).flat_map(|(key, value)| [key, value]));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Undefined => {}
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::super::Module;
    use regorus::Value;
    use serde_json::json;

    fn answer(expression: &str) -> Option<Value> {
        let text = format!("package x\nimport rego.v1\nmatch := value if {{ value := {expression} }}");
        Module::new(&text).unwrap().answer(&json!({"word": "abc", "list": ["a", "b"]}))
    }

    #[test]
    fn l8_bounds_the_result_of_one_built_in_call() {
        for expression in [
            "count(numbers.range(1, 300000000))",
            "count(numbers.range(300000000, 1))",
            "count(numbers.range_step(1, 3000000000, 2))",
            "bits.lsh(1, 100000000000)",
            "sprintf(\"%1000000000d\", [1])",
            "product(numbers.range(1, 99999))",
            "replace(sprintf(\"%9999d\", [1]), \" \", sprintf(\"%9999d\", [1]))",
            "concat(sprintf(\"%9999d\", [1]), split(sprintf(\"%9999d\", [1]), \"\"))",
            "regex.replace(sprintf(\"%9999d\", [1]), \"\", sprintf(\"%999d\", [1]))",
            "strings.replace_n({\"a\": sprintf(\"%99d\", [1]), \" \": \"b\", \"b\": sprintf(\"%999d\", [1]), \"c\": sprintf(\"%99d\", [1])}, sprintf(\"%9999d\", [1]))",
        ] {
            assert_eq!(answer(expression), None, "{expression}");
        }
    }

    #[test]
    fn l8_ordinary_calls_answer_as_before() {
        for (expression, expected) in [
            ("count(numbers.range(1, 1000))", "1000"),
            ("numbers.range(3, 1)", "[3, 2, 1]"),
            ("numbers.range_step(1, 7, 3)", "[1, 4, 7]"),
            ("bits.lsh(3, 4)", "48"),
            ("product([2, 3, 7])", "42"),
            ("concat(\"-\", input.list)", "\"a-b\""),
            ("replace(input.word, \"b\", \"xy\")", "\"axyc\""),
            ("regex.replace(input.word, \"[bc]\", \"_\")", "\"a__\""),
            ("strings.replace_n({\"a\": \"1\"}, input.word)", "\"1bc\""),
            (
                "count(replace(sprintf(\"%9999d\", [1]), \"a phrase of some thirty letters\", \"ten letters\"))",
                "9999",
            ),
            ("count(replace(sprintf(\"%9999d\", [1]), \" \", \"ten letters\"))", "109979"),
            (
                "count(regex.replace(sprintf(\"%9999d\", [1]), \"[a-z]{3}-[0-9]+|x{2,}|yz\", \"ten letters\"))",
                "9999",
            ),
            (
                "count(strings.replace_n({\"&\": \"&amp;\", \"<\": \"&lt;\", \">\": \"&gt;\"}, sprintf(\"%9999d\", [1])))",
                "9999",
            ),
            ("count(concat(\", \", split(sprintf(\"%9999d\", [1]), \"\")))", "29995"),
            ("sprintf(\"%s:%03d\", [input.word, 7])", "\"abc:007\""),
            ("array.concat(input.list, [1])", "[\"a\", \"b\", 1]"),
            ("json.marshal(input.list)", "\"[\\\"a\\\",\\\"b\\\"]\""),
            ("object.union({\"a\": 1}, {\"b\": 2})", "{\"a\": 1, \"b\": 2}"),
        ] {
            let expected = Value::from_json_str(expected).unwrap();
            assert_eq!(answer(expression), Some(expected), "{expression}");
        }
    }
}
