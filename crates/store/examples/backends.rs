//! Drives a backend of the state from outside: `outage` takes steps while its server is killed and then checks the history, `figures` measures
//! commits. `cargo xtask backends` starts it, and the servers.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "what it prints is what it is for")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use regent_store::{FOR_GOOD, MemoryState, SqliteState, StateError, StateUrl, parse};
use regent_store::{Partition, State, change};

/// Those who take steps at once.
const WORKERS: u64 = 32;
const PARTITIONS: u64 = 8;
/// Steps between two progress reports.
const TOLD_EVERY: u64 = 500;
/// How long one figure is measured.
const MEASURED: Duration = Duration::from_secs(2);

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // An address can hold a password, so it isn't an argument.
    let url = std::env::var("REGENT_TEST_STATE").map_err(|_| "REGENT_TEST_STATE is not set".to_owned())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let state = open(&url).await.map_err(|error| error.to_string())?;
        match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["outage", steps] => {
                outage(&state, steps.parse().map_err(|_| "how many steps?".to_owned())?).await
            }
            ["figures", name] => figures(&state, name).await,
            _ => Err("outage STEPS, or figures NAME".to_owned()),
        }
    })
}

async fn open(url: &str) -> Result<Arc<dyn State>, StateError> {
    match url.split_once(':') {
        Some(("memory", _)) => Ok(Arc::new(MemoryState::default())),
        Some(("sqlite", path)) => Ok(Arc::new(SqliteState::open(Path::new(path))?)),
        _ => StateUrl::parse(url)?.open().await,
    }
}

/// A step that was acknowledged: its partition, its name, and the count that it wrote.
type Acknowledged = (u64, String, u64);

/// Takes steps until so many were acknowledged, whatever happens to the server, and checks what is there then.
async fn outage(state: &Arc<dyn State>, steps: u64) -> Result<(), String> {
    let acknowledged_count = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let mut workers = Vec::new();
    for worker in 0..WORKERS {
        let (state, count) = (Arc::clone(state), Arc::clone(&acknowledged_count));
        workers.push(tokio::spawn(async move { work(&*state, worker, steps, &count).await }));
    }
    let (mut acknowledged, mut unknown): (Vec<Acknowledged>, u64) = Default::default();
    for worker in workers {
        let (done, failed) = worker.await.map_err(|error| error.to_string())??;
        acknowledged.extend(done);
        unknown += failed;
    }
    let took_s = started.elapsed().as_secs_f64();
    let happened = verify(&**state, &acknowledged).await?;
    println!(
        "outage: {} steps acknowledged, all there and whole; {unknown} without an answer, {} of these happened, whole; {took_s:.1} s",
        acknowledged.len(),
        happened - acknowledged.len() as u64,
    );
    Ok(())
}

