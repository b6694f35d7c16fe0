//! Attempts until a transaction commits.

use std::time::Duration;

use erpc::raw::Instant;
use erpc::{Endpoint, Transport};

use super::errors::{Abort, Limits, Reason, TransactError};
use super::{Backend, Transaction};

/// The pause after the first failed attempt is below this. The bound doubles with each attempt.
const PAUSE: Duration = Duration::from_micros(10);
/// It doubles this many times.
const DOUBLINGS: u32 = 7;

/// What begins attempts and ends them.
pub(crate) trait Coordinate {
    type Backend: Backend;

    fn begin(&self, now: Instant, deadline: Instant) -> Transaction<Self::Backend>;

    /// Commits an attempt if that needs no message. False if [`commit`](Self::commit) must.
    fn commit_here(&self, _attempt: &Self::Backend) -> bool {
        false
    }

    /// Commits an attempt, or aborts it.
    async fn commit(&self, attempt: &Self::Backend) -> Result<(), TransactError>;

    /// Aborts an attempt.
    async fn release(&self, attempt: &Self::Backend);

    /// Aborts an attempt whose `run` was dropped.
    fn give_up(&self, attempt: &Self::Backend);

    /// A random number below `bound`, which is not 0.
    fn random(&self, bound: u64) -> u64;
}

/// Runs a transaction within limits.
pub(crate) async fn run<T: Transport, C: Coordinate, R>(
    coordinator: &C,
    limits: Limits,
    body: impl AsyncFn(Transaction<C::Backend>) -> Result<R, Abort>,
) -> Result<R, TransactError> {
    let mut now = now_at::<T>();
    let deadline = now + limits.deadline;
    let mut attempts = 0;
    loop {
        let transaction = coordinator.begin(now, deadline);
        // The closure may have left clones of the transaction in tasks that go on.
        let _given_up = GiveUp { coordinator, attempt: &transaction.attempt };
        let done = body(transaction.clone()).await;
        attempts += 1;
        let error = match done {
            Ok(value) if coordinator.commit_here(&transaction.attempt) => return Ok(value),
            Ok(value) => match coordinator.commit(&transaction.attempt).await {
                Ok(()) => return Ok(value),
                Err(error) => error,
            },
            Err(abort) => {
                coordinator.release(&transaction.attempt).await;
                TransactError::Aborted(abort.into_reason())
            }
        };
        let is_transient =
            matches!(&error, TransactError::Aborted(reason) if reason.is_transient());
        if !is_transient || attempts >= limits.attempts {
            return Err(error);
        }
        let bound = PAUSE * (1 << (attempts - 1).min(DOUBLINGS));
        let mut pause = Duration::from_nanos(coordinator.random(bound.as_nanos() as u64));
        if matches!(error, TransactError::Aborted(Reason::NotReady(_))) {
            // Another node needs milliseconds to start.
            pause += PAUSE * 100;
        }
        if now_at::<T>() + pause >= deadline {
            return Err(error);
        }
        erpc::sleep(pause).await;
        now = now_at::<T>();
    }
}

/// Aborts an attempt that has not ended, when it is dropped.
struct GiveUp<'a, C: Coordinate> {
    coordinator: &'a C,
    attempt: &'a C::Backend,
}

impl<C: Coordinate> Drop for GiveUp<'_, C> {
    fn drop(&mut self) {
        self.coordinator.give_up(self.attempt);
    }
}

/// The time of the endpoint whose loop runs. Futures do not keep the endpoint itself, or they would
/// keep it alive, and it them.
#[track_caller]
pub(crate) fn now_at<T: Transport>() -> Instant {
    Endpoint::<T>::current()
        .expect("a transaction runs in the loop of its endpoint: in a task or in block_on")
        .now()
}
