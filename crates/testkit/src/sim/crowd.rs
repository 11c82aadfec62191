//! Several concurrent callers, with a scheduler driven by the seed.
//!
//! Every call is a future that is polled by hand, and the ledger commits only when the scheduler lets it. The seed therefore decides every
//! interleaving: which caller continues at each await, and which drafts share a batch. Blows happen as in the other simulation, and the
//! disk may be full for a while. State that kernels share (approvals, rates, counts) outlives a life, and a dead process can't change it.
//!
//! Invariants in every order: no effect without an intent; no call that begins while an outcome is owed takes effect before that outcome is
//! written; budgets are never overspent; rates and counts are charged only for calls that ran; an approval is used once, and never lost.

mod book;
mod callers;
mod schedule;

use std::sync::Arc;
use std::task::Poll;

use regent_kernel::{
    Budget, BudgetScope, Catalogue, Driver, Executors, Host, Op, Outcome, Parts, Principal, Reply, Signal,
    Status, ToolSet, Workspace,
};
use regent_ledger::verify::verify_on;
use regent_ledger::{Ledger, LedgerKey, Options, Reader, VerifyError, VerifyOptions};
use regent_policy::{Layer, Source};
use regent_store::MemoryState;
use regent_wire::result::Spawned;
use serde_json::json;
use tokio::runtime::Runtime;

use super::SimCounts;
use super::machine::{Blow, Machine};
use crate::drivers::{run, spec};
use crate::random::Random;
use crate::torture::check::{Journal, settled};
use book::{Book, WiredState, Worker};
use callers::{answer_questions, make_calls};
use schedule::{Schedule, Tasks};

const LIVES_MAX: u64 = 3;
const CALLERS_MAX: u64 = 5;
/// Approximate moments of a life. A blow beyond the end of a life doesn't happen.
const MOMENTS_PER_LIFE: u64 = 500;
/// How often `ping` may be called per hour, and `pay` in total.
const PING_MAX: usize = 4;
const PAY_MAX: usize = 3;
/// Far more polls than any future needs; a future beyond this never completes.
const POLLS_MAX: u64 = 1_000_000;
/// Time limit of a tool, and how many such calls the budget allows at once.
const WALL_MS: u64 = 30_000;
const AT_ONCE: usize = 3;

const POLICY: &str = "version: 1
mode: permissive
limits: { wall: 30s }
rules:
  - { id: ping-rate, effect: allow, match: { tool: ping }, rate: 4/hour }
  - { id: pay-count, effect: deny, match: { tool: pay }, at_most: 3, scope: lasting }
  - { id: ask-first, effect: ask, match: { tool: ask } }
";

/// Runs one simulation. An error names the broken invariant.
pub fn simulate_crowd(seed: u64) -> Result<SimCounts, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let mut crowd = Crowd::new(seed, runtime).map_err(|error| error.to_string())?;
    crowd.live().map_err(|why| format!("{why} [{}]", crowd.history.join(", ")))
}

struct Crowd {
    runtime: Runtime,
    random: Random,
    key: LedgerKey,
    machine: Arc<Machine>,
    state: Arc<MemoryState>,
    book: Arc<Book>,
    folder: tempfile::TempDir,
    seen: SimCounts,
    /// A process was killed, which loses its charges for calls that hadn't begun.
    killed: bool,
    history: Vec<String>,
}

/// One life of a kernel, with its drivers.
struct Life {
    host: Host,
    ledger: Ledger,
    agents: Vec<Principal>,
}

impl Crowd {
    fn new(seed: u64, runtime: Runtime) -> std::io::Result<Self> {
        let mut random = Random::new(seed);
        let machine = Machine::new(regent_ledger::storage::Sim::new(random.any()), u64::MAX, Blow::Kill);
        Ok(Self {
            runtime,
            random,
            key: LedgerKey::from_seed(&[7; 32]),
            machine,
            state: Arc::default(),
            book: Arc::default(),
            folder: tempfile::tempdir()?,
            seen: SimCounts::default(),
            killed: false,
            history: Vec::new(),
        })
    }

    fn live(&mut self) -> Result<SimCounts, String> {
        let lives = 1 + self.random.below(LIVES_MAX);
        for number in 0..=lives {
            let disk = self.machine.disk_afterwards();
            // The last life has no blow and settles everything.
            let (blow, moment) = if number == lives {
                (Blow::Kill, u64::MAX)
            } else {
                (Blow::draw_for_crowd(&mut self.random), self.random.below(MOMENTS_PER_LIFE))
            };
            self.history.push(format!("{blow:?} at {moment}"));
            self.machine = Machine::started(disk, moment, blow, self.machine.time_ms());
            self.book.next_life(&self.machine);
            self.one_life(number)?;
            self.killed |= self.machine.is_dead();
            self.seen.blows += u64::from(self.machine.was_struck());
            self.book.held()?;
            self.look(&format!("after life {number}"), number == lives)?;
        }
        Ok(self.seen.clone())
    }

