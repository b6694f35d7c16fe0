//! The properties of a call whose handler or answer has left the endpoint's thread.

use std::net::SocketAddr;
use std::sync::Arc;

use super::arrival::Arrival;
use super::info::MethodInfo;
use super::interceptor::Passage;
use super::{CallContext, CallHost, Encoded, Metadata, MetadataRef, ReplySink};
use crate::buf::MsgBuf;
use crate::clock;
use crate::protocol::{ClientStats, RequestHandle};
use crate::status::Status;
use crate::time::Instant;

/// A call's properties, without a reference to its endpoint.
pub(super) struct DetachedCall {
    method: Arc<MethodInfo>,
    call: RequestHandle,
    peer: Option<SocketAddr>,
    /// On the process-wide clock, which any thread can read.
    deadline: Instant,
    metadata: Metadata,
}

impl DetachedCall {
    /// The properties of the call of `context`.
    pub(super) fn of(context: &CallContext<'_>) -> Self {
        Self {
            method: Arc::clone(context.info()),
            call: context.handle(),
            peer: context.peer(),
            deadline: context.time_left().map_or(Instant::NEVER, |left| clock::now() + left),
            metadata: context.metadata().to_owned(),
        }
    }

    /// The properties of a call that arrived at an endpoint whose clock says `now`.
    pub(super) fn arrived(method: &Arc<MethodInfo>, arrival: Arrival, now: Instant) -> Self {
        let Arrival { call, peer, deadline, metadata } = arrival;
        let deadline = match deadline {
            Instant::NEVER => deadline,
            _ => clock::now() + (deadline - now),
        };
        Self { method: Arc::clone(method), call, peer, deadline, metadata }
    }

    pub(super) fn metadata(&self) -> MetadataRef<'_> {
        self.metadata.as_ref()
    }

    pub(super) fn method(&self) -> &MethodInfo {
        &self.method
    }

    /// The call as interceptors see it.
    pub(super) fn context(&self) -> CallContext<'_> {
        CallContext::new(&self.method, self.call, self)
            .with_extension(self.deadline, self.metadata.as_ref())
    }
}

impl CallHost for DetachedCall {
    fn buffer(&self, _: usize) -> Result<MsgBuf, Status> {
        Err(Status::internal("the call has left its endpoint"))
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    fn session_stats(&self, _: &RequestHandle) -> Option<ClientStats> {
        None
    }

    fn is_cancelled(&self) -> bool {
        // A cancel drops the handler.
        false
    }

    fn sink(&self) -> Arc<dyn ReplySink> {
        Arc::new(Nowhere)
    }
}

/// A detached call inside its interceptors. If it is dropped early, it passes the reason to them:
/// a panic, or the end of the call's task.
pub(super) struct DetachedPassage(Option<Arc<DetachedCall>>);

impl DetachedPassage {
    /// Runs `before` of the interceptors until one refuses.
    pub(super) fn enter(call: &Arc<DetachedCall>) -> Result<Self, Status> {
        if call.method.interceptors().is_empty() {
            return Ok(Self(None));
        }
        Passage::enter(&call.context())?.stay();
        Ok(Self(Some(Arc::clone(call))))
    }

    /// Runs `after` of the interceptors.
    pub(super) fn leave(mut self, outcome: Result<(), &Status>) {
        if let Some(call) = self.0.take() {
            Passage::inside(&call.context()).leave(outcome);
        }
    }
}

impl Drop for DetachedPassage {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            drop(Passage::inside(&call.context()));
        }
    }
}

/// Drops answers: the call's answer cannot be deferred.
pub(super) struct Nowhere;

impl ReplySink for Nowhere {
    fn reply(&self, _: RequestHandle, _: Result<Encoded, Status>) {}
}
