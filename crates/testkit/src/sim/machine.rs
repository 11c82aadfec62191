//! The machine of a simulated kernel: its power, disk and clock, and the world outside.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use regent_kernel::Clock;
use regent_ledger::storage::sim::{DiskFailure, Plan};
use regent_ledger::storage::{Appender, Existing, Lock, Sim as Disk, Stat, Storage};

use crate::drivers::EffectSink;
use crate::random::Random;

/// The event at the chosen moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blow {
    /// The process is killed; its writes remain.
    Kill,
    /// The power fails; unsynced writes are lost, torn, or kept.
    PowerCut,
    /// The next disk operation fails.
    DiskFails,
    /// The disk is full until the process ends.
    DiskFull,
    /// The disk is full for this many moments.
    FullFor(u64),
}

impl Blow {
    /// A blow for concurrent callers, where a disk that recovers finds the most bugs.
    pub(super) fn draw_for_crowd(random: &mut Random) -> Self {
        match random.below(10) {
            0..=1 => Self::Kill,
            2 => Self::PowerCut,
            3 => Self::DiskFails,
            _rest => Self::FullFor(random.below(150)),
        }
    }

    pub(super) fn draw(random: &mut Random) -> Self {
        match random.below(5) {
            0 | 1 => Self::PowerCut,
            2 => Self::DiskFails,
            3 => Self::DiskFull,
            _rest => Self::Kill,
        }
    }
}

/// One machine for one life of a kernel.
#[derive(Debug)]
pub(super) struct Machine {
    disk: Disk,
    moments: AtomicU64,
    strikes_at: u64,
    blow: Blow,
    /// Its clock's start time.
    started_ms: u64,
    /// No further blows.
    spared: AtomicBool,
    struck: AtomicBool,
    dead: AtomicBool,
}

impl Machine {
    pub(super) fn new(disk: Disk, strikes_at: u64, blow: Blow) -> Arc<Self> {
        Self::started(disk, strikes_at, blow, 0)
    }

    /// A machine started at this time, so that time continues from one life to the next.
    pub(super) fn started(disk: Disk, strikes_at: u64, blow: Blow, started_ms: u64) -> Arc<Self> {
        Arc::new(Self {
            disk,
            moments: AtomicU64::new(0),
            strikes_at,
            blow,
            started_ms,
            spared: AtomicBool::new(false),
            struck: AtomicBool::new(false),
            dead: AtomicBool::new(false),
        })
    }

    /// Passes a moment; at the chosen one the blow happens. True while the process lives.
    pub(super) fn moment(&self) -> bool {
        let moment = self.moments.fetch_add(1, Ordering::SeqCst);
        if moment == self.strikes_at && !self.spared.load(Ordering::SeqCst) {
            self.struck.store(true, Ordering::SeqCst);
            self.strike();
        }
        if let Blow::FullFor(moments) = self.blow
            && moment == self.strikes_at.saturating_add(moments)
        {
            self.heal();
        }
        !self.is_dead()
    }

    fn strike(&self) {
        let now = self.disk.operations();
        match self.blow {
            // The current operation is torn: the disk dies in the middle of it.
            Blow::Kill | Blow::PowerCut => {
                self.dead.store(true, Ordering::SeqCst);
                self.disk.plan(Plan { crash_at: Some(now), ..Plan::default() });
            }
            Blow::DiskFails => {
                self.disk.plan(Plan { fail_at: Some((now, DiskFailure::Io)), ..Plan::default() })
            }
            Blow::DiskFull | Blow::FullFor(_) => {
                self.disk.plan(Plan { room_bytes: Some(now % 600), ..Plan::default() });
            }
        }
    }

    /// The current time.
    pub(super) fn time_ms(&self) -> u64 {
        self.started_ms.saturating_add(self.moments.load(Ordering::SeqCst))
    }

    /// Disables further blows, and frees disk space.
    pub(super) fn spare(&self) {
        self.spared.store(true, Ordering::SeqCst);
        self.heal();
    }

    /// Frees disk space.
    fn heal(&self) {
        if !self.is_dead() {
            self.disk.plan(Plan::default());
        }
    }