    fn one_life(&mut self, number: u64) -> Result<(), String> {
        let opened = Ledger::open_stepped(self.machine.storage(), self.key.clone(), Options::default());
        let ledger = match opened {
            Ok(ledger) => ledger,
            Err(error) => return excused(&self.machine, format!("the ledger can't be opened: {error}")),
        };
        let life = match self.boot(ledger, number) {
            Ok(life) => life,
            Err(why) => return excused(&self.machine, why),
        };
        self.seen.lives += 1;
        let mut tasks = Tasks::default();
        for agent in &life.agents {
            let random = Random::new(self.random.any());
            tasks.add(make_calls(life.host.clone(), agent.clone(), Arc::clone(&self.book), random));
        }
        tasks.add(answer_questions(life.host.clone(), Arc::clone(&self.book), life.agents.len()));
        {
            // Timers need a runtime context. Nothing drives it, so no timer fires.
            let _entered = self.runtime.enter();
            let (ledger, machine) = (&life.ledger, &*self.machine);
            Schedule { random: &mut self.random, ledger, machine }.run(tasks)?;
        }
        if self.machine.is_dead() {
            return Ok(());
        }
        self.take_stock(&life)?;
        let closed = self.drive(&life.ledger, life.host.shutdown());
        match closed {
            Some(Err(fault)) if !self.machine.was_struck() => Err(format!("a kernel can't go down: {fault}")),
            Some(_) | None => Ok(()),
        }
    }

    fn boot(&mut self, ledger: Ledger, number: u64) -> Result<Life, String> {
        let catalogue = Catalogue::default();
        let worker = Worker { machine: Arc::clone(&self.machine), book: Arc::clone(&self.book) };
        let driver = Driver::host(Arc::new(worker));
        let tools = ["mark", "ping", "pay", "ask"]
            .iter()
            .fold(ToolSet::new("built-in"), |set, tool| set.with(spec(tool), driver.clone()));
        catalogue.admit_own(tools).map_err(|error| error.to_string())?;
        let source = Source::new("crowd", Layer::User);
        let state = WiredState { machine: Arc::clone(&self.machine), inner: Arc::clone(&self.state) };
        let parts = Parts {
            policy: regent_policy::load(POLICY, &source).map_err(|error| error.to_string())?,
            ledger: ledger.clone(),
            executors: Executors::default(),
            catalogue,
            workspace: Workspace::open(self.folder.path()).map_err(|error| error.to_string())?,
            state: Arc::new(state),
            secrets: Arc::new(regent_kernel::NoSecrets),
            clock: self.machine.clock(),
            sponsor: "tester".to_owned(),
            session: format!("life-{number}"),
        };
        let died = || "the machine died".to_owned();
        let host = self.drive(&ledger, Host::boot(parts)).ok_or_else(died)?;
        let host = host.map_err(|fault| format!("a kernel can't come up: {fault}"))?;
        let mut agents = Vec::new();
        for _ in 0..2 + self.random.below(CALLERS_MAX - 1) {
            agents.push(self.spawn(&host, &ledger)?);
        }
        // From here on, the budget holds the time limits of a few calls, plus some for actual use.
        let calls = 8 + self.random.below(30);
        let wall_ms = Some(WALL_MS * AT_ONCE as u64 + WALL_MS / 2);
        let limits = Budget { calls: Some(calls), wall_ms, ..Budget::default() };
        self.budget(&host, &ledger, limits)?;
        self.book.limit_calls(calls);
        Ok(Life { host, ledger, agents })
    }

    fn budget(&self, host: &Host, ledger: &Ledger, limits: Budget) -> Result<(), String> {
        let op = Op::SetBudget { scope: BudgetScope::Session, limits };
        self.own(host, ledger, op).map(drop)
    }

    /// All agents share one name, and thereby the lasting rates and counts.
    fn spawn(&self, host: &Host, ledger: &Ledger) -> Result<Principal, String> {
        let spec = serde_json::from_value(json!({"name": "worker", "roles": []}));
        let outcome = self.own(host, ledger, Op::Spawn(spec.map_err(|error| error.to_string())?))?;
        let born: Spawned = outcome.read().map_err(|error| error.to_string())?;
        host.principal_of(&host.operator(), &born.agent).ok_or_else(|| "no agent".to_owned())
    }

