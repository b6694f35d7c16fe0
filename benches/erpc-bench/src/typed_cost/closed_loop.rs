//! Client and server of a closed loop over the raw layer, on one thread. The format of requests and
//! answers is a parameter.

use std::sync::Arc;

use erpc::raw::ListenGroup;
use erpc::raw::{Acceptor, App, Context, MsgBuf, NewCall, Reply, Rpc, SessionEvent, SessionId};
use erpc::transport::mem::{MemConfig, MemHub, MemTransport};
use erpc::{CallError, EndpointConfig, Transport};

use super::{Subject, Width};
use crate::failure::Failure;

/// How a form of the call writes requests and reads answers.
pub(super) trait Messages {
    /// Initial size of a request's buffer, in bytes.
    const REQUEST: usize;

    fn method(&self) -> u32;

    /// Writes the request for `key` into an empty buffer.
    fn write(&self, key: u64, request: &mut MsgBuf);

    /// Whether `answer` is the right answer to the request for `key`.
    fn is_answer(&self, answer: &[u8], key: u64) -> bool;
}

/// A client and a server.
pub(super) struct ClosedLoop<M, S> {
    client: Rpc<MemTransport>,
    calls: Calls<M>,
    server: Rpc<MemTransport>,
    app: S,
    outstanding: usize,
}

impl<M: Messages, S: App<MemTransport>> ClosedLoop<M, S> {
    /// Connects a client to a server whose application is `app`.
    pub(super) fn new(width: Width, messages: M, mut app: S) -> Result<Self, Failure> {
        let Width { sessions, outstanding } = width;
        let hub = MemHub::new();
        let rpc = || {
            Rpc::new(hub.port(MemConfig::default()), EndpointConfig::new())
                .map_err(Failure::of("no endpoint"))
        };
        let (mut client, mut server) = (rpc()?, rpc()?);
        server.listen(Acceptor::new(Arc::new(ListenGroup::new([7; 16], vec![0])), 0));
        let peer = server.local_route();
        let mut calls = Calls::new(messages);
        for _ in 0..sessions {
            let session = client.context().connect(peer).map_err(Failure::of("cannot connect"))?;
            calls.sessions.push(session);
        }
        while calls.opened < sessions {
            client.run_once(&mut calls);
            server.run_once(&mut app);
        }
        Ok(Self { client, calls, server, app, outstanding })
    }
}

impl<M: Messages, S: App<MemTransport>> Subject for ClosedLoop<M, S> {
    fn run(&mut self, calls: u64) -> Result<(), Failure> {
        self.calls.left = calls;
        for _ in 0..self.outstanding {
            let mut cx = self.client.context();
            let request = cx.alloc(M::REQUEST).map_err(Failure::of("no request"))?;
            self.calls.call(&mut cx, request);
        }
        while self.calls.under_way > 0 {
            self.client.run_once(&mut self.calls);
            self.server.run_once(&mut self.app);
        }
        self.calls.failure.take().map_or(Ok(()), Err)
    }
}

/// The client. The token of a call is its key.
struct Calls<M> {
    messages: M,
    sessions: Vec<SessionId>,
    opened: usize,
    left: u64,
    under_way: usize,
    next: u64,
    failure: Option<Failure>,
}

impl<M: Messages> Calls<M> {
    fn new(messages: M) -> Self {
        Self {
            messages,
            sessions: Vec::new(),
            opened: 0,
            left: 0,
            under_way: 0,
            next: 0,
            failure: None,
        }
    }

    /// Makes the next call, unless all calls are made.
    #[inline(always)]
    fn call<T: Transport>(&mut self, cx: &mut Context<'_, T>, mut request: MsgBuf) {
        if self.left == 0 {
            return cx.recycle(request);
        }
        self.left -= 1;
        self.under_way += 1;
        let key = self.next;
        self.next += 1;
        self.messages.write(key, &mut request);
        let session = self.sessions[key as usize % self.sessions.len()];
        if let Err(rejected) = cx.call(session, NewCall::new(self.messages.method(), request, key))
        {
            self.fail(format!("a call was rejected: {rejected}"));
        }
    }

    fn fail(&mut self, why: impl Into<String>) {
        self.failure.get_or_insert(Failure::new(why));
        (self.left, self.under_way) = (0, 0);
    }
}

impl<T: Transport, M: Messages> App<T> for Calls<M> {
    #[inline(always)]
    fn on_reply(
        &mut self,
        cx: &mut Context<'_, T>,
        key: u64,
        reply: Result<Reply<'_>, CallError>,
        request: MsgBuf,
    ) {
        match reply {
            Ok(reply) if self.messages.is_answer(reply.as_slice(), key) => {}
            Ok(_) => return self.fail(format!("the answer for key {key} is wrong")),
            Err(error) => return self.fail(format!("a call failed: {error}")),
        }
        self.under_way -= 1;
        self.call(cx, request);
    }

    fn on_session(&mut self, _: &mut Context<'_, T>, _: SessionId, event: SessionEvent) {
        match event {
            SessionEvent::Opened => self.opened += 1,
            SessionEvent::Draining => self.fail("the server shuts down"),
            SessionEvent::Closed(cause) => self.fail(format!("a session closed: {cause}")),
        }
    }
}
