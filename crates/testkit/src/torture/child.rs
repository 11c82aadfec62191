//! The child program: makes marks under a kernel with a durable ledger, and prints an acknowledgement for each completed one.
//!
//! `torture-child FOLDER FIRST COUNT CALLERS`. It skips marks that the ledger records as done, and leaves those in doubt to an operator.
//! One line per mark: `ack ID`, `was ID`, `doubt ID` or `fault ID WHY`.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use regent_kernel::{Reply, Status};
use regent_ledger::Options;
use serde_json::json;

use super::check::Journal;
use super::{Broken, effects, witness};
use crate::drivers::{Behaviour, EffectSink, run};
use crate::test_kernel::TestKernel;

/// A file to which marks are appended; each one is synced.
#[derive(Debug)]
pub struct MarkFile(pub PathBuf);

impl EffectSink for MarkFile {
    fn mark(&self, id: u64) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.0)?;
        // Vectored, so that strace can distinguish these writes from the journal's.
        let line = format!("{id}\n");
        let wrote = file.write_vectored(&[io::IoSlice::new(line.as_bytes())])?;
        if wrote == line.len() { file.sync_all() } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}

/// The child's command line.
#[derive(Debug)]
pub struct Orders {
    folder: PathBuf,
    first: u64,
    count: u64,
    callers: u64,
}

impl Orders {
    /// Parses the command line.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Broken> {
        let folder = words.next().ok_or("usage: torture-child FOLDER FIRST COUNT CALLERS")?.into();
        let mut number = |what: &str| -> Result<u64, Broken> {
            Ok(words.next().ok_or_else(|| format!("{what} is missing"))?.parse()?)
        };
        Ok(Self { folder, first: number("FIRST")?, count: number("COUNT")?, callers: number("CALLERS")? })
    }
}

/// Makes the marks. A fault of one call is printed and the next one is tried; the child itself fails only at startup or shutdown.
pub fn obey(orders: &Orders) -> Result<(), Broken> {
    let ids = orders.first..orders.first + orders.count;
    let mut runtime = match orders.callers {
        1 => tokio::runtime::Builder::new_current_thread(),
        _many => tokio::runtime::Builder::new_multi_thread(),
    };
    // Without the I/O driver: its wake-ups are writes too, and not part of the journal.
    runtime.enable_time().build()?.block_on(async {
        let kernel = Arc::new(boot(&orders.folder).await?);
        let journal = Arc::new(Journal::read(&orders.folder, ids.clone())?);
        let next = Arc::new(AtomicU64::new(ids.start));
        let callers: Vec<_> = (0..orders.callers)
            .map(|_| {
                tokio::spawn(work(Arc::clone(&kernel), Arc::clone(&journal), Arc::clone(&next), ids.end))
            })
            .collect();
        for caller in callers {
            caller.await?;
        }
        kernel.kernel.shutdown().await?;
        Ok(())
    })
}

/// A kernel on a folder that other children have left.
pub async fn boot(folder: &Path) -> Result<TestKernel, Broken> {
    let world = Arc::new(MarkFile(effects(folder)));
    let options = Options { witness: Some(witness(folder)), ..Options::default() };
    TestKernel::builder()
        .tool("mark", Behaviour::Mark(world))
        .folder(folder)
        .durable_with(options)
        .boot()
        .await
}

async fn work(kernel: Arc<TestKernel>, journal: Arc<Journal>, next: Arc<AtomicU64>, end: u64) {
    loop {
        let id = next.fetch_add(1, Ordering::Relaxed);
        if id >= end {
            return;
        }
        let line = if journal.done.contains(&id) {
            format!("was {id}\n")
        } else if journal.intended.contains(&id) {
            format!("doubt {id}\n")
        } else {
            match kernel.call(run("mark", json!({"id": id}))).await {
                Ok(Reply::Done(outcome)) if outcome.status == Status::Ok => format!("ack {id}\n"),
                Ok(other) => format!("fault {id} {other:?}\n"),
                Err(fault) => format!("fault {id} {fault}\n"),
            }
        };
        // One vectored write per line: complete lines, distinguishable from the journal's writes. A closed pipe is not an error.
        drop(io::stdout().lock().write_vectored(&[io::IoSlice::new(line.as_bytes())]));
    }
}
