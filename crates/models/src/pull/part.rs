//! The file while it comes: beside its place, locked, hashed as it grows.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use regent_kernel::hex_string;
use sha2::{Digest as _, Sha256};

use super::{Package, Progress, ProgressSink, PullError, Trouble, Weights, wheel};

/// How often it is looked whether another pull is done.
const LOOK_MS: u64 = 100;
/// What is read and written at once.
const PIECE_BYTES: usize = 1 << 20;

/// A file that is coming.
#[derive(Debug)]
pub(super) struct Part {
    folder: PathBuf,
    path: PathBuf,
    /// Held as long as this pull lasts; the system lets it go if the process dies.
    _lock: File,
    /// `None` while it is being written by another thread, or after that thread was torn.
    writing: Option<Writing>,
    done: u64,
    total: u64,
    wanted: String,
}

struct Writing {
    file: File,
    hash: Sha256,
    done: u64,
    total: u64,
    told: ProgressSink,
}

impl std::fmt::Debug for Writing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writing").field("done", &self.done).finish_non_exhaustive()
    }
}

impl Part {
    /// Opens what there is, alone: waits while another pull of the same weights runs.
    pub(super) async fn open(
        weights: &Weights,
        folder: &Path,
        told: ProgressSink,
    ) -> Result<Self, PullError> {
        // Above the weights may be the folder of everything that is the user's own, and nobody else may look into that.
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(PullError::Write)?;
        let lock = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .open(folder.join(format!(".{}.lock", weights.name)));
        let lock = lock.map_err(PullError::Write)?;
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => tokio::time::sleep(Duration::from_millis(LOOK_MS)).await,
                Err(TryLockError::Error(error)) => return Err(PullError::Write(error)),
            }
        }
        let path = folder.join(format!(".{}.part", weights.name));
        let total = weights.bytes;
        let opened = path.clone();
        let open = move || -> io::Result<Writing> {
            let file =
                OpenOptions::new().create(true).read(true).write(true).truncate(false).open(&opened)?;
            let mut writing = Writing { file, hash: Sha256::new(), done: 0, total, told };
            writing.rehash(u64::MAX)?;
            Ok(writing)
        };
        let writing = blocking(open).await?.map_err(PullError::Write)?;
        let mut part = Self {
            folder: folder.to_owned(),
            path,
            _lock: lock,
            done: writing.done,
            writing: Some(writing),
            total,
            wanted: weights.sha256.clone(),
        };
        if part.done > total {
            part.restart().await?;
        }
        Ok(part)
    }

    /// Bytes that are here.
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    async fn with<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Writing) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, Trouble> {
        let Some(mut writing) = self.writing.take() else {
            return Err(Trouble::Write(PullError::Write(io::Error::other("the file was left open"))));
        };
        let (writing, result) = blocking(move || {
            let result = work(&mut writing);
            (writing, result)
        })
        .await?;
        self.done = writing.done;
        self.writing = Some(writing);
        if let Err(Trouble::Write(PullError::DiskFull(_))) = &result {
            // What didn't fit isn't left lying around.
            self.remove();
        }
        result
    }

    /// Adds a piece.
    pub(super) async fn write(&mut self, piece: &[u8]) -> Result<(), Trouble> {
        let piece = piece.to_vec();
        self.with(move |writing| Ok(writing.push(&piece)?)).await
    }

    /// Adds the member of the one archive in a folder.
    pub(super) async fn take_member(&mut self, folder: &Path, package: &Package) -> Result<(), Trouble> {
        let (folder, package) = (folder.to_owned(), package.clone());
        self.with(move |writing| wheel::take(&folder, &package, |piece| Ok(writing.push(piece)?))).await
    }

    /// Begins again.
    pub(super) async fn restart(&mut self) -> Result<(), PullError> {
        self.cut_to(0).await
    }

    /// Goes back to so many bytes.
    pub(super) async fn cut_to(&mut self, bytes: u64) -> Result<(), PullError> {
        if self.done == bytes {
            return Ok(());
        }
        let cut = self
            .with(move |writing| {
                writing.rehash(bytes).map_err(|error| Trouble::Write(PullError::Write(error)))
            })
            .await;
        cut.map_err(ours)
    }

    /// Whether it is the file that was asked for.
    pub(super) async fn check(&mut self) -> Result<(), PullError> {
        let found =
            self.with(|writing| Ok(hex_string(&writing.hash.clone().finalize()))).await.map_err(ours)?;
        let wanted = self.wanted.clone();
        if found == wanted && self.done == self.total {
            Ok(())
        } else {
            Err(PullError::Digest { wanted, found })
        }
    }

    /// Puts it in its place.
    pub(super) async fn finish(mut self, file: &Path) -> Result<(), PullError> {
        self.check().await?;
        self.with(|writing| writing.file.sync_all().map_err(|error| Trouble::Write(PullError::Write(error))))
            .await
            .map_err(ours)?;
        std::fs::rename(&self.path, file).map_err(PullError::Write)
    }

    /// Leaves nothing.
    pub(super) fn remove(&self) {
        drop(std::fs::remove_file(&self.path));
    }

    /// A folder for archives; it goes with what is in it.
    pub(super) fn folder(&self) -> Result<tempfile::TempDir, PullError> {
        tempfile::Builder::new().prefix(".pull-").tempdir_in(&self.folder).map_err(PullError::Write)
    }
}

impl Writing {
    /// Reads what is there, at most so many bytes, and drops the rest.
    fn rehash(&mut self, bytes_max: u64) -> io::Result<()> {
        self.hash = Sha256::new();
        self.done = 0;
        self.file.seek(SeekFrom::Start(0))?;
        let mut buffer = vec![0; PIECE_BYTES];
        while self.done < bytes_max {
            let want = usize::try_from(bytes_max - self.done).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            let count = self.file.read(buffer.get_mut(..want).unwrap_or_default())?;
            if count == 0 {
                break;
            }
            self.hash.update(buffer.get(..count).unwrap_or_default());
            self.done = self.done.saturating_add(count as u64);
        }
        self.file.set_len(self.done)?;
        self.file.seek(SeekFrom::Start(self.done))?;
        Ok(())
    }

    fn push(&mut self, piece: &[u8]) -> Result<(), PullError> {
        let total = self.total;
        self.file.write_all(piece).map_err(|error| {
            let full =
                [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge];
            if full.contains(&error.kind()) { PullError::DiskFull(total) } else { PullError::Write(error) }
        })?;
        self.hash.update(piece);
        self.done = self.done.saturating_add(piece.len() as u64);
        (self.told)(Progress { done: self.done.min(total), total });
        Ok(())
    }
}

fn ours(trouble: Trouble) -> PullError {
    match trouble {
        Trouble::Write(error) => error,
        Trouble::Source(why) => PullError::Write(io::Error::other(why)),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, PullError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| PullError::Write(io::Error::other(error)))
}
