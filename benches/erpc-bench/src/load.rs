//! A closed loop of calls through the raw layer. Each answer is checked and triggers the next call.

use std::time::{Duration, Instant};

use erpc::raw::{App, Body, Context, MsgBuf, NewCall, Reply, Rpc, SessionEvent, SessionId};
use erpc::{CallError, Transport, raw};

use crate::failure::Failure;
use crate::methods;
use crate::payload::{self, SINK_ANSWER, SinkAnswers};
use crate::report::Latencies;

/// A loop without an answer for this time has lost a call.
const STALL_LIMIT: Duration = Duration::from_secs(15);
/// Turns of the loop between two checks of the clock.
const TURNS: u32 = 64;
/// Token of control calls. The tokens of other calls are their slots.
const CONTROL_TOKEN: u64 = u64::MAX;

/// The method that is called, and sizes of messages in bytes.
enum Work {
    /// The answer equals the request.
    Mirror { len: usize },
    /// The answer has another length than the request.
    Echo { request: usize, answer: usize },
    /// The answer is a sum over the request.
    Sink { request: usize, answers: Option<SinkAnswers> },
}

/// A call in flight.
#[derive(Clone, Copy)]
struct Pending {
    session: usize,
    number: u64,
    sent: raw::Instant,
}

/// The client of the loop.
pub(crate) struct Load {
    work: Work,
    sessions: Vec<SessionId>,
    opened: usize,
    calls: Vec<Pending>,
    is_running: bool,
    under_way: usize,
    next_number: u64,
    done: u64,
    latencies: Option<Latencies>,
    control: Option<Vec<u8>>,
    failure: Option<Failure>,
    /// The peer of the sessions, for error messages.
    peer: String,
}

impl Load {
    /// Largest request, in bytes, that always goes to an echo or mirror method, whose answers are
    /// compared byte by byte. A larger request with an answer of [`SINK_ANSWER`] bytes goes to the
    /// sink: the client fills the request once and only numbers it for each call, and the server
    /// answers with a sum. So the loop does not measure the writing and comparing of patterns.
    pub(crate) const MAX_ECHO: usize = 4_096;

    /// Calls with requests of `request` bytes that ask for `answer` bytes.
    pub(crate) fn new(request: usize, answer: usize) -> Result<Self, Failure> {
        let work = if request == answer {
            Work::Mirror { len: request }
        } else if request > Self::MAX_ECHO && answer == SINK_ANSWER {
            Work::Sink { request, answers: None }
        } else {
            Work::Echo { request, answer }
        };
        let least = payload::MIN_ECHO;
        if matches!(work, Work::Echo { .. }) && request.min(answer) < least {
            return Err(Failure::new(format!(
                "requests and answers of different sizes have at least {least} bytes each"
            )));
        }
        let most = payload::MAX_MESSAGE;
        if request.max(answer) > most {
            return Err(Failure::new(format!("requests and answers have at most {most} bytes")));
        }
        Ok(Self {
            work,
            sessions: Vec::new(),
            opened: 0,
            calls: Vec::new(),
            is_running: false,
            under_way: 0,
            next_number: 0,
            done: 0,
            latencies: None,
            control: None,
            failure: None,
            peer: String::new(),
        })
    }

    /// Payload of a call in bytes, request and answer together.
    pub(crate) fn payload(&self) -> usize {
        match self.work {
            Work::Mirror { len } => 2 * len,
            Work::Echo { request, answer } => request + answer,
            Work::Sink { request, .. } => request + SINK_ANSWER,
        }
    }

    /// Starts to measure latencies.
    pub(crate) fn measure_latencies(&mut self) {
        self.latencies = Some(Latencies::new());
    }

    pub(crate) fn take_latencies(&mut self) -> Latencies {
        self.latencies.take().unwrap_or_else(Latencies::new)
    }

