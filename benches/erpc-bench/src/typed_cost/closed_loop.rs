//! Client and server of a closed loop over the raw layer, on one thread. The format of requests and
//! answers is a parameter.

use std::sync::Arc;

use erpc::raw::ListenGroup;
use erpc::raw::{
    Acceptor, App, Body, Context, MsgBuf, NewCall, Reply, Rpc, SessionEvent, SessionId,
};
use erpc::transport::mem::MemTransport;
use erpc::{CallError, Transport};

use super::{Clock, Setup, Subject};
use crate::failure::Failure;

/// How a form of the call writes requests and reads answers.
pub(crate) trait Messages {
    /// Initial size of a request's buffer, in bytes.
    fn room(&self) -> usize;

    fn method(&self) -> u32;

    /// Writes the request for `key` into an empty buffer.
    fn write(&self, key: u64, request: &mut MsgBuf);

    /// Whether `answer` is the right answer to the request for `key`.
    fn is_answer(&self, answer: &[u8], key: u64) -> bool;
}

/// A client and a server.
pub(crate) struct ClosedLoop<M, S, T: Transport = MemTransport> {
    client: Rpc<T>,
    calls: Calls<M>,
    server: Rpc<T>,
    app: S,
    outstanding: usize,
    clock: Clock,
}

impl<M: Messages, S: App<MemTransport>> ClosedLoop<M, S> {
    /// Connects a client to a server whose application is `app`, over the memory transport.
    pub(crate) fn new(setup: &Setup, messages: M, app: S) -> Result<Self, Failure> {
        Self::over(setup.ports(), setup, messages, app)
    }
}

impl<T: Transport, M: Messages, S: App<T>> ClosedLoop<M, S, T> {
    /// Connects a client to a server whose application is `app`, over the transports of both.
    pub(crate) fn over(
        (client, server): (T, T),
        setup: &Setup,
        messages: M,
        app: S,
    ) -> Result<Self, Failure> {
        let rpc = |transport| {
            Rpc::new(transport, setup.config.clone()).map_err(Failure::of("no endpoint"))
        };
        let (client, mut server) = (rpc(client)?, rpc(server)?);
        server.listen(Acceptor::new(Arc::new(ListenGroup::new([7; 16], vec![0])), 0));
        let peer = server.local_route();
        let (outstanding, clock) = (setup.width.outstanding, setup.clock);
        let calls = Calls::new(messages);
        let mut ends = Self { client, calls, server, app, outstanding, clock };
        for _ in 0..setup.width.sessions {
            let mut cx = context(&mut ends.client, ends.clock);
            let session = cx.connect(peer).map_err(Failure::of("cannot connect"))?;
            ends.calls.sessions.push(session);
        }
        while ends.calls.opened < setup.width.sessions {
            ends.turn();
            ends.check()?;
        }
        Ok(ends)
    }

    /// Runs a turn of the client and one of the server.
    #[inline(always)]
    fn turn(&mut self) {
        match self.clock.tick() {
            None => {
                self.client.run_once(&mut self.calls);
                self.server.run_once(&mut self.app);
            }
            Some(now) => {
                self.client.run_once_at(now, &mut self.calls);
                self.server.run_once_at(now, &mut self.app);
            }
        }
    }

    fn check(&mut self) -> Result<(), Failure> {
        self.calls.failure.take().map_or(Ok(()), Err)
    }
}

fn context<T: Transport>(rpc: &mut Rpc<T>, clock: Clock) -> Context<'_, T> {
    match clock {
        Clock::System => rpc.context(),
        Clock::Virtual(now) => rpc.context_at(now),
    }
}

impl<T: Transport, M: Messages, S: App<T>> Subject for ClosedLoop<M, S, T> {
    fn run(&mut self, calls: u64) -> Result<(), Failure> {
        self.calls.left = calls;
        for _ in 0..self.outstanding {
            let mut cx = context(&mut self.client, self.clock);
            let request =
                cx.alloc(self.calls.messages.room()).map_err(Failure::of("no request"))?;
            self.calls.call(&mut cx, request);
        }
        while self.calls.under_way > 0 {
            self.turn();
        }
        self.check()
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
            Ok(Reply { body, .. }) => {
                if !self.messages.is_answer(body.as_slice(), key) {
                    return self.fail(format!("the answer for key {key} is wrong"));
                }
                if let Body::Message(message) = body {
                    cx.recycle(message);
                }
            }
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
