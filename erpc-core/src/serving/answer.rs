//! Passes handlers' answers to the protocol.

use crate::event_loop::Context;
use crate::protocol::RequestHandle;
use crate::service::{Encoded, HandlerOutcome};
use crate::status::Status;
use crate::transport::Transport;

/// Sends the outcome of a handler. A deferred call is answered later by its responder.
#[inline]
pub(crate) fn answer<T: Transport>(
    cx: &mut Context<'_, T>,
    call: RequestHandle,
    outcome: HandlerOutcome,
) {
    match outcome {
        HandlerOutcome::Reply(Encoded { bytes, extended }) => cx.respond(call, bytes, extended),
        HandlerOutcome::Failed(status) => cx.respond_status(call, &status),
        HandlerOutcome::Deferred => {}
    }
}

/// The status when there is no memory for a stream's request or for a response.
#[cold]
pub(crate) fn no_memory() -> Status {
    Status::resource_exhausted("the server has no memory for the call")
}
