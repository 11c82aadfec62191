//! Imports secrets from existing files: `.env`, and SOPS files encrypted for age keys.

mod dotenv;
mod leaves;
mod sops;

use regent_kernel::{Secret, is_secret_name};

use crate::error::VaultError;

/// Maximum size of a file to import.
pub const FILE_BYTES_MAX: u64 = 4 << 20;
/// Maximum number of values in a file.
const VALUES_MAX: usize = 4_096;

/// The result of an import.
#[derive(Debug, Default)]
pub struct Imported {
    /// Names and values.
    pub values: Vec<(String, Secret)>,
    /// Skipped names: without a value, or with one too short to be masked in output.
    pub left_out: Vec<String>,
}

/// Parses a file of secrets. SOPS files are recognised by their metadata; everything else is parsed as `.env`. `identities` are the age
/// keys that may decrypt it, in the format of `keys.txt`.
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
