//! Turns: steps of one kernel on the same records go one after the other, so that they don't conflict and retry. Other processes are
//! kept apart by the checks of a commit.

use tokio::sync::{Mutex, MutexGuard};

/// Steps on different records rarely share one of these.
const STRIPES: usize = 256;

/// One turn for each group of records.
#[derive(Debug)]
pub(crate) struct Turns(Vec<Mutex<()>>);

impl Default for Turns {
    fn default() -> Self {
        Self((0..STRIPES).map(|_| Mutex::default()).collect())
    }
}

impl Turns {
    /// Waits for its turn on all of these keys. They are taken in one order, so that no two callers wait for each other.
    pub(crate) async fn take(&self, keys: &[String]) -> Vec<MutexGuard<'_, ()>> {
        let mut stripes: Vec<usize> = keys.iter().map(|key| stripe(key)).collect();
        stripes.sort_unstable();
        stripes.dedup();
        let mut taken = Vec::with_capacity(stripes.len());
        for stripe in stripes.iter().filter_map(|stripe| self.0.get(*stripe)) {
            taken.push(stripe.lock().await);
        }
        taken
    }
}

/// FNV-1a: the same in every run, so that simulations are too.
fn stripe(key: &str) -> usize {
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    usize::try_from(hash % STRIPES as u64).unwrap_or(0)
}
