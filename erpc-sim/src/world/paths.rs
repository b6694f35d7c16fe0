//! Checks that sessions use their paths, and no more, in runs without faults.
//!
//! The packets sent and received tell how many packets each session has in flight, and how many
//! answers arrive in one base RTT (a round trip without queues). A session may have its first
//! credits in flight, or about twice as many packets as there were recent answers per base RTT.
//! Sessions that share a link keep its queue short.

use std::collections::{BTreeMap, VecDeque};

use erpc_core::time::Instant;
use erpc_core::wire::{ANNOUNCEMENT, HEADER_LEN, Header, Kind};

use crate::plan::Plan;
use crate::plan::path::{FAR, LOSSY, SERVER};
use crate::{Scenario, SimRoute};

/// Limit of packets in flight, in percent of the recent answers per base RTT, plus `FEW` packets.
const GROWTH_PERCENT: u32 = 230;
const FEW: u32 = 8;
/// The number of recent round trips with answers. A session that needs few credits loses its other
/// credits within half of these round trips.
const LATELY: usize = 40;
/// Bursts are only checked on paths with at least this base RTT, in ns. On shorter paths, they may
/// be too large: after a delay, a paced session catches up on at most 66 us in one burst.
const LONG_PATH: u64 = 1_000_000;
/// In 1/`BURST_PART` of a base RTT a session may send its first credits, plus this percentage of
/// the recent answers per base RTT.
const BURST_PART: u64 = 16;
const BURST_PERCENT: u32 = 40;
/// A session that has more to send, and a path of at least `LONG_PATH` for itself, may use less
/// than 1/`USED_PART` of the path's capacity (or of its most credits) for at most this number of
/// round trips.
const HUNGRY: u32 = 24;
const USED_PART: u64 = 4;
/// Bytes on the cable per datagram besides the datagram, and the time that hosts add to a round
/// trip, in ns.
const CABLE_HEADERS: u64 = 46;
const HOSTS: u64 = 20_000;
/// The queue of the server's link, averaged over the near clients' packets, stays below
/// 1/`QUEUE_PART` of the near clients' first credits. The check needs at least `LEAST_SAMPLES`
/// packets.
const QUEUE_PART: u64 = 3;
const LEAST_SAMPLES: u64 = 1_500;

/// A client's session with a server: the client, the server, and the server's id of the session.
type Session = (SimRoute, SimRoute, u64);

/// A request and its response, in packets.
#[derive(Default)]
struct Exchange {
    /// Request packets that were sent, and that were answered.
    sent: u32,
    answered: u32,
    /// Response packets: the total (0 before any arrived), those asked for or sent without a pull,
    /// and those received after the first packet or the announcement.
    response: u32,
    asked: u32,
    came: u32,
    /// Response packets that were asked for before any arrived.
    early: u32,
    /// The first packet of the response came without a pull and has used no credit.
    is_unasked: bool,
}

/// Packets in a sliding window of time.
#[derive(Default)]
struct Recent {
    packets: VecDeque<(Instant, u32)>,
    sum: u32,
}

impl Recent {
    /// Adds packets. Returns the number of packets in the last `within` ns.
    fn add(&mut self, now: Instant, packets: u32, within: u64) -> u32 {
        self.packets.push_back((now, packets));
        self.sum += packets;
        while let Some((at, old)) = self.packets.front()
            && now.nanos_since(*at) > within
        {
            self.sum -= old;
            self.packets.pop_front();
        }
        self.sum
    }
}

/// A round trip in which answers arrived.
#[derive(Default)]
struct Trip {
    since: Instant,
    /// The most answers within a base RTT.
    answered: u32,
    /// The largest value of [`Flow::on_their_way`] in this round trip.
    on_their_way: u32,
    /// The smallest value of [`Flow::left`] in this round trip.
    left: u32,
}

/// The path of a client.
#[derive(Clone, Copy)]
struct Path {
    /// The base RTT in ns, and the number of packets that fill it (the bandwidth-delay product).
    trip: u64,
    holds: u64,
    /// The first credits, and the most credits.
    first: u32,
    most: u32,
    /// No other session shares the path.
    is_alone: bool,
}

