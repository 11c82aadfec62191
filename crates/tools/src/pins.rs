//! What a user has agreed to, in a file of the user's own outside of any project. Skills, generated tools and the tool sets of servers are pinned
//! in such files, each in a form of its own.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;

const PINS_BYTES_MAX: u64 = 4 << 20;

/// A file of pins.
#[derive(Debug, Clone)]
pub struct PinFile(PathBuf);

/// Pins can't be read or written. What was agreed to is unknown then, so nothing is.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// The file system says no.
    #[error("`{}`: {error}", .path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It isn't a file of pins.
    #[error("`{}` is damaged: {why}", .path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

impl PinFile {
    /// The file at this place. It need not exist.
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Reads the pins. Only a file that doesn't exist means none.
    pub fn read<P: DeserializeOwned + Default>(&self) -> Result<P, PinError> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(i32::try_from(flags.bits()).unwrap_or(0));
        let file = match options.open(&self.0) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(P::default()),
            Err(error) => return Err(self.io(error)),
        };
        if !file.metadata().map_err(|error| self.io(error))?.is_file() {
            return Err(self.damaged("it is not a plain file"));
        }
        let mut bytes = Vec::new();
        file.take(PINS_BYTES_MAX.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|error| self.io(error))?;
        if bytes.len() as u64 > PINS_BYTES_MAX {
            return Err(self.damaged(&format!("it has more than {PINS_BYTES_MAX} bytes")));
        }
        serde_json::from_slice(&bytes).map_err(|error| self.damaged(&error.to_string()))
    }

    /// Writes them at once or not at all, readable by their owner alone.
    pub fn write<P: Serialize>(&self, pins: &P) -> Result<(), PinError> {
        let text = serde_json::to_vec_pretty(pins).map_err(|error| self.damaged(&error.to_string()))?;
        let folder = self.folder()?;
        let staged = self.0.with_extension("new");
        match std::fs::remove_file(&staged) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(self.io(error)),
            Ok(()) | Err(_) => {}
        }
        let mut options = OpenOptions::new();
        options.create_new(true).write(true).mode(0o600);
        let written = options.open(&staged).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()?;
            std::fs::rename(&staged, &self.0)?;
            File::open(folder)?.sync_all()
        });
        written.map_err(|error| self.io(error))
    }

    /// One process at a time changes the pins: hold this while you read, change and write.
    pub fn lock(&self) -> Result<File, PinError> {
        self.folder()?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = options.open(self.0.with_extension("lock")).map_err(|error| self.io(error))?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive).map_err(|error| self.io(error.into()))?;
        Ok(file)
    }

    fn folder(&self) -> Result<&Path, PinError> {
        let folder = self.0.parent().unwrap_or(Path::new("."));
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| self.io(error))?;
        Ok(folder)
    }

    fn io(&self, error: std::io::Error) -> PinError {
        PinError::Io { path: self.0.clone(), error }
    }

    fn damaged(&self, why: &str) -> PinError {
        PinError::Damaged { path: self.0.clone(), why: why.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    type Pins = BTreeMap<String, u32>;

    #[test]
    fn only_a_file_that_does_not_exist_means_that_nothing_was_agreed_to() {
        let folder = tempfile::tempdir().unwrap();
        let pins = PinFile::new(folder.path().join("state/pins.json"));
        assert_eq!(pins.read::<Pins>().unwrap(), Pins::new());
        let _lock = pins.lock().unwrap();
        pins.write(&Pins::from([("mcp:text".to_owned(), 1)])).unwrap();
        assert_eq!(pins.read::<Pins>().unwrap()["mcp:text"], 1);
        assert_eq!(std::fs::metadata(pins.path()).unwrap().permissions().mode() & 0o777, 0o600);

        std::fs::write(pins.path(), "{").unwrap();
        assert!(matches!(pins.read::<Pins>(), Err(PinError::Damaged { .. })));
        std::fs::write(pins.path(), vec![b' '; usize::try_from(PINS_BYTES_MAX).unwrap() + 1]).unwrap();
        assert!(matches!(pins.read::<Pins>(), Err(PinError::Damaged { .. })));
        std::fs::remove_file(pins.path()).unwrap();
        std::os::unix::fs::symlink("/dev/null", pins.path()).unwrap();
        assert!(pins.read::<Pins>().is_err(), "a link elsewhere is not the user's file");
        std::fs::remove_file(pins.path()).unwrap();
        std::fs::create_dir(pins.path()).unwrap();
        assert!(pins.read::<Pins>().is_err());
    }
}
