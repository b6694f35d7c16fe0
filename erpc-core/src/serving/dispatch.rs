//! Dispatch of requests to their handlers.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use super::answer::{answer, no_memory};
use super::methods::Methods;
use super::port::HandlerPort;
use super::requests::Requests;
use super::worker::{JobRefused, WorkerJob, WorkerQueue};
use crate::buf::MsgBuf;
use crate::event_loop::Context;
use crate::protocol::{Body, ClientStats, Request, RequestHandle, ResponseBuffer};
use crate::service::{
    Arrival, CallHost, Encoded, FastPath, HandlerOutcome, MetadataRef, Mode, ReplySink, RouteEntry,
    Routes, TaskMethod,
};
use crate::status::Status;
use crate::sync::atomic::AtomicBool;
use crate::time::Instant;
use crate::transport::Transport;
use crate::transport::udp::UdpRoute;
use crate::wire::extension::Extension;

impl<T: Transport> Requests<T> {
    /// Serves `routes` from now on. False if the endpoint already serves.
    pub(crate) fn serve(&self, routes: Arc<Routes>, workers: Option<WorkerQueue>) -> bool {
        let port = Rc::new(HandlerPort::new(self.downgrade(), Arc::clone(self.mailbox()) as _));
        self.methods.set(Methods::new(routes, workers, port)).is_ok()
    }

    /// Handles a request. The common case has a fast path here: a handler that runs in this turn, a
    /// message of one packet without an extension, and a method without its own deadline.
    #[inline(always)]
    pub(crate) fn request(&self, cx: &mut Context<'_, T>, request: Request<'_, T::Route>) {
        if let Body::Packet(message) = request.body
            && !request.extended
            && let Some(methods) = self.methods.get()
            && let Some(entry) = methods.routes.get(request.method)
            && let Some(path) = entry.fast_path()
        {
            let Request { handle, buffer, peer, .. } = request;
            match path {
                FastPath::Plain => {
                    self.plain_request(cx, entry, (handle, buffer, &peer), message, ());
                }
                FastPath::Hooked => {
                    self.hooked_request(cx, (methods, entry), (handle, buffer, &peer), message);
                }
            }
        } else {
            self.other_request(cx, request);
        }
    }

    /// As [`Self::plain_request`], for a method with a burst hook.
    #[inline(never)]
    fn hooked_request(
        &self,
        cx: &mut Context<'_, T>,
        methods: (&Methods, &RouteEntry),
        request: (RequestHandle, Option<ResponseBuffer>, &T::Route),
        message: &[u8],
    ) {
        let note = self.note(cx, methods, message, false);
        self.plain_request(cx, methods.1, request, message, note);
    }

    /// Runs a handler in this turn, on a message of one packet without an extension.
    #[inline(always)]
    fn plain_request(
        &self,
        cx: &mut Context<'_, T>,
        entry: &RouteEntry,
        (call, buffer, peer): (RequestHandle, Option<ResponseBuffer>, &T::Route),
        message: &[u8],
        note: impl Note,
    ) {
        let host = SlotHost::new(cx, buffer, peer, self, note);
        match entry.call(&entry.context(call, &host), message) {
            HandlerOutcome::Reply(Encoded { bytes, extended }) => cx.respond(call, bytes, extended),
            outcome => {
                let buffer = host.buffer.take();
                cx.recycle_response_buffer(buffer);
                answer(cx, call, outcome);
            }
        }
    }

    #[inline(never)]
    fn other_request(&self, cx: &mut Context<'_, T>, request: Request<'_, T::Route>) {
        let handle = request.handle;
        let methods = self.methods.get();
        let entry =
            methods.and_then(|methods| Some((methods, methods.routes.get(request.method)?)));
        let Some((methods, entry)) = entry else {
            cx.recycle_response_buffer(request.buffer);
            return cx.respond_status(handle, &unknown(request.method, methods.is_some()));
        };
        if entry.has_hook() {
            let note = self.note(cx, (methods, entry), request.body.as_slice(), request.extended);
            return self.run(cx, (methods, entry), request, note);
        }
        self.run(cx, (methods, entry), request, ());
    }

