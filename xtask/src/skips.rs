//! Which tests may be skipped on this machine, and why: `.ci/may-skip`. Any other skipped test fails CI.

use anyhow::{Context as _, Result};

use crate::root;

/// The value of `REGENT_MAY_SKIP`: the reasons that `.ci/may-skip` lists, and these.
pub(crate) fn excused(also: &[&str]) -> Result<String> {
    let path = root().join(".ci/may-skip");
    let text = std::fs::read_to_string(&path).with_context(|| format!("`{}`", path.display()))?;
    let listed = text.lines().filter_map(|line| line.split('#').next()?.split_whitespace().next());
    Ok(listed.chain(also.iter().copied()).collect::<Vec<_>>().join(","))
}
