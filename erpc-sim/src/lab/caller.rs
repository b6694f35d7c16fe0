//! The user of an endpoint: keeps calls in progress and answers calls of others.

use std::time::Duration;

use erpc_core::buf::MsgBuf;
use erpc_core::event_loop::{App, Context};
use erpc_core::protocol::{CallError, NewCall, Reply, Request, SessionEvent, SessionId};
use erpc_core::time::Instant;

use super::Samples;
use crate::transport::SimTransport;
use crate::{Random, SimRoute};

type Cx<'a> = Context<'a, SimTransport>;

/// Which session a call goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spread {
    /// Each call in progress has a fixed session. The numbers of calls of two sessions differ by at
    /// most 1.
    Even,
    /// Each call goes to a random session.
    Random,
}

/// The calls of an endpoint, in a closed loop.
#[derive(Clone, Debug)]
pub struct Load {
    /// The peers that the endpoint calls. It opens one session per entry, so two to a peer that is
    /// listed twice.
    pub peers: Vec<SimRoute>,
    /// Which session a call goes to.
    pub spread: Spread,
    /// Bytes of a request.
    pub request: usize,
    /// Bytes of a response.
    pub response: u32,
    /// The number of calls in progress.
    pub outstanding: usize,
    /// Time of the first call, since the beginning of the run.
    pub start: Duration,
}

/// The user that makes the calls of a [`Load`].
pub(super) struct Caller {
    load: Load,
    /// The shortest length of a request, in bytes. Each request has a random length between this
    /// and the load's request length.
    pub(super) least_request: usize,
    random: Random,
    sessions: Vec<SessionId>,
    /// Start of each call in progress.
    begun: Vec<Instant>,
    pub(super) calls: u64,
    pub(super) latencies: Samples,
}

impl Caller {
    pub(super) fn new(load: Load, random: Random) -> Self {
        let begun = vec![Instant::ZERO; load.outstanding];
        let latencies = Samples::default();
        let least_request = load.request;
        Self { load, least_request, random, sessions: Vec::new(), begun, calls: 0, latencies }
    }

    pub(super) fn start(&self) -> Duration {
        self.load.start
    }

    /// Start of the oldest call in progress.
    pub(super) fn begun_first(&self) -> Option<Instant> {
        self.begun.iter().min().copied()
    }

    pub(super) fn sessions(&self) -> &[SessionId] {
        &self.sessions
    }

    /// Opens the sessions and makes the first calls. Later calls of this function do nothing.
    pub(super) fn begin(&mut self, cx: &mut Cx<'_>) {
        if !self.sessions.is_empty() || self.load.peers.is_empty() {
            return;
        }
        for &peer in &self.load.peers {
            self.sessions.push(cx.connect(peer).expect("there is room for the sessions"));
        }
        for at in 0..self.load.outstanding {
            let mut request = cx.alloc(self.load.request).expect("there is memory for requests");
            request.resize(self.load.request);
            self.call(cx, at, request);
        }
    }

    fn call(&mut self, cx: &mut Cx<'_>, at: usize, mut request: MsgBuf) {
        self.begun[at] = cx.now();
        let (least, most) = (self.least_request, self.load.request);
        if least < most {
            request.resize(self.random.within(least as u64, most as u64) as usize);
        }
        let session = match self.load.spread {
            Spread::Even => at % self.sessions.len(),
            Spread::Random => self.random.below(self.sessions.len() as u64) as usize,
        };
        // The method number is the length of the response.
        let call = NewCall::new(self.load.response, request, at as u64);
        if let Err(rejected) = cx.call(self.sessions[session], call) {
            panic!("a call was rejected: {}", rejected.reason);
        }
    }
}

impl App<SimTransport> for Caller {
    fn on_request(&mut self, cx: &mut Cx<'_>, request: Request<'_, SimRoute>) {
        let len = request.method as usize;
        let mut response =
            cx.response_buffer(request.buffer, len).expect("there is memory for responses");
        response.resize(len);
        cx.respond(request.handle, response, false);
    }

    fn on_reply(
        &mut self,
        cx: &mut Cx<'_>,
        token: u64,
        reply: Result<Reply<'_>, CallError>,
        request: MsgBuf,
    ) {
        match reply {
            Ok(reply) => assert_eq!(reply.as_slice().len(), self.load.response as usize),
            Err(error) => panic!("a call failed: {error}"),
        }
        self.calls += 1;
        let at = token as usize;
        self.latencies.add(cx.now().nanos_since(self.begun[at]));
        self.call(cx, at, request);
    }

    fn on_session(&mut self, _: &mut Cx<'_>, _: SessionId, event: SessionEvent) {
        assert_eq!(event, SessionEvent::Opened, "no session ends in an experiment");
    }
}
