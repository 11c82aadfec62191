//! The backends that the contract is run against. A server is used where its address is in the environment.

use std::sync::Arc;

use crate::*;
use crate::{FOR_GOOD, MemoryState, StateError};

/// How a handle is opened.
type Open = Box<dyn Fn() -> BoxFuture<'static, Arc<dyn State>> + Send + Sync>;

/// A backend with two handles that must see one state, as two processes have them.
pub(crate) struct Bed {
    pub(crate) name: &'static str,
    pub(crate) one: Arc<dyn State>,
    pub(crate) two: Arc<dyn State>,
    /// A further handle to the same state; nothing where it would be another state.
    pub(crate) open: Option<Open>,
    /// How many steps a test of many steps takes: an emulator is slow.
    pub(crate) steps: u64,
    pub(crate) _folder: Option<tempfile::TempDir>,
}

/// Runs a case against every backend.
pub(crate) async fn each(case: impl AsyncFn(Bed)) {
    let mut count = 0;
    for bed in beds().await {
        let name = bed.name;
        case(bed).await;
        println!("{name}: ok");
        count += 1;
    }
    assert!(count >= 1);
}

async fn beds() -> Vec<Bed> {
    let mut beds = vec![
        memory(),
        #[cfg(feature = "sqlite")]
        sqlite().await,
    ];
    beds.extend(servers().await);
    beds
}

#[cfg(not(feature = "remote"))]
async fn servers() -> Vec<Bed> {
    Vec::new()
}

/// Those whose addresses are in the environment. `cargo xtask backends` starts them all, and then none may be missing.
#[cfg(feature = "remote")]
async fn servers() -> Vec<Bed> {
    let mut beds = Vec::new();
    for (name, variable, steps) in [
        ("postgres", "REGENT_TEST_POSTGRES", 25),
        ("redis", "REGENT_TEST_REDIS", 25),
        ("dynamodb", "REGENT_TEST_DYNAMODB", 3),
    ] {
        match std::env::var(variable) {
            Ok(url) => beds.push(server(name, &url, steps).await),
            Err(_) => assert!(std::env::var_os("REGENT_STATE_SERVERS").is_none(), "{variable} is not set"),
        }
    }
    beds
}

#[cfg(feature = "remote")]
async fn server(name: &'static str, url: &str, steps: u64) -> Bed {
    // A namespace of its own, so that tests don't see each other's records.
    let mut number = [0_u8; 8];
    getrandom::fill(&mut number).unwrap();
    let separator = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{separator}namespace=t{:016x}", u64::from_le_bytes(number));
    let open: Open = Box::new(move || {
        let url = crate::StateUrl::parse(&url).unwrap();
        Box::pin(async move { url.open().await.unwrap() })
    });
    Bed { name, one: open().await, two: open().await, open: Some(open), steps, _folder: None }
}

fn memory() -> Bed {
    let state: Arc<dyn State> = Arc::new(MemoryState::default());
    Bed { name: "memory", one: Arc::clone(&state), two: state, open: None, steps: 50, _folder: None }
}

#[cfg(feature = "sqlite")]
async fn sqlite() -> Bed {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let open: Open = Box::new(move || {
        let path = path.clone();
        Box::pin(async move { Arc::new(crate::SqliteState::open(&path).unwrap()) as Arc<dyn State> })
    });
    Bed {
        name: "sqlite",
        one: open().await,
        two: open().await,
        open: Some(open),
        steps: 25,
        _folder: Some(folder),
    }
}

pub(crate) fn partition(name: &str) -> Partition {
    Partition::new(name).unwrap()
}

pub(crate) fn put_write(key: &str, value: &[u8]) -> Write {
    Write::Put { key: key.to_owned(), value: value.to_vec(), keep_until_ms: FOR_GOOD }
}

/// Puts a record without looking.
pub(crate) async fn put(state: &dyn State, partition: &Partition, key: &str, value: &[u8]) {
    let change = Change { checks: Vec::new(), writes: vec![put_write(key, value)] };
    assert_eq!(state.commit(partition, change).await, Ok(Committed::Done));
}

pub(crate) async fn get(state: &dyn State, partition: &Partition, key: &str) -> Option<Versioned> {
    state.read(partition, &[key.to_owned()]).await.unwrap().pop().unwrap()
}

pub(crate) async fn keys(state: &dyn State, partition: &Partition, prefix: &str) -> Vec<String> {
    state.scan(partition, prefix).await.unwrap().into_iter().map(|record| record.key).collect()
}

pub(crate) fn count_of(bytes: Option<&[u8]>) -> Result<u64, StateError> {
    bytes.map_or(Ok(0), |bytes| crate::parse("count", bytes))
}
