//! Secrets out of files that people have: `.env`, and SOPS files for age keys.

mod dotenv;
mod leaves;
mod sops;

use regent_kernel::{Secret, is_secret_name};

use crate::error::VaultError;

/// The largest file that is taken in.
pub const FILE_BYTES_MAX: u64 = 4 << 20;
/// Values in one file.
const VALUES_MAX: usize = 4_096;

/// The result of an import.
#[derive(Debug, Default)]
pub struct Imported {
    /// Names and values.
    pub values: Vec<(String, Secret)>,
    /// Names that have no value, or one too short to be recognised in output, and were left out.
    pub left_out: Vec<String>,
}

/// Reads a file of secrets. SOPS files are told by their metadata; everything else is `.env`. `identities` are the age keys that
/// may open it, as `keys.txt` has them.
pub fn read(text: &str, identities: &str, prefix: &str, least: usize) -> Result<Imported, VaultError> {
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(VaultError::Import(format!("the file is larger than {FILE_BYTES_MAX} bytes")));
    }
    let found = match sops::read(text, identities)? {
        Some(found) => found,
        None => dotenv::read(text)?,
    };
    if found.len() > VALUES_MAX {
        return Err(VaultError::Import(format!("the file has more than {VALUES_MAX} values")));
    }
    let mut imported = Imported::default();
    for (key, value) in found {
        let name = name_of(prefix, &key)?;
        if value.expose().len() < least {
            imported.left_out.push(name);
        } else if imported.values.iter().any(|(other, _)| *other == name) {
            return Err(VaultError::Import(format!("two values would have the name `{name}`")));
        } else {
            imported.values.push((name, value));
        }
    }
    Ok(imported)
}

/// `GITHUB_TOKEN` becomes `github_token`, `db: { password: … }` becomes `db/password`.
fn name_of(prefix: &str, key: &str) -> Result<String, VaultError> {
    let plain = |letter: char| match letter.to_ascii_lowercase() {
        fine @ ('a'..='z' | '0'..='9' | '.' | '_' | '/' | '-') => fine,
        _other => '_',
    };
    let name: String = prefix.chars().chain(key.chars().map(plain)).collect();
    let name = name.trim_matches(['.', '_', '/', '-']).to_owned();
    if is_secret_name(&name) { Ok(name) } else { Err(VaultError::Name(name.escape_debug().to_string())) }
}

#[cfg(test)]
mod tests;
