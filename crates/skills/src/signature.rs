//! Who vouches for a package: a signed note over its digest.
//!
//! `SKILL.sig` lies beside `SKILL.md` and is a note as C2SP describes them: the statement, a blank line, and the signature of the author
//! it. It counts only if the key is one that the user trusts; a signature of such a key that doesn't hold refuses the package.

use regent_ledger::note::{Note, NoteError};
use regent_ledger::{Digest, LedgerKey, PublicKey};

use crate::error::SkillError;
use crate::manifest::Manifest;
use crate::package::Package;
use crate::skill::Skill;

/// Where the signature is in a package.
pub const SIGNATURE_FILE: &str = "SKILL.sig";

/// A key whose signatures the user takes for good, with the name it signs under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedKey {
    /// The name.
    pub name: String,
    key: PublicKey,
}

impl TrustedKey {
    /// Reads `name+id+key`, as `regent skill sign` prints it.
    pub fn parse(text: &str) -> Result<Self, SkillError> {
        let (name, key) = PublicKey::from_vkey(text)
            .map_err(|error| SkillError::Signature(format!("not a key: {error}")))?;
        Ok(Self { name, key })
    }
}

/// Signs a package as it is: the text of its `SKILL.sig`.
pub fn sign(package: &Package, signer: &str, key: &LedgerKey) -> Result<String, SkillError> {
    let fine = |c: char| c.is_ascii_alphanumeric() || ".-_@/".contains(c);
    if signer.is_empty() || signer.len() > 128 || !signer.chars().all(fine) {
        return Err(SkillError::Signature(format!(
            "`{}` can't be the name of a signer",
            signer.escape_debug()
        )));
    }
    let skill = Skill::of(package)?;
    Ok(Note::sign(&statement(&skill, Manifest::of(package).digest()?), signer, key))
}

/// What is signed. The name and the version are inside the package too; here they are for people to read.
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
    // Whatever key signed it: a statement about another package, or about this one before a change, is invalid.
    if note.unverified_text() != statement(skill, Manifest::of(package).digest()?) {
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
