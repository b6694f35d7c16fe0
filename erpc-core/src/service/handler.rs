//! Adapter of a synchronous handler: from a request's bytes to its outcome.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::BufMut;

use super::info::MethodInfo;
use super::interceptor::Passage;
use super::panics::handler_panicked;
use super::reply::{Encoded, encode_reply};
use super::{CallContext, Codec, DecodeError, HandlerOutcome, MetadataRef, Request, Response};
use crate::status::Status;

/// A type-erased handler. Writes the outcome to its last argument, instead of returning it, because
/// a returned outcome would be copied out of `catch_unwind`. Does not unwind.
pub(super) type ErasedHandler = dyn Fn(&CallContext<'_>, &[u8], &mut HandlerOutcome) + Send + Sync;

/// Wraps a typed handler into an [`ErasedHandler`].
pub(super) fn answering<S, Req, Resp, C, D>(
    service: Arc<S>,
    handler: impl for<'a> Fn(&S, Request<'a, C::View<'a>>) -> Result<Response<Resp>, Status>
    + Send
    + Sync
    + 'static,
) -> Arc<ErasedHandler>
where
    S: Send + Sync + 'static,
    Resp: 'static,
    C: Codec<Req>,
    D: Codec<Resp>,
{
    Arc::new(move |context: &CallContext<'_>, body: &[u8], outcome: &mut HandlerOutcome| {
        // `AssertUnwindSafe`: the user has to keep the service consistent after a panic, as with
        // state that threads share when one of them panics.
        let run = AssertUnwindSafe(|| {
            let run = |outcome: &mut HandlerOutcome| {
                run::<S, Req, Resp, C, D>(&service, &handler, context, body, outcome);
            };
            match context.info().interceptors() {
                [] => run(outcome),
                _ => intercepted(context, outcome, run),
            }
        });
        if let Err(panic) = catch_unwind(run) {
            *outcome = panicked(context, &*panic);
        }
    })
}

/// Runs one call, from bytes to outcome. Inlined for each method together with the functions that
/// it calls: moving messages and outcomes between functions costs more than most of those
/// functions.
#[inline(always)]
fn run<S, Req, Resp: 'static, C: Codec<Req>, D: Codec<Resp>>(
    service: &S,
    handler: impl for<'a> Fn(&S, Request<'a, C::View<'a>>) -> Result<Response<Resp>, Status>,
    context: &CallContext<'_>,
    body: &[u8],
    outcome: &mut HandlerOutcome,
) {
    let message =
        match check_size(context.info(), body).and_then(|()| C::view(body).map_err(malformed)) {
            Ok(message) => message,
            Err(status) => return *outcome = HandlerOutcome::Failed(status),
        };
    let result = handler(service, Request::received::<D, Resp>(message, context));
    *outcome = returned::<D, Resp>(result, context);
}

/// Runs the call inside its interceptors.
#[inline(never)]
fn intercepted(
    context: &CallContext<'_>,
    outcome: &mut HandlerOutcome,
    run: impl FnOnce(&mut HandlerOutcome),
) {
    let mut passage = match Passage::enter(context) {
        Ok(passage) => passage,
        Err(status) => return *outcome = HandlerOutcome::Failed(status),
    };
    run(outcome);
    passage.leave(outcome.as_result());
}

/// The outcome of a handler that returned.
#[inline(always)]
pub(super) fn returned<D: Codec<M>, M>(
    result: Result<Response<M>, Status>,
    context: &CallContext<'_>,
) -> HandlerOutcome {
    if context.is_deferred() {
        return HandlerOutcome::Deferred;
    }
    let response = match result {
        // By reference: messages may be large.
        Ok(ref response) => response,
        Err(status) => return HandlerOutcome::Failed(status),
    };
    let Some(message) = response.message() else {
        return encoded(context, response.metadata()).into();
    };
    let limit = context.info().max_response();
    let (len, buffer) = (D::encoded_len(message), |len| context.buffer(len));
    encode_reply(len, response.metadata(), limit, buffer, |out| D::encode(message, out)).into()
}

/// The response that the handler has encoded.
#[inline]
fn encoded(context: &CallContext<'_>, metadata: MetadataRef<'_>) -> Result<Encoded, Status> {
    let bytes = context.take_answer().ok_or_else(promised_elsewhere)?;
    if metadata.is_empty() {
        return Ok(Encoded { bytes, extended: false });
    }
    let buffer = |len| context.buffer(len);
    encode_reply(bytes.len(), metadata, u32::MAX, buffer, |out| out.put_slice(bytes.as_slice()))
}

/// Whether the request is within the method's limit.
#[inline]
pub(super) fn check_size(method: &MethodInfo, body: &[u8]) -> Result<(), Status> {
    let limit = method.max_request();
    if body.len() > limit as usize { Err(too_large(body.len(), limit)) } else { Ok(()) }
}

#[cold]
pub(super) fn malformed(error: DecodeError) -> Status {
    Status::invalid_argument(format!("the request cannot be decoded: {error}"))
}

#[cold]
fn too_large(len: usize, limit: u32) -> Status {
    let message = format!("the request has {len} bytes, the method's limit is {limit}");
    Status::invalid_argument(message)
}

#[cold]
pub(super) fn panicked(context: &CallContext<'_>, panic: &(dyn Any + Send)) -> HandlerOutcome {
    let status = handler_panicked(context.info().full_name(), panic);
    match context.is_deferred() {
        // The responder answers the call. If the unwind has dropped the responder, this was the
        // answer.
        true => HandlerOutcome::Deferred,
        false => HandlerOutcome::Failed(status),
    }
}

/// The handler returned the response of an earlier call, which was deferred or encoded there. Nothing
/// answers this call.
#[cold]
pub(super) fn promised_elsewhere() -> Status {
    Status::internal("the handler returned another call's response")
}