/// One worker. A step counts in its partition, and leaves two records with the count: all three or none.
async fn work(
    state: &dyn State,
    worker: u64,
    steps: u64,
    acknowledged: &AtomicU64,
) -> Result<(Vec<Acknowledged>, u64), String> {
    let (mut done, mut failed, mut number) = (Vec::new(), 0, 0);
    while acknowledged.load(Ordering::SeqCst) < steps {
        number += 1;
        let (place, name) = ((worker + number) % PARTITIONS, format!("step/{worker:02}.{number:06}"));
        let partition = Partition::new(format!("outage/{place}")).map_err(|error| error.to_string())?;
        let keys = ["count".to_owned()];
        let step = change(state, &partition, &keys, |draft| {
            let count = draft.load::<u64>("count")?.unwrap_or_default() + 1;
            draft.save("count", &count, FOR_GOOD)?;
            draft.save(&format!("{name}/a"), &count, FOR_GOOD)?;
            draft.save(&format!("{name}/b"), &count, FOR_GOOD)?;
            Ok(count)
        });
        match step.await {
            Ok(count) => {
                done.push((place, name, count));
                let total = acknowledged.fetch_add(1, Ordering::SeqCst) + 1;
                if total.is_multiple_of(TOLD_EVERY) {
                    println!("progress {total}");
                }
            }
            // Others were faster: this one surely didn't happen.
            Err(StateError::Busy) => {}
            Err(StateError::Unusable(_) | StateError::Unreachable(_)) => {
                failed += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => return Err(format!("a step ended with: {error}")),
        }
    }
    Ok((done, failed))
}

/// Checks that every step is whole, that none that was acknowledged is missing or other than it was acknowledged, and that no count was given
/// twice or left out. Says how many happened.
async fn verify(state: &dyn State, acknowledged: &[Acknowledged]) -> Result<u64, String> {
    let mut happened = 0;
    for place in 0..PARTITIONS {
        let partition = Partition::new(format!("outage/{place}")).map_err(|error| error.to_string())?;
        let records = retry(async || state.scan(&partition, "").await).await?;
        let mut steps: BTreeMap<String, BTreeMap<&str, u64>> = BTreeMap::new();
        let mut counted = 0;
        for record in &records {
            let value: u64 = parse(&record.key, &record.value).map_err(|error| error.to_string())?;
            match record.key.rsplit_once('/') {
                Some((name, half)) => {
                    steps.entry(name.to_owned()).or_default().insert(half, value);
                }
                None => counted = value,
            }
        }
        let mut counts = BTreeSet::new();
        for (name, halves) in &steps {
            match (halves.get("a"), halves.get("b")) {
                (Some(a), Some(b)) if a == b => {
                    counts.insert(*a);
                }
                _ => return Err(format!("step {name} in {place} is half done: {halves:?}")),
            }
        }
        if counts != (1..=counted).collect() || counts.len() != steps.len() {
            return Err(format!("partition {place} counts to {counted}, and has {} steps", steps.len()));
        }
        for (_, name, count) in acknowledged.iter().filter(|(at, ..)| *at == place) {
            if steps.get(name).and_then(|halves| halves.get("a")) != Some(count) {
                return Err(format!("step {name} in {place} was acknowledged as {count} and is lost"));
            }
        }
        happened += counted;
    }
    Ok(happened)
}

/// Reads again while the server comes back.
async fn retry<T>(read: impl AsyncFn() -> Result<T, StateError>) -> Result<T, String> {
    let mut last = String::new();
    for _ in 0..200 {
        match read().await {
            Ok(found) => return Ok(found),
            Err(error) => last = error.to_string(),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(last)
}

/// Commits a second: each reads a key of its caller and writes it.
async fn figures(state: &Arc<dyn State>, name: &str) -> Result<(), String> {
    for is_spread in [false, true] {
        for callers in [1_u64, 32, 256] {
            let (count, until) = (Arc::new(AtomicU64::new(0)), Instant::now() + MEASURED);
            let mut tasks = Vec::new();
            for caller in 0..callers {
                let (state, count) = (Arc::clone(state), Arc::clone(&count));
                tasks.push(tokio::spawn(async move {
                    let place = if is_spread { format!("figures/{caller}") } else { "figures".to_owned() };
                    let partition = Partition::new(place)?;
                    let key = format!("count/{caller}");
                    let keys = [key.clone()];
                    while Instant::now() < until {
                        let counted = change(&*state, &partition, &keys, |draft| {
                            let count = draft.load::<u64>(&key)?.unwrap_or_default() + 1;
                            draft.save(&key, &count, FOR_GOOD)
                        });
                        match counted.await {
                            Ok(()) => {
                                count.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(StateError::Busy) => {}
                            Err(error) => return Err(error),
                        }
                    }
                    Ok::<(), StateError>(())
                }));
            }
            for task in tasks {
                task.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
            }
            let per_s = count.load(Ordering::Relaxed) as f64 / MEASURED.as_secs_f64();
            let partitions = if is_spread { "many" } else { "one" };
            println!("state.{name}.commits.{callers}_callers.{partitions}_partition {per_s:.0} 1/s");
        }
    }
    Ok(())
}
