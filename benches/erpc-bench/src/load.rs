//! A closed loop of calls through the raw layer. Each answer is checked and triggers the next call.

use std::time::{Duration, Instant};

use erpc::raw::{App, Body, Context, MsgBuf, NewCall, Reply, Rpc, SessionEvent, SessionId};
use erpc::{CallError, Transport, raw};

use crate::failure::Failure;
use crate::methods;
use crate::payload::{self, Lengths, SINK_ANSWER, SinkAnswers};
use crate::report::Latencies;
use crate::service::Answerer;

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
    /// The answer equals the request, whose length depends on its slot.
    Mixed { lengths: Lengths },
    /// The answer is a sum over the request.
    Sink { request: usize, answers: Option<SinkAnswers> },
    /// The answer is large, and the request names its length.
    Source { answer: usize },
}

/// A call in flight.
#[derive(Clone, Copy)]
struct Pending {
    session: usize,
    number: u64,
    sent: raw::Instant,
}

/// A deterministic generator of random numbers (xorshift64), which costs about a nanosecond.
struct Choice(u64);

impl Choice {
    /// A number below `count`.
    #[inline]
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * count as u128) >> 64) as usize
    }
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
    /// Selects the session of each call; `None` if each call in flight stays on one session.
    choice: Option<Choice>,
    control: Option<Vec<u8>>,
    failure: Option<Failure>,
    /// The peer of the sessions, for error messages.
    peer: String,
    /// Answers the peer's own calls.
    answerer: Option<Answerer>,
}

impl Load {
    /// Requests and answers below this size, in bytes, always go to an echo or mirror method, whose
    /// answers are compared byte by byte. A request of this size or more with an answer of [`SINK_ANSWER`] bytes goes to
    /// the sink: the client fills the request once and only numbers it for each call, and the server
    /// answers with a sum. So the loop does not measure the writing and comparing of patterns. An
    /// answer of this size or more to a request of [`SINK_ANSWER`] bytes comes from the source: the
    /// server does not write it again, and the client compares one word of each KiB.
    pub(crate) const MAX_ECHO: usize = 4_096;