    fn own(&self, host: &Host, ledger: &Ledger, op: Op) -> Result<Outcome, String> {
        let name = op.name();
        match self.drive(ledger, host.attached(&host.operator(), op)) {
            Some(Ok(Reply::Done(outcome))) if outcome.status == Status::Ok => Ok(outcome),
            Some(Ok(other)) => Err(format!("the operator's {name} was answered with {other:?}")),
            Some(Err(fault)) => Err(format!("the operator's {name} broke: {fault}")),
            None => Err("the machine died".to_owned()),
        }
    }

    /// After all callers have finished: unused approvals, rates and counts must remain.
    fn take_stock(&mut self, life: &Life) -> Result<(), String> {
        self.machine.spare();
        // Writes outcomes that are still owed, if the kernel can continue at all.
        let unlimited = Budget { calls: Some(1_000_000), wall_ms: Some(1_000_000_000), ..Budget::default() };
        if self.budget(&life.host, &life.ledger, unlimited).is_err() {
            return if self.machine.was_struck() { Ok(()) } else { Err("a budget can't be set".to_owned()) };
        }
        self.book.limit_calls(u64::MAX);
        let agent = self.spawn(&life.host, &life.ledger)?;
        if !self.killed {
            for (id, asker) in self.book.unused_approvals() {
                // The agent may be suspended for lack of budget.
                if let Some(who) = asker.agent_id() {
                    let resumed = life.host.raise(who, Signal::Cont, "the budget suffices again");
                    self.drive(&life.ledger, resumed)
                        .ok_or("the machine died")?
                        .map_err(|fault| fault.to_string())?;
                }
                match self.call(life, &asker, "ask", id)? {
                    Reply::Done(_) => {}
                    other @ (Reply::Denied(_) | Reply::Pending(_)) => {
                        return Err(format!("the approval of {id} was lost: {other:?}"));
                    }
                }
            }
        }
        for (tool, most) in [("ping", PING_MAX), ("pay", PAY_MAX)] {
            while let Reply::Done(_) = self.call(life, &agent, tool, self.book.fresh_id())? {}
            let ran = self.book.effects_of(tool);
            if ran > most || (ran < most && !self.killed) {
                return Err(format!("{tool} may run {most} times, and ran {ran} times"));
            }
        }
        self.seen.acknowledged = self.book.acknowledged() as u64;
        Ok(())
    }

    fn call(&self, life: &Life, agent: &Principal, tool: &str, id: u64) -> Result<Reply, String> {
        self.book.begins(id, tool);
        let reply = self.drive(&life.ledger, life.host.attached(agent, run(tool, json!({"id": id}))));
        let reply = reply.ok_or("the machine died")?;
        self.book.ended(id, &reply);
        reply.map_err(|fault| format!("{tool} {id} failed although nothing prevented it: {fault}"))
    }

    /// Runs a future to its end while nothing else runs; `None` if the machine dies first.
    fn drive<T>(&self, ledger: &Ledger, future: impl Future<Output = T>) -> Option<T> {
        self.runtime.block_on(async {
            let mut future = std::pin::pin!(future);
            for _ in 0..POLLS_MAX {
                if self.machine.is_dead() {
                    return None;
                }
                let polled = std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
                if let Poll::Ready(output) = polled {
                    return Some(output);
                }
                ledger.step();
                tokio::task::yield_now().await;
            }
            None
        })
    }

    /// Checks all invariants on the current disk.
    fn look(&self, when: &str, is_last: bool) -> Result<(), String> {
        let disk = self.machine.disk_afterwards();
        match verify_on(Arc::new(disk.clone()), &VerifyOptions::default()) {
            Ok(report) => settled(&report.verdict, !is_last).map_err(|why| format!("{when}: {why}"))?,
            Err(VerifyError::NoLedger) if !is_last => {}
            Err(error) => return Err(format!("{when}: {error}")),
        }
        let journal = Journal::from_reader(&Reader::on(Arc::new(disk)), 0..self.book.ids())
            .map_err(|error| error.to_string())?;
        journal.against(&self.book.acks(), &self.book.marks()).map_err(|why| format!("{when}: {why}"))
    }
}

/// Errors on a machine that was struck are not breaches.
fn excused(machine: &Machine, why: String) -> Result<(), String> {
    if machine.was_struck() { Ok(()) } else { Err(why) }
}

#[cfg(test)]
mod tests {
    use super::simulate_crowd;

    #[test]
    fn invariants_hold_for_some_crowds() {
        for seed in 0..60 {
            if let Err(why) = simulate_crowd(seed) {
                panic!("cargo xtask sim --crowd --seed {seed}: {why}");
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_crowd() {
        for seed in 0..5 {
            assert_eq!(format!("{:?}", simulate_crowd(seed)), format!("{:?}", simulate_crowd(seed)));
        }
    }
}
