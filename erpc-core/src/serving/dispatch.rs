//! From packets to handlers and callbacks: the typed layer's [`App`].

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::buf::MsgBuf;
use crate::client::stream::Streams;
use crate::endpoint::state::Shared;
use crate::event_loop::{App, Context};
use crate::protocol::{
    Body, CallError, ClientId, ClientStats, Reply, Request, RequestHandle, SessionEvent, SessionId,
};
use crate::service::{
    Arrival, CallHost, Encoded, HandlerOutcome, MetadataRef, Mode, ReplySink, RouteEntry, Routes,
    StreamMethod, TaskMethod, TaskPort,
};
use crate::serving::tasks::Port;
use crate::serving::worker::{Job, Refused, WorkerQueue};
use crate::status::Status;
use crate::time::Instant;
use crate::transport::Transport;
use crate::transport::udp::UdpRoute;
use crate::wire::extension::Extension;

/// What an endpoint serves.
pub(crate) struct Serving<T: Transport> {
    routes: Arc<Routes>,
    workers: Option<WorkerQueue<T>>,
    /// The asynchronous methods, by their place in the table.
    tasks: Vec<Option<Rc<dyn TaskMethod>>>,
    /// The streaming methods, likewise.
    streams: Vec<Option<Rc<dyn StreamMethod>>>,
    /// The endpoint's own.
    shared: Weak<Shared<T>>,
}

impl<T: Transport> Serving<T> {
    pub(crate) fn new(
        routes: Arc<Routes>,
        workers: Option<WorkerQueue<T>>,
        shared: &Rc<Shared<T>>,
    ) -> Self {
        let port: Rc<dyn TaskPort> = Rc::new(Port::new(shared));
        let tasks = routes.entries().map(|entry| entry.tasks(&port)).collect();
        let streams = routes.entries().map(|entry| entry.streams()).collect();
        Self { routes, workers, tasks, streams, shared: Rc::downgrade(shared) }
    }
}

/// Borrowed for one turn.
pub(crate) struct Dispatch<'s, T: Transport> {
    pub(crate) shared: &'s Shared<T>,
}

impl<T: Transport> App<T> for Dispatch<'_, T> {
    /// The common case is written out: a handler that runs here, on a message of one packet without an
    /// extension, and no deadline of the method's own.
    #[inline(always)]
    fn on_request(&mut self, cx: &mut Context<'_, T>, request: Request<'_, T::Route>) {
        if let Body::Packet(message) = request.body
            && !request.extended
            && let Some(serving) = self.shared.serving.get()
            && let Some(entry) = serving.routes.get(request.method)
            && entry.is_plain()
        {
            let host = SlotHost::new(cx, request.buffer, &request.peer, self.shared);
            match entry.call(&entry.context(request.handle, &host), message) {
                HandlerOutcome::Reply(Encoded { bytes, extended }) => {
                    cx.respond(request.handle, bytes, extended);
                }
                outcome => answer(cx, request.handle, outcome),
            }
        } else {
            self.on_other_request(cx, request);
        }
        self.shared.after_upcall(cx);
    }

    /// Likewise: a reply of one packet without an extension, to a call that is no stream's.
    #[inline(always)]
    fn on_reply(
        &mut self,
        cx: &mut Context<'_, T>,
        token: u64,
        reply: Result<Reply<'_>, CallError>,
        request: MsgBuf,
    ) {
        match reply {
            Ok(Reply { body: Body::Packet(bytes), extended: false })
                if !Streams::<T>::is_token(token) =>
            {
                self.shared.plain_reply(token as usize, bytes, request);
            }
            reply if Streams::<T>::is_token(token) => {
                self.shared.stream_replied(cx, token, reply, request);
            }
            reply => self.shared.replied(cx, token as usize, reply, request),
        }
        self.shared.after_upcall(cx);
    }

    fn on_session(&mut self, _: &mut Context<'_, T>, session: SessionId, event: SessionEvent) {
        self.shared.session_event(session, event);
    }

    fn on_cancel(&mut self, cx: &mut Context<'_, T>, request: RequestHandle) {
        self.shared.call_cancelled(cx, request);
        self.shared.stream_cancelled(cx, request);
        self.shared.after_upcall(cx);
    }

    fn on_client_gone(&mut self, _: &mut Context<'_, T>, client: ClientId) {
        self.shared.stream_client_gone(client);
    }
}

