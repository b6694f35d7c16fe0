//! Messages that share frames.

use super::*;

/// Bytes of the longest bundle, those that every path carries.
const BUNDLE: usize = 1_052;
/// Bytes of the shortest message that opens no bundle.
const LONG: usize = BUNDLE / 2 - 24 + 1;
/// Bundles that can be open.
const PLACES: u16 = 8;
/// Packets of a burst, at most.
const BURST: usize = erpc_core::transport::MAX_BURST;

struct Ends {
    server: DpdkTransport,
    client: DpdkTransport,
    pool: Pool,
    number: u32,
    /// The packets that were sent and have not been received yet.
    sent: Vec<Vec<u8>>,
    /// Dropped last: it opens the ports again.
    _pair: Pair,
}

/// The header of a request of `len` bytes.
fn request(number: u32, len: usize, flags: Flags) -> HeaderWords {
    let header = erpc_core::wire::Header {
        connection: ConnectionId::new(0, true, 0, 1),
        kind: Kind::Request,
        packet: PacketNumber::new(0),
        request: RequestNumber::from_u32(number),
        aux: 0,
        size: len as u32,
        flags,
    };
    header.to_words()
}

impl Ends {
    fn new() -> Self {
        let pair = pair(1);
        let [a, b] = pair.names();
        let mut server = DpdkTransport::open(&port(&a, 1)).expect("a port");
        let mut client = DpdkTransport::open(&port(&b, 2)).expect("a port");
        meet(&mut client, &mut server);
        let pool = Pool::new(1 << 20);
        Self { server, client, pool, number: 0, sent: Vec::new(), _pair: pair }
    }

    /// The server's route, or that of an endpoint a number of ports further, which does not exist.
    fn route(&self, further: u16) -> UdpRoute {
        let server = self.server.local_route().socket_addr();
        SocketAddr::new(server.ip(), server.port() + further).into()
    }

    /// Sends a request of `len` bytes to the server's port, or a number of ports further.
    fn send_to(&mut self, further: u16, len: usize, flags: Flags, takes_bundles: bool) {
        self.number += 1;
        let mut message = self.pool.alloc(len).expect("memory");
        message.put_slice(&super::message(len));
        let (words, route) = (request(self.number, len, flags), self.route(further));
        self.client.split().1.push_single(&route, words, &mut message, takes_bundles);
        if further == 0 {
            let mut packet = [&words.to_bytes()[..], message.as_slice()].concat();
            if flags == Flags::TRAILER {
                packet.extend_from_slice(&crc32c::crc32c(&packet).to_le_bytes());
            }
            self.sent.push(packet);
        }
    }

    fn send(&mut self, len: usize) {
        self.send_to(0, len, Flags::NONE, true);
    }

    /// The packet that was sent in this place has a frame of its own, behind the bundle that was open
    /// then.
    fn leaves_last(&mut self, place: usize) {
        let packet = self.sent.remove(place);
        self.sent.push(packet);
    }

    /// Rings the doorbell, and receives what was sent. Returns the number of frames.
    fn arrive(&mut self) -> u64 {
        let (got, frames) = self.receive();
        assert_eq!(got, std::mem::take(&mut self.sent), "all packets, in their order");
        frames
    }

    /// As [`Self::arrive`], but long packets may overtake others, and be overtaken.
    fn arrive_in_any_order(&mut self) -> u64 {
        let (mut got, frames) = self.receive();
        let short = |packets: &[Vec<u8>]| -> Vec<_> {
            packets.iter().filter(|packet| packet.len() < 24 + LONG).cloned().collect()
        };
        assert_eq!(short(&got), short(&self.sent), "short packets, in their order");
        got.sort();
        self.sent.sort();
        assert_eq!(got, std::mem::take(&mut self.sent), "all packets");
        frames
    }

    fn receive(&mut self) -> (Vec<Vec<u8>>, u64) {
        let before = self.server.stats();
        let begun = Instant::now();
        let mut got = Vec::new();
        while got.len() < self.sent.len() {
            self.client.split().1.doorbell();
            let rx = self.server.split().0;
            let count = rx.burst();
            assert!(count <= BURST, "a burst of {count} packets");
            got.extend((0..count).map(|at| rx.packet(at).bytes.to_vec()));
            assert!(begun.elapsed() < PATIENCE, "{} of {} packets", got.len(), self.sent.len());
        }
        let rx = self.server.split().0;
        assert_eq!((rx.burst(), rx.is_drained()), (0, true));
        (got, self.server.stats().rx_packets - before.rx_packets)
    }
}

