//! Whether sessions use their paths, and no more than that, where nothing goes wrong.
//!
//! What is sent and what arrives tells how many packets each session has on its way, and how many an empty round trip brings back.
//! Credits follow that: up to about twice as many, but for the first ones. And sessions that share a link leave its queue
//! short.

use std::collections::{BTreeMap, VecDeque};

use erpc_core::time::Instant;
use erpc_core::wire::{ANNOUNCEMENT, HEADER_LEN, Header, Kind};

use crate::plan::Plan;
use crate::plan::path::{FAR, LOSSY, SERVER};
use crate::{Scenario, SimRoute};

/// A session has no more packets on their way than so many hundredths of what came back in one empty round trip lately, and a few.
const GROWTH_PERCENT: u32 = 230;
const FEW: u32 = 8;
/// Round trips with answers that are lately. In half of them a session that needs few credits loses the others.
const LATELY: usize = 40;
/// No path is counted as shorter than this where packets are to be spread out, in nanoseconds: a pace makes up for 66
/// microseconds.
const LONG_PATH: u64 = 1_000_000;
/// In such a part of an empty round trip so many hundredths of what came back in one may leave, besides the first credits.
const BURST_PART: u64 = 16;
const BURST_PERCENT: u32 = 40;
/// For so many round trips a session that has more to send may use less than this part of what the path holds.
const HUNGRY: u32 = 24;
const USED_PART: u64 = 4;
/// Bytes that a cable carries besides a datagram, and what hosts add to a round trip, in nanoseconds.
const CABLE_HEADERS: u64 = 46;
const HOSTS: u64 = 20_000;
/// Near clients together keep less than this part of their first credits in the queue of the server's link, on average over the
/// packets that arrive; fewer packets tell nothing.
const QUEUE_PART: u64 = 3;
const LEAST_SAMPLES: u64 = 1_500;

/// A client's session with a server: the client, the server, and the server's id.
type Session = (SimRoute, SimRoute, u64);

/// A request and its response, in packets.
#[derive(Default)]
struct Exchange {
    /// Of the request: those that were sent, and those that were answered.
    sent: u32,
    answered: u32,
    /// Of the response: all, 0 if nothing came of it; those that were asked for, and those that came.
    response: u32,
    asked: u32,
    came: u32,
    /// The first packet of the response came unasked, and has taken no credit.
    is_unasked: bool,
}

/// Packets at times, the last ones.
#[derive(Default)]
struct Recent {
    packets: VecDeque<(Instant, u32)>,
    sum: u32,
}

impl Recent {
    /// Adds packets. Returns how many there were in the last so many nanoseconds.
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

/// A round trip in which answers came.
#[derive(Default)]
struct Trip {
    since: Instant,
    /// The most answers within an empty round trip, the most packets on their way, and the fewest that were known to be needed
    /// and not sent.
    answered: u32,
    on_their_way: u32,
    left: u32,
}

/// A path.
#[derive(Clone, Copy)]
struct Path {
    /// An empty round trip, in nanoseconds, and the packets that it holds.
    trip: u64,
    holds: u64,
    /// Credits.
    first: u32,
    most: u32,
    /// No other session sends at the same time.
    is_alone: bool,
}

/// A session.
struct Flow {
    path: Path,
    exchanges: BTreeMap<u32, Exchange>,
    on_their_way: u32,
    left: u32,
    answers: Recent,
    departures: Recent,
    /// The present round trip, and what came back in those before.
    trip: Trip,
    lately: VecDeque<u32>,
    /// Round trips in a row in which it had more to send, and sent little.
    hungry: u32,
}

/// All sessions of a run.
pub(super) struct Paths {
    /// Bytes of a message in a packet.
    payload: u32,
    paths: BTreeMap<SimRoute, Path>,
    flows: BTreeMap<Session, Flow>,
    /// Bytes that near clients' packets found in the queue of the server's link, and these packets.
    queued: u64,
    samples: u64,
    /// Bytes of all near clients' first credits.
    near: u64,
}

impl Paths {
    /// The paths of a plan; `None` if they are not what it is about.
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

