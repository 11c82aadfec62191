//! A dated table of capabilities: the one that is compiled in, and the user's.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::CapabilitySpec;
use crate::wire::parameters;

/// The table that is compiled in.
const COMPILED_IN: &str = include_str!("capabilities.toml");
/// Models that a table may have.
const MODELS_MAX: usize = 10_000;
/// The kind of weights that any server may run.
const OPEN: &str = "open";

/// What models can do, by `KIND/MODEL`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapabilityTable {
    /// When it was looked up, as `2026-11-19`.
    pub date: String,
    /// Where, and how sure that is.
    pub note: String,
    #[serde(default)]
    model: BTreeMap<String, CapabilitySpec>,
}

/// A table that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct TableError {
    /// What is wrong.
    pub message: String,
    /// In which line, from 1.
    pub line: usize,
    /// Where, in bytes.
    pub span: Option<Range<usize>>,
}

impl CapabilityTable {
    /// Reads a table.
    pub fn parse(text: &str) -> Result<Self, TableError> {
        let fail = |message: String, span: Option<Range<usize>>| {
            let before = text.get(..span.as_ref().map_or(0, |span| span.start)).unwrap_or_default();
            TableError { message, line: before.matches('\n').count() + 1, span }
        };
        let table: Self =
            toml::from_str(text).map_err(|error| fail(error.message().to_owned(), error.span()))?;
        let at = |word: &str| text.find(word).map(|at| at..at + word.len());
        if !is_date(&table.date, "dddd-dd-dd") {
            return Err(fail("`date` has the form `2026-11-19`".to_owned(), at("date")));
        }
        if table.model.len() > MODELS_MAX {
            return Err(fail(format!("more than {MODELS_MAX} models"), None));
        }
        if let Some(name) = table.model.keys().find(|name| !name.contains('/')) {
            return Err(fail(format!("`{}` is not `KIND/MODEL`", name.escape_debug()), at(name)));
        }
        Ok(table)
    }

    /// The table that is compiled in.
    pub fn compiled_in() -> Result<Self, TableError> {
        Self::parse(COMPILED_IN)
    }

    /// What two tables say together. Where both know a model, the newer table counts; of the same date, this one.
    #[must_use]
    pub fn over(self, other: Self) -> Self {
        let (mut newer, older) = if self.date >= other.date { (self, other) } else { (other, self) };
        for (name, spec) in older.model {
            newer.model.entry(name).or_insert(spec);
        }
        newer
    }

    /// What is known of a model. A dated name (`…-2025-01-31`) counts as the name without it. Servers of weights and gateways name
    /// other vendors' models, without a price: they have their own.
    pub(crate) fn find(&self, kind: &str, model: &str) -> Option<CapabilitySpec> {
        let at = |name: &str| self.model.get(name).or_else(|| self.model.get(undated(name))).cloned();
        let own = at(&format!("{kind}/{model}"));
        let elsewhere = || match kind {
            "compatible" | "ollama" | "local" => {
                let known = at(model).filter(|_| model.contains('/')).or_else(|| self.open(model));
                known.map(|known| CapabilitySpec { price: None, ..known })
            }
            _ => None,
        };
        own.or_else(elsewhere)
    }

    /// Weights by the longest name that a model's name begins with, without the maker's.
    fn open(&self, model: &str) -> Option<CapabilitySpec> {
        let name = model.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
        let begins = |stem: &str| {
            name.strip_prefix(stem)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '-', '_', '@']))
        };
        let stems = self.model.iter().filter_map(|(name, spec)| {
            let (kind, stem) = name.split_once('/')?;
            (kind == OPEN && begins(stem)).then_some((stem.len(), spec))
        });
        stems.max_by_key(|(length, _)| *length).map(|(_, spec)| spec.clone())
    }
}

/// A name without a date at its end, `-2025-01-31` or `-20250131`.
fn undated(model: &str) -> &str {
    let stem = [9_usize, 11].iter().find_map(|length| {
        let (stem, rest) = model.split_at_checked(model.len().checked_sub(*length)?)?;
        (is_date(rest, "-dddddddd") || is_date(rest, "-dddd-dd-dd")).then_some(stem)
    });
    stem.unwrap_or(model)
}

/// Whether a text has this form, in which `d` stands for a digit.
fn is_date(text: &str, form: &str) -> bool {
    form.len() == text.len()
        && form.chars().zip(text.chars()).all(|(f, c)| f == c || f == 'd' && c.is_ascii_digit())
}

/// A number of tokens that isn't zero.
pub(super) fn positive<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let tokens = u64::deserialize(from)?;
    if tokens == 0 { Err(D::Error::custom("a number of tokens can't be 0")) } else { Ok(Some(tokens)) }
}