#[test]
fn messages_between_two_doorbells_share_frames() {
    let mut ends = Ends::new();
    let each = (24 + 32_usize).next_multiple_of(8);
    let most = BUNDLE / each;
    for (messages, frames) in [(1, 1), (2, 1), (most, 1), (most + 1, 2), (3 * most, 3)] {
        let before = ends.client.stats();
        (0..messages).for_each(|_| ends.send(32));
        assert_eq!(ends.arrive(), frames as u64, "{messages} messages");
        let after = ends.client.stats();
        assert_eq!(after.tx_packets - before.tx_packets, frames as u64);
        assert_eq!(after.tx_bytes - before.tx_bytes, (messages * each) as u64);
    }
    for _ in 0..3 {
        ends.send(32);
        assert_eq!(ends.arrive(), 1, "a doorbell ends a bundle");
    }
}

#[test]
fn messages_of_any_length_come_whole() {
    let mut ends = Ends::new();
    for round in 0..40 {
        // Empty messages, all remainders of 8, and some that are too long for a bundle.
        (0..50).for_each(|number| ends.send(number * (round + 1) % 1_500));
        // A long message does not end a bundle that has no room for it.
        let frames = ends.arrive_in_any_order();
        assert!(frames < 50, "{frames} frames");
    }
}

#[test]
fn a_bundle_has_one_destination_and_only_messages_that_may_be_bundled() {
    let mut ends = Ends::new();
    // The other endpoint does not exist, so the server drops its frames.
    for further in [0, 1, 0, 1, 1, 0] {
        ends.send_to(further, 32, Flags::NONE, true);
    }
    assert_eq!(ends.arrive(), 1, "each destination has a bundle");
    for takes_bundles in [true, true, false, true, true] {
        ends.send_to(0, 32, Flags::NONE, takes_bundles);
    }
    ends.leaves_last(2);
    assert_eq!(ends.arrive(), 2, "a message to a peer that takes no bundles is alone");
    for len in [LONG, 32, 32] {
        ends.send(len);
    }
    assert_eq!(ends.arrive(), 2, "a long message opens no bundle");
    for len in [32, LONG, 32] {
        ends.send(len);
    }
    assert_eq!(ends.arrive(), 1, "a long message joins one that has room");
    for flags in [Flags::NONE, Flags::TRAILER, Flags::NONE] {
        ends.send_to(0, 32, flags, true);
    }
    ends.leaves_last(1);
    assert_eq!(ends.arrive(), 2, "a message with a trailer, which covers all its bytes, is alone");
}

#[test]
fn control_messages_stay_in_order_with_messages_to_their_peer() {
    let mut ends = Ends::new();
    for (further, frames) in [(0, 3), (1, 1)] {
        ends.send(32);
        let route = ends.route(further);
        ends.client.split().1.push_bytes(&route, &[1; 32]);
        if further == 0 {
            ends.sent.push(vec![1; 32]);
        }
        ends.send(32);
        assert_eq!(ends.arrive(), frames, "{further} ports further");
    }
}

#[test]
fn with_more_peers_than_places_the_first_ones_keep_theirs() {
    let mut ends = Ends::new();
    for peers in 1..=PLACES + 2 {
        for _ in 0..5 {
            (0..peers).for_each(|further| ends.send_to(further, 32, Flags::NONE, true));
        }
        assert_eq!(ends.arrive(), 1, "the first of {peers} peers keeps its bundle");
    }
    for _ in 0..5 {
        (0..=PLACES).rev().for_each(|further| ends.send_to(further, 32, Flags::NONE, true));
    }
    assert_eq!(ends.arrive(), 5, "the last of {} peers shares a place", PLACES + 1);
}

#[test]
fn more_packets_than_a_burst_come_in_several() {
    let mut ends = Ends::new();
    // Empty messages: the most in a frame. More frames than a doorbell takes.
    for messages in [BURST, BURST + 1, 2_000, 4_000] {
        (0..messages).for_each(|_| ends.send(0));
        let frames = ends.arrive();
        assert_eq!(frames, messages.div_ceil(BUNDLE / 24) as u64, "{messages} messages");
    }
}

#[test]
fn a_refused_doorbell_ends_a_bundle_and_loses_nothing() {
    let mut ends = Ends::new();
    // Fills the ring, until a frame stays here.
    loop {
        let before = ends.client.stats().tx_packets;
        ends.send_to(0, 32, Flags::NONE, false);
        ends.client.split().1.doorbell();
        if ends.client.stats().tx_packets == before {
            break;
        }
    }
    let frames = ends.sent.len();
    for _ in 0..3 {
        // In turn to the server and to two ports where no endpoint is.
        for len in 0..5 {
            (0..3).for_each(|further| ends.send_to(further, len, Flags::NONE, true));
        }
        ends.client.split().1.doorbell();
    }
    assert_eq!(ends.arrive(), frames as u64 + 3);
}