    pub(super) fn was_struck(&self) -> bool {
        self.struck.load(Ordering::SeqCst)
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    pub(super) fn disk(&self) -> Disk {
        self.disk.clone()
    }

    /// The disk as another process finds it. This process is dead from here on, even if parts of it still run.
    pub(super) fn disk_afterwards(&self) -> Disk {
        self.dead.store(true, Ordering::SeqCst);
        match self.blow {
            Blow::PowerCut if self.was_struck() => self.disk.after_power_cut(),
            Blow::PowerCut | Blow::Kill | Blow::DiskFails | Blow::DiskFull | Blow::FullFor(_) => {
                self.disk.after_kill()
            }
        }
    }

    pub(super) fn storage(self: &Arc<Self>) -> Arc<dyn Storage> {
        Arc::new(Wired { machine: Arc::clone(self) })
    }

    pub(super) fn clock(self: &Arc<Self>) -> Arc<dyn Clock> {
        Arc::new(WiredClock { machine: Arc::clone(self) })
    }

    pub(super) fn wired(self: &Arc<Self>, outside: &Arc<Outside>) -> MachineEffects {
        MachineEffects { machine: Arc::clone(self), outside: Arc::clone(outside) }
    }
}

/// The outside world. Crashes don't undo effects in it.
#[derive(Debug, Default)]
pub(super) struct Outside(Mutex<Vec<u64>>);

impl Outside {
    pub(super) fn marks(&self) -> Vec<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A machine's access to the world: one moment before the effect and one after it.
#[derive(Debug)]
pub(super) struct MachineEffects {
    machine: Arc<Machine>,
    outside: Arc<Outside>,
}

impl EffectSink for MachineEffects {
    fn mark(&self, id: u64) -> io::Result<()> {
        if !self.machine.moment() {
            return Err(io::Error::other("this process is dead"));
        }
        self.outside.0.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        self.machine.moment();
        Ok(())
    }
}

/// A clock that advances by a millisecond on every read.
#[derive(Debug)]
struct WiredClock {
    machine: Arc<Machine>,
}

impl Clock for WiredClock {
    fn now_ms(&self) -> i64 {
        self.machine.moment();
        1_790_000_000_000_i64.saturating_add(i64::try_from(self.machine.time_ms()).unwrap_or(0))
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.machine.moments.load(Ordering::SeqCst))
    }
}

/// The disk as seen by this machine's process: each change is a moment, and a dead process changes nothing.
#[derive(Debug)]
struct Wired {
    machine: Arc<Machine>,
}

impl Wired {
    /// Passes the moment of a change. A dead disk itself fails the operation.
    fn changing(&self) -> &Disk {
        self.machine.moment();
        &self.machine.disk
    }
}

impl Storage for Wired {
    fn read(&self, path: &str, from: u64, bytes_max: u64, into: &mut Vec<u8>) -> io::Result<()> {
        self.machine.disk.read(path, from, bytes_max, into)
    }

    fn stat(&self, path: &str) -> io::Result<Option<Stat>> {
        self.machine.disk.stat(path)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.machine.disk.list(folder)
    }

    fn create_folder(&self, path: &str) -> io::Result<bool> {
        self.changing().create_folder(path)
    }

    fn appender(&self, path: &str, existing: Existing) -> io::Result<Box<dyn Appender>> {
        let inner = self.changing().appender(path, existing)?;
        Ok(Box::new(WiredAppender { machine: Arc::clone(&self.machine), inner }))
    }

    fn sync_folder(&self, path: &str) -> io::Result<()> {
        self.changing().sync_folder(path)
    }

    fn replace(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.changing().replace(path, bytes)
    }

    fn overwrite(&self, path: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.changing().overwrite(path, at, bytes)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.changing().remove(path)
    }

    fn lock(&self, path: &str) -> io::Result<Option<Box<dyn Lock>>> {
        self.machine.disk.lock(path)
    }

    fn is_locked(&self, path: &str) -> io::Result<bool> {
        self.machine.disk.is_locked(path)
    }
}

#[derive(Debug)]
struct WiredAppender {
    machine: Arc<Machine>,
    inner: Box<dyn Appender>,
}

impl Appender for WiredAppender {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.machine.moment();
        self.inner.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.machine.moment();
        self.inner.sync()
    }
}
