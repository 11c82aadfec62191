//! The Ed25519 key that signs checkpoints, and its public half.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use zeroize::{Zeroize, Zeroizing};

use crate::Digest;
use crate::digest::hex_string;

/// First word of a key file.
const FILE_HEADER: &str = "regent-ledger-key-v1";
const FILE_BYTES_MAX: u64 = 256;
/// The note signature type of Ed25519.
const ED25519: u8 = 1;

/// The secret key of a ledger, wiped from memory on drop.
#[derive(Clone)]
pub struct LedgerKey(SigningKey);

impl LedgerKey {
    /// Generates a random key.
    pub fn generate() -> Result<LedgerKey, KeyError> {
        let mut seed = Zeroizing::new([0u8; 32]);
        getrandom::fill(seed.as_mut_slice()).map_err(|error| KeyError::Random(error.to_string()))?;
        Ok(LedgerKey::from_seed(&seed))
    }

    /// The key of this secret seed.
    pub fn from_seed(seed: &[u8; 32]) -> LedgerKey {
        LedgerKey(SigningKey::from_bytes(seed))
    }

    /// Loads the key from a private file, or creates the file with a new key.
    ///
    /// Two concurrent processes end up with the same key.
    pub fn load_or_create(path: &Path) -> Result<LedgerKey, KeyError> {
        match LedgerKey::load(path) {
            Err(KeyError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            loaded_or_failed => return loaded_or_failed,
        }
        LedgerKey::generate()?.store(path)?;
        LedgerKey::load(path)
    }

    /// Loads the key from a file that only its owner can access.
    pub fn load(path: &Path) -> Result<LedgerKey, KeyError> {
        let failed = |source| KeyError::Io { path: path.to_owned(), source };
        let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let file =
            std::fs::OpenOptions::new().read(true).custom_flags(no_follow).open(path).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        if !meta.is_file() || meta.mode() & 0o077 != 0 {
            return Err(KeyError::Exposed { path: path.to_owned() });
        }
        let mut text = Zeroizing::new(String::new());
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
        let malformed = || KeyError::Malformed { path: path.to_owned() };
        let encoded = text.strip_prefix(FILE_HEADER).ok_or_else(malformed)?;
        let bytes = Zeroizing::new(STANDARD.decode(encoded.trim()).map_err(|_| malformed())?);
        let seed: &[u8; 32] = bytes.as_slice().try_into().map_err(|_| malformed())?;
        Ok(LedgerKey::from_seed(seed))
    }

    /// Writes the key to a new file with mode 0600. An existing file is kept.
    fn store(&self, path: &Path) -> Result<(), KeyError> {
        let failed = |source| KeyError::Io { path: path.to_owned(), source };
        let mut suffix = [0u8; 8];
        getrandom::fill(&mut suffix).map_err(|error| KeyError::Random(error.to_string()))?;
        let draft = path.with_extension(format!("{}.tmp", hex_string(&suffix)));
        let mut seed = self.0.to_bytes();
        let text = Zeroizing::new(format!("{FILE_HEADER} {}\n", STANDARD.encode(seed)));
        seed.zeroize();
        let write = || -> io::Result<()> {
            let mut file =
                std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            // A hard link instead of a rename: a second process must not replace the first one's key.
            match std::fs::hard_link(&draft, path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                _linked_or_already_there => Ok(()),
            }
        };
        let written = write();
        let removed = std::fs::remove_file(&draft);
        written.and(removed).map_err(failed)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
    }

    /// The public key.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    pub(crate) fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }
}

impl fmt::Debug for LedgerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LedgerKey({})", self.public())
    }
}