/// A session.
struct Flow {
    path: Path,
    exchanges: BTreeMap<u32, Exchange>,
    /// Packets in flight: request packets without an answer, and pulled response packets that have
    /// not arrived.
    on_their_way: u32,
    /// Packets that the client still has to send or to pull: the rest of each request that it has
    /// begun to send, and of each response that has begun to arrive.
    left: u32,
    /// Answers within the last base RTT.
    answers: Recent,
    /// Packets sent or pulled within the last 1/`BURST_PART` of a base RTT.
    departures: Recent,
    /// The current round trip, and the answers of the round trips before.
    trip: Trip,
    lately: VecDeque<u32>,
    /// Successive round trips in which the session had more to send, but few packets in flight.
    hungry: u32,
}

/// All sessions of a run.
pub(super) struct Paths {
    /// Bytes of a message in a packet.
    payload: u32,
    paths: BTreeMap<SimRoute, Path>,
    flows: BTreeMap<Session, Flow>,
    /// The sum of the queue lengths, in bytes, that near clients' packets found at the server's
    /// link, and the number of these packets.
    queued: u64,
    samples: u64,
    /// The sum of all near clients' first credits, in bytes.
    near: u64,
}

impl Paths {
    /// The paths of a plan. `None` unless the scenario is [`Scenario::Path`].
    pub(super) fn of(plan: &Plan) -> Option<Self> {
        if plan.scenario != Scenario::Path {
            return None;
        }
        let server = &plan.endpoints[0];
        let datagram = server.nic.max_datagram as u64;
        let rate = plan.topology.host_rate(server.route.host);
        let hop = (datagram + CABLE_HEADERS) * 1_000_000_000 / rate;
        let is_followed = |host: u32| ![SERVER, LOSSY].contains(&host);
        let clients = || plan.endpoints.iter().filter(|endpoint| is_followed(endpoint.route.host));
        let path = |client: SimRoute, first: u16, most: u16| {
            let light = plan.topology.least_delay(server.route.host, client.host);
            let trip = 2 * light + 4 * hop + HOSTS;
            Path {
                trip,
                holds: trip / hop.max(1),
                first: first.into(),
                most: most.min(server.most_credits).into(),
                is_alone: client.host == FAR,
            }
        };
        let near = clients().filter(|client| client.route.host != FAR);
        Some(Self {
            payload: datagram as u32 - HEADER_LEN as u32,
            paths: clients()
                .map(|client| {
                    (client.route, path(client.route, client.first_credits, client.most_credits))
                })
                .collect(),
            flows: BTreeMap::new(),
            queued: 0,
            samples: 0,
            near: near.map(|client| u64::from(client.first_credits) * datagram).sum(),
        })
    }

    /// Notes a packet that a client sends now. Returns the broken rule, if any.
    pub(super) fn sent(
        &mut self,
        session: Session,
        header: &Header,
        now: Instant,
    ) -> Option<String> {
        let (packet, pulled) = match header.kind {
            Kind::Request => (header.packet.get(), None),
            Kind::RequestForResponse => (header.packet.get(), Some(header.size)),
            _ => return None,
        };
        let path = *self.paths.get(&session.0)?;
        let flow = self.flows.entry(session).or_insert_with(|| Flow::new(path));
        let exchange = flow.exchanges.entry(header.request.to_u32()).or_default();
        let packets = if let Some(count) = pulled
            && exchange.response == 0
        {
            let new = count.saturating_sub(exchange.early);
            exchange.early += new;
            new
        } else if let Some(count) = pulled {
            let new = (packet + count).saturating_sub(exchange.asked);
            exchange.asked += new;
            new
        } else {
            let new = (packet + 1).saturating_sub(exchange.sent);
            exchange.sent += new;
            if packet == 0 && new > 0 {
                flow.left += header.size.div_ceil(self.payload).max(1);
            }
            new
        };
        flow.depart(now, packets)
    }