    /// Notes a packet that a client sends now. Returns what is wrong with that.
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
        let packets = if let Some(count) = pulled {
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

    /// Notes a packet that `to` gets from `from` now; at its host's switch as many bytes wait. Returns what is wrong.
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
        match header.kind {
            Kind::CreditReturn => exchange.answered = exchange.answered.max(packet),
            Kind::Accepted => exchange.answered = exchange.sent,
            Kind::Response | Kind::Failure if exchange.response == 0 => {
                exchange.answered = exchange.sent;
                exchange.response = header.size.div_ceil(self.payload).max(1);
                exchange.is_unasked = packet != ANNOUNCEMENT;
                exchange.asked = u32::from(exchange.is_unasked);
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
        flow.answered(now, answers)
    }

    /// What is wrong with the queue that near clients have kept.
    pub(super) fn check_queue(&self) -> Option<String> {
        let mean = self.queued / self.samples.max(1);
        (self.samples >= LEAST_SAMPLES && mean > self.near / QUEUE_PART).then(|| {
            format!(
                "{mean} bytes wait for the server's link on average, near clients' first credits are {}",
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

    /// The most answers that came within an empty round trip, lately.
    fn most_answered(&self) -> u32 {
        self.lately.iter().copied().max().unwrap_or(0).max(self.trip.answered)
    }

    /// Packets leave, or are asked for.
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
            return Some(format!("has {on_their_way} packets on their way and {most} credits"));
        }
        if on_their_way > first.max(answered * GROWTH_PERCENT / 100 + FEW) {
            return Some(format!(
                "has {on_their_way} packets on their way, and an empty round trip brings {answered}"
            ));
        }
        if trip >= LONG_PATH && burst > first + answered * BURST_PERCENT / 100 {
            return Some(format!(
                "sends {burst} packets in {} ns, and an empty round trip brings {answered}",
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
                "has had more to send for {HUNGRY} round trips, and {} packets on their way; the path holds {holds}",
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
    /// Packets of a request that is longer than anything here.
    const LONG: u32 = 1_000_000;

    /// A path of 10 ms that holds 800 packets, and sessions with 32 to 1,000 credits.
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

        /// The client sends so many packets, evenly in so much time. The first thing that is wrong.
        fn send(&mut self, packets: u32, nanos: u64) -> Option<String> {
            let wrong = (0..packets).filter_map(|_| {
                let header = header(Kind::Request, self.sent, LONG * 1_000);
                self.sent += 1;
                self.now = self.now.plus_nanos(nanos / u64::from(packets));
                self.paths.sent((FAR_CLIENT, SERVER_AT, 7), &header, self.now)
            });
            wrong.collect::<Vec<_>>().into_iter().next()
        }

        /// So many are answered at once, a round trip after what was before.
        fn answer(&mut self, packets: u32) -> Option<String> {
            self.now = self.now.plus_nanos(10 * MS);
            self.answered += packets;
            let header = header(Kind::CreditReturn, self.answered, 0);
            self.paths.arrived(SERVER_AT, FAR_CLIENT, &header, 0, self.now)
        }
    }

    #[test]
    fn credits_double_per_round_trip_and_no_more() {
        let mut test = Test::new();
        assert_eq!(test.send(32, 0), None);
        assert_eq!(test.answer(32), None);
        assert_eq!(test.send(64, 10 * MS), None);
        assert_eq!(test.answer(64), None);
        assert_eq!(test.send(128, 10 * MS), None);
        assert!(test.send(40, 10 * MS).is_some(), "64 came back, and 168 are on their way");
    }

    #[test]
    fn the_first_credits_are_the_most_before_an_answer() {
        let mut test = Test::new();
        assert_eq!(test.send(32, 0), None);
        assert!(test.send(1, 0).is_some());
    }

    #[test]
    fn credits_that_were_not_needed_for_long_are_gone() {
        let mut test = Test::new();
        for packets in [32, 64, 128, 256] {
            assert_eq!(test.send(packets, 10 * MS), None);
            assert_eq!(test.answer(packets), None);
        }
        assert_eq!(test.send(400, 10 * MS), None);
        assert_eq!(test.answer(400), None);
        for _ in 0..=LATELY {
            assert_eq!(test.send(4, 0), None);
            // It has no more to send for now.
            test.paths.flows.values_mut().for_each(|flow| (flow.left, flow.trip.left) = (0, 0));
            assert_eq!(test.answer(4), None);
        }
        assert_eq!(test.send(32, 0), None);
        assert!(test.send(1, 0).is_some());
    }

    #[test]
    fn more_than_the_first_credits_do_not_leave_at_once() {
        let mut test = Test::new();
        for packets in [32, 64, 128] {
            assert_eq!(test.send(packets, 10 * MS), None);
            assert_eq!(test.answer(packets), None);
        }
        assert_eq!(test.send(80, 0), None);
        assert!(test.send(20, 0).is_some(), "100 of 256 leave at once");
    }

    #[test]
    fn no_session_has_more_packets_on_their_way_than_credits() {
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
    fn a_response_that_was_asked_for_counts() {
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
        assert_eq!(paths.flows[&session].on_their_way, 1, "the one that was too many");
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
