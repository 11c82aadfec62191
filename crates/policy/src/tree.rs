//! A document tree with source positions. YAML and TOML are parsed strictly: no duplicate keys, no tags, no merge keys, bounded depth and
//! size.

mod toml;
mod yaml;

use serde_json::Value;

use crate::finding::{Findings, LoadError, SourceSpan};

pub(crate) use self::toml::parse as parse_toml;
pub(crate) use yaml::parse as parse_yaml;

/// Maximum length of a text.
pub(crate) const TEXT_BYTES_MAX: usize = 4 << 20;
/// Maximum nesting.
const DEPTH_MAX: usize = 48;
/// Maximum nodes, including repetitions by alias.
const NODES_MAX: usize = 400_000;

/// Parses one YAML document as JSON, as strictly as policies: no tags, no duplicate keys, one document, bounded depth and size. For other
/// untrusted files, such as the header of a `SKILL.md`.
pub fn read_yaml(text: &str, source_name: &str) -> Result<Value, LoadError> {
    let mut findings = Findings::default();
    let value = parse_yaml(text, &mut findings).map(|root| root.to_json(&mut findings));
    match value {
        Some(value) if findings.is_empty() => Ok(value),
        Some(_) | None => Err(findings.into_error(source_name)),
    }
}

/// A value and its source position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub content: Content,
    pub at: SourceSpan,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Content {
    /// Text. Unquoted text may mean a number, a boolean or null.
    Scalar {
        text: String,
        plain: bool,
    },
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub key: String,
    pub key_at: SourceSpan,
    pub value: Node,
}

impl Node {
    /// The kind of value, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.content {
            Content::Scalar { text, plain: true } => match plain(text) {
                Ok(Value::Null) => "nothing",
                Ok(Value::Bool(_)) => "a truth value",
                Ok(Value::Number(_)) => "a number",
                Ok(Value::String(_) | Value::Array(_) | Value::Object(_)) | Err(_) => "a text",
            },
            Content::Scalar { plain: false, .. } => "a text",
            Content::List(_) => "a list",
            Content::Map(_) => "a mapping",
        }
    }

    /// The JSON value; unquoted scalars follow the YAML 1.2 core schema.
    pub(crate) fn to_json(&self, findings: &mut Findings) -> Value {
        match &self.content {
            Content::Scalar { text, plain: false } => Value::from(text.as_str()),
            Content::Scalar { text, plain: true } => plain(text).unwrap_or_else(|message| {
                findings.error(self.at, message);
                Value::Null
            }),
            Content::List(items) => items.iter().map(|item| item.to_json(findings)).collect(),
            Content::Map(entries) => {
                entries.iter().map(|entry| (entry.key.clone(), entry.value.to_json(findings))).collect()
            }
        }
    }

    fn size(&self) -> usize {
        match &self.content {
            Content::Scalar { .. } => 1,
            Content::List(items) => 1 + items.iter().map(Self::size).sum::<usize>(),
            Content::Map(entries) => 1 + entries.iter().map(|entry| entry.value.size()).sum::<usize>(),
        }
    }

    fn depth(&self) -> usize {
        1 + match &self.content {
            Content::Scalar { .. } => 0,
            Content::List(items) => items.iter().map(Self::depth).max().unwrap_or(0),
            Content::Map(entries) => entries.iter().map(|entry| entry.value.depth()).max().unwrap_or(0),
        }
    }
}

/// The meaning of an unquoted scalar. Only JSON numbers are numbers: `0x10`, `1_000` and `.inf` are errors instead of text, because the
/// author may have intended a number.
fn plain(text: &str) -> Result<Value, String> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "true" | "True" | "TRUE" => return Ok(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Value::Bool(false)),
        _ => {}
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let numeric = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'-' | b'+'))
    };
    if unsigned.starts_with(|first: char| first.is_ascii_digit()) && numeric(unsigned) {
        if let Ok(whole) = text.parse::<i64>() {
            return Ok(Value::from(whole));
        }
        if let Ok(whole) = text.parse::<u64>() {
            return Ok(Value::from(whole));
        }
        if unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(format!("the number `{text}` is too large; quote it if it is text"));
        }
        if let Ok(float) = text.parse::<f64>() {
            return serde_json::Number::from_f64(float)
                .map(Value::Number)
                .ok_or_else(|| format!("the number `{text}` is too large; quote it if it is text"));
        }
        return Ok(Value::from(text));
    }
    match unsigned {
        ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN" => Err(format!("`{text}` is not a JSON number")),
        _ if unsigned.starts_with("0x") || unsigned.starts_with("0o") => {
            Err(format!("`{text}`: write the number in decimal, or quote it if it is text"))
        }
        _ => Ok(Value::from(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn plain_scalars_follow_yaml_1_2() {
        let cases = [
            ("", json!(null)),
            ("~", json!(null)),
            ("true", json!(true)),
            ("no", json!("no")),
            ("12", json!(12)),
            ("-3", json!(-3)),
            ("18446744073709551615", json!(18_446_744_073_709_551_615_u64)),
            ("1.5", json!(1.5)),
            ("1e3", json!(1000.0)),
            ("10.0.0.1", json!("10.0.0.1")),
            ("5/min", json!("5/min")),
            ("30s", json!("30s")),
            ("a", json!("a")),
        ];
        for (text, value) in cases {
            assert_eq!(plain(text), Ok(value), "{text}");
        }
        for text in ["1e999", "99999999999999999999999", ".nan", "-.inf", "0x10"] {
            assert!(plain(text).is_err(), "{text}");
        }
    }
}
