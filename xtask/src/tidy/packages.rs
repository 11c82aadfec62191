//! What we build on: under which licences, who may use the heavy ones, and which must not come in at all. Read from `cargo metadata`.

use serde_json::Value;

/// Licences that a distributor of Regent can live with. A package needs one of its alternatives here.
pub(super) const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];
/// Second HTTP and TLS stacks, and crates that nobody keeps any more.
pub(super) const BANNED: &[&str] =
    &["reqwest", "ureq", "curl", "isahc", "openssl", "native-tls", "async-std", "serde_yaml"];
/// Libraries that are heavy, or power to be held in one place, and the crates of ours that use them. Tests may use what they like.
const USERS: &[(&str, &[&str])] = &[
    ("wasmtime", &["regent-sandbox"]),
    ("landlock", &["regent-sandbox"]),
    ("kvm-ioctls", &["regent-microvm"]),
    ("kvm-bindings", &["regent-microvm"]),
    ("libc", &["regent-sandbox", "regent-microvm"]),
    ("rusqlite", &["regent-store", "regent-lookup"]),
    // Remote state backends connect where the operator says, behind features.
    ("tokio-rustls", &["regent-egress", "regent-store"]),
    ("webpki-roots", &["regent-egress", "regent-store"]),
    ("rcgen", &["regent-egress"]),
    ("jsonschema", &["regent-kernel"]),
    ("regorus", &["regent-policy"]),
    ("cedar-policy", &["regent-policy"]),
    ("age", &["regent-vault"]),
    ("clap", &["regent"]),
    ("miette", &["regent"]),
    ("rayon", &["regent-inference"]),
    ("pulp", &["regent-inference"]),
];

/// What is wrong with the packages of a workspace.
pub(crate) fn findings(metadata: &Value) -> Vec<String> {
    let packages = metadata.get("packages").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if packages.is_empty() {
        return vec!["`cargo metadata` names no packages".to_owned()];
    }
    packages
        .iter()
        .flat_map(|package| if is_ours(package) { used(package) } else { foreign(package) })
        .collect()
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// What has no source comes from this checkout.
fn is_ours(package: &Value) -> bool {
    package.get("source").is_none_or(Value::is_null)
}

fn foreign(package: &Value) -> Vec<String> {
    let (name, licence) = (text(package, "name"), text(package, "license"));
    let mut found = Vec::new();
    if BANNED.contains(&name) {
        found.push(format!("`{name}` must not come in"));
    }
    if !is_licensed(licence) {
        found.push(format!("`{name}` is licensed as `{licence}`, which is not in the list"));
    }
    found
}

/// Every part needs an alternative that is allowed: `(A OR B) AND C`.
fn is_licensed(licence: &str) -> bool {
    let licence = licence.replace('/', " OR ");
    let is_allowed = |one: &str| LICENCES.contains(&one.trim());
    licence.split(" AND ").all(|part| part.trim().trim_matches(['(', ')']).split(" OR ").any(is_allowed))
}

fn used(package: &Value) -> Vec<String> {
    let user = text(package, "name");
    let dependencies = package.get("dependencies").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let ships = dependencies.iter().filter(|one| one.get("kind").is_none_or(Value::is_null));
    let forbidden = ships.filter_map(|one| {
        let (library, users) = USERS.iter().find(|(library, _)| *library == text(one, "name"))?;
        let message = format!("`{user}` uses `{library}`, which only [{}] may", users.join(", "));
        (!users.contains(&user)).then_some(message)
    });
    forbidden.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn licences_bans_and_users_are_held() {
        let foreign = |name: &str, licence: &str| json!({"name": name, "license": licence, "source": "r"});
        let ours = |name: &str, uses: &str, kind: Option<&str>| json!({"name": name, "source": null, "dependencies": [{"name": uses, "kind": kind}]});
        let cases = [
            (foreign("a", "MIT"), None),
            (foreign("a", "GPL-3.0-only OR Apache-2.0"), None),
            (foreign("a", "MIT/Apache-2.0"), None),
            (foreign("a", "(MIT OR GPL-3.0-only) AND Unicode-3.0"), None),
            (foreign("a", "GPL-3.0-only"), Some("`a` is licensed as `GPL-3.0-only`")),
            (foreign("a", "MIT AND GPL-3.0-only"), Some("is licensed as")),
            (foreign("a", ""), Some("is licensed as ``")),
            (foreign("openssl", "Apache-2.0"), Some("`openssl` must not come in")),
            (ours("regent-sandbox", "wasmtime", None), None),
            (ours("regent-microvm", "kvm-ioctls", None), None),
            (ours("regent-sandbox", "kvm-bindings", None), Some("`regent-sandbox` uses `kvm-bindings`")),
            (ours("regent-tools", "wasmtime", Some("dev")), None),
            (ours("regent-tools", "wasmtime", None), Some("`regent-tools` uses `wasmtime`")),
        ];
        for (package, expected) in cases {
            let found = findings(&json!({"packages": [package]}));
            match expected {
                None => assert!(found.is_empty(), "{package}: {found:?}"),
                Some(part) => assert!(found.iter().any(|one| one.contains(part)), "{package}: {found:?}"),
            }
        }
        assert!(!findings(&json!({})).is_empty(), "nothing read is nothing checked");
    }
}
