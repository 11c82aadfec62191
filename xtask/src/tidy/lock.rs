//! What we build on has a budget: every package costs build time and trust, and a second version of one costs both twice.

use std::collections::BTreeMap;

pub(super) const FILE: &str = "Cargo.lock";
/// Packages, our own included. More is a decision: say in the commit what is worth it.
const PACKAGES_MAX: usize = 614;
/// Versions of a package beside its first. Our dependencies decide most of them; the number only goes down.
const SECOND_VERSIONS_MAX: usize = 60;

/// What exceeds the budget.
pub(super) fn findings(text: &str) -> Vec<String> {
    let mut versions: BTreeMap<&str, usize> = BTreeMap::new();
    for name in text.lines().filter_map(|line| line.strip_prefix("name = ")) {
        *versions.entry(name.trim_matches('"')).or_default() += 1;
    }
    let packages: usize = versions.values().sum();
    let second = packages - versions.len();
    let mut found = Vec::new();
    if packages > PACKAGES_MAX {
        found.push(format!("{packages} packages; {PACKAGES_MAX} are allowed"));
    }
    if second > SECOND_VERSIONS_MAX {
        let several: Vec<&str> =
            versions.iter().filter(|(_, count)| **count > 1).map(|(name, _)| *name).collect();
        found.push(format!(
            "{second} packages are there in a second version; {SECOND_VERSIONS_MAX} are allowed ({})",
            several.join(", ")
        ));
    }
    found
}
