//! The dialect of policy's paths for whoever selects files by pattern, so that `src/**` means the same in a rule and in a search.

use super::{GlobError, PathGlob, expand};

/// A path pattern, with its `{a,b}` groups written out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern(Box<[PathGlob]>);

impl PathPattern {
    /// Compiles a pattern.
    pub fn new(pattern: &str) -> Result<Self, GlobError> {
        expand(pattern)?.iter().map(|one| PathGlob::new(one)).collect::<Result<_, _>>().map(Self)
    }

    /// Whether a resolved path matches. There is no caller, so `${agent}` stands for nobody.
    pub fn matches(&self, path: &str) -> bool {
        self.0.iter().any(|glob| glob.matches(path, ""))
    }
}
