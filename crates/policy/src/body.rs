//! Rule bodies in Rego and Cedar, behind the same index as all rules.
//!
//! `match` selects the calls of a rule, and the index uses it; a body is evaluated only for the few rules that the index finds. The
//! features `rego` and `cedar` enable the languages; a file that needs a disabled one is an error. If a body can't be evaluated (a missing
//! field, a wrong type, a time limit), the safe result applies: an allow doesn't match, every other effect does.

#[cfg(feature = "cedar")]
pub(crate) mod cedar;
pub(crate) mod input;
#[cfg(feature = "rego")]
pub(crate) mod rego;

use crate::condition::Quantifier;
use crate::facts::Facts;

/// Maximum length of a body.
pub(crate) const BODY_BYTES_MAX: usize = 256 << 10;

/// A compiled body. Uninhabited if no language is enabled.
#[derive(Debug)]
pub(crate) enum Body {
    #[cfg(feature = "rego")]
    Rego(Box<rego::Module>),
    #[cfg(feature = "cedar")]
    Cedar(Box<cedar::Statement>),
}

/// Why a body is invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the body is longer than {BODY_BYTES_MAX} bytes")]
    TooLong,
    #[cfg(any(feature = "rego", feature = "cedar"))]
    #[error("{0}")]
    Invalid(String),
    #[cfg(not(all(feature = "rego", feature = "cedar")))]
    #[error("this build has no {0}: the feature was off at compile time")]
    LeftOut(&'static str),
}

/// The language of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Rego,
    Cedar,
}

impl Body {
    /// Compiles a boolean body.
    pub(crate) fn new(language: Language, text: &str) -> Result<Self, BodyError> {
        if text.len() > BODY_BYTES_MAX {
            return Err(BodyError::TooLong);
        }
        match language {
            #[cfg(feature = "rego")]
            Language::Rego => rego::Module::new(text).map(|module| Self::Rego(Box::new(module))),
            #[cfg(not(feature = "rego"))]
            Language::Rego => Err(BodyError::LeftOut("Rego")),
            #[cfg(feature = "cedar")]
            Language::Cedar => cedar::Statement::new(text).map(|statement| Self::Cedar(Box::new(statement))),
            #[cfg(not(feature = "cedar"))]
            Language::Cedar => Err(BodyError::LeftOut("Cedar")),
        }
    }

    #[cfg(any(feature = "rego", feature = "cedar"))]
    pub(crate) fn holds(&self, facts: &Facts<'_>, quantifier: Quantifier) -> bool {
        let said = match self {
            #[cfg(feature = "rego")]
            Self::Rego(module) => module.says(facts),
            #[cfg(feature = "cedar")]
            Self::Cedar(statement) => statement.says(facts, quantifier),
        };
        said.unwrap_or(quantifier == Quantifier::Any)
    }

    #[cfg(not(any(feature = "rego", feature = "cedar")))]
    pub(crate) fn holds(&self, _facts: &Facts<'_>, _quantifier: Quantifier) -> bool {
        match *self {}
    }
}

/// A script that returns a value instead of a boolean. Uninhabited without Rego.
#[derive(Debug)]
pub(crate) enum Script {
    #[cfg(feature = "rego")]
    Rego(Box<rego::Module>),
}

impl Script {
    /// Compiles modules by name, and the rule to query.
    #[cfg(feature = "rego")]
    pub(crate) fn new(parts: &[(&str, &str)], query: &str) -> Result<Self, BodyError> {
        rego::Module::compile(parts, query).map(|module| Self::Rego(Box::new(module)))
    }

    #[cfg(not(feature = "rego"))]
    pub(crate) fn new(_parts: &[(&str, &str)], _query: &str) -> Result<Self, BodyError> {
        Err(BodyError::LeftOut("Rego"))
    }

    /// The result for an input; `None` on an error.
    #[cfg(feature = "rego")]
    pub(crate) fn answer(&self, input: &serde_json::Value) -> Option<serde_json::Value> {
        match self {
            Self::Rego(module) => serde_json::to_value(module.answer(input)?).ok(),
        }
    }

    #[cfg(not(feature = "rego"))]
    pub(crate) fn answer(&self, _input: &serde_json::Value) -> Option<serde_json::Value> {
        match *self {}
    }
}
