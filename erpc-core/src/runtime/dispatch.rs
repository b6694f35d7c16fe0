//! From packets to handlers and callbacks: the typed layer's [`App`].

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;

use super::shared::Shared;
use super::worker::{Job, Refused, WorkerQueue};
use super::{App, Context};
use crate::buf::MsgBuf;
use crate::protocol::{Body, CallError, Request, RequestHandle, SessionEvent, SessionId};
use crate::service::{
    CallContext, ErasedHandler, Mode, Outcome, ReplyBuffers, ReplySink, Routes, Status,
};
use crate::transport::Transport;
use crate::transport::udp::UdpRoute;

/// What an endpoint serves.
pub(super) struct Serving<T: Transport> {
    pub(super) routes: Arc<Routes>,
    pub(super) workers: Option<WorkerQueue<T>>,
    /// The endpoint's mailbox.
    pub(super) sink: Arc<dyn ReplySink>,
}

/// Borrowed for one turn.
pub(super) struct Dispatch<'s, T: Transport> {
    pub(super) shared: &'s Shared<T>,
}

impl<T: Transport> App<T> for Dispatch<'_, T> {
    #[inline]
    fn on_request(&mut self, cx: &mut Context<'_, T>, request: Request<'_, T::Route>) {
        let serving = self.shared.serving.get();
        let entry =
            serving.and_then(|serving| Some((serving, serving.routes.get(request.method)?)));
        match entry {
            Some((serving, entry)) if entry.mode() == Mode::Dispatch => {
                let context =
                    CallContext::new(address(&request.peer), request.handle, &serving.sink);
                let mut buffers = SlotBuffers { cx, request: request.handle };
                let outcome = (entry.handler())(&context, request.body.as_slice(), &mut buffers);
                if let Body::Message(message) = request.body {
                    cx.recycle(message);
                }
                match outcome {
                    Outcome::Reply(response) => cx.respond(request.handle, response),
                    Outcome::Failed(status) => cx.respond_status(request.handle, &status),
                    Outcome::Deferred => {}
                }
            }
            Some((serving, entry)) => self.to_worker(cx, serving, entry.handler(), request),
            None => cx.respond_status(request.handle, &unknown(request.method, serving.is_some())),
        }
        self.shared.after_upcall(cx);
    }

    #[inline]
    fn on_reply(
        &mut self,
        cx: &mut Context<'_, T>,
        token: u64,
        reply: Result<Body<'_>, CallError>,
        request: MsgBuf,
    ) {
        self.shared.replied(cx, token as usize, reply, request);
        self.shared.after_upcall(cx);
    }

    fn on_session(&mut self, _: &mut Context<'_, T>, session: SessionId, event: SessionEvent) {
        self.shared.session_event(session, event);
    }
}

impl<T: Transport> Dispatch<'_, T> {
    /// Queues the request, as an owned buffer, for a worker.
    fn to_worker(
        &self,
        cx: &mut Context<'_, T>,
        serving: &Serving<T>,
        handler: &Arc<ErasedHandler>,
        request: Request<'_, T::Route>,
    ) {
        let Request { handle, method: _, body, peer } = request;
        let queued = match (&serving.workers, body) {
            (None, _) => Err(Status::failed_precondition(
                "the method needs a worker thread and the server has none",
            )),
            (Some(workers), Body::Message(message)) => Ok((workers, message)),
            (Some(workers), Body::Packet(bytes)) => match self.copied(bytes) {
                Some(copy) => Ok((workers, copy)),
                None => Err(Status::resource_exhausted("the server has no memory for the request")),
            },
        };
        let refused = queued.and_then(|(workers, body)| {
            let mailbox = Arc::clone(self.shared.mailbox());
            let job = Job {
                handler: Arc::clone(handler),
                body,
                call: handle,
                peer: address(&peer),
                mailbox,
            };
            workers.push(job).map_err(|refused| match refused {
                Refused::Full => Status::resource_exhausted("the server's worker queue is full"),
                Refused::Stopped => Status::unavailable("the server is shutting down"),
            })
        });
        if let Err(status) = refused {
            cx.respond_status(handle, &status);
        }
    }

    fn copied(&self, bytes: &[u8]) -> Option<MsgBuf> {
        let mut copy = self.shared.pool().alloc(bytes.len()).ok()?;
        copy.resize(bytes.len());
        copy.as_mut_slice().copy_from_slice(bytes);
        Some(copy)
    }
}

/// Responses of dispatch handlers go into the slot's own buffer.
struct SlotBuffers<'a, 'c, T: Transport> {
    cx: &'a mut Context<'c, T>,
    request: RequestHandle,
}

impl<T: Transport> ReplyBuffers for SlotBuffers<'_, '_, T> {
    #[inline]
    fn buffer(&mut self, len: usize) -> Result<MsgBuf, Status> {
        let buffer = self.cx.response_buffer(&self.request, len);
        buffer.map_err(|_| Status::resource_exhausted("the server has no memory for the response"))
    }
}

/// The IP address behind a route, where there is one. Decided at compile time.
#[inline]
fn address<R: 'static>(route: &R) -> Option<SocketAddr> {
    (route as &dyn Any).downcast_ref::<UdpRoute>().map(UdpRoute::socket_addr)
}

#[cold]
fn unknown(method: u32, serves: bool) -> Status {
    Status::unimplemented(match serves {
        true => format!(
            "the server has no method with id {method:#010x}; are both sides built from the same .proto?"
        ),
        false => "the peer serves no methods".into(),
    })
}
