//! Measures the duration of an endpoint's turns, so that peers do not attribute it to the network.
//!
//! The clock is read once per turn. That is as good as once per packet while handlers take
//! nanoseconds (thesis section 6.4.2.2). A handler of 200 us makes this time wrong: its response
//! would claim to have been ready immediately, and the other responses of the burst would wait, and
//! seem to have waited in the network. The clock reading of the next turn gives the duration of a
//! turn at no cost. After a long turn, the clock is read for every response during the next 256
//! turns with packets. Then a slow response is sent immediately, and ready responses are sent
//! before the next handler that is likely to be slow.

use std::time::Duration;

use crate::clock;
use crate::protocol::{Core, QueueWait};
use crate::time::Instant;
use crate::transport::{Route, TxQueue};

/// A loop whose turns are less than this many ns apart is spinning, not absent.
const SPINNING: u64 = 4_000;
/// A turn is long if it takes more ns than the first number, plus the second number for each packet
/// that it received.
const LONG: (u64, u64) = (20_000, 4_000);
/// Number of turns with packets that are watched after a long one.
const WATCHED: u32 = 256;
/// A response that took more ns than this does not wait for the end of its turn.
const SLOW: u64 = 10_000;

/// Larger than any method's id.
const NO_METHOD: u64 = u64::MAX;

/// Measures the turns of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// When the receive queue was last polled; `None` if the loop has slept since.
    looked_at: Option<Instant>,
    /// Whether the loop has paused since, which packets do not end.
    has_paused: bool,
    /// Number of packets that the last turn received.
    received: u64,
    /// Number of turns with packets for which responses are still watched.
    watched: u32,
    /// When the last watched response was ready, and whether it was slow.
    answered_at: Instant,
    slow: bool,
    /// `answered_at` as of the end of the previous handler.
    resumed_at: Instant,
    /// An absence longer than this, in ns, is noted: the smaller of the next two.
    noted: u64,
    /// An absence longer than this, in ns, is a gap.
    gap: u64,
    /// An absence longer than this, in ns, is reported in the log.
    slow_handler: u64,
    gaps: LoopGaps,
    /// The longest absence that is to be reported.
    held: Option<HeldLoop>,
    /// The method of the last request that was passed to the owner since the loop slept, or
    /// [`NO_METHOD`]. One word, which takes one instruction to write.
    method: u64,
}

/// Times in which a loop did not poll its receive queue for longer than the floor of its
/// retransmission timeout ([`Capabilities::min_rto`](crate::transport::Capabilities::min_rto), or
/// the configured value): the thread had lost its core, or a handler, callback or task occupied it.
/// Sleep does not count. During a gap, a peer may wait in vain for an answer, and send a probe.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LoopGaps {
    /// Number of gaps.
    pub count: u64,
    /// Duration of the longest gap.
    pub longest: Duration,
}

/// A loop was absent for longer than [`EndpointConfig::slow_handler`].
///
/// [`EndpointConfig::slow_handler`]: crate::protocol::EndpointConfig::slow_handler
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HeldLoop {
    pub(crate) nanos: u64,
    /// The method of the last request before. `None` if there was none since the loop slept.
    pub(crate) method: Option<u32>,
}

impl Turns {
    /// Measures a new loop. An absence longer than `gap` counts as a gap, and one longer than
    /// `slow_handler` is reported.
    pub(crate) fn new(gap: Duration, slow_handler: Duration) -> Self {
        let [gap, slow_handler] =
            [gap, slow_handler].map(|time| time.as_nanos().try_into().unwrap_or(u64::MAX));
        Self {
            noted: gap.min(slow_handler),
            gap,
            slow_handler,
            method: NO_METHOD,
            ..Self::default()
        }
    }

    /// The start of the last turn; `None` if the loop has slept since.
    pub(super) fn last(&self) -> Option<Instant> {
        self.looked_at
    }

    /// The longest absence since the last call of this function that is to be reported.
    pub(super) fn take_held(&mut self) -> Option<HeldLoop> {
        self.held.take()
    }

    /// Records that a request for `method` is passed to the owner.
    #[inline(always)]
    pub(super) fn dispatches(&mut self, method: u32) {
        self.method = u64::from(method);
    }

    /// The gaps since the loop was created.
    pub(super) fn gaps(&self) -> LoopGaps {
        self.gaps
    }

