//! How a guest gets out: it says what it wants, and the future that holds the permit makes the call.
//!
//! A permit can't be stored, so the guest can't have it. Guest and permit live in one future instead: the guest leaves its wish
//! at the door and is not ready; the future that polls the guest looks at the door next, makes the nested call, leaves the answer and
//! polls the guest again. No other task, no thread, no waker is needed.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use regent_kernel::{BoxFuture, Fault, Op, Reply};

/// What a nested call comes to.
pub(super) type NestedReply = Result<Reply, Fault>;

/// Shared by one guest and the future that runs it. A guest has one wish at a time, because it has one thread.
#[derive(Debug, Clone, Default)]
pub(super) struct GuestDoor(Arc<Mutex<DoorRequest>>);

#[derive(Debug, Default)]
enum DoorRequest {
    #[default]
    None,
    Made(Box<Op>),
    Answered(Box<NestedReply>),
}

impl GuestDoor {
    fn wish(&self) -> MutexGuard<'_, DoorRequest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The guest's side.
    pub(super) async fn ask(&self, op: Op) -> NestedReply {
        *self.wish() = DoorRequest::Made(Box::new(op));
        std::future::poll_fn(|_context| {
            let mut wish = self.wish();
            match std::mem::take(&mut *wish) {
                DoorRequest::Answered(answer) => Poll::Ready(*answer),
                waiting @ (DoorRequest::Made(_) | DoorRequest::None) => {
                    *wish = waiting;
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// The permit's side: runs the guest to its end and makes its calls.
    pub(super) async fn serve<T>(
        &self,
        mut guest: Pin<&mut impl Future<Output = T>>,
        syscall: impl Fn(Op) -> BoxFuture<'static, NestedReply>,
    ) -> T {
        let mut nested: Option<BoxFuture<'static, NestedReply>> = None;
        std::future::poll_fn(|context| {
            loop {
                if let Some(running) = &mut nested {
                    let Poll::Ready(answer) = running.as_mut().poll(context) else { return Poll::Pending };
                    *self.wish() = DoorRequest::Answered(Box::new(answer));
                    nested = None;
                }
                if let Poll::Ready(ended) = guest.as_mut().poll(context) {
                    return Poll::Ready(ended);
                }
                // Not ready and no wish: the guest's time slice is over, or it waits for a clock. Either wakes us.
                nested = Some(match std::mem::take(&mut *self.wish()) {
                    DoorRequest::Made(op) => syscall(*op),
                    DoorRequest::None | DoorRequest::Answered(_) => return Poll::Pending,
                });
            }
        })
        .await
    }
}
