//! The way of a packet from one endpoint to another: faults, checks, trace.

use std::collections::BTreeMap;

use erpc_core::protocol::MAX_SLOTS;
use erpc_core::time::Instant;
use erpc_core::transport::fault::{Fate, PacketCopy};
use erpc_core::wire::{ANNOUNCEMENT, CANCEL, HEADER_LEN, Header, Kind, checksum};
use erpc_test_tools::random::mix;

use super::{Event, World};
use crate::net::Packet;
use crate::party::{call_of, stream_of};
use crate::transport::Sent;
use crate::{SimRoute, trace};

/// Where a packet is delayed: between the sender and the network, or between the network and the
/// receiver.
#[derive(Clone, Copy)]
pub(super) enum Way {
    Out,
    In,
}

/// The largest number of slots. Two requests of a session that have the same remainder are of the
/// same slot, whatever the session's number of slots.
const SLOTS: u32 = MAX_SLOTS as u32;

/// Facts that only the first packet of a long request carries: its call, or the method of its
/// stream. The key is the sender, the session and the slot. The value is the request number, and
/// the call or the method.
#[derive(Default)]
pub(super) struct Requests(BTreeMap<(SimRoute, u64, u32), (u32, u32)>);

impl Requests {
    /// The call, or the method of the stream, of the request to which this packet of `from`
    /// belongs.
    #[inline]
    fn of(&mut self, from: SimRoute, header: &Header, payload: &[u8]) -> u32 {
        let of = || match stream_of(header.aux) {
            Some(_) => header.aux,
            None => call_of(header.aux, header.flags.extended(), payload),
        };
        if header.packet.get() == 0 && header.size as usize <= payload.len() {
            return of();
        }
        let number = header.request.to_u32();
        let place = (from, header.connection.to_u64(), number % SLOTS);
        if header.packet.get() == 0 {
            let of = of();
            self.0.insert(place, (number, of));
            return of;
        }
        self.0.get(&place).filter(|known| known.0 == number).map_or(u32::MAX, |known| known.1)
    }
}

/// The first response packet that the client has not asked for yet. The key is the server, the
/// session, the slot, and whether packets are large. The value is the request number and the number
/// of this response packet.
#[derive(Default)]
pub(super) struct Pulls(BTreeMap<(SimRoute, u64, u32, bool), (u32, u32)>);

impl Pulls {
    /// Response packets that a request for response may bring: the packets that it names, and the
    /// packets between the last packet asked for before and the first one that it names. An earlier
    /// request for response has asked for the packets in between, but may have been lost.
    fn brings(&mut self, to: SimRoute, header: &Header) -> u64 {
        /// The most credits of a session.
        const MOST: u32 = 1_024;
        let number = header.request.to_u32();
        let place = (to, header.connection.to_u64(), number % SLOTS, header.flags.large());
        let known = self.0.get(&place).filter(|known| known.0 == number);
        let (from, count) = (header.packet.get(), header.size.min(MOST));
        // Without an earlier pull, packets are counted from the first one on, because the pull of
        // an announced response may begin with it.
        let before = known.map_or(0, |known| known.1);
        self.0.insert(place, (number, before.max(from + count)));
        u64::from(count) + u64::from(from.saturating_sub(before).min(MOST))
    }
}

/// A response packet that a server has sent without a pull.
#[derive(Clone, Copy)]
struct Unasked {
    number: u32,
    announced: bool,
    /// When the packet was last sent again.
    again: Option<Instant>,
}

/// The responses of servers, by sender, receiver, session and slot.
#[derive(Default)]
pub(super) struct Repeats(BTreeMap<(SimRoute, SimRoute, u64, u32), Unasked>);

