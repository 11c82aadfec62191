//! Path patterns in policy's dialect for other users, so that `src/**` means the same in a rule and in a search.

use super::{GlobError, PathGlob, expand};

/// A path pattern with expanded `{a,b}` groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern(Box<[PathGlob]>);

impl PathPattern {
    /// Compiles a pattern.
    pub fn new(pattern: &str) -> Result<Self, GlobError> {
        expand(pattern)?.iter().map(|one| PathGlob::new(one)).collect::<Result<_, _>>().map(Self)
    }

    /// Whether a resolved path matches. Without a caller, `${agent}` matches nothing.
    pub fn matches(&self, path: &str) -> bool {
        self.0.iter().any(|glob| glob.matches(path, ""))
    }
}