    /// Notes a packet that `to` receives from `from` now. `queue` is the switch's queue towards the
    /// host of `to`, in bytes. Returns the broken rule, if any.
    pub(super) fn arrived(
        &mut self,
        from: SimRoute,
        to: SimRoute,
        header: &Header,
        queue: u64,
        now: Instant,
    ) -> Option<String> {
        if self.paths.contains_key(&from) && header.kind == Kind::Request && from.host != FAR {
            self.queued += queue;
            self.samples += 1;
        }
        let sessions = (to, from, 0)..=(to, from, u64::MAX);
        let (_, flow) = self.flows.range_mut(sessions).next()?;
        let number = header.request.to_u32();
        let exchange = flow.exchanges.get_mut(&number)?;
        let packet = header.packet.get();
        let before = exchange.answered + exchange.came;
        // Packets that were asked for early and do not come.
        let mut surplus = 0;
        match header.kind {
            Kind::CreditReturn => exchange.answered = exchange.answered.max(packet),
            Kind::Accepted => {
                exchange.answered = exchange.sent;
                surplus = std::mem::take(&mut exchange.early);
            }
            Kind::Response | Kind::Failure if exchange.response == 0 => {
                exchange.answered = exchange.sent;
                exchange.response = header.size.div_ceil(self.payload).max(1);
                exchange.is_unasked = packet != ANNOUNCEMENT;
                exchange.asked = u32::from(exchange.is_unasked);
                let early = std::mem::take(&mut exchange.early);
                let coming = if exchange.is_unasked { early.min(exchange.response - 1) } else { 0 };
                exchange.asked += coming;
                surplus = early - coming;
                flow.left += exchange.response - exchange.asked;
            }
            Kind::Response | Kind::Failure => exchange.came += 1,
            _ => return None,
        }
        let answers = (exchange.answered + exchange.came).saturating_sub(before);
        let came = exchange.came + u32::from(exchange.is_unasked);
        if exchange.response > 0 && came >= exchange.response {
            flow.exchanges.remove(&number);
        }
        flow.on_their_way = flow.on_their_way.saturating_sub(surplus);
        flow.answered(now, answers)
    }

    /// Returns the broken rule if near clients have kept a long queue.
    pub(super) fn check_queue(&self) -> Option<String> {
        let mean = self.queued / self.samples.max(1);
        (self.samples >= LEAST_SAMPLES && mean > self.near / QUEUE_PART).then(|| {
            format!(
                "the queue of the server's link is {mean} bytes on average, near clients' first credits are {}",
                self.near
            )
        })
    }
}

impl Flow {
    fn new(path: Path) -> Self {
        Self {
            path,
            exchanges: BTreeMap::new(),
            on_their_way: 0,
            left: 0,
            answers: Recent::default(),
            departures: Recent::default(),
            trip: Trip::default(),
            lately: VecDeque::new(),
            hungry: 0,
        }
    }

    /// The most answers within a base RTT in recent round trips.
    fn most_answered(&self) -> u32 {
        self.lately.iter().copied().max().unwrap_or(0).max(self.trip.answered)
    }

    /// Packets are sent or asked for.
    fn depart(&mut self, now: Instant, packets: u32) -> Option<String> {
        let Path { trip, first, most, .. } = self.path;
        self.left = self.left.saturating_sub(packets);
        self.trip.left = self.trip.left.min(self.left);
        self.on_their_way += packets;
        let on_their_way = self.on_their_way;
        self.trip.on_their_way = self.trip.on_their_way.max(on_their_way);
        let burst = self.departures.add(now, packets, trip / BURST_PART);
        let answered = self.most_answered();
        if on_their_way > most {
            return Some(format!("has {on_their_way} packets in flight, but {most} credits"));
        }
        if on_their_way > first.max(answered * GROWTH_PERCENT / 100 + FEW) {
            return Some(format!(
                "has {on_their_way} packets in flight, but a base RTT brings {answered} answers"
            ));
        }
        if trip >= LONG_PATH && burst > first + answered * BURST_PERCENT / 100 {
            return Some(format!(
                "sends {burst} packets in {} ns, but a base RTT brings {answered} answers",
                trip / BURST_PART
            ));
        }
        None
    }

