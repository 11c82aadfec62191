//! How secret a file is to be taken for, by where it is and what it is called.

use regent_kernel::{Confidentiality, Integrity, Label};

/// Folders whose files open doors.
const FOLDERS: &[&str] =
    &[".ssh", ".aws", ".gnupg", ".kube", ".docker", ".azure", "gcloud", ".password-store"];
/// Files that open doors.
const FILES: &[&str] = &[
    ".env",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".pgpass",
    ".my.cnf",
    ".htpasswd",
    "credentials",
    "credentials.json",
    "shadow",
    ".vault-token",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
];
/// Endings of files that open doors.
const ENDINGS: &[&str] = &[".pem", ".key", ".p12", ".pfx", ".keystore", ".jks", ".kdbx", ".ppk"];

/// What the manifest of a file tool declares: a file of the workspace, for the people who work there.
pub(crate) const WORKSPACE_FILE: Label =
    Label { integrity: Integrity::File, confidentiality: Confidentiality::Internal };

/// The label of what a path holds. A guess by name can only raise it.
pub(crate) fn label_of(spelling: &str) -> Label {
    let lower = spelling.to_ascii_lowercase();
    let mut names = lower.split('/');
    let file = names.next_back().unwrap_or_default();
    let confidentiality = if names.any(|name| FOLDERS.contains(&name)) || opens_doors(file) {
        Confidentiality::Credential
    } else if spelling.starts_with('/') {
        Confidentiality::Private
    } else {
        WORKSPACE_FILE.confidentiality
    };
    Label { confidentiality, ..WORKSPACE_FILE }
}

fn opens_doors(file: &str) -> bool {
    FILES.contains(&file)
        || file.starts_with(".env.")
        || ENDINGS.iter().any(|ending| file.len() > ending.len() && file.ends_with(ending))
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
        ];
        for (path, expected) in cases {
            assert_eq!(label_of(path).confidentiality, expected, "for {path}");
        }
    }
}
