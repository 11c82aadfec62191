//! How secret a file is taken for, by where it is and what it is called.

use regent_guard::GuardKind;
use regent_policy::{Confidentiality, Integrity, Label};

/// Folders whose files are labelled as credentials, beside the guarded places: names too common to ask about each time.
const FOLDERS: &[&str] = &[".kube", ".docker", ".azure", "gcloud"];
/// Files of that kind.
const FILES: &[&str] = &["credentials", "shadow"];

/// The label of what a path holds. A guess by name can only raise it.
pub fn label_of_path(spelling: &str) -> Label {
    let lower = spelling.to_ascii_lowercase();
    let mut names = lower.split('/');
    let file = names.next_back().unwrap_or_default();
    let kinds = regent_guard::kinds_of(spelling);
    let is_secret = kinds.contains(GuardKind::Secret) || kinds.contains(GuardKind::PersonalSecret);
    let confidentiality = if is_secret || FILES.contains(&file) || names.any(|name| FOLDERS.contains(&name)) {
        Confidentiality::Credential
    } else if spelling.starts_with('/') {
        Confidentiality::Private
    } else {
        Confidentiality::Internal
    };
    Label { integrity: Integrity::File, confidentiality }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_open_doors_are_known() {
        let cases = [
            ("src/main.rs", Confidentiality::Internal),
            (".", Confidentiality::Internal),
            ("environment", Confidentiality::Internal),
            ("src/key", Confidentiality::Internal),
            ("/etc/hosts", Confidentiality::Private),
            (".env", Confidentiality::Credential),
            ("app/.ENV.production", Confidentiality::Credential),
            ("certs/server.key", Confidentiality::Credential),
            ("/home/a/.ssh/config", Confidentiality::Credential),
            ("/home/a/.aws/config", Confidentiality::Credential),
            ("/home/a/.kube/cache/x", Confidentiality::Credential),
            ("deploy/putty.PPK", Confidentiality::Credential),
            (".env.example", Confidentiality::Internal),
        ];
        for (path, expected) in cases {
            assert_eq!(label_of_path(path).confidentiality, expected, "for {path}");
        }
    }
}
