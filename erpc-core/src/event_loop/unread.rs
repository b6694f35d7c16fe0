//! The time up to which all arrived packets have been read.
//!
//! A missing response proves nothing while it may lie unread in the receive queue. After an
//! absence, a loop finds its timers due and its queue full, and a burst reads only a part of the
//! queue. So timers use two times. For deadlines they use the time of the turn. For the silence of
//! peers they use the time up to which everything that arrived has been read.
//!
//! This second time is that of the last turn whose burst emptied the queue. If no burst empties the
//! queue, the loop counts packets: once it has read as many as the queue can hold, everything that
//! was in the queue when the count began has been read. A count ends after [`MOST`] packets at the
//! latest. So a flood delays retransmissions by at most two counts.
//!
//! Retransmissions to a server that answers do not wait for the count. When the client reads an
//! answer, it has read everything in front of this answer in its queue. That includes all packets
//! of this server that arrived before the client sent the answered packet.
//!
//! Only the endpoint's own queue is considered. Packets in a coalesced datagram that another
//! endpoint of the group has read, but not yet passed on, count as read.

use crate::mutants::mutant;
use crate::time::Instant;
use crate::transport::Capabilities;
use crate::wire::HEADER_LEN;
use crate::wire::bundle::MAX_BUNDLE;

/// Most packets in a count, however large the receive queue is: the loop reads this number of small
/// packets in a few milliseconds. A larger queue may still hold older packets then, so a request
/// may be retransmitted needlessly, but the delay is bounded.
const MOST: u32 = 4_096;

/// How far the loop has read its receive queue.
#[derive(Debug)]
pub(crate) struct Unread {
    /// Everything that arrived before this time has been read.
    read_until: Instant,
    /// After `left` more packets, everything that arrived before this time has been read.
    counted_from: Instant,
    left: u32,
    /// Number of packets in a count.
    holds: u32,
}

impl Unread {
    pub(crate) fn new(transport: &Capabilities) -> Self {
        let datagrams = |len| transport.rx_capacity / transport.charge.charge(len);
        let in_bundles = match transport.bundles {
            true => datagrams(MAX_BUNDLE).saturating_mul((MAX_BUNDLE / HEADER_LEN) as u32),
            false => 0,
        };
        let holds = datagrams(HEADER_LEN).max(in_bundles).clamp(1, MOST);
        Self { read_until: Instant::ZERO, counted_from: Instant::ZERO, left: holds, holds }
    }

    /// Records a burst of `received` packets, taken after `now` was read. `is_drained`: the burst
    /// emptied the queue. Returns the time up to which everything that arrived has been read, at
    /// most `now`.
    #[inline]
    pub(crate) fn polled(&mut self, now: Instant, received: usize, is_drained: bool) -> Instant {
        if is_drained || mutant!(TimersBeforeAnswers) {
            (self.read_until, self.counted_from, self.left) = (now, now, self.holds);
        } else {
            self.count(now, received);
        }
        self.read_until
    }