impl<T: Transport> Dispatch<'_, T> {
    #[inline(never)]
    fn on_other_request(&self, cx: &mut Context<'_, T>, request: Request<'_, T::Route>) {
        let handle = request.handle;
        let serving = self.shared.serving.get();
        let entry =
            serving.and_then(|serving| Some((serving, serving.routes.get(request.method)?)));
        let Some((serving, entry)) = entry else {
            return cx.respond_status(handle, &unknown(request.method, serving.is_some()));
        };
        let deadline = entry.due(request.deadline, || self.shared.now());
        let request = Request { deadline, ..request };
        let index = entry.index();
        let passed = match (&serving.tasks[index], &serving.streams[index]) {
            (Some(method), _) => self.to_task(cx, method, request),
            (None, Some(method)) => {
                let peer = address(&request.peer);
                self.shared.stream_request(cx, (&serving.shared, method), request, peer)
            }
            (None, None) if entry.mode() == Some(Mode::Worker) => {
                self.to_worker(serving, entry, request)
            }
            (None, None) => self.dispatch(cx, entry, request),
        };
        if let Err(status) = passed {
            cx.respond_status(handle, &status);
        }
    }

    /// Runs a handler here and now.
    fn dispatch(
        &self,
        cx: &mut Context<'_, T>,
        entry: &Arc<RouteEntry>,
        mut request: Request<'_, T::Route>,
    ) -> Result<(), Status> {
        let buffer = request.buffer.take();
        let outcome = self.opened(&request).map(|Opened { deadline, metadata, message }| {
            let host = SlotHost::new(cx, buffer, &request.peer, self.shared);
            let context = entry.context(request.handle, &host).with_extension(deadline, metadata);
            entry.call(&context, message)
        });
        if let Body::Message(message) = request.body {
            cx.recycle(message);
        }
        answer(cx, request.handle, outcome?);
        Ok(())
    }

    /// Starts a task; it is polled at the end of this turn.
    fn to_task(
        &self,
        cx: &mut Context<'_, T>,
        method: &Rc<dyn TaskMethod>,
        request: Request<'_, T::Route>,
    ) -> Result<(), Status> {
        let task = self.opened(&request).and_then(|Opened { deadline, metadata, message }| {
            let arrival = Arrival {
                call: request.handle,
                peer: address(&request.peer),
                deadline,
                metadata: metadata.to_owned(),
            };
            Rc::clone(method).start(arrival, message)
        });
        if let Body::Message(message) = request.body {
            cx.recycle(message);
        }
        self.shared.start_call(request.handle, task?);
        Ok(())
    }

    /// Queues the request, as an owned buffer, for a worker.
    fn to_worker(
        &self,
        serving: &Serving<T>,
        entry: &Arc<RouteEntry>,
        request: Request<'_, T::Route>,
    ) -> Result<(), Status> {
        let front = request.body.as_slice().len() - self.opened(&request)?.message.len();
        let Request { handle, body, peer, deadline, .. } = request;
        let workers = serving.workers.as_ref().ok_or_else(|| {
            Status::failed_precondition("the method needs a worker thread and the server has none")
        })?;
        let body = match body {
            Body::Message(message) => message,
            Body::Packet(bytes) => self.copied(bytes).ok_or_else(|| {
                Status::resource_exhausted("the server has no memory for the request")
            })?,
        };
        let job = Job {
            entry: Arc::clone(entry),
            body,
            front,
            call: handle,
            peer: address(&peer),
            deadline,
            cancelled: self.shared.running.worker(handle),
            mailbox: Arc::clone(self.shared.mailbox()),
        };
        workers.push(job).map_err(|refused| {
            self.shared.running.ended(handle);
            match refused {
                Refused::Full => Status::resource_exhausted("the server's worker queue is full"),
                Refused::Stopped => Status::unavailable("the server is shutting down"),
            }
        })
    }

    fn copied(&self, bytes: &[u8]) -> Option<MsgBuf> {
        let mut copy = self.shared.pool().alloc(bytes.len()).ok()?;
        copy.resize(bytes.len());
        copy.as_mut_slice().copy_from_slice(bytes);
        Some(copy)
    }

    /// Takes the extension off a request, if it has one, and looks whether it comes in time.
    #[inline]
    fn opened<'m>(&self, request: &'m Request<'_, T::Route>) -> Result<Opened<'m>, Status> {
        let message = request.body.as_slice();
        match request.extended {
            true => self.opened_extended(request.deadline, message),
            // It has come right now, so it is in time, whatever the method's own deadline.
            false => {
                Ok(Opened { deadline: request.deadline, metadata: MetadataRef::default(), message })
            }
        }
    }

    #[cold]
    fn opened_extended<'m>(
        &self,
        deadline: Instant,
        message: &'m [u8],
    ) -> Result<Opened<'m>, Status> {
        self.shared.running.in_time(deadline, || self.shared.now())?;
        let (extension, message) = Extension::split(message).map_err(|error| {
            Status::invalid_argument(format!("the request's extension is malformed: {error:?}"))
        })?;
        if extension.op() != 0 {
            return Err(Status::invalid_argument(
                "the method takes one request and does not stream; are both sides built from the same .proto?",
            ));
        }
        Ok(Opened { deadline, metadata: MetadataRef::new(extension.as_bytes()), message })
    }
}

