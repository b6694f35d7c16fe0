//! The call through the raw layer: bytes that are written and read by hand.

use std::sync::Arc;

use bytes::BufMut;
use erpc::raw::ListenGroup;
use erpc::raw::{
    Acceptor, App, Body, Context, MsgBuf, NewCall, Reply, Request, Rpc, SessionEvent, SessionId,
};
use erpc::service::method_id;
use erpc::transport::mem::{MemConfig, MemHub, MemTransport};
use erpc::{CallError, EndpointConfig, Transport};

use super::messages::{ANSWER, REQUEST, Store, VALUE, is_answer};
use super::{Subject, Width};
use crate::failure::Failure;

const GET: u32 = method_id("bench.v1.Cost/GetRaw");

/// Both sides.
pub(super) struct Raw {
    client: Rpc<MemTransport>,
    calls: Calls,
    server: Rpc<MemTransport>,
    answers: StoreServer,
    outstanding: usize,
}

impl Raw {
    pub(super) fn new(Width { sessions, outstanding }: Width) -> Result<Self, Failure> {
        let hub = MemHub::new();
        let rpc = || {
            Rpc::new(hub.port(MemConfig::default()), EndpointConfig::new())
                .map_err(Failure::of("no endpoint"))
        };
        let (mut client, mut server) = (rpc()?, rpc()?);
        server.listen(Acceptor::new(Arc::new(ListenGroup::new([7; 16], vec![0])), 0));
        let peer = server.local_route();
        let mut calls = Calls::default();
        for _ in 0..sessions {
            let session = client.context().connect(peer).map_err(Failure::of("cannot connect"))?;
            calls.sessions.push(session);
        }
        let mut answers = StoreServer(Store::new());
        while calls.opened < sessions {
            client.run_once(&mut calls);
            server.run_once(&mut answers);
        }
        Ok(Self { client, calls, server, answers, outstanding })
    }
}

impl Subject for Raw {
    fn run(&mut self, calls: u64) -> Result<(), Failure> {
        self.calls.left = calls;
        for _ in 0..self.outstanding {
            let mut cx = self.client.context();
            let request = cx.alloc(REQUEST).map_err(Failure::of("no request"))?;
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
#[derive(Default)]
struct Calls {
    sessions: Vec<SessionId>,
    opened: usize,
    left: u64,
    under_way: usize,
    next: u64,
    failure: Option<Failure>,
}

impl Calls {
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
        request.clear();
        request.put_u64_le(key);
        let session = self.sessions[key as usize % self.sessions.len()];
        if let Err(rejected) = cx.call(session, NewCall::new(GET, request, key)) {
            self.fail(format!("a call was rejected: {rejected}"));
        }
    }

    fn fail(&mut self, why: impl Into<String>) {
        self.failure.get_or_insert(Failure::new(why));
        (self.left, self.under_way) = (0, 0);
    }
}

impl<T: Transport> App<T> for Calls {
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
        match reply.as_ref().map(Reply::as_slice) {
            Ok([value @ .., found]) if is_answer(value, *found != 0, key) => {}
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
struct StoreServer(Store);

impl<T: Transport> App<T> for StoreServer {
    #[inline(always)]
    fn on_request(&mut self, cx: &mut Context<'_, T>, request: Request<'_, T::Route>) {
        let handle = request.handle;
        let key = request.body.as_slice().first_chunk().map(|key| u64::from_le_bytes(*key));
        if let Some(key) = key
            && let Ok(mut answer) = cx.response_buffer(request.buffer, ANSWER)
        {
            let (value, found) = self.0.get(key);
            answer.resize(ANSWER);
            let bytes = answer.as_mut_slice();
            bytes[..VALUE].copy_from_slice(value);
            bytes[VALUE] = found.into();
            cx.respond(handle, answer, false);
        }
        if let Body::Message(message) = request.body {
            cx.recycle(message);
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