    #[cold]
    fn count(&mut self, now: Instant, received: usize) {
        // If the transport dropped all packets of a burst, or passed them on, `received` is 0.
        self.left = self.left.saturating_sub((received as u32).max(1));
        if self.left == 0 {
            (self.read_until, self.counted_from, self.left) = (self.counted_from, now, self.holds);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::buf::MsgBuf;
    use crate::event_loop::{App, Context, Rpc};
    use crate::protocol::{
        Acceptor, CallError, EndpointConfig, ListenGroup, NewCall, Reply, Request, SessionEvent,
        SessionId,
    };
    use crate::transport::mem::{MemConfig, MemHub};
    use crate::transport::udp::{UdpConfig, UdpTransport};
    use crate::transport::{MAX_BURST, RxQueue as _, Transport, TxQueue as _};

    const START: Instant = Instant::from_nanos(1_000_000_000);

    fn after(nanos: u64) -> Instant {
        START.plus_nanos(nanos)
    }

    fn unread(entries: u32) -> Unread {
        let port = MemHub::new().port(MemConfig::default().entries(entries));
        Unread::new(&port.capabilities())
    }

    #[test]
    fn an_empty_queue_or_a_burst_that_empties_it_sets_the_time_to_now() {
        let mut unread = unread(512);
        assert_eq!(unread.polled(after(0), 0, true), after(0));
        assert_eq!(unread.polled(after(5), 7, true), after(5));
        assert_eq!(unread.polled(after(9), MAX_BURST, false), after(5));
        assert_eq!(unread.polled(after(12), 1, false), after(5));
        assert_eq!(unread.polled(after(20), 0, true), after(20));
    }

    #[test]
    fn a_queue_that_is_never_empty_delays_the_time_by_at_most_two_queues_of_packets() {
        for (entries, holds) in [(512, 512), (65_536, 4_096)] {
            let mut unread = unread(entries);
            unread.polled(after(0), 0, true);
            let mut times = vec![];
            for packet in 1..=5 * holds {
                times.push(unread.polled(after(packet), 1, false));
            }
            let lag = |at: u64| after(at).nanos_since(times[at as usize - 1]);
            assert!((1..=5 * holds).all(|at| lag(at) < 2 * holds), "{entries}");
            assert!(
                (holds + 1..=5 * holds).all(|at| lag(at) >= holds),
                "older packets may still be unread"
            );
            assert!(times.is_sorted());
        }
    }

    #[test]
    fn a_queue_of_bundles_holds_more_packets() {
        let mut unread = {
            let port = MemHub::new().port(MemConfig::default().entries(64));
            Unread::new(&Capabilities { bundles: true, ..port.capabilities() })
        };
        unread.polled(after(0), 0, true);
        let holds = 64 * 43;
        let times: Vec<_> = (1..=holds).map(|at| unread.polled(after(at), 1, false)).collect();
        assert_eq!(times[holds as usize - 2..], [after(0); 2]);
        let times: Vec<_> =
            (1..=holds).map(|at| unread.polled(after(holds + at), 1, false)).collect();
        assert_eq!(times[holds as usize - 2..], [after(0), after(holds)]);
    }

    #[test]
    fn bursts_that_hand_out_no_packet_count_too() {
        let mut unread = unread(512);
        unread.polled(after(0), 0, true);
        let times = (1..=2 * 512).map(|turn| unread.polled(after(turn), 0, false));
        assert!(times.last() >= Some(after(512)), "a flood of strays keeps timers from firing");
    }

    /// Answers each request with an empty response, and counts the sessions that have opened and
    /// the outcomes of calls.
    #[derive(Default)]
    struct Ends {
        open: usize,
        answered: usize,
        failed: usize,
    }

    impl<T: Transport> App<T> for Ends {
        fn on_request(&mut self, cx: &mut Context<'_, T>, request: Request<'_, T::Route>) {
            let response = cx.response_buffer(request.buffer, 0).expect("memory");
            cx.respond(request.handle, response, false);
        }

        fn on_reply(
            &mut self,
            cx: &mut Context<'_, T>,
            _: u64,
            reply: Result<Reply<'_>, CallError>,
            request: MsgBuf,
        ) {
            *(if reply.is_ok() { &mut self.answered } else { &mut self.failed }) += 1;
            cx.recycle(request);
        }

        fn on_session(&mut self, _: &mut Context<'_, T>, _: SessionId, event: SessionEvent) {
            self.open += usize::from(event == SessionEvent::Opened);
        }
    }

    /// A client and a server, driven by the test, with one virtual clock.
    struct Pair<T: Transport> {
        client: Rpc<T>,
        server: Rpc<T>,
        ends: Ends,
        sessions: Vec<SessionId>,
        now: Instant,
    }

    impl<T: Transport> Pair<T> {
        fn new(client: T, server: T, address: T::Route, sessions: usize) -> Self {
            let rpc = |transport| Rpc::new(transport, EndpointConfig::new()).expect("valid");
            let (mut client, mut server) = (rpc(client), rpc(server));
            server.listen(Acceptor::new(Arc::new(ListenGroup::new([7; 16], vec![0])), 0));
            let sessions = (0..sessions)
                .map(|_| client.context_at(START).connect(address).expect("room"))
                .collect();
            let mut pair = Self { client, server, ends: Ends::default(), sessions, now: START };
            pair.client.ring_doorbell();
            while pair.ends.open < pair.sessions.len() {
                pair.turn_both();
            }
            pair
        }

        fn turn_both(&mut self) {
            self.now = self.now.plus_nanos(1_000);
            self.server.run_once_at(self.now, &mut Ends::default());
            self.client.run_once_at(self.now, &mut self.ends);
        }

        /// Starts eight calls on each session.
        fn call(&mut self) {
            for session in &self.sessions {
                for token in 0..8 {
                    let mut cx = self.client.context_at(self.now);
                    let request = cx.alloc(0).expect("memory");
                    let deadline = Instant::NEVER;
                    let call = NewCall { method: 1, request, token, extended: false, deadline };
                    cx.call(*session, call).expect("accepted");
                }
            }
            self.client.ring_doorbell();
        }

        /// While calls are in flight, the server answers them and the client is absent for 2 ms.
        /// Returns the number of packets that the client has retransmitted when all calls are
        /// answered.
        fn absence(&mut self) -> u64 {
            for _ in 0..3 {
                let answered = self.ends.answered + 8 * self.sessions.len();
                self.call();
                while self.ends.answered < answered {
                    self.turn_both();
                }
            }
            let before = self.client.stats().protocol;
            let answered = self.ends.answered + 8 * self.sessions.len();
            self.call();
            while self.server.run_once_at(self.now, &mut Ends::default()) > 0 {}
            self.now = self.now.plus_nanos(2_000_000);
            while self.ends.answered < answered {
                self.turn_both();
            }
            let after = self.client.stats().protocol;
            assert_eq!(self.ends.failed, 0);
            after.retransmissions.packets() - before.retransmissions.packets()
        }
    }

    fn mem(sessions: usize) -> u64 {
        let hub = MemHub::new();
        let port = || hub.port(MemConfig::default().entries(8_192));
        let (client, server) = (port(), port());
        let address = server.local_route();
        Pair::new(client, server, address, sessions).absence()
    }

    fn udp(sessions: usize) -> u64 {
        let config = UdpConfig::new().address(([127, 0, 0, 1], 0).into()).recv_buffer(4 << 20);
        let bind = || UdpTransport::bind(&config).expect("a socket");
        let (client, server) = (bind(), bind());
        let address = server.local_route();
        Pair::new(client, server, address, sessions).absence()
    }

    #[test]
    fn a_client_reads_its_responses_after_an_absence_before_it_retransmits() {
        assert_eq!([mem(8), udp(8)], [0, 0], "64 calls");
        assert_eq!([mem(128), udp(128)], [0, 0], "1,024 calls");
    }

    #[test]
    fn a_request_is_retransmitted_under_a_flood() {
        let hub = MemHub::new();
        let port = || hub.port(MemConfig::default());
        let (client, server, mut stranger) = (port(), port(), port());
        let address = server.local_route();
        let mut pair = Pair::new(client, server, address, 1);
        pair.call();
        // The server never reads the requests. Packets of a stranger keep the client's queue from
        // being empty.
        let target = pair.client.local_route();
        let mut packets = 0;
        while pair.client.stats().protocol.retransmissions.packets() == 0 {
            pair.now = pair.now.plus_nanos(1_000_000);
            for _ in 0..2 * MAX_BURST {
                stranger.split().1.push_bytes(&target, &[0; HEADER_LEN]);
            }
            stranger.split().1.flush();
            packets += pair.client.run_once_at(pair.now, &mut pair.ends);
            assert!(packets < 4_096, "the flood keeps timers from firing");
        }
    }

    #[test]
    fn transports_know_whether_a_burst_has_emptied_the_queue() {
        fn packets<T: Transport>(from: &mut T, to: &T::Route, count: usize) {
            for _ in 0..count {
                from.split().1.push_bytes(to, &[0; 40]);
            }
            from.split().1.flush();
        }
        fn left_nothing<T: Transport>(to: &mut T) -> bool {
            to.split().0.burst();
            to.split().0.is_drained()
        }
        fn check<T: Transport>(mut from: T, mut to: T, address: T::Route) {
            assert!(left_nothing(&mut to), "the queue was empty");
            const COUNT: usize = 3 * MAX_BURST + 4;
            packets(&mut from, &address, COUNT);
            let (mut read, mut bursts) = (0, 0);
            while read < COUNT {
                let count = to.split().0.burst();
                read += count;
                bursts += 1;
                assert!(read == COUNT || !to.split().0.is_drained(), "only {read} are read");
            }
            assert!(bursts >= 4);
            assert!(to.split().0.is_drained() || left_nothing(&mut to));
        }
        let hub = MemHub::new();
        let (from, to) = (hub.port(MemConfig::default()), hub.port(MemConfig::default()));
        let address = to.local_route();
        check(from, to, address);
        let config = UdpConfig::new().address(([127, 0, 0, 1], 0).into());
        let bind = || UdpTransport::bind(&config).expect("a socket");
        let (from, to) = (bind(), bind());
        let address = to.local_route();
        check(from, to, address);
    }
}