    /// Runs the request's handler, or starts it elsewhere.
    #[inline]
    fn run(
        &self,
        cx: &mut Context<'_, T>,
        (methods, entry): (&Methods, &Arc<RouteEntry>),
        mut request: Request<'_, T::Route>,
        note: impl Note,
    ) {
        let handle = request.handle;
        request.deadline = entry.due(request.deadline, || self.scheduler().now());
        let index = entry.index();
        let (task, stream) = (&methods.tasks[index], &methods.streams[index]);
        let is_here = task.is_none() && stream.is_none() && entry.mode() != Some(Mode::Worker);
        if !is_here {
            // The response is sent later, from another buffer.
            cx.recycle_response_buffer(request.buffer.take());
        }
        let passed = match (task, stream) {
            (Some(method), _) => self.to_task(cx, methods, entry, method, request),
            (None, Some(method)) => {
                let peer = address(&request.peer);
                self.stream_request(cx, method, request, peer)
            }
            (None, None) if is_here => self.dispatch(cx, entry, request, note),
            (None, None) => self.to_worker(methods, entry, request),
        };
        if let Err(status) = passed {
            cx.respond_status(handle, &status);
        }
    }

    /// Runs a handler in this turn.
    fn dispatch(
        &self,
        cx: &mut Context<'_, T>,
        entry: &Arc<RouteEntry>,
        mut request: Request<'_, T::Route>,
        note: impl Note,
    ) -> Result<(), Status> {
        let mut buffer = request.buffer.take();
        let outcome = self.opened(&request).map(|OpenedRequest { deadline, metadata, message }| {
            let host = SlotHost::new(cx, buffer.take(), &request.peer, self, note);
            let context = entry.context(request.handle, &host).with_extension(deadline, metadata);
            let outcome = entry.call(&context, message);
            buffer = host.buffer.take();
            outcome
        });
        cx.recycle_response_buffer(buffer);
        if let Body::Message(message) = request.body {
            cx.recycle(message);
        }
        answer(cx, request.handle, outcome?);
        Ok(())
    }

    /// Starts a task. It is polled at the end of this turn.
    fn to_task(
        &self,
        cx: &mut Context<'_, T>,
        methods: &Methods,
        entry: &RouteEntry,
        method: &Rc<dyn TaskMethod>,
        request: Request<'_, T::Route>,
    ) -> Result<(), Status> {
        let outliving = methods.runtime.as_ref().map_or(0, |runtime| runtime.outliving());
        let opened = self.running.admits_task(entry.full_name(), outliving);
        let opened = opened.and_then(|()| self.opened(&request));
        let task = opened.and_then(|OpenedRequest { deadline, metadata, message }| {
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
        self.start_task(request.handle, task?);
        Ok(())
    }

    /// Queues the request for a worker, in a buffer that the job owns.
    fn to_worker(
        &self,
        methods: &Methods,
        entry: &Arc<RouteEntry>,
        request: Request<'_, T::Route>,
    ) -> Result<(), Status> {
        let front = request.body.as_slice().len() - self.opened(&request)?.message.len();
        let Request { handle, body, peer, deadline, .. } = request;
        let workers = methods.workers.as_ref().ok_or_else(|| {
            Status::failed_precondition("the method needs a worker thread and the server has none")
        })?;
        let body = match body {
            Body::Message(message) => message,
            Body::Packet(bytes) => self.pool().copy(bytes).map_err(|_| {
                Status::resource_exhausted("the server has no memory for the request")
            })?,
        };
        let job = WorkerJob {
            entry: Arc::clone(entry),
            body,
            front,
            call: handle,
            peer: address(&peer),
            deadline,
            cancelled: self.running.deferred(handle),
            mailbox: Arc::clone(self.mailbox()),
        };
        workers.push(job).map_err(|refused| {
            self.running.ended(handle);
            match refused {
                JobRefused::Full => {
                    self.running.beyond_queue(entry.full_name(), workers.limit());
                    Status::resource_exhausted("the server's worker queue is full")
                }
                JobRefused::Stopped => Status::unavailable("the server is shutting down"),
            }
        })
    }

    /// Splits the extension off a request, if it has one, and checks the deadline.
    #[inline]
    fn opened<'m>(&self, request: &'m Request<'_, T::Route>) -> Result<OpenedRequest<'m>, Status> {
        let message = request.body.as_slice();
        match request.extended {
            true => self.opened_extended(request.deadline, message),
            // A request without an extension has only the method's own deadline. The request
            // arrived just now, so this deadline cannot have passed.
            false => Ok(OpenedRequest {
                deadline: request.deadline,
                metadata: MetadataRef::default(),
                message,
            }),
        }
    }

    #[inline(never)]
    fn opened_extended<'m>(
        &self,
        deadline: Instant,
        message: &'m [u8],
    ) -> Result<OpenedRequest<'m>, Status> {
        self.running.in_time(deadline, || self.scheduler().now())?;
        let (extension, message) = Extension::split(message).map_err(|error| {
            Status::invalid_argument(format!("the request's extension is malformed: {error:?}"))
        })?;
        if extension.op() != 0 {
            return Err(Status::invalid_argument(
                "the method takes one request and does not stream; are both sides built from the same .proto?",
            ));
        }
        Ok(OpenedRequest { deadline, metadata: MetadataRef::new(extension.as_bytes()), message })
    }
}