    /// Opens `count` sessions to `peer`. Calls `others` after each turn of the client's loop, to
    /// run the other ends that share the thread, for example the server.
    pub(crate) fn connect<T: Transport>(
        &mut self,
        rpc: &mut Rpc<T>,
        peer: T::Route,
        count: usize,
        mut others: impl FnMut(),
    ) -> Result<(), Failure> {
        self.peer = peer.to_string();
        for _ in 0..count {
            let session = rpc.context().connect(peer).map_err(Failure::of("cannot connect"))?;
            self.sessions.push(session);
        }
        while self.opened < count {
            rpc.run_once(self);
            others();
            self.check()?;
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), Failure> {
        self.failure.take().map_or(Ok(()), Err)
    }

    fn fail(&mut self, why: impl Into<String>) {
        self.is_running = false;
        self.failure.get_or_insert(Failure::new(why));
    }

    /// Keeps `outstanding` calls in flight for `duration`, spread over the sessions, then waits
    /// until they have ended. Calls `others` as [`Self::connect`] does. Returns the number of
    /// answered calls and the elapsed time.
    pub(crate) fn run<T: Transport>(
        &mut self,
        rpc: &mut Rpc<T>,
        outstanding: usize,
        duration: Duration,
        mut others: impl FnMut(),
    ) -> Result<(u64, Duration), Failure> {
        let (start, before) = (Instant::now(), self.done);
        self.is_running = true;
        let nothing = Pending { session: 0, number: 0, sent: raw::Instant::ZERO };
        self.calls = vec![nothing; outstanding];
        let mut cx = rpc.context();
        for slot in 0..outstanding {
            self.calls[slot].session = slot % self.sessions.len();
            let request = self.request(&mut cx)?;
            self.under_way += 1;
            self.call(&mut cx, slot, request);
        }
        let mut progress = (self.done, start);
        let mut turns = 0u32;
        while self.under_way > 0 {
            rpc.run_once(self);
            others();
            turns += 1;
            if !turns.is_multiple_of(TURNS) {
                continue;
            }
            let now = Instant::now();
            self.is_running &= now - start < duration;
            if progress.0 != self.done {
                progress = (self.done, now);
            } else if now - progress.1 > STALL_LIMIT {
                return Err(Failure::new(format!(
                    "no call was answered for {} s",
                    STALL_LIMIT.as_secs()
                )));
            }
            // A failure ends the run, even with calls in flight.
            if self.failure.is_some() {
                break;
            }
        }
        self.check()?;
        Ok((self.done - before, start.elapsed()))
    }

    /// Allocates a request. Fills a mirror or sink request; [`Self::call`] fills an echo request.
    fn request<T: Transport>(&mut self, cx: &mut Context<'_, T>) -> Result<MsgBuf, Failure> {
        let (Work::Mirror { len }
        | Work::Echo { request: len, .. }
        | Work::Sink { request: len, .. }) = self.work;
        let mut request = cx.alloc(len).map_err(Failure::of("no request"))?;
        request.resize(len);
        match &mut self.work {
            Work::Mirror { .. } => payload::fill(request.as_mut_slice()),
            Work::Echo { .. } => {}
            Work::Sink { answers, .. } => {
                payload::fill(request.as_mut_slice());
                *answers = Some(SinkAnswers::to(request.as_slice()));
            }
        }
        Ok(request)
    }

    /// Numbers a request and sends it.
    #[inline(always)]
    fn call<T: Transport>(&mut self, cx: &mut Context<'_, T>, slot: usize, mut request: MsgBuf) {
        let number = self.next_number;
        self.next_number += 1;
        let method = match self.work {
            // In a request of 8 bytes or more, the number makes the bytes unique to this call.
            Work::Mirror { .. } => {
                payload::number_request(request.as_mut_slice(), number);
                methods::MIRROR
            }
            Work::Echo { answer, .. } => {
                payload::write_echo(request.as_mut_slice(), number, answer);
                methods::ECHO
            }
            Work::Sink { .. } => {
                payload::number_request(request.as_mut_slice(), number);
                methods::SINK
            }
        };
        let pending = &mut self.calls[slot];
        (pending.number, pending.sent) = (number, cx.now());
        if let Err(rejected) =
            cx.call(self.sessions[pending.session], NewCall::new(method, request, slot as u64))
        {
            self.under_way -= 1;
            self.fail(format!("a call was rejected: {rejected}"));
        }
    }

    /// Makes a control call to the server process and waits for the answer.
    pub(crate) fn control<T: Transport>(
        &mut self,
        rpc: &mut Rpc<T>,
        control: methods::Control,
    ) -> Result<methods::ServerState, Failure> {
        let mut cx = rpc.context();
        let mut request = cx.alloc(methods::Control::LEN).map_err(Failure::of("no request"))?;
        request.resize(methods::Control::LEN);
        request.as_mut_slice().copy_from_slice(&control.to_bytes());
        let call =
            cx.call(self.sessions[0], NewCall::new(methods::CONTROL, request, CONTROL_TOKEN));
        call.map_err(Failure::of("a control call was rejected"))?;
        loop {
            rpc.run_once(self);
            self.check()?;
            if let Some(answer) = self.control.take() {
                return methods::ServerState::from_bytes(&answer)
                    .ok_or_else(|| Failure::new("the server has another version of erpc-bench"));
            }
        }
    }

    #[inline(always)]
    fn is_answer(&self, request: &MsgBuf, answer: &[u8], number: u64) -> bool {
        match &self.work {
            Work::Mirror { .. } => payload::is_equal(answer, request.as_slice()),
            Work::Echo { answer: len, .. } => payload::is_echo(answer, number, *len),
            Work::Sink { answers, .. } => {
                answers.as_ref().is_some_and(|answers| answers.is_answer(answer, number))
            }
        }
    }
}

impl<T: Transport> App<T> for Load {
    #[inline(always)]
    fn on_reply(
        &mut self,
        cx: &mut Context<'_, T>,
        token: u64,
        reply: Result<Reply<'_>, CallError>,
        request: MsgBuf,
    ) {
        let Reply { body, .. } = match reply {
            Ok(reply) => reply,
            Err(error) => {
                self.under_way = self.under_way.saturating_sub(1);
                return self.fail(format!("a call failed: {error}"));
            }
        };
        if token == CONTROL_TOKEN {
            self.control = Some(body.as_slice().to_vec());
            return;
        }
        let slot = token as usize;
        let Pending { number, sent, .. } = self.calls[slot];
        if !self.is_answer(&request, body.as_slice(), number) {
            self.fail(format!("the answer to call {number} is wrong"));
        }
        if let Body::Message(message) = body {
            cx.recycle(message);
        }
        self.done += 1;
        if let Some(latencies) = &mut self.latencies {
            latencies.record(cx.now().nanos_since(sent));
        }
        if self.is_running {
            self.call(cx, slot, request);
        } else {
            self.under_way -= 1;
            cx.recycle(request);
        }
    }

    fn on_session(&mut self, _: &mut Context<'_, T>, _: SessionId, event: SessionEvent) {
        match event {
            SessionEvent::Opened => self.opened += 1,
            SessionEvent::Draining => self.fail("a server shuts down"),
            SessionEvent::Closed(cause) => {
                let peer = std::mem::take(&mut self.peer);
                self.fail(format!("the session to {peer} closed: {cause}"));
            }
        }
    }
}
