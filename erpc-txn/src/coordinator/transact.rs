//! Attempts until a transaction commits.

use std::time::Duration;

use erpc::{Endpoint, Transport};

use super::errors::{Abort, Limits, Reason, TransactError};
use super::{Node, Transaction};

/// The pause after the first failed attempt is below this. The bound doubles with each attempt.
const PAUSE: Duration = Duration::from_micros(10);
/// It doubles this many times.
const DOUBLINGS: u32 = 7;

impl<T: Transport> Node<T> {
    /// Runs a transaction, with the default [`Limits`].
    ///
    /// The closure runs once per attempt. It must be called in a task of the node's endpoint, or in
    /// its `block_on`.
    ///
    /// # Errors
    ///
    /// [`TransactError`] if the transaction was aborted, or its outcome is unknown.
    ///
    /// # Panics
    ///
    /// Outside of the loop of the node's endpoint.
    pub async fn transact<R>(
        &self,
        body: impl AsyncFn(Transaction<T>) -> Result<R, Abort>,
    ) -> Result<R, TransactError> {
        self.transact_within(Limits::new(), body).await
    }

    /// Runs a transaction within limits. Otherwise like [`transact`](Self::transact).
    ///
    /// # Errors
    ///
    /// As `transact`. After the last attempt, the error is that of this attempt.
    ///
    /// # Panics
    ///
    /// As `transact`.
    pub async fn transact_within<R>(
        &self,
        limits: Limits,
        body: impl AsyncFn(Transaction<T>) -> Result<R, Abort>,
    ) -> Result<R, TransactError> {
        let endpoint = Endpoint::<T>::current().expect(
            "a transaction runs in the loop of its node's endpoint: in a task or in block_on",
        );
        let deadline = endpoint.now() + limits.deadline;
        let mut attempts = 0;
        loop {
            let transaction = self.begin(&endpoint, deadline);
            let done = body(transaction.clone()).await;
            attempts += 1;
            let error = match done {
                Ok(value) => match transaction.attempt.commit().await {
                    Ok(()) => return Ok(value),
                    Err(error) => error,
                },
                Err(abort) => {
                    transaction.attempt.release().await;
                    TransactError::Aborted(abort.into_reason())
                }
            };
            let is_transient =
                matches!(&error, TransactError::Aborted(reason) if reason.is_transient());
            if !is_transient || attempts >= limits.attempts {
                return Err(error);
            }
            let bound = PAUSE * (1 << (attempts - 1).min(DOUBLINGS));
            let pause = Duration::from_nanos(self.inner.random(bound.as_nanos() as u64));
            if endpoint.now() + pause >= deadline {
                return Err(error);
            }
            match error {
                // Another node needs milliseconds to start.
                TransactError::Aborted(Reason::NotReady(_)) => {
                    erpc::sleep(pause + PAUSE * 100).await
                }
                _ => erpc::sleep(pause).await,
            }
        }
    }
}
