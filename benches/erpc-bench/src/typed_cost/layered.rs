//! The call through the raw layer's loop, with typed messages and a typed handler: what the service layer
//! costs by itself.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::sync::Arc;

use erpc::raw::ListenGroup;
use erpc::raw::{
    Acceptor, App, Body, ClientStats, Context, MsgBuf, NewCall, Reply, Request, RequestHandle, Rpc,
    SessionEvent, SessionId,
};
use erpc::service::{Codec, Method, Routes};
use erpc::transport::mem::{MemConfig, MemHub, MemTransport};
use erpc::{CallError, EndpointConfig, Status, Transport};
use erpc_core::service::{CallHost, Encoded, HandlerOutcome, ReplySink, encode_into};

use super::messages::{Checked, Keyed, Store};
use super::{Subject, Width};
use crate::failure::Failure;

/// Both sides.
struct Layered<Req, Resp, C, D> {
    client: Rpc<MemTransport>,
    calls: Calls<Req, Resp, C, D>,
    server: Rpc<MemTransport>,
    answers: StoreServer,
    outstanding: usize,
}

/// Calls `method`.
pub(super) fn subject<Req, Resp, C, D>(
    Width { sessions, outstanding }: Width,
    method: Method<Req, Resp, C, D>,
) -> Result<Box<dyn Subject>, Failure>
where
    Req: Keyed,
    Resp: 'static,
    C: Codec<Req>,
    D: Codec<Resp>,
    for<'a> D::View<'a>: Checked,
{
    let hub = MemHub::new();
    let rpc = || {
        Rpc::new(hub.port(MemConfig::default()), EndpointConfig::new())
            .map_err(Failure::of("no endpoint"))
    };
    let (mut client, mut server) = (rpc()?, rpc()?);
    server.listen(Acceptor::new(Arc::new(ListenGroup::new([7; 16], vec![0])), 0));
    let peer = server.local_route();
    let mut calls = Calls {
        method,
        sessions: Vec::new(),
        opened: 0,
        left: 0,
        under_way: 0,
        next: 0,
        failure: None,
    };
    for _ in 0..sessions {
        let session = client.context().connect(peer).map_err(Failure::of("cannot connect"))?;
        calls.sessions.push(session);
    }
    let routes = Store::routes().map_err(Failure::of("the service does not register"))?;
    let mut answers = StoreServer { routes, sink: Arc::new(NoDeferral) };
    while calls.opened < sessions {
        client.run_once(&mut calls);
        server.run_once(&mut answers);
    }
    Ok(Box::new(Layered { client, calls, server, answers, outstanding }))
}

impl<Req, Resp, C, D> Subject for Layered<Req, Resp, C, D>
where
    Req: Keyed,
    C: Codec<Req>,
    D: Codec<Resp>,
    for<'a> D::View<'a>: Checked,
{
    fn run(&mut self, calls: u64) -> Result<(), Failure> {
        self.calls.left = calls;
        for _ in 0..self.outstanding {
            let mut cx = self.client.context();
            let request = cx.alloc(0).map_err(Failure::of("no request"))?;
            self.calls.call(&mut cx, request);
        }
        while self.calls.under_way > 0 {
            self.client.run_once(&mut self.calls);
            self.server.run_once(&mut self.answers);
        }
        self.calls.failure.take().map_or(Ok(()), Err)
    }
}

/// The client's side. The key of a call is its token.
struct Calls<Req, Resp, C, D> {
    method: Method<Req, Resp, C, D>,
    sessions: Vec<SessionId>,
    opened: usize,
    left: u64,
    under_way: usize,
    next: u64,
    failure: Option<Failure>,
}

impl<Req: Keyed, Resp, C: Codec<Req>, D> Calls<Req, Resp, C, D> {
    /// Makes the next call, if there is one to make.
    #[inline(always)]
    fn call<T: Transport>(&mut self, cx: &mut Context<'_, T>, mut request: MsgBuf) {
        if self.left == 0 {
            return cx.recycle(request);
        }
        self.left -= 1;
        self.under_way += 1;
        let key = self.next;
        self.next += 1;
        encode_into::<C, Req>(&Req::of(key), &mut request);
        let session = self.sessions[key as usize % self.sessions.len()];
        if let Err(rejected) = cx.call(session, NewCall::new(self.method.id(), request, key)) {
            self.fail(format!("a call was rejected: {rejected}"));
        }
    }

