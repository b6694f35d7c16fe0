//! Access to an endpoint from other threads.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::open::Endpoint;
use crate::debug_text::debug_is_display;
use crate::event_loop::mailbox::{Job, MAILBOX_LIMIT, Mailbox, PushError};
use crate::serving::worker;
use crate::transport::Transport;
use crate::transport::udp::UdpTransport;

/// Access to an endpoint from any thread. Cheap to clone; does not keep the endpoint alive.
pub struct Handle<T: Transport = UdpTransport> {
    mailbox: Arc<Mailbox>,
    transport: PhantomData<fn(T)>,
}

impl<T: Transport> Handle<T> {
    /// The handle of the endpoint with this mailbox. Its transport must be `T`.
    pub(super) fn new(mailbox: Arc<Mailbox>) -> Self {
        debug_assert!(mailbox.is_of::<T>());
        Self { mailbox, transport: PhantomData }
    }

    /// The handle of the endpoint for which this thread works: in a worker's handler, the endpoint
    /// that received the request; within an endpoint's loop, that endpoint. `None` elsewhere, and
    /// if the endpoint's transport is not `T`.
    #[must_use]
    pub fn current() -> Option<Self> {
        let of_worker = worker::origin().filter(|mailbox| mailbox.is_of::<T>()).map(Self::new);
        of_worker.or_else(|| Endpoint::current().map(|endpoint| endpoint.handle()))
    }

    /// Runs `job` on the endpoint's thread, with its next turn; wakes the endpoint if it sleeps.
    /// The job may make calls and spawn tasks. The endpoint does nothing else while it runs. If the
    /// job panics, the panic hook reports that, and the endpoint continues.
    ///
    /// # Errors
    /// [`SubmitError`] if too many jobs are queued, or the endpoint is gone; the job is then
    /// dropped. A queued job is also dropped if the endpoint ends before running it.
    pub fn submit(
        &self,
        job: impl FnOnce(&Endpoint<T>) + Send + 'static,
    ) -> Result<(), SubmitError> {
        self.mailbox.submit(here(job), MAILBOX_LIMIT).map_err(|refused| match refused {
            PushError::Full => SubmitError::Full,
            PushError::Closed => SubmitError::Gone,
        })
    }

    /// Like [`Handle::submit`], but accepts any number of queued jobs. For callers that bound the
    /// number of their jobs themselves. Drops the job if the endpoint is gone.
    pub(crate) fn submit_always(&self, job: impl FnOnce(&Endpoint<T>) + Send + 'static) {
        // A refused job is dropped, which tells its owner.
        self.mailbox.submit(here(job), usize::MAX).unwrap_or(());
    }

    /// Wakes the tasks of other threads that the endpoint has not woken itself.
    #[inline]
    pub(crate) fn release_tasks(&self) {
        self.mailbox.wakes().release();
    }

    /// Wakes the endpoint if it sleeps, so that [`Endpoint::run_until`] checks its condition again.
    pub fn wake(&self) {
        self.mailbox.bell().nudge();
    }
}

/// A job that runs within the endpoint's own loop, so that `current` finds the endpoint.
fn here<T: Transport>(job: impl FnOnce(&Endpoint<T>) + Send + 'static) -> Job {
    Box::new(move || {
        if let Some(endpoint) = Endpoint::current() {
            job(&endpoint);
        }
    })
}

impl<T: Transport> Clone for Handle<T> {
    fn clone(&self) -> Self {
        Self { mailbox: Arc::clone(&self.mailbox), transport: PhantomData }
    }
}

impl<T: Transport> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}

/// Why a job was refused.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubmitError {
    /// [`MAILBOX_LIMIT`] jobs are queued for the endpoint. Wait until it has run some.
    Full,
    /// The endpoint is gone.
    Gone,
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => write!(
                f,
                "{MAILBOX_LIMIT} jobs are already queued for the endpoint; submit fewer, or wait for replies"
            ),
            Self::Gone => f.write_str("the endpoint is gone"),
        }
    }
}

debug_is_display!(SubmitError);

impl std::error::Error for SubmitError {}