/// Names of parameters that questions can do without.
pub(super) fn parameters<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<BTreeSet<&'static str>>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    let known = |name: &String| {
        let unknown = || {
            let known: Vec<_> = parameters::names().collect();
            D::Error::custom(format!(
                "unknown parameter `{}`, expected one of {}",
                name.escape_debug(),
                known.join(", ")
            ))
        };
        parameters::known(name).ok_or_else(unknown)
    };
    names.iter().map(known).collect::<Result<_, _>>().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::Thinking;

    const HEAD: &str = "date='2026-01-02'\nnote='n'\n";

    #[test]
    fn the_table_that_is_compiled_in_is_usable() {
        let table = CapabilityTable::compiled_in().unwrap();
        assert!(!table.note.is_empty());
        for (name, spec) in &table.model {
            let (window, answer) = (spec.window_tokens.unwrap(), spec.answer_tokens.unwrap());
            assert!(answer <= window / 2, "{name}");
            if let Some(Thinking::Budget(budget)) = spec.reasoning {
                assert!((1_024..answer).contains(&budget), "{name}");
            }
            let Some(price) = spec.price else {
                assert!(name.starts_with("open/"), "{name}");
                continue;
            };
            assert!(price.output >= price.input, "{name}");
            assert!(price.cached.is_none_or(|cached| cached <= price.input), "{name}");
        }
    }

    #[test]
    fn names_find_their_model() {
        let text = format!(
            "{HEAD}[model.'x/gpt-5']\nwindow_tokens=1\n[model.'x/claude-4']\nwindow_tokens=2\n[model.'open/qwen2.5']\n\
             window_tokens=3\n[model.'open/qwen2.5-coder']\nwindow_tokens=4\n[model.'openai/gpt-6']\nwindow_tokens=5\n\
             price={{input=1,output=2}}\n"
        );
        let table = CapabilityTable::parse(&text).unwrap();
        let cases = [
            ("x", "gpt-5", Some(1)),
            ("x", "gpt-5-2025-01-31", Some(1)),
            ("x", "claude-4-20250514", Some(2)),
            ("x", "gpt-5-mini", None),
            ("y", "gpt-5", None),
            ("ollama", "qwen2.5-coder:0.5b", Some(4)),
            ("compatible", "Qwen/Qwen2.5-Coder-7B-Instruct", Some(4)),
            ("local", "qwen2.5-0.5b", Some(3)),
            ("local", "qwen2.51", None),
            ("openai", "qwen2.5", None),
            ("compatible", "openai/gpt-6", Some(5)),
            ("compatible", "gpt-6", None),
        ];
        for (kind, model, expected) in cases {
            let found = table.find(kind, model);
            assert_eq!(found.as_ref().and_then(|found| found.window_tokens), expected, "{kind}/{model}");
            assert!(kind == "openai" || found.is_none_or(|found| found.price.is_none()));
        }
        assert!(table.find("openai", "gpt-6").unwrap().price.is_some());
    }

    #[test]
    fn the_newer_table_counts_and_both_are_known() {
        let table = |date: &str, models: &[(&str, u64)]| {
            let models: String = models
                .iter()
                .map(|(name, tokens)| format!("[model.'x/{name}']\nwindow_tokens={tokens}\n"))
                .collect();
            CapabilityTable::parse(&format!("date='{date}'\nnote='n'\n{models}")).unwrap()
        };
        let built_in = table("2026-05-01", &[("a", 1), ("b", 1)]);
        for (date, expected) in [("2026-04-30", 1), ("2026-05-01", 2), ("2026-06-01", 2)] {
            let both = table(date, &[("a", 2), ("c", 2)]).over(built_in.clone());
            let window = |name: &str| both.find("x", name).unwrap().window_tokens.unwrap();
            assert_eq!((window("a"), window("b"), window("c")), (expected, 1, 2), "{date}");
        }
    }

    #[test]
    fn mistakes_name_their_line() {
        let cases = [
            ("date='x'\nnote='n'\n".to_owned(), 1, "`date`"),
            (format!("{HEAD}[model.'x']\n"), 3, "not `KIND/MODEL`"),
            (format!("{HEAD}[model.'x/y']\nwindow=1\n"), 4, "unknown field `window`"),
            (format!("{HEAD}[model.'x/y']\nanswer_tokens=0\n"), 4, "can't be 0"),
            (format!("{HEAD}[model.'x/y']\nimages=true\nrefused=['size']\n"), 5, "unknown parameter `size`"),
            (format!("{HEAD}[model.'x/y']\nreasoning='much'\n"), 4, "unknown variant `much`"),
        ];
        for (text, line, expected) in cases {
            let error = CapabilityTable::parse(&text).unwrap_err();
            assert!(error.line == line && error.message.contains(expected), "{text}: {error}");
        }
    }
}