/// The public key of a ledger, written in base64.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// The 32 bytes of the key.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// The key with these bytes, if they are valid.
    pub fn from_bytes(bytes: &[u8; 32]) -> Option<PublicKey> {
        VerifyingKey::from_bytes(bytes).ok().filter(|key| !key.is_weak()).map(PublicKey)
    }

    /// The C2SP note key id under this name.
    pub fn id(&self, name: &str) -> [u8; 4] {
        let digest =
            Digest::compute(&[name.as_bytes(), &[b'\n', ED25519], self.as_bytes().as_slice()].concat());
        let [a, b, c, d, ..] = *digest.as_bytes();
        [a, b, c, d]
    }

    /// The C2SP verifier key: `name+id+key`.
    pub fn vkey(&self, name: &str) -> String {
        let typed = [&[ED25519], self.as_bytes().as_slice()].concat();
        format!("{name}+{}+{}", hex_string(&self.id(name)), STANDARD.encode(typed))
    }

    /// Parses a verifier key and checks its id. Also returns its name.
    pub fn from_vkey(text: &str) -> Result<(String, PublicKey), KeyError> {
        let malformed = || KeyError::NotAKey(text.chars().take(120).collect());
        let mut parts = text.splitn(3, '+');
        let (Some(name), Some(id), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(malformed());
        };
        let typed = STANDARD.decode(key).map_err(|_| malformed())?;
        let bytes: &[u8; 32] = match typed.split_first() {
            Some((&ED25519, key)) => key.try_into().map_err(|_| malformed())?,
            Some(_) | None => return Err(malformed()),
        };
        let key = PublicKey::from_bytes(bytes).ok_or_else(malformed)?;
        if name.is_empty() || hex_string(&key.id(name)) != id {
            return Err(malformed());
        }
        Ok((name.to_owned(), key))
    }

    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        Signature::from_slice(signature)
            .is_ok_and(|signature| self.0.verify_strict(message, &signature).is_ok())
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    /// Parses a key in base64, or the key part of a verifier key.
    fn from_str(text: &str) -> Result<PublicKey, KeyError> {
        if let Ok((_, key)) = PublicKey::from_vkey(text) {
            return Ok(key);
        }
        STANDARD
            .decode(text)
            .ok()
            .and_then(|bytes| PublicKey::from_bytes(bytes.as_slice().try_into().ok()?))
            .ok_or_else(|| KeyError::NotAKey(text.chars().take(120).collect()))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.as_bytes()))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// Why a key can't be loaded, created or parsed.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The operating system returned no random bytes.
    #[error("no random bytes: {0}")]
    Random(String),
    /// The key file can't be read or written.
    #[error("can't use the key file `{path}`")]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Other users can access the key file.
    #[error("others can access the key file `{path}`; its mode must be 0600")]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a key file.
    #[error("`{path}` is not a ledger key file")]
    Malformed {
        /// The file.
        path: PathBuf,
    },
    /// Neither a public key in base64 nor a verifier key.
    #[error("`{0}` is not a public key")]
    NotAKey(String),
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_file_is_created_once_and_must_be_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let key = LedgerKey::load_or_create(&path).unwrap();
        assert_eq!(LedgerKey::load_or_create(&path).unwrap().public(), key.public());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no draft is left behind");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(LedgerKey::load(&path), Err(KeyError::Exposed { .. })));
        std::fs::write(&path, "nonsense").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(LedgerKey::load_or_create(&path), Err(KeyError::Malformed { .. })));
    }

    #[test]
    fn verifier_keys_round_trip_and_their_id_is_checked() {
        let public = LedgerKey::from_seed(&[7; 32]).public();
        let vkey = public.vkey("regent/0011/0000");
        assert_eq!(PublicKey::from_vkey(&vkey).unwrap(), ("regent/0011/0000".to_owned(), public));
        assert_eq!(vkey.parse::<PublicKey>().unwrap(), public);
        assert_eq!(public.to_string().parse::<PublicKey>().unwrap(), public);
        for bad in ["", "a+b+c", &vkey.replace("0011", "0012"), &public.to_string()[1..]] {
            assert!(bad.parse::<PublicKey>().is_err(), "{bad}");
        }
    }

    #[test]
    fn debug_output_hides_the_secret() {
        let shown = format!("{:?}", LedgerKey::from_seed(&[7; 32]));
        assert!(!shown.contains(&STANDARD.encode([7u8; 32])) && !shown.contains("[7"));
    }
}