    /// Begins a turn that received `received` packets. Returns how long the receive queue was not
    /// polled, in ns; 0 if the loop spins or has slept. If `is_virtual`, the clock is the caller's
    /// and is never read.
    #[inline]
    pub(crate) fn begin(&mut self, now: Instant, received: usize, is_virtual: bool) -> u64 {
        let absence = self.looked_at.replace(now).map_or(0, |before| now.nanos_since(before));
        if self.received > 0 {
            self.watched = self.watched.saturating_sub(1);
            self.slow &= self.watched > 0;
            if absence > LONG.0 + LONG.1 * self.received && !is_virtual {
                self.watched = WATCHED;
            }
        }
        self.received = received as u64;
        (self.answered_at, self.resumed_at) = (now, now);
        let has_paused = std::mem::take(&mut self.has_paused);
        if absence < SPINNING {
            return 0;
        }
        if absence > self.noted && !has_paused {
            self.note(absence, is_virtual);
        }
        absence
    }

    #[cold]
    fn note(&mut self, nanos: u64, is_virtual: bool) {
        if nanos > self.gap {
            self.gaps.count += 1;
            self.gaps.longest = self.gaps.longest.max(Duration::from_nanos(nanos));
        }
        // A virtual clock does not show how long a handler takes.
        let is_longest = self.held.is_none_or(|held| nanos > held.nanos);
        if nanos > self.slow_handler && is_longest && !is_virtual {
            self.held = Some(HeldLoop { nanos, method: u32::try_from(self.method).ok() });
        }
    }

    /// Called after the loop has paused for a while. Packets may have waited for the next turn, but
    /// no handler is to blame.
    pub(super) fn pause(&mut self) {
        self.has_paused = true;
        self.method = NO_METHOD;
    }

    /// Called after the loop has slept until work came: no packet has waited for the next turn.
    pub(crate) fn rest(&mut self) {
        (self.looked_at, self.received, self.method) = (None, 0, NO_METHOD);
    }

    /// Whether the responses of this turn are watched.
    #[inline]
    pub(super) fn are_watched(&self) -> bool {
        self.watched > 0
    }

    /// If the last watched response was slow, the next handler is likely to be slow as well. Then
    /// sends the packets that would otherwise wait for that handler.
    #[cold]
    pub(super) fn send_before_handler<R: Route, X: TxQueue<Route = R>>(
        &self,
        core: &mut Core<R>,
        now: Instant,
        queue_wait: QueueWait,
        tx: &mut X,
    ) {
        if self.slow {
            core.end_of_burst(now, queue_wait, tx);
            tx.doorbell();
        }
    }

    /// Called after a handler in a turn that began at `now`. Returns how long after `now` the last
    /// response was ready, in ns. If the handler did not answer, the next handler is not expected
    /// to be slow.
    pub(crate) fn resume(&mut self, now: Instant) -> u64 {
        self.slow &= self.answered_at > self.resumed_at;
        self.resumed_at = self.answered_at;
        self.answered_at.nanos_since(now)
    }

    /// Returns when a response is ready: `now`, the start of its turn, or the current time if
    /// responses are watched.
    #[inline(always)]
    pub(crate) fn answered(&mut self, now: Instant) -> Answered {
        if self.watched == 0 { Answered { at: now, slow: false } } else { self.watch(now) }
    }

    #[cold]
    fn watch(&mut self, now: Instant) -> Answered {
        // Outside of turns, `now` is later than `answered_at`.
        let since = self.answered_at.max(now);
        self.answered_at = clock::now();
        self.slow = self.answered_at.nanos_since(since) > SLOW;
        Answered { at: self.answered_at, slow: self.slow }
    }
}

