//! Packages that the quick build leaves unoptimised are optimised in what is shipped: `dist` inherits them from `release` by name.

use std::collections::BTreeSet;

/// The packages that are named with this level in a section of the workspace's manifest.
fn named<'t>(manifest: &'t str, section: &str, level: &str) -> BTreeSet<&'t str> {
    let lines = manifest.lines().skip_while(|line| *line != section).skip(1);
    let entries = lines.take_while(|line| !line.starts_with('[')).filter_map(|line| line.split_once(" = "));
    entries.filter(|(_, value)| value.contains(level)).map(|(name, _)| name).collect()
}

/// What would be shipped unoptimised.
pub(super) fn findings(manifest: &str) -> Vec<String> {
    let quick = named(manifest, "[profile.release.package]", "opt-level = 0");
    let shipped = named(manifest, "[profile.dist.package]", "opt-level = 3");
    let left = quick.difference(&shipped);
    left.map(|name| format!("`{name}` is unoptimised in `release`, so `dist` must name it with 3")).collect()
}

#[cfg(test)]
mod tests {
    use super::findings;

    #[test]
    fn a_package_that_would_be_shipped_unoptimised_is_found() {
        let both = "[profile.release.package]\nsha2 = { opt-level = 3 }\nclap = { opt-level = 0 }\n\n[profile.dist.package]\nclap = { opt-level = 3 }\n";
        assert!(findings(both).is_empty());
        let found = findings(&both.replace("clap = { opt-level = 3 }", ""));
        assert_eq!(found, ["`clap` is unoptimised in `release`, so `dist` must name it with 3"]);
    }
}
