//! A ledger with a thousand lanes: how soon a kernel that has never seen it is up.

use std::sync::Arc;

use anyhow::{Result, anyhow, ensure};
use regent_ledger::{Ledger, LedgerKey, Options, Reader};
use regent_store::SqliteState;
use regent_testkit::TestKernel;

use crate::ledger::draft;
use crate::measure::{median, once};
use crate::report::Report;

const LANES: usize = 1_000;
const ROUNDS: usize = 5;
/// What remembers which segments were verified. It is derived: without it, everything is verified.
const SEEN: &str = "seen";

/// `ledger.start.lanes1000`.
pub fn measure(report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (root, key) = (folder.path().join("audit"), LedgerKey::load_or_create(&folder.path().join("key"))?);
    // A lane is taken by one writer at a time, so a thousand writers at once make a thousand lanes.
    let mut writers = Vec::new();
    for number in 0..LANES {
        let writer = Ledger::open(&root, key.clone(), Options::default())?;
        writer.append_blocking(draft(number)?)?;
        writers.push(writer);
    }
    for writer in &writers {
        writer.close()?;
    }
    drop(writers);
    let lanes = Reader::new(&root).lanes()?.len();
    ensure!(lanes >= LANES, "there are {lanes} lanes");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut samples = Vec::new();
    for round in 0..ROUNDS {
        std::fs::remove_file(root.join(SEEN)).ok();
        let state = folder.path().join(format!("state-{round}.db"));
        let (took_s, started) = once(|| -> Result<TestKernel> {
            let ledger = Ledger::open(&root, key.clone(), Options::default())?;
            let state = Arc::new(SqliteState::open(&state)?);
            let builder = TestKernel::builder().folder(folder.path()).ledger(ledger).state(state);
            runtime.block_on(builder.boot()).map_err(|error| anyhow!(error))
        });
        samples.push(took_s);
        runtime.block_on(started?.kernel.shutdown())?;
    }
    report.figure("ledger.start.lanes1000", median(samples), "s");
    Ok(())
}