    /// Packets were answered.
    fn answered(&mut self, now: Instant, packets: u32) -> Option<String> {
        let Path { trip, holds, most, is_alone, .. } = self.path;
        self.on_their_way = self.on_their_way.saturating_sub(packets);
        self.trip.answered = self.trip.answered.max(self.answers.add(now, packets, trip));
        if now.nanos_since(self.trip.since) < trip {
            return None;
        }
        let next = Trip { since: now, left: self.left, ..Trip::default() };
        let last = std::mem::replace(&mut self.trip, next);
        self.lately.push_back(last.answered);
        if self.lately.len() > LATELY {
            self.lately.pop_front();
        }
        let is_hungry = is_alone
            && trip >= LONG_PATH
            && last.left > 0
            && u64::from(last.on_their_way) < holds.min(most.into()) / USED_PART;
        self.hungry = if is_hungry { self.hungry + 1 } else { 0 };
        (self.hungry > HUNGRY).then(|| {
            format!(
                "has had more to send for {HUNGRY} round trips, but {} packets in flight; the path holds {holds}",
                last.on_their_way
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use erpc_core::wire::{ConnectionId, Flags, PacketNumber, RequestNumber};

    use super::*;

    const FAR_CLIENT: SimRoute = SimRoute::new(FAR, 1);
    const NEAR_CLIENT: SimRoute = SimRoute::new(FAR + 1, 1);
    const SERVER_AT: SimRoute = SimRoute::new(SERVER, 1);
    const MS: u64 = 1_000_000;
    /// Packets of a request that no test finishes.
    const LONG: u32 = 1_000_000;

    /// A path of 10 ms that holds 800 packets. Sessions have 32 credits at first and 1,000 at most.
    fn paths() -> Paths {
        let path = Path { trip: 10 * MS, holds: 800, first: 32, most: 1_000, is_alone: true };
        Paths {
            payload: 1_000,
            paths: [(FAR_CLIENT, path), (NEAR_CLIENT, path)].into(),
            flows: BTreeMap::new(),
            queued: 0,
            samples: 0,
            near: 3_000,
        }
    }

    fn header(kind: Kind, packet: u32, size: u32) -> Header {
        Header {
            connection: ConnectionId::new(0, true, 0, 7),
            kind,
            packet: PacketNumber::new(packet),
            request: RequestNumber::from_u32(9),
            aux: 0,
            size,
            flags: Flags::NONE,
        }
    }

    /// A session of the far client with one long request.
    struct Test {
        paths: Paths,
        now: Instant,
        sent: u32,
        answered: u32,
    }

    impl Test {
        fn new() -> Self {
            Self { paths: paths(), now: Instant::from_nanos(MS), sent: 0, answered: 0 }
        }

        /// The client sends `packets` packets, evenly over `nanos`. Returns the first broken rule.
        fn send(&mut self, packets: u32, nanos: u64) -> Option<String> {
            let wrong = (0..packets).filter_map(|_| {
                let header = header(Kind::Request, self.sent, LONG * 1_000);
                self.sent += 1;
                self.now = self.now.plus_nanos(nanos / u64::from(packets));
                self.paths.sent((FAR_CLIENT, SERVER_AT, 7), &header, self.now)
            });
            wrong.collect::<Vec<_>>().into_iter().next()
        }

        /// The server answers `packets` packets together, a round trip after the last event.
        fn answer(&mut self, packets: u32) -> Option<String> {
            self.now = self.now.plus_nanos(10 * MS);
            self.answered += packets;
            let header = header(Kind::CreditReturn, self.answered, 0);
            self.paths.arrived(SERVER_AT, FAR_CLIENT, &header, 0, self.now)
        }
    }

    #[test]
    fn credits_at_most_double_per_round_trip() {
        let mut test = Test::new();
        assert_eq!(test.send(32, 0), None);
        assert_eq!(test.answer(32), None);
        assert_eq!(test.send(64, 10 * MS), None);
        assert_eq!(test.answer(64), None);
        assert_eq!(test.send(128, 10 * MS), None);
        assert!(test.send(40, 10 * MS).is_some(), "64 were answered, 168 are in flight");
    }

    #[test]
    fn a_session_uses_only_its_first_credits_before_an_answer() {
        let mut test = Test::new();
        assert_eq!(test.send(32, 0), None);
        assert!(test.send(1, 0).is_some());
    }

    #[test]
    fn a_session_loses_credits_that_it_did_not_need_for_long() {
        let mut test = Test::new();
        for packets in [32, 64, 128, 256] {
            assert_eq!(test.send(packets, 10 * MS), None);
            assert_eq!(test.answer(packets), None);
        }
        assert_eq!(test.send(400, 10 * MS), None);
        assert_eq!(test.answer(400), None);
        for _ in 0..=LATELY {
            assert_eq!(test.send(4, 0), None);
            // The session has nothing more to send for now.
            test.paths.flows.values_mut().for_each(|flow| (flow.left, flow.trip.left) = (0, 0));
            assert_eq!(test.answer(4), None);
        }
        assert_eq!(test.send(32, 0), None);
        assert!(test.send(1, 0).is_some());
    }

    #[test]
    fn a_burst_is_limited_by_the_first_credits() {
        let mut test = Test::new();
        for packets in [32, 64, 128] {
            assert_eq!(test.send(packets, 10 * MS), None);
            assert_eq!(test.answer(packets), None);
        }
        assert_eq!(test.send(80, 0), None);
        assert!(test.send(20, 0).is_some(), "a burst of 100 packets, of 256 credits");
    }

    #[test]
    fn a_session_has_no_more_packets_in_flight_than_credits() {
        let mut test = Test::new();
        for packets in [32, 64, 128, 256, 512, 1_000] {
            assert_eq!(test.send(packets, 10 * MS), None);
            assert_eq!(test.answer(packets), None);
        }
        assert_eq!(test.send(1_000, 10 * MS), None);
        assert!(test.send(1, 0).is_some());
    }

    #[test]
    fn a_session_with_more_to_send_uses_a_quarter_of_its_path() {
        let mut test = Test::new();
        let mut trips = (0..=HUNGRY + 1).map(|_| test.send(32, 0).or_else(|| test.answer(32)));
        assert!(trips.by_ref().take(HUNGRY as usize).all(|wrong| wrong.is_none()));
        assert!(trips.any(|wrong| wrong.is_some()));
    }

    #[test]
    fn response_packets_that_a_client_asks_for_are_in_flight() {
        let mut test = Test::new();
        assert_eq!(test.send(1, 0), None);
        let mut paths = test.paths;
        let response = header(Kind::Response, 0, 100_000);
        assert_eq!(paths.arrived(SERVER_AT, FAR_CLIENT, &response, 0, test.now), None);
        let session = (FAR_CLIENT, SERVER_AT, 7);
        let pull = |from, count| header(Kind::RequestForResponse, from, count);
        let later = test.now.plus_nanos(MS);
        assert_eq!(paths.sent(session, &pull(1, 32), later), None);
        assert!(paths.sent(session, &pull(33, 1), later).is_some());
        for packet in 1..=32 {
            let response = header(Kind::Response, packet, 0);
            assert_eq!(paths.arrived(SERVER_AT, FAR_CLIENT, &response, 0, test.now), None);
        }
        assert_eq!(paths.flows[&session].on_their_way, 1, "the packet beyond the credits");
    }

    #[test]
    fn packets_that_are_asked_for_early_are_in_flight_until_they_come_or_do_not() {
        let session = (FAR_CLIENT, SERVER_AT, 7);
        let pull = |count| header(Kind::RequestForResponse, 1, count);
        // The response has four packets, has three, is announced, or comes later.
        let ends = [
            (header(Kind::Response, 0, 3_001), 3, 3),
            (header(Kind::Response, 0, 2_001), 3, 2),
            (header(Kind::Response, ANNOUNCEMENT, 3_001), 3, 0),
            (header(Kind::Accepted, 0, 0), 3, 0),
        ];
        for (end, asked, left) in ends {
            let mut test = Test::new();
            let request = header(Kind::Request, 0, 10);
            assert_eq!(test.paths.sent(session, &request, test.now), None);
            assert_eq!(test.paths.sent(session, &pull(asked), test.now), None);
            assert_eq!(test.paths.flows[&session].on_their_way, 1 + asked);
            assert_eq!(test.paths.arrived(SERVER_AT, FAR_CLIENT, &end, 0, test.now), None);
            assert_eq!(test.paths.flows[&session].on_their_way, left, "{:?}", end.kind);
        }
    }

    #[test]
    fn near_clients_keep_the_queue_short() {
        let mut paths = paths();
        let request = header(Kind::Request, 0, 10);
        let now = Instant::from_nanos(MS);
        for (queue, is_wrong) in [(900, false), (1_500, true)] {
            for _ in 0..LEAST_SAMPLES {
                assert_eq!(paths.arrived(NEAR_CLIENT, SERVER_AT, &request, queue, now), None);
            }
            assert_eq!(paths.check_queue().is_some(), is_wrong, "{queue}");
        }
        for _ in 0..100 * LEAST_SAMPLES {
            assert_eq!(paths.arrived(FAR_CLIENT, SERVER_AT, &request, 0, now), None);
        }
        assert!(paths.check_queue().is_some(), "the far client does not count");
    }
}
