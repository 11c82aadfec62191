//! Package signatures: a signed note over the digest.
//!
//! `SKILL.sig` lies beside `SKILL.md` and is a C2SP signed note: the statement, a blank line, and the author's signature line. It counts
//! only if the user trusts the key. An invalid signature by a trusted key rejects the package.

use regent_ledger::note::{Note, NoteError};
use regent_ledger::{Digest, LedgerKey, PublicKey};

use crate::error::SkillError;
use crate::manifest::Manifest;
use crate::package::Package;
use crate::skill::Skill;

/// Where the signature is in a package.
pub const SIGNATURE_FILE: &str = "SKILL.sig";

/// A key that the user trusts, and the name under which it signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedKey {
    /// The signer's name.
    pub name: String,
    key: PublicKey,
}

impl TrustedKey {
    /// Parses `name+id+key`, as printed by `regent skill sign`.
    pub fn parse(text: &str) -> Result<Self, SkillError> {
        let (name, key) = PublicKey::from_vkey(text)
            .map_err(|error| SkillError::Signature(format!("not a key: {error}")))?;
        Ok(Self { name, key })
    }
}

/// Signs a package; returns the text of its `SKILL.sig`.
pub fn sign(package: &Package, signer: &str, key: &LedgerKey) -> Result<String, SkillError> {
    let fine = |c: char| c.is_ascii_alphanumeric() || ".-_@/".contains(c);
    if signer.is_empty() || signer.len() > 128 || !signer.chars().all(fine) {
        return Err(SkillError::Signature(format!(
            "`{}` can't be the name of a signer",
            signer.escape_debug()
        )));
    }
    let skill = Skill::from_package(package)?;
    Ok(Note::sign(&statement(&skill, Manifest::from_package(package).digest()?), signer, key))
}

/// The signed statement. It repeats the package's name and version for readers.
fn statement(skill: &Skill, digest: Digest) -> String {
    format!("regent skill v1\n{} {}\n{digest}\n", skill.name, skill.version)
}

/// The name of the trusted key that signed the package, if one did.
pub(crate) fn signer(
    package: &Package,
    skill: &Skill,
    trusted: &[TrustedKey],
) -> Result<Option<String>, SkillError> {
    let Some(bytes) = package.file(SIGNATURE_FILE) else { return Ok(None) };
    let refused = |why: &str| SkillError::Signature(why.to_owned());
    let text = std::str::from_utf8(bytes).map_err(|_| refused("it is not UTF-8"))?;
    let note = Note::parse(text).map_err(|error| SkillError::Signature(error.to_string()))?;
    // Independent of the key: a statement about another package, or about an earlier content, is invalid.
    if note.unverified_text() != statement(skill, Manifest::from_package(package).digest()?) {
        return Err(refused("it signs other content than this package has"));
    }
    for TrustedKey { name, key } in trusted {
        match note.verify(name, std::slice::from_ref(key)) {
            Ok(_) => return Ok(Some(name.clone())),
            Err(NoteError::Unsigned) => {}
            Err(error) => return Err(SkillError::Signature(error.to_string())),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