    fn fail(&mut self, why: impl Into<String>) {
        self.failure.get_or_insert(Failure::new(why));
        (self.left, self.under_way) = (0, 0);
    }
}

impl<T: Transport, Req, Resp, C, D> App<T> for Calls<Req, Resp, C, D>
where
    Req: Keyed,
    C: Codec<Req>,
    D: Codec<Resp>,
    for<'a> D::View<'a>: Checked,
{
    fn on_request(&mut self, _: &mut Context<'_, T>, _: Request<'_, T::Route>) {
        // A client is called by nobody.
    }

    #[inline(always)]
    fn on_reply(
        &mut self,
        cx: &mut Context<'_, T>,
        key: u64,
        reply: Result<Reply<'_>, CallError>,
        request: MsgBuf,
    ) {
        match reply {
            Ok(reply) if D::view(reply.as_slice()).is_ok_and(|answer| answer.is_answer(key)) => {}
            Ok(_) => return self.fail(format!("the answer for key {key} is wrong")),
            Err(error) => return self.fail(format!("a call failed: {error}")),
        }
        self.under_way -= 1;
        self.call(cx, request);
    }

    fn on_session(&mut self, _: &mut Context<'_, T>, _: SessionId, event: SessionEvent) {
        match event {
            SessionEvent::Opened => self.opened += 1,
            SessionEvent::Closed(cause) => self.fail(format!("a session closed: {cause}")),
        }
    }
}

/// The server's side.
struct StoreServer {
    routes: Routes,
    sink: Arc<dyn ReplySink>,
}

impl<T: Transport> App<T> for StoreServer {
    #[inline(always)]
    fn on_request(&mut self, cx: &mut Context<'_, T>, request: Request<'_, T::Route>) {
        let handle = request.handle;
        let outcome = match self.routes.get(request.method) {
            Some(entry) => {
                let buffer = Cell::new(request.buffer);
                let host = Host { cx: RefCell::new(cx), buffer, sink: &self.sink };
                entry.call(&entry.context(handle, &host), request.body.as_slice())
            }
            None => HandlerOutcome::Failed(Status::unimplemented("no such method")),
        };
        if let Body::Message(message) = request.body {
            cx.recycle(message);
        }
        match outcome {
            HandlerOutcome::Reply(Encoded { bytes, extended }) => {
                cx.respond(handle, bytes, extended)
            }
            HandlerOutcome::Failed(status) => cx.respond_status(handle, &status),
            HandlerOutcome::Deferred => {}
        }
    }

    fn on_reply(
        &mut self,
        _: &mut Context<'_, T>,
        _: u64,
        _: Result<Reply<'_>, CallError>,
        _: MsgBuf,
    ) {
        // A server calls nobody.
    }
}

/// Where the handlers run.
struct Host<'a, 'c, T: Transport> {
    cx: RefCell<&'a mut Context<'c, T>>,
    /// Came with the request.
    buffer: Cell<Option<MsgBuf>>,
    sink: &'a Arc<dyn ReplySink>,
}

impl<T: Transport> CallHost for Host<'_, '_, T> {
    #[inline]
    fn buffer(&self, _: &RequestHandle, len: usize) -> Result<MsgBuf, Status> {
        let buffer = self.cx.borrow_mut().response_buffer(self.buffer.take(), len);
        buffer.map_err(|error| Status::resource_exhausted(error.to_string()))
    }

    fn peer(&self) -> Option<SocketAddr> {
        None
    }

    fn session_stats(&self, call: &RequestHandle) -> Option<ClientStats> {
        self.cx.borrow().client_stats(call.client())
    }

    fn is_cancelled(&self) -> bool {
        false
    }

    fn sink(&self) -> Arc<dyn ReplySink> {
        Arc::clone(self.sink)
    }
}

/// Where deferred answers would go; the store defers none.
struct NoDeferral;

impl ReplySink for NoDeferral {
    fn reply(&self, _: RequestHandle, _: Result<Encoded, Status>) {}
}
