//! Handles to secrets: `secret://name` in a text stands for a value that only an executor sees.

use std::ops::Range;

use serde_json::Value;

/// The prefix of a handle.
pub const HANDLE_SCHEME: &str = "secret://";
/// Maximum length of a secret's name.
pub const SECRET_NAME_BYTES_MAX: usize = 128;
/// The capability that a handle adds to those of the call's tool.
pub const SECRET_USE: &str = "secret.use";

/// One handle in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handle<'t> {
    /// The secret's name.
    pub name: &'t str,
    /// The byte range of the handle.
    pub span: Range<usize>,
}

/// Whether the name is valid: lower case ASCII, digits, and `.` `_` `/` `-` between them.
pub fn is_secret_name(name: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= SECRET_NAME_BYTES_MAX
        && name.bytes().next().is_some_and(fine)
        && name.bytes().next_back().is_some_and(fine)
        && name.bytes().all(is_name_byte)
}

/// The handles in a text, in order. A name is as long as possible, without trailing punctuation.
pub fn handles(text: &str) -> impl Iterator<Item = Handle<'_>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = text.get(from..)?;
            let found = memchr::memmem::find(rest.as_bytes(), HANDLE_SCHEME.as_bytes())?;
            let start = from.saturating_add(found);
            from = start.saturating_add(HANDLE_SCHEME.len());
            let after = text.get(from..)?;
            let end = after.bytes().position(|byte| !is_name_byte(byte)).unwrap_or(after.len());
            let name = after.get(..end)?.trim_end_matches(['.', '_', '/', '-']);
            if is_secret_name(name) {
                from = from.saturating_add(name.len());
                return Some(Handle { name, span: start..from });
            }
        }
    })
}

/// Calls `visit` with the name of every handle in the texts of a value, including repetitions.
pub fn each_secret<'v>(value: &'v Value, visit: &mut impl FnMut(&'v str)) {
    match value {
        Value::String(text) => handles(text).for_each(|handle| visit(handle.name)),
        Value::Array(items) => items.iter().for_each(|item| each_secret(item, visit)),
        Value::Object(fields) => fields.values().for_each(|field| each_secret(field, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._/-".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn handles_in_texts() {
        let long = "a".repeat(SECRET_NAME_BYTES_MAX);
        let cases: &[(&str, &[&str])] = &[
            ("secret://token", &["token"]),
            ("Bearer secret://github/token", &["github/token"]),
            ("secret://a:secret://b", &["a", "b"]),
            ("use secret://a.b-c_d. Then stop", &["a.b-c_d"]),
            ("\"secret://a\"", &["a"]),
            ("secret://a/", &["a"]),
            ("secret://", &[]),
            ("secret:///a", &[]),
            ("secret://-a", &[]),
            ("secret://A", &[]),
            ("SECRET://a", &[]),
            ("secret:/a", &[]),
            ("secret://secret://a", &["secret"]),
            ("xsecret://a", &["a"]),
            ("ü secret://a ü secret://ü", &["a"]),
            ("no secret here", &[]),
        ];
        for (text, names) in cases {
            let found: Vec<&str> = handles(text).map(|handle| handle.name).collect();
            assert_eq!(found, *names, "in {text:?}");
        }
        assert_eq!(handles(&format!("secret://{long}")).count(), 1);
        assert_eq!(handles(&format!("secret://{long}a")).count(), 0);
    }

    #[test]
    fn handles_are_found_in_every_text_of_a_value() {
        let args =
            serde_json::json!({"a": "secret://x", "b": [1, {"c": "y secret://z"}], "secret://key": null});
        let mut names = Vec::new();
        each_secret(&args, &mut |name| names.push(name));
        assert_eq!(names, ["x", "z"]);
    }

    proptest! {
        #[test]
        fn a_handle_consists_of_scheme_and_name(text in "(secret://|[a-zA-Z._/:-]|ü| ){0,40}") {
            for Handle { name, span } in handles(&text) {
                prop_assert!(is_secret_name(name));
                prop_assert_eq!(&text[span], format!("{HANDLE_SCHEME}{name}"));
            }
        }
    }
}
