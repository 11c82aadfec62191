//! A seeded simulation that crashes between any two steps of a call.
//!
//! Clock, disk and effects are traits, and each use of them is a *moment*. The seed chooses the moment of a blow: the process is killed,
//! the power fails (and unsynced bytes are lost or torn), the disk fails once, or is full for a while. Then another kernel starts on what
//! is left and continues, for a few lives. The same seed gives the same run.
//!
//! The moments cover all seven steps of a call: facts, verdict, intent and outcome read the clock; intent and outcome use the disk; effects
//! happen between permit and label; the last moment is the reply on its way to the caller.

pub mod crowd;
mod machine;

use std::collections::BTreeSet;
use std::sync::Arc;

use regent_kernel::{Fault, Reply, Status};
use regent_ledger::storage::Sim as Disk;
use regent_ledger::verify::verify_on;
use regent_ledger::{Ledger, LedgerKey, Options, Reader, VerifyError, VerifyOptions};
use regent_store::MemoryState;
use serde_json::json;

use crate::drivers::{Behaviour, run, spec};
use crate::random::Random;
use crate::test_kernel::TestKernel;
use crate::torture::check::{Journal, settled};
use machine::{Blow, Machine, Outside};

const LIVES_MAX: u64 = 4;
const MARKS_MAX: u64 = 12;
/// Approximate moments of a boot, and of each mark. A blow beyond the end of a life doesn't happen.
const MOMENTS_PER_BOOT: u64 = 30;
const MOMENTS_PER_MARK: u64 = 20;

/// The counts of a run.
#[derive(Debug, Default, Clone)]
pub struct SimCounts {
    /// Number of kernels started.
    pub lives: u64,
    /// Number of blows that happened.
    pub blows: u64,
    /// Number of acknowledged calls.
    pub acknowledged: u64,
    /// Number of calls in doubt at the end.
    pub in_doubt: u64,
}

/// Runs one simulation. An error names the broken invariant.
pub fn simulate(seed: u64) -> Result<SimCounts, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let mut simulation = Simulation::new(seed);
        let lived = simulation.live().await;
        lived.map_err(|why| format!("{why} [{}]", simulation.history.join(", ")))
    })
}