#[test]
fn the_queue_rings_by_itself_while_frames_are_open() {
    let mut ends = Ends::new();
    let before = ends.client.stats();
    // More frames than a doorbell takes, and than mbufs are taken at once, to the server; meanwhile
    // frames to others are open.
    for _ in 0..300 {
        for further in [1, 2] {
            ends.send_to(further, 8, Flags::NONE, true);
        }
        ends.send_to(0, 32, Flags::NONE, false);
    }
    assert_eq!(ends.arrive(), 300);
    let after = ends.client.stats();
    assert_eq!(after.tx_dropped, before.tx_dropped);
    // Without gaps, because 24 + 8 is a multiple of 8.
    assert_eq!(after.tx_bytes - before.tx_bytes, 300 * (24 + 32 + 2 * (24 + 8)));
}

#[test]
fn members_of_a_group_split_bundles_that_others_have_received() {
    let pair = pair(1);
    let [a, b] = pair.names();
    let mut members = DpdkTransport::open_group(&port(&a, 1), 2).expect("a group");
    assert_eq!(members[0].steering(), Steering::Software);
    let mut client = DpdkTransport::open(&port(&b, 2)).expect("a port");
    meet(&mut client, &mut members[0]);
    let mut pool = Pool::new(1 << 20);
    let mut sent = [Vec::new(), Vec::new()];
    let mut got = [Vec::new(), Vec::new()];
    for number in 0..3_000_u32 {
        // Runs of 1 to 60 empty messages to each.
        let to = number as usize / (1 + number as usize / 50) % 2;
        let route = members[to].local_route();
        let header = request(number, 0, Flags::NONE);
        let mut message = pool.alloc(0).expect("memory");
        client.split().1.push_single(&route, header, &mut message, true);
        sent[to].push(header.to_bytes().to_vec());
        if number % 400 == 399 || number == 2_999 {
            client.split().1.doorbell();
        }
    }
    let begun = Instant::now();
    while (0..2).any(|at| got[at].len() < sent[at].len()) {
        for (member, got) in members.iter_mut().zip(&mut got) {
            let rx = member.split().0;
            let count = rx.burst();
            assert!(count <= BURST);
            got.extend((0..count).map(|at| rx.packet(at).bytes.to_vec()));
        }
        assert!(begun.elapsed() < PATIENCE, "{} and {} packets", got[0].len(), got[1].len());
    }
    assert_eq!(got, sent);
}

#[test]
fn calls_with_trailers_are_not_bundled() {
    let pair = pair(1);
    let [a, b] = pair.names();
    let config = || EndpointConfig::new().integrity(Integrity::Always);
    let server = DpdkTransport::open(&port(&a, 1).udp_port(SERVER.port())).expect("a port");
    let server = Endpoint::new(server, config()).expect("an endpoint");
    let client = DpdkTransport::open(&port(&b, 2)).expect("a port");
    let client = Endpoint::new(client, config()).expect("an endpoint");
    serve(&server);
    let session: Session<DpdkTransport> = client.open(SERVER.into());
    for len in [0, 32, 500, 20_000] {
        call(&client, &session, len, &[&server, &client]);
    }
}

#[test]
fn calls_share_frames() {
    let pair = pair(1);
    let [a, b] = pair.names();
    let server = Endpoint::dpdk(&port(&a, 1).udp_port(SERVER.port())).expect("a port");
    let client = Endpoint::dpdk(&port(&b, 2)).expect("a port");
    serve(&server);
    let session: Session<DpdkTransport> = client.open(SERVER.into());
    call(&client, &session, 32, &[&server, &client]);
    let frames = || {
        [&server, &client].map(|endpoint| endpoint.stats().expect("it runs").transport.tx_packets)
    };
    let before = frames();
    let request = message(32);
    let calls: Vec<_> = (0..8).map(|_| client.spawn(session.call(&ECHO, &request))).collect();
    let end = Instant::now() + PATIENCE;
    while !calls.iter().all(|call| call.is_finished()) {
        assert!(Instant::now() < end, "eight calls take too long");
        client.run_once();
        server.run_once();
    }
    for call in calls {
        assert_eq!(client.block_on(call).expect("an answer"), request);
    }
    let [answers, requests] = [0, 1].map(|at| frames()[at] - before[at]);
    assert!(answers < 8 && requests < 8, "{requests} frames with requests, {answers} with answers");
}
