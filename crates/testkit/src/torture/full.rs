//! A full disk, on a small separate file system: new effects are denied, reading continues, and freed space is enough to continue.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use regent_kernel::{Fault, Reply};
use regent_ledger::AppendError;
use serde_json::json;

use super::check::{Journal, Moment, judge};
use super::{Broken, Tally, child, effects, program};
use crate::drivers::run;
use crate::test_kernel::TestKernel;

const DISK_BYTES: usize = 16 << 20;
/// Free bytes beside the ballast in each round.
const ROOM_BYTES: u64 = 192 << 10;
/// More marks than fit on the disk.
const MARKS_MAX: u64 = 20_000;

/// A mounted file system, unmounted on drop.
#[derive(Debug)]
struct SmallDisk {
    at: tempfile::TempDir,
}

impl SmallDisk {
    fn mount() -> Result<Self, Broken> {
        let at = tempfile::tempdir()?;
        let size = format!("size={DISK_BYTES}");
        let output = program("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(at.path()).output()?;
        if output.status.success() {
            Ok(Self { at })
        } else {
            Err(String::from_utf8_lossy(&output.stderr).trim().into())
        }
    }

    fn path(&self) -> &Path {
        self.at.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A failure leaves the mount behind; removing its folder then reports it.
        drop(program("umount").arg("-l").arg(self.at.path()).output());
    }
}

/// Whether a small disk can be mounted; that needs root.
pub fn can_mount() -> Result<(), Broken> {
    SmallDisk::mount().map(drop)
}

/// Fills a disk `rounds` times and frees it again, under one running kernel.
pub fn fill(rounds: u64) -> Result<Tally, Broken> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let disk = SmallDisk::mount()?;
        // The marks are on another disk: only the ledger's disk is full.
        let world = tempfile::tempdir()?;
        std::os::unix::fs::symlink(world.path().join("effects"), effects(disk.path()))?;
        let mut filling = Filling {
            kernel: child::boot(disk.path()).await?,
            disk: disk.path(),
            next: 0,
            acks: BTreeSet::new(),
        };
        for round in 0..rounds {
            filling.round().await.map_err(|broken| format!("full disk, round {round}: {broken}"))?;
        }
        filling.kernel.kernel.shutdown().await?;
        let journal = judge(disk.path(), 0..filling.next, &filling.acks, Moment::Settled)?;
        let in_doubt = journal.in_doubt().len() as u64;
        Ok(Tally { cases: rounds, acknowledged: filling.acks.len() as u64, in_doubt, ..Tally::default() })
    })
}

/// Takes all free space, and releases a little.
fn fill_up(ballast: &Path) -> io::Result<()> {
    let mut file = fs::File::create(ballast)?;
    let chunk = [0_u8; 4096];
    let mut bytes = 0_u64;
    while let Ok(wrote) = file.write(&chunk) {
        bytes += wrote as u64;
    }
    file.set_len(bytes.saturating_sub(ROOM_BYTES))
}

struct Filling<'a> {
    kernel: TestKernel,
    disk: &'a Path,
    next: u64,
    acks: BTreeSet<u64>,
}

impl Filling<'_> {
    async fn round(&mut self) -> Result<(), Broken> {
        let ballast = self.disk.join("ballast");
        fill_up(&ballast)?;
        let refused = self.until_full().await?;
        // Still full: denied again, without an effect.
        let marks = fs::metadata(effects(self.disk)).map_or(0, |file| file.len());
        if self.mark().await?.is_ok() {
            return Err("a full disk took another effect".into());
        }
        if fs::metadata(effects(self.disk)).map_or(0, |file| file.len()) != marks {
            return Err("an effect happened that could not be recorded".into());
        }
        // Reading continues.
        let journal = Journal::read(self.disk, 0..self.next)?;
        if !journal.intended.is_superset(&self.acks) {
            return Err("what was recorded can't be read while the disk is full".into());
        }
        fs::remove_file(&ballast)?;
        match self.mark().await? {
            Ok(()) => Ok(()),
            Err(why) => {
                Err(format!("space was freed, and still: {why} (first refused with: {refused})").into())
            }
        }
    }

    async fn until_full(&mut self) -> Result<String, Broken> {
        while self.next < MARKS_MAX {
            if let Err(why) = self.mark().await? {
                return Ok(why);
            }
        }
        Err("the disk never got full".into())
    }

    /// Makes one mark: done, or denied for lack of space. Any other result is a breach.
    async fn mark(&mut self) -> Result<Result<(), String>, Broken> {
        let id = self.next;
        self.next += 1;
        match self.kernel.call(run("mark", json!({"id": id}))).await {
            Ok(Reply::Done(_)) => {
                self.acks.insert(id);
                Ok(Ok(()))
            }
            Err(Fault::Ledger(full @ AppendError::Full)) => Ok(Err(full.to_string())),
            Err(Fault::Unrecorded { why, .. }) => Ok(Err(why)),
            Ok(other) => Err(format!("{id}: {other:?}").into()),
            Err(fault) => Err(format!("{id}: {fault}").into()),
        }
    }
}