    /// Calls with requests of `request` bytes that ask for `answer` bytes.
    pub(crate) fn new(request: usize, answer: usize) -> Result<Self, Failure> {
        let work = if request == answer {
            Work::Mirror { len: request }
        } else if request >= Self::MAX_ECHO && answer == SINK_ANSWER {
            Work::Sink { request, answers: None }
        } else if answer >= Self::MAX_ECHO && request == SINK_ANSWER {
            Work::Source { answer }
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
        Ok(Self::of(work))
    }

    /// Calls whose requests have these lengths, slot by slot, with answers of the same length.
    pub(crate) fn mixed(lengths: Lengths) -> Self {
        Self::of(Work::Mixed { lengths })
    }

    fn of(work: Work) -> Self {
        Self {
            work,
            sessions: Vec::new(),
            opened: 0,
            calls: Vec::new(),
            is_running: false,
            under_way: 0,
            next_number: 0,
            done: 0,
            latencies: None,
            choice: None,
            control: None,
            failure: None,
            peer: String::new(),
            answerer: None,
        }
    }

    /// Payload of a call in bytes, request and answer together. The average if calls differ.
    pub(crate) fn payload(&self) -> usize {
        match &self.work {
            Work::Mirror { len } => 2 * len,
            Work::Mixed { lengths } => 2 * lengths.average(),
            Work::Source { answer } => SINK_ANSWER + answer,
            Work::Echo { request, answer } => request + answer,
            Work::Sink { request, .. } => request + SINK_ANSWER,
        }
    }

    /// Makes each call on a session chosen at random, equally in every run.
    pub(crate) fn choose_sessions(&mut self) {
        self.choice = Some(Choice(0x9e37_79b9_7f4a_7c15));
    }

    /// Answers calls of the peer, too.
    pub(crate) fn answer(&mut self) -> Result<(), Failure> {
        let answerer = Answerer::new(false);
        self.answerer = Some(answerer.map_err(Failure::of("the service does not register"))?);
        Ok(())
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

    /// The failure of a call or session, if there was one.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
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
        self.run_pausing(rpc, outstanding, duration, |_, _| others())
    }

    /// Like [`Self::run`], but calls `pause` after each turn, with the amount of its work.
    pub(crate) fn run_pausing<T: Transport>(
        &mut self,
        rpc: &mut Rpc<T>,
        outstanding: usize,
        duration: Duration,
        mut pause: impl FnMut(&mut Rpc<T>, usize),
    ) -> Result<(u64, Duration), Failure> {
        let (start, before) = (Instant::now(), self.done);
        self.begin(rpc, outstanding)?;
        let mut progress = (self.done, start);
        let mut turns = 0u32;
        while self.is_under_way() {
            let work = rpc.run_once(self);
            pause(rpc, work);
            turns += 1;
            if !turns.is_multiple_of(TURNS) {
                continue;
            }
            let now = Instant::now();
            if now - start >= duration {
                self.end();
            }
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

    /// Makes the first `outstanding` calls. Each answer triggers the next call until [`Self::end`].
    pub(crate) fn begin<T: Transport>(
        &mut self,
        rpc: &mut Rpc<T>,
        outstanding: usize,
    ) -> Result<(), Failure> {
        self.is_running = true;
        let nothing = Pending { session: 0, number: 0, sent: raw::Instant::ZERO };
        self.calls = vec![nothing; outstanding];
        let mut cx = rpc.context();
        for slot in 0..outstanding {
            self.calls[slot].session = slot % self.sessions.len();
            let request = self.request(&mut cx, slot)?;
            self.under_way += 1;
            self.call(&mut cx, slot, request);
        }
        Ok(())
    }

    /// From now on, answers trigger no more calls.
    pub(crate) fn end(&mut self) {
        self.is_running = false;
    }

    /// Whether calls are in flight.
    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way > 0
    }

    /// Number of answered calls.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    /// Allocates a request for a slot. Fills a mirror or sink request; [`Self::call`] fills the
    /// others.
    fn request<T: Transport>(
        &mut self,
        cx: &mut Context<'_, T>,
        slot: usize,
    ) -> Result<MsgBuf, Failure> {
        let len = match &self.work {
            Work::Mirror { len }
            | Work::Echo { request: len, .. }
            | Work::Sink { request: len, .. } => *len,
            Work::Mixed { lengths } => lengths.of(slot),
            Work::Source { .. } => SINK_ANSWER,
        };
        let mut request = cx.alloc(len).map_err(Failure::of("no request"))?;
        request.resize(len);
        match &mut self.work {
            Work::Mirror { .. } | Work::Mixed { .. } => payload::fill(request.as_mut_slice()),
            Work::Echo { .. } | Work::Source { .. } => {}
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
            Work::Mirror { .. } | Work::Mixed { .. } => {
                payload::number_request(request.as_mut_slice(), number);
                methods::MIRROR
            }
            Work::Source { answer } => {
                payload::write_echo(request.as_mut_slice(), number, answer);
                methods::SOURCE
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
        if let Some(choice) = &mut self.choice {
            pending.session = choice.below(self.sessions.len());
        }
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
            Work::Mirror { .. } | Work::Mixed { .. } => {
                payload::is_equal(answer, request.as_slice())
            }
            Work::Source { answer: len } => payload::is_sourced(answer, number, *len),
            Work::Echo { answer: len, .. } => payload::is_echo(answer, number, *len),
            Work::Sink { answers, .. } => {
                answers.as_ref().is_some_and(|answers| answers.is_answer(answer, number))
            }
        }
    }
}

impl<T: Transport> App<T> for Load {
    #[inline(always)]
    fn on_request(&mut self, cx: &mut Context<'_, T>, request: raw::Request<'_, T::Route>) {
        if let Some(answerer) = &mut self.answerer {
            answerer.on_request(cx, request);
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_choices_repeat_and_are_spread_evenly() {
        let counts = || {
            let (mut choice, mut counts) = (Choice(1), [0u32; 10]);
            (0..10_000).for_each(|_| counts[choice.below(10)] += 1);
            counts
        };
        assert_eq!(counts(), counts());
        assert!(counts().iter().all(|&count| (850..1_150).contains(&count)), "{:?}", counts());
    }
}