impl Repeats {
    /// Notes a packet that `from` sends at `now`, by its clock. Returns whether it is the first
    /// packet of a response that was sent again less than `pause` ns before.
    fn is_hasty(
        &mut self,
        from: SimRoute,
        to: SimRoute,
        header: &Header,
        now: Instant,
        pause: u64,
    ) -> bool {
        let announces = header.packet.get() == ANNOUNCEMENT;
        if !matches!(header.kind, Kind::Response | Kind::Failure)
            || !(announces || header.packet.get() == 0)
        {
            return false;
        }
        let number = header.request.to_u32();
        let place = (from, to, header.connection.to_u64(), number % SLOTS);
        match self.0.get_mut(&place).filter(|known| known.number == number) {
            // The response was announced, and this is its first packet, which the client has
            // pulled. So the packet is no repetition.
            Some(known) if known.announced != announces => false,
            Some(known) => {
                let before = known.again.replace(now);
                before.is_some_and(|before| now.nanos_since(before) < pause)
            }
            None => {
                self.0.insert(place, Unasked { number, announced: announces, again: None });
                false
            }
        }
    }
}

/// Offset of a stream call's operation in the first packet of its request.
const OP_AT: usize = HEADER_LEN + 2;

/// Offset of the field with the remaining time (in us) in the first packet of a request.
const DEADLINE_AT: usize = HEADER_LEN + 4;

