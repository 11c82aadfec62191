//! A list of names and name globs. Any of them may match.

use crate::glob::NameGlob;

/// Names in a rule. Exact ones use binary search, so long lists stay fast.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    exact: Box<[Box<str>]>,
    globs: Box<[NameGlob]>,
}

impl Names {
    pub(crate) fn new(patterns: Vec<NameGlob>) -> Self {
        let (exact, globs): (Vec<_>, Vec<_>) = patterns.into_iter().partition(|glob| glob.exact().is_some());
        let mut exact: Vec<Box<str>> = exact.iter().filter_map(NameGlob::exact).map(Box::from).collect();
        exact.sort_unstable();
        exact.dedup();
        Self { exact: exact.into(), globs: globs.into() }
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        self.exact.binary_search_by(|name| (**name).cmp(text)).is_ok()
            || self.globs.iter().any(|glob| glob.matches(text))
    }

    /// Whether every name matches.
    pub(crate) fn matches_all(&self) -> bool {
        self.globs.iter().any(NameGlob::matches_all)
    }

    /// The names without wildcards.
    pub(crate) fn exact(&self) -> impl Iterator<Item = &str> {
        self.exact.iter().map(|name| &**name)
    }

    /// The patterns with wildcards.
    pub(crate) fn globs(&self) -> &[NameGlob] {
        &self.globs
    }
}
