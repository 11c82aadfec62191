//! Trying again while the shared state is busy, or a server that holds it starts again.

use std::time::Duration;

use regent_store::StateError;

/// Between two tries.
const RETRY: Duration = Duration::from_millis(250);
/// How often what follows from an effect is tried: ten seconds. Then the caller would rather know.
pub(crate) const TRIES_MAX: u32 = 40;

/// Tries again until the state answers, but at most so often. What is tried must be idempotent: a lost answer says nothing.
pub(crate) async fn outlasting<T, F: Future<Output = Result<T, StateError>>>(
    tries_max: u32,
    step: impl Fn() -> F,
) -> Result<T, StateError> {
    for _failed in 1..tries_max {
        match step().await {
            Err(error) if error.is_passing() => tokio::time::sleep(RETRY).await,
            result => return result,
        }
    }
    step().await
}