/// A request that is to be handled.
struct Opened<'m> {
    deadline: Instant,
    metadata: MetadataRef<'m>,
    message: &'m [u8],
}

/// Sends what came of a handler, unless somebody else will.
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

/// Where dispatch handlers run. Their responses go into the slot's own buffer.
struct SlotHost<'a, 'c, T: Transport> {
    cx: RefCell<&'a mut Context<'c, T>>,
    /// Came with the request.
    buffer: Cell<Option<MsgBuf>>,
    peer: &'a T::Route,
    shared: &'a Shared<T>,
}

impl<'a, 'c, T: Transport> SlotHost<'a, 'c, T> {
    #[inline(always)]
    fn new(
        cx: &'a mut Context<'c, T>,
        buffer: Option<MsgBuf>,
        peer: &'a T::Route,
        shared: &'a Shared<T>,
    ) -> Self {
        Self { cx: RefCell::new(cx), buffer: Cell::new(buffer), peer, shared }
    }
}

impl<T: Transport> CallHost for SlotHost<'_, '_, T> {
    #[inline]
    fn buffer(&self, _: &RequestHandle, len: usize) -> Result<MsgBuf, Status> {
        let buffer = self.cx.borrow_mut().response_buffer(self.buffer.take(), len);
        buffer.map_err(|_| no_memory())
    }

    fn peer(&self) -> Option<SocketAddr> {
        address(self.peer)
    }

    fn session_stats(&self, call: &RequestHandle) -> Option<ClientStats> {
        self.cx.borrow().client_stats(call.client())
    }

    fn is_cancelled(&self) -> bool {
        // Nothing is received while the handler runs.
        false
    }

    fn now(&self) -> Instant {
        self.shared.now()
    }

    fn sink(&self) -> Arc<dyn ReplySink> {
        Arc::clone(self.shared.mailbox()) as _
    }
}

/// The IP address behind a route, where there is one. Decided at compile time.
#[inline]
fn address<R: 'static>(route: &R) -> Option<SocketAddr> {
    (route as &dyn Any).downcast_ref::<UdpRoute>().map(UdpRoute::socket_addr)
}

#[cold]
pub(crate) fn no_memory() -> Status {
    Status::resource_exhausted("the server has no memory for the response")
}

#[cold]
fn unknown(method: u32, serves: bool) -> Status {
    let message = match serves {
        true => format!(
            "the server has no method with id {method:#010x}; are both sides built from the same .proto?"
        ),
        false => "the peer serves no methods".into(),
    };
    Status::no_such_method(method, message)
}