/// When a response is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answered {
    pub(crate) at: Instant,
    /// Whether the response took so long that it should not wait for others.
    pub(crate) slow: bool,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::buf::MsgBuf;
    use crate::event_loop::{App, Context, Rpc};
    use crate::protocol::{
        Acceptor, CallError, EndpointConfig, ListenGroup, NewCall, Reply, Request, SessionEvent,
        SessionId,
    };
    use crate::transport::mem::{MemConfig, MemHub, MemRoute, MemTransport};
    use crate::transport::{Capabilities, Path, Transport, TransportStats, Waker};

    const START: Instant = Instant::from_nanos(1_000_000_000);

    fn watches(turns: &mut Turns) -> bool {
        turns.answered(START) != Answered { at: START, slow: false }
    }

    #[test]
    fn the_absence_is_the_time_since_the_last_turn_unless_the_loop_slept() {
        let mut turns = Turns::default();
        assert_eq!(turns.begin(START, 0, false), 0);
        assert_eq!(turns.begin(START.plus_nanos(700), 3, false), 0, "the loop spins");
        assert_eq!(turns.begin(START.plus_nanos(5_700), 3, false), 5_000);
        turns.rest();
        assert_eq!(turns.begin(START.plus_nanos(900_000), 3, false), 0);
        assert!(!watches(&mut turns), "sleep does not count as a long turn");
    }

    #[test]
    fn gaps_are_counted_and_the_longest_is_kept() {
        let mut turns = Turns::new(Duration::from_millis(1), Duration::MAX);
        let mut now = START;
        for nanos in [0, 1_000_000, 1_000_001, 7_000_000, 2_000_000, 3_999] {
            now = now.plus_nanos(nanos);
            turns.begin(now, 0, false);
        }
        let gaps = LoopGaps { count: 3, longest: Duration::from_millis(7) };
        assert_eq!(turns.gaps(), gaps);
        turns.rest();
        turns.begin(now.plus_nanos(9_000_000), 0, false);
        assert_eq!(turns.gaps(), gaps, "sleep is not a gap");
    }

    /// A memory transport whose waits packets do not end.
    struct Pausing(MemTransport);

    impl Transport for Pausing {
        type Route = MemRoute;
        type Rx = <MemTransport as Transport>::Rx;
        type Tx = <MemTransport as Transport>::Tx;

        const WAKES_FOR_PACKETS: bool = false;

        fn split(&mut self) -> (&mut Self::Rx, &mut Self::Tx) {
            self.0.split()
        }

        fn capabilities(&self) -> Capabilities {
            self.0.capabilities()
        }

        fn local_route(&self) -> MemRoute {
            self.0.local_route()
        }

        fn path(&mut self, peer: &MemRoute) -> Path {
            self.0.path(peer)
        }

        fn wait(&mut self, timeout: Option<Duration>) {
            self.0.wait(timeout);
        }

        fn waker(&self) -> Waker {
            self.0.waker()
        }

        fn stats(&self) -> TransportStats {
            self.0.stats()
        }
    }

    struct Idle;

    impl<T: Transport> App<T> for Idle {}

    /// Whether the time of a wait counts as the loop's absence.
    fn is_absent_while_it_waits<T: Transport>(transport: T) -> bool {
        let mut rpc = Rpc::new(transport, EndpointConfig::new()).expect("default settings");
        rpc.run_once(&mut Idle);
        rpc.wait(Some(Duration::from_millis(1)));
        rpc.last_turn().is_some()
    }

    #[test]
    fn a_wait_is_an_absence_if_packets_do_not_end_it() {
        let hub = MemHub::new();
        assert!(!is_absent_while_it_waits(hub.port(MemConfig::default())));
        assert!(is_absent_while_it_waits(Pausing(hub.port(MemConfig::default()))));
    }

    #[test]
    fn a_pause_is_an_absence_but_no_gap() {
        let mut turns = Turns::new(Duration::from_millis(1), Duration::from_millis(1));
        turns.begin(START, 0, false);
        turns.pause();
        let now = START.plus_nanos(9_000_000);
        assert_eq!(turns.begin(now, 3, false), 9_000_000);
        assert_eq!((turns.gaps().count, turns.take_held()), (0, None));
        assert!(!watches(&mut turns), "no long turn");
        turns.begin(now.plus_nanos(9_000_000), 0, false);
        assert_eq!(turns.gaps().count, 1, "the pause is over");
    }

    #[test]
    fn the_longest_absence_beyond_the_limit_is_reported_once_with_the_last_method() {
        // The limit may be shorter than that of gaps.
        let mut turns = Turns::new(Duration::from_millis(5), Duration::from_millis(2));
        let mut now = START;
        let mut turn = |turns: &mut Turns, nanos, is_virtual| {
            now = now.plus_nanos(nanos);
            turns.begin(now, 1, is_virtual);
        };
        turn(&mut turns, 0, false);
        turn(&mut turns, 2_000_000, false);
        assert_eq!(turns.take_held(), None);
        turn(&mut turns, 2_000_001, false);
        turns.dispatches(7);
        turn(&mut turns, 4_000_000, false);
        turns.dispatches(8);
        turn(&mut turns, 3_000_000, false);
        let held = HeldLoop { nanos: 4_000_000, method: Some(7) };
        assert_eq!((turns.take_held(), turns.take_held()), (Some(held), None));
        assert_eq!(turns.gaps().count, 0);
        turn(&mut turns, 3_000_000, true);
        assert_eq!(turns.take_held(), None, "the clock is virtual");
        turns.rest();
        turn(&mut turns, 9_000_000, false);
        assert_eq!(turns.take_held(), None, "the loop slept");
        turn(&mut turns, 9_000_000, false);
        let held = HeldLoop { nanos: 9_000_000, method: None };
        assert_eq!(turns.take_held(), Some(held), "no request came since the loop slept");
    }

    #[test]
    fn responses_are_watched_after_a_long_turn_until_turns_have_been_short_for_a_while() {
        let mut turns = Turns::default();
        let mut now = START;
        let mut turn = |nanos, received| {
            now = now.plus_nanos(nanos);
            turns.begin(now, received, false);
            watches(&mut turns)
        };
        turn(0, 8);
        assert!(
            !turn(20_000 + 8 * 4_000, 1),
            "a turn of this length is not long for eight packets"
        );
        assert!(turn(24_001, 0), "it is long for one packet");
        assert!(turn(90_000, 1), "a turn without packets changes nothing, however long");
        for _ in 1..WATCHED {
            assert!(turn(1_000, 1));
        }
        assert!(!turn(1_000, 1));
    }

    #[test]
    fn a_virtual_clock_is_never_read() {
        let mut turns = Turns::default();
        turns.begin(START, 1, true);
        turns.begin(START.plus_nanos(1_000_000), 1, true);
        assert!(!watches(&mut turns));
    }

    #[test]
    fn a_slow_response_does_not_make_the_next_one_slow() {
        let mut turns = Turns { watched: 1, ..Turns::default() };
        let began = clock::now();
        turns.begin(began, 2, false);
        turns.watched = 1;
        while clock::now().nanos_since(began) <= SLOW {}
        let first = turns.answered(began);
        assert!(first.slow && first.at.nanos_since(began) > SLOW, "{first:?}");
        let delay = first.at.nanos_since(began);
        assert_eq!(turns.resume(began), delay);
        assert!(turns.slow);
        assert_eq!(turns.resume(began), delay, "a handler without a response adds no delay");
        assert!(!turns.slow);
        turns.slow = true;
        // One second ahead, so that losing the core meanwhile does not change the result.
        turns.answered_at = clock::now().plus_nanos(1_000_000_000);
        assert!(!turns.answered(began).slow, "time before the previous response does not count");
        assert!(!turns.slow);
    }

    /// A server that works for this long before it answers.
    struct Works(Duration);

    impl App<MemTransport> for Works {
        fn on_request(
            &mut self,
            cx: &mut Context<'_, MemTransport>,
            request: Request<'_, MemRoute>,
        ) {
            let began = clock::now();
            while clock::now() - began < self.0 {}
            let response = cx.response_buffer(request.buffer, 0).expect("memory");
            cx.respond(request.handle, response, false);
        }

        fn on_reply(
            &mut self,
            _: &mut Context<'_, MemTransport>,
            _: u64,
            _: Result<Reply<'_>, CallError>,
            _: MsgBuf,
        ) {
            unreachable!("the server makes no calls");
        }
    }

    #[derive(Default)]
    struct Calls {
        is_open: bool,
        answered: usize,
    }

    impl App<MemTransport> for Calls {
        fn on_request(&mut self, _: &mut Context<'_, MemTransport>, _: Request<'_, MemRoute>) {
            unreachable!("the client serves no requests");
        }

        fn on_reply(
            &mut self,
            _: &mut Context<'_, MemTransport>,
            _: u64,
            reply: Result<Reply<'_>, CallError>,
            _: MsgBuf,
        ) {
            self.answered += usize::from(reply.is_ok());
        }

        fn on_session(
            &mut self,
            _: &mut Context<'_, MemTransport>,
            _: SessionId,
            event: SessionEvent,
        ) {
            self.is_open |= event == SessionEvent::Opened;
        }
    }

    /// The smoothed round-trip time of sequential calls to a server whose handlers take `work`. The
    /// minimum is taken, because other processes may share this core.
    fn round_trip(work: Duration) -> Duration {
        let hub = MemHub::new();
        let rpc = || {
            let config = EndpointConfig::new().min_rto(Duration::from_millis(500));
            Rpc::new(hub.port(Default::default()), config).expect("a valid configuration")
        };
        let (mut client, mut server) = (rpc(), rpc());
        server.listen(Acceptor::new(Arc::new(ListenGroup::new([7; 16], vec![0])), 0));
        let (mut calls, mut works) = (Calls::default(), Works(work));
        let session = client.context().connect(server.transport().local_route()).expect("room");
        while !calls.is_open {
            client.run_once(&mut calls);
            server.run_once(&mut works);
        }
        let mut shortest = Duration::MAX;
        for round in 1..=40 {
            // The server polls its queue now, so that the previous handler's time is not counted as
            // absence.
            server.run_once(&mut works);
            let request = client.context().alloc(0).expect("memory");
            let call =
                NewCall { method: 1, request, token: 0, extended: false, deadline: Instant::NEVER };
            client.context().call(session, call).expect("accepted");
            client.ring_doorbell();
            while calls.answered < round {
                server.run_once(&mut works);
                client.run_once(&mut calls);
            }
            let stats = client.context().session_stats(session).expect("open");
            shortest = shortest.min(stats.rtt.expect("measured"));
        }
        shortest
    }

    #[test]
    fn handler_time_does_not_count_as_round_trip_time() {
        let rtt = round_trip(Duration::from_micros(300));
        assert!(rtt < Duration::from_micros(150), "{rtt:?}");
    }
}
