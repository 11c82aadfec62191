//! A connection that callers share, made anew when it is lost.

use std::time::Instant;

use crate::StateError;

/// The connection. One of the callers makes it; a failure counts for all who waited for that, so that they don't try one after the other.
pub(crate) struct SharedConnection<S>(tokio::sync::Mutex<LastAttempt<S>>);

struct LastAttempt<S> {
    current: Option<S>,
    failed: Option<(Instant, StateError)>,
}

impl<S: Clone> SharedConnection<S> {
    pub(crate) fn new(current: S) -> Self {
        Self(tokio::sync::Mutex::new(LastAttempt { current: Some(current), failed: None }))
    }

    /// The connection, made anew if there is none that is usable.
    pub(crate) async fn get(
        &self,
        is_usable: impl FnOnce(&S) -> bool,
        connect: impl Future<Output = Result<S, StateError>>,
    ) -> Result<S, StateError> {
        let asked_at = Instant::now();
        let mut last = self.0.lock().await;
        if let Some(current) = last.current.take().filter(is_usable) {
            last.current = Some(current.clone());
            return Ok(current);
        }
        if let Some((at, error)) = &last.failed
            && *at > asked_at
        {
            return Err(error.clone());
        }
        let made = connect.await;
        last.failed = made.as_ref().err().map(|error| (Instant::now(), error.clone()));
        last.current = made.as_ref().ok().cloned();
        made
    }

    /// Isn't used again.
    pub(crate) async fn drop_current(&self) {
        self.0.lock().await.current = None;
    }
}

impl<S> std::fmt::Debug for SharedConnection<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedConnection").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_failed_attempt_counts_for_all_who_waited_and_not_for_the_next() {
        let shared = SharedConnection::new(1_u32);
        let attempts = AtomicUsize::new(0);
        let fail = || async {
            attempts.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(20)).await;
            Err(StateError::Busy)
        };
        shared.drop_current().await;
        let (one, two, three) = tokio::join!(
            shared.get(|_| true, fail()),
            shared.get(|_| true, fail()),
            shared.get(|_| true, fail())
        );
        assert_eq!((one, two, three), (Err(StateError::Busy), Err(StateError::Busy), Err(StateError::Busy)));
        assert_eq!(attempts.load(Ordering::SeqCst), 1);
        assert_eq!(shared.get(|_| true, async { Ok(2) }).await, Ok(2));
        assert_eq!(shared.get(|_| true, fail()).await, Ok(2));
        assert_eq!(
            shared.get(|two| *two != 2, async { Ok(3) }).await,
            Ok(3),
            "one that has ended isn't used"
        );
    }
}
