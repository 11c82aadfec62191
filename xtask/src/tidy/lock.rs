//! What we build on has a budget: every package costs build time and trust, and a second version of one costs both twice.

use std::collections::BTreeMap;

pub(super) const FILE: &str = "Cargo.lock";
/// Packages, our own included. More is a decision: say in the commit what is worth it.
const PACKAGES_MAX: usize = 614;
/// Versions of a package beside its first. Our dependencies decide them; the number only goes down.
/// - `age` is a generation of RustCrypto behind us: `aead`, `chacha20poly1305`, `cipher`, `digest`, `hmac`, `sha2`, `curve25519-dalek`, `rand`,
///   `hybrid-array` and what they use (20). Its translations bring `thiserror` 1, `toml` 0.5 and `parking_lot`.
/// - `regorus` has a newer `num-bigint` and `parking_lot`; `cedar-policy` (a feature) a newer `itertools`, and `serde_with` with two each of `schemars` and `indexmap`.
/// - `tokio-postgres` (a feature) has an older `base64` and `fallible-iterator`, and another `phf_shared`.
/// - `wasmtime` has its own `embedded-io` and `hashbrown`; `rcgen` its own `nom` and `bit-vec`; `kvm-ioctls` its own `bitflags`; `miette` its own `unicode-width`.
/// - Macros are between `syn` 2 and 3, and `getrandom` between three versions. `wasi`, `windows-sys`, `redox_syscall` and `r-efi` are never built here.
const SECOND_VERSIONS_MAX: usize = 47;

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