struct Simulation {
    random: Random,
    key: LedgerKey,
    disk: Disk,
    outside: Arc<Outside>,
    marks: u64,
    acks: BTreeSet<u64>,
    seen: SimCounts,
    /// The events of each run, to debug a failure.
    history: Vec<String>,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let marks = 1 + random.below(MARKS_MAX);
        Self {
            key: LedgerKey::from_seed(&[7; 32]),
            disk: Disk::new(random.any()),
            outside: Arc::default(),
            marks,
            acks: BTreeSet::new(),
            seen: SimCounts::default(),
            history: Vec::new(),
            random,
        }
    }

    async fn live(&mut self) -> Result<SimCounts, String> {
        for _ in 0..1 + self.random.below(LIVES_MAX) {
            let blow = Blow::draw(&mut self.random);
            let moment = self.random.below(MOMENTS_PER_BOOT + self.marks * MOMENTS_PER_MARK);
            let machine = Machine::new(self.disk.clone(), moment, blow);
            self.history.push(format!("{blow:?} at {moment}"));
            self.one_life(&machine).await?;
            self.seen.blows += u64::from(machine.was_struck());
            self.disk = machine.disk_afterwards();
            self.look("after a blow", Proof::MayLack)?;
        }
        // A last life without a blow, which settles everything.
        let calm = Machine::new(self.disk.clone(), u64::MAX, Blow::Kill);
        self.one_life(&calm).await?;
        self.disk = calm.disk_afterwards();
        let journal = self.look("at the end", Proof::Whole)?;
        self.seen.in_doubt = journal.in_doubt().len() as u64;
        self.seen.acknowledged = self.acks.len() as u64;
        match (0..self.marks).find(|id| !journal.intended.contains(id)) {
            Some(id) => Err(format!("{id} was never done, although nothing prevented it at the end")),
            None => Ok(self.seen.clone()),
        }
    }

    /// Starts a kernel, repeats unfinished calls, and shuts down or is struck.
    async fn one_life(&mut self, machine: &Arc<Machine>) -> Result<(), String> {
        let ledger = match Ledger::open_on(machine.storage(), self.key.clone(), Options::default()) {
            Ok(ledger) => ledger,
            Err(_) if machine.was_struck() => return Ok(()),
            Err(error) => return Err(format!("a ledger that only crashed can't be opened: {error}")),
        };
        let tool = spec("mark");
        let mark = Behaviour::Mark(Arc::new(machine.wired(&self.outside)));
        let booted = TestKernel::builder()
            .tool_as(tool, mark)
            .ledger(ledger.clone())
            .clock(machine.clock())
            .state(Arc::new(MemoryState::default()))
            .boot()
            .await;
        let kernel = match booted {
            Ok(kernel) => kernel,
            Err(_) if machine.was_struck() => return Ok(()),
            Err(error) => return Err(format!("a kernel can't come up: {error}")),
        };
        self.seen.lives += 1;
        self.work(&kernel, machine).await?;
        match kernel.kernel.shutdown().await {
            Err(fault) if !machine.was_struck() => Err(format!("a kernel can't go down: {fault}")),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    async fn work(&mut self, kernel: &TestKernel, machine: &Arc<Machine>) -> Result<(), String> {
        let journal = Journal::from_reader(&Reader::on(Arc::new(machine.disk())), 0..self.marks)
            .map_err(|error| error.to_string())?;
        for id in (0..self.marks).filter(|id| !journal.intended.contains(id)) {
            let reply = kernel.call(run("mark", json!({"id": id}))).await;
            // The reply reaches the caller only if the process is still alive.
            if machine.is_dead() {
                return Ok(());
            }
            match reply {
                Ok(Reply::Done(outcome)) if outcome.status == Status::Ok => {
                    if machine.moment() {
                        self.acks.insert(id);
                    }
                }
                Ok(other) => return Err(format!("{id} was answered with {other:?}")),
                Err(Fault::Ledger(_) | Fault::Unrecorded { .. } | Fault::NotRunning(_))
                    if machine.was_struck() => {}
                Err(fault) => return Err(format!("{id} broke without a blow: {fault}")),
            }
        }
        Ok(())
    }

    /// Checks all invariants on the current disk.
    fn look(&self, when: &str, proof: Proof) -> Result<Journal, String> {
        let report = verify_on(Arc::new(self.disk.clone()), &VerifyOptions::default());
        match report {
            Ok(report) => {
                settled(&report.verdict, proof == Proof::MayLack).map_err(|why| format!("{when}: {why}"))?
            }
            // The power failed before the first entry was on disk.
            Err(VerifyError::NoLedger) if proof == Proof::MayLack => {}
            Err(error) => return Err(format!("{when}: {error}")),
        }
        let journal = Journal::from_reader(&Reader::on(Arc::new(self.disk.clone())), 0..self.marks)
            .map_err(|error| format!("{when}: {error}"))?;
        journal.against(&self.acks, &self.outside.marks()).map_err(|why| format!("{when}: {why}"))?;
        Ok(journal)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// The end of a lane may be unsigned.
    MayLack,
    /// Everything is signed or settled.
    Whole,
}

#[cfg(test)]
mod tests {
    use super::simulate;

    #[test]
    fn invariants_hold_for_some_seeds() {
        // Regressions: verification once took the crash remains of the last three for tampering.
        for seed in (0..40).chain([942, 1560, 1906]) {
            if let Err(why) = simulate(seed) {
                panic!("cargo xtask sim --seed {seed}: {why}");
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        let once = format!("{:?}", simulate(7));
        assert_eq!(once, format!("{:?}", simulate(7)));
    }
}