/// A request whose handler may start.
struct OpenedRequest<'m> {
    deadline: Instant,
    metadata: MetadataRef<'m>,
    message: &'m [u8],
}

/// The note that a burst hook has left for a request; `()` for a request that no hook has seen,
/// which then needs no memory for a note.
pub(super) trait Note: Copy {
    fn get(self) -> Option<u64>;
}

impl Note for () {
    #[inline]
    fn get(self) -> Option<u64> {
        None
    }
}

impl Note for Option<u64> {
    #[inline]
    fn get(self) -> Option<u64> {
        self
    }
}

/// Host of dispatch handlers. Their responses are encoded into the slot's own buffer.
struct SlotHost<'a, 'c, T: Transport, N> {
    cx: RefCell<&'a mut Context<'c, T>>,
    /// The slot's response buffer, which came with the request.
    buffer: Cell<Option<ResponseBuffer>>,
    peer: &'a T::Route,
    requests: &'a Requests<T>,
    note: N,
}

impl<'a, 'c, T: Transport, N: Note> SlotHost<'a, 'c, T, N> {
    #[inline(always)]
    fn new(
        cx: &'a mut Context<'c, T>,
        buffer: Option<ResponseBuffer>,
        peer: &'a T::Route,
        requests: &'a Requests<T>,
        note: N,
    ) -> Self {
        Self { cx: RefCell::new(cx), buffer: Cell::new(buffer), peer, requests, note }
    }
}

impl<T: Transport, N: Note> CallHost for SlotHost<'_, '_, T, N> {
    #[inline]
    fn buffer(&self, len: usize) -> Result<MsgBuf, Status> {
        let buffer = self.cx.borrow_mut().response_buffer(self.buffer.take(), len);
        buffer.map_err(|_| no_memory())
    }

    fn peer(&self) -> Option<SocketAddr> {
        address(self.peer)
    }

    fn session_stats(&self, call: &RequestHandle) -> Option<ClientStats> {
        self.cx.borrow().client_stats(call.client())
    }

    fn note(&self) -> Option<u64> {
        self.note.get()
    }

    fn is_cancelled(&self) -> bool {
        // The endpoint receives nothing while the handler runs.
        false
    }

    fn now(&self) -> Instant {
        self.requests.scheduler().now()
    }

    fn has_virtual_time(&self) -> bool {
        self.requests.scheduler().has_virtual_time()
    }

    fn sink(&self) -> Arc<dyn ReplySink> {
        Arc::clone(self.requests.mailbox()) as _
    }

    fn cancel_flag(&self, call: RequestHandle) -> Arc<AtomicBool> {
        self.requests.running.deferred(call)
    }
}

/// The IP address of a route, if it has one. The compiler knows the route's type, so the check
/// costs nothing at run time.
#[inline]
fn address<R: 'static>(route: &R) -> Option<SocketAddr> {
    (route as &dyn Any).downcast_ref::<UdpRoute>().map(UdpRoute::socket_addr)
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