impl World<'_> {
    /// Checks the packets that an endpoint has pushed, and applies the faults of sent packets.
    pub(super) fn send_all(&mut self, index: usize) {
        let mut sent = std::mem::take(&mut self.sent);
        self.nodes[index].port.take_sent(&mut sent);
        let from = self.plan.endpoints[index].route;
        for Sent { to, bytes } in sent.drain(..) {
            if let Ok(header) = Header::parse(&bytes) {
                let Header { kind, flags, .. } = header;
                let trailer = flags.trailer();
                self.nodes[index].answers.sent += u64::from(kind != Kind::Control);
                // If the plan's endpoints ask for checksums, all sessions have them.
                if trailer != (kind == Kind::Control || self.has_checksums) {
                    let with = if trailer { "with" } else { "without" };
                    let what = format!("a {kind:?} is sent {with} a checksum");
                    self.oracle.blame_at(Some(trace::session(from, to, &header)), what);
                }
                let mut call = None;
                if kind == Kind::Request {
                    let end = bytes.len() - (checksum::overhead(trailer) - HEADER_LEN);
                    let payload = &bytes[HEADER_LEN..end];
                    let of = self.requests.of(from, &header, payload);
                    call = Some(of);
                    self.oracle.sent(of, payload.len());
                    if flags.extended()
                        && header.packet.get() == 0
                        && let Some(field) = bytes.get(DEADLINE_AT..DEADLINE_AT + 4)
                    {
                        let micros =
                            field.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
                        match stream_of(of) {
                            Some(id) => self.oracle.stream_sent_deadline(id, bytes[OP_AT], micros),
                            None => self.oracle.sent_deadline(of, micros),
                        }
                    }
                }
                self.check_announced(from, to, &header);
                let node = &self.nodes[index];
                let pause = node.port.nic().min_rto.as_nanos() as u64 / 4;
                let now = node.clock.at(self.driver.now());
                let repetition =
                    self.last_requests.sent(from, to, &header, &bytes, self.driver.now());
                // No timeout is shorter than the minimum timeout. So an answer that arrived within
                // the minimum timeout came in time.
                let is_early = repetition.is_some_and(|again| {
                    let due = again.before + node.port.nic().min_rto;
                    node.port.has_waiting(|at, bytes| at <= due && again.is_answered_by(bytes))
                });
                if is_early {
                    let number = header.request.to_u32();
                    self.oracle.blame_at(
                        Some(trace::session(from, to, &header)),
                        format!("request {number} is sent again while its answer lies unread"),
                    );
                }
                let floor = self.nodes[index].port.nic().min_rto.as_nanos() as u64;
                if let (Some(call), Some(again)) = (call, repetition)
                    && self.follows_methods
                    && !self.last_requests.is_passed(from, to, again)
                {
                    self.oracle.is_probed(call, again.before, floor);
                }
                let time = self.driver.now();
                if let Some(again) = repetition
                    && let Some((waited, trip)) =
                        self.first_timeouts.repeated(from, to, &again, time, floor)
                {
                    self.oracle.blame_at(
                        Some(trace::session(from, to, &header)),
                        format!("the first timeout takes {waited} ns, the handshake took {trip}"),
                    );
                }
                let is_plain = call.is_some()
                    && header.size as usize + checksum::overhead(trailer) == bytes.len();
                self.first_timeouts.sent(from, to, &bytes, is_plain, time);
                let credits = self.plan.endpoints[index].first_credits;
                let session = (from, to, header.connection.to_u64());
                if let Some(flights) = &mut self.flights
                    && let Some(what) = flights.sent(session, &header, credits, now)
                {
                    self.oracle.blame_at(Some(trace::session(from, to, &header)), what);
                }
                if let Some(paths) = &mut self.paths
                    && let Some(what) = paths.sent(session, &header, time)
                {
                    self.oracle.blame_at(Some(trace::session(from, to, &header)), what);
                }
                if self.repeats.is_hasty(from, to, &header, now, pause) {
                    let number = header.request.to_u32();
                    self.oracle.blame_at(
                        Some(trace::session(from, to, &header)),
                        format!("the response to request {number} is sent again too soon"),
                    );
                }
                self.nodes[index].told.record(to, &header, &bytes);
            }
            self.judge(index, Packet::new(from, to, bytes), Way::Out);
        }
        self.sent = sent;
        self.oracle.all_is_sent();
        self.check_answers(index);
        self.check_told(index);
    }

    /// A packet arrives at its host.
    pub(super) fn arrive(&mut self, packet: Packet) {
        let Some(&index) = self.places.get(&packet.to) else {
            // Answers to forged packets may go to addresses without an endpoint.
            if self.plan.prints {
                trace::lost(self.driver.now(), &packet, "no endpoint has this address");
            }
            return self.driver.network_mut().recycle(packet.bytes);
        };
        self.judge(index, packet, Way::In);
    }

    /// Applies the faults of endpoint `index` to a packet that it sends or receives.
    #[inline]
    fn judge(&mut self, index: usize, packet: Packet, way: Way) {
        let (node, now) = (&mut self.nodes[index], self.driver.now());
        let injector = match way {
            Way::Out => &mut node.tx,
            Way::In => &mut node.rx,
        };
        let before = self.plan.prints.then(|| injector.counts());
        let fate = injector.judge(now, packet.bytes.len());
        if fate.is_intact() {
            return self.go_on(packet, way);
        }
        if let Some(before) = before {
            let counts = (before, injector.counts());
            trace::fate(now, &packet, &fate, counts, self.plan.features);
        }
        self.apply(packet, &fate, way);
    }

    /// Sends the copies of a packet on, now or after their delay.
    fn apply(&mut self, packet: Packet, fate: &Fate, way: Way) {
        let count = fate.copies().len();
        let mut original = Some(packet);
        for (at, PacketCopy { delay, damage }) in fate.copies().enumerate() {
            let copy = if at + 1 == count { original.take() } else { original.clone() };
            let Some(mut copy) = copy else { return };
            if let Some(damage) = damage {
                damage.inflict(&mut copy.bytes);
            }
            if delay.is_zero() {
                self.go_on(copy, way);
            } else {
                self.driver.schedule(self.driver.now() + delay, Event::GoOn(copy, way));
            }
        }
        if let Some(lost) = original {
            self.driver.network_mut().recycle(lost.bytes);
        }
    }

    pub(super) fn go_on(&mut self, packet: Packet, way: Way) {
        match way {
            Way::Out => self.send(packet),
            Way::In => self.deliver(packet),
        }
    }

    fn send(&mut self, packet: Packet) {
        let host = packet.from.host;
        self.send_from(host, packet);
    }

    /// Puts a packet on the network at `host`. Its sender address may be forged.
    pub(super) fn send_from(&mut self, host: u32, packet: Packet) {
        if self.plan.prints {
            trace::packet(self.driver.now(), "sent", &packet, "");
        }
        self.mix_trace(&packet);
        self.record(&packet);
        self.show(&packet);
        self.driver.send(host, packet);
    }

    /// Puts a packet into its receiver's queue, if the receiver is alive and the queue has room.
    fn deliver(&mut self, packet: Packet) {
        if self.plan.prints {
            self.print_delivery(&packet);
        }
        self.mix_trace(&packet);
        let Some(&index) = self.places.get(&packet.to) else { return };
        let node = &mut self.nodes[index];
        if node.rpc.is_none() {
            self.bounce(&packet);
            self.driver.network_mut().recycle(packet.bytes);
            return;
        }
        self.oracle.hears(index, packet.from);
        let asks_for = answers_asked_for(&packet, &mut self.pulls);
        if self.follows_methods
            && let Ok(header) = Header::parse(&packet.bytes)
        {
            self.last_requests.answered(packet.from, packet.to, &header, self.driver.now());
        }
        if let Some(flights) = &mut self.flights {
            flights.answered(packet.from, packet.to);
        }
        if let Some(paths) = &mut self.paths
            && let Ok(header) = Header::parse(&packet.bytes)
        {
            let queue = self.driver.queue_towards(packet.to.host);
            let now = self.driver.now();
            if let Some(what) = paths.arrived(packet.from, packet.to, &header, queue, now) {
                let place = trace::session(packet.from, packet.to, &header);
                self.oracle.blame_at(Some(place), what);
            }
        }
        self.first_timeouts.arrived(packet.from, packet.to, &packet.bytes, self.driver.now());
        node.port.set_now(self.driver.now());
        if node.port.deliver(packet.from, packet.bytes, packet.marked) {
            node.forged += u64::from(packet.forged);
            node.answers.asked_for += asks_for;
            self.driver.plan_turn_now(index);
        } else {
            self.oracle.overflowed();
        }
    }

    /// Prints that a packet reaches its receiver's queue, or why it does not.
    #[cold]
    fn print_delivery(&self, packet: &Packet) {
        let now = self.driver.now();
        let Some(node) = self.places.get(&packet.to).map(|&index| &self.nodes[index]) else {
            return;
        };
        if node.rpc.is_none() {
            trace::lost(now, packet, "the host is down");
        } else if !node.port.has_room(packet.bytes.len()) {
            trace::lost(now, packet, "the receive queue is full");
        } else {
            trace::packet(now, "delivered", packet, "");
        }
    }

    /// Mixes a packet into the trace hash.
    #[inline]
    fn mix_trace(&mut self, packet: &Packet) {
        let word = |at: usize| {
            let chunk = packet.bytes.get(at..at + 8).and_then(|bytes| bytes.first_chunk());
            chunk.map_or(at as u64, |chunk| u64::from_le_bytes(*chunk))
        };
        let ends = u64::from(packet.from.host) << 32 | u64::from(packet.to.host);
        let what = word(0) ^ word(8).rotate_left(17) ^ word(16).rotate_left(34);
        let header = self.driver.now().as_nanos() ^ (packet.bytes.len() as u64) << 48;
        self.trace = mix(self.trace ^ header).wrapping_add(what ^ ends.rotate_left(7));
    }
}

/// The most session packets that a server may send because of this packet. A packet of a request,
/// or a cancellation, has at most one answer. A request for response names a number of packets.
#[inline]
fn answers_asked_for(packet: &Packet, pulls: &mut Pulls) -> u64 {
    match Header::parse(&packet.bytes) {
        Ok(Header { kind: Kind::Request, .. }) => 1,
        Ok(Header { kind: Kind::Done, packet, .. }) if packet.get() == CANCEL => 1,
        Ok(header) if header.kind == Kind::RequestForResponse => pulls.brings(packet.to, &header),
        _ => 0,
    }
}
