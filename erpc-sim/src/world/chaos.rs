//! Carries out the plan's single events, such as crashes, stopped links and forged packets.

use erpc_core::transport::{NetworkError, Obstacle, Undelivered};
use erpc_core::wire::{HEADER_LEN, Header, Kind, VERSION};

use super::{Event, RECORD_ONE_IN, RECORDED, SHOWN, Truth, World};
use crate::net::{LinkId, Packet};
use crate::plan::PlannedEvent;
use crate::{Feature, Random, SimRoute};

/// The type of the control message `Ping` (WIRE.md).
const PING: u32 = 6;

/// The random sources of each kind of event. Leaving one kind out does not change the others.
pub(super) struct Chances {
    record: Random,
    replay: Random,
    forge: Random,
    report: Random,
}

impl Chances {
    pub(super) fn new(random: &Random) -> Self {
        Self {
            record: random.fork(1),
            replay: random.fork(2),
            forge: random.fork(3),
            report: random.fork(4),
        }
    }
}

impl World<'_> {
    pub(super) fn planned(&mut self, event: &PlannedEvent) {
        match *event {
            PlannedEvent::Crash(index, down) => self.crash(index, down),
            PlannedEvent::Stop(link) => {
                self.driver.stop_link(LinkId(link));
                self.happened.stops += 1;
            }
            PlannedEvent::Resume(link) => self.driver.resume_link(LinkId(link)),
            PlannedEvent::Replay(count) => self.replay(count),
            PlannedEvent::Forge(count) => self.forge(count),
            PlannedEvent::ForgeReports(count) => self.forge_reports(count),
            PlannedEvent::Stall(index, nanos) => {
                for index in self.neighbours(index) {
                    self.nodes[index].clock.stop(self.driver.now());
                    self.driver.schedule_in(nanos, Event::Unstall(index));
                }
                self.happened.stalls += 1;
            }
            PlannedEvent::Leap(index, nanos) => {
                for index in self.neighbours(index) {
                    self.nodes[index].clock.leap(nanos);
                    self.driver.plan_turn_now(index);
                }
                self.happened.leaps += 1;
            }
            PlannedEvent::Hoard(index, nanos) => {
                let node = &mut self.nodes[index];
                let now = node.clock.at(self.driver.now());
                if let Some(rpc) = &mut node.rpc {
                    node.party.take_hoard(&mut rpc.context_at(now));
                    self.driver.schedule_in(nanos, Event::Unhoard(index));
                    self.happened.hoards += 1;
                }
            }
            PlannedEvent::Reconnect(index) => {
                self.happened.reconnects += u64::from(self.nodes[index].rpc.is_some());
                self.act(index, |party, cx, oracle, _| party.reconnect(cx, oracle));
            }
        }
    }

    /// All endpoints on the host of endpoint `index`, itself included.
    fn neighbours(&self, index: usize) -> impl Iterator<Item = usize> + use<> {
        let routes = &self.plan.endpoints;
        let host = routes[index].route.host;
        let here: Vec<_> = (0..routes.len()).filter(|&at| routes[at].route.host == host).collect();
        here.into_iter()
    }

    /// A host dies with all its endpoints. They restart after `down` ns.
    fn crash(&mut self, index: usize, down: u64) {
        for other in self.neighbours(index) {
            if self.nodes[other].rpc.is_none() {
                continue;
            }
            let node = &mut self.nodes[other];
            node.party.abandon(&mut self.oracle);
            node.die();
            self.oracle.endpoint_dies(other);
            self.driver.cancel_turn(other);
            self.happened.crashes += 1;
            self.driver.schedule_in(down, Event::Restart(other));
        }
    }

    /// The host of a dead endpoint returns a packet. Hosts limit their rate of ICMP messages, so some
    /// packets are not returned.
    pub(super) fn bounce(&mut self, packet: &Packet) {
        let random = &mut self.chances.report;
        if !self.plan.features.has(Feature::Reports) || random.percent(20) {
            return;
        }
        let Some(&index) = self.places.get(&packet.from) else { return };
        let nanos = 1 << random.within(10, 19);
        let report = Undelivered::new(packet.to, NetworkError::NothingListens, &packet.bytes);
        self.driver.schedule_in(nanos, Event::Report(index, report, Truth::True));
    }

    /// Notes a packet that attackers see.
    pub(super) fn show(&mut self, packet: &Packet) {
        if self.plan.features.has(Feature::Reports) && !packet.forged {
            let report = Undelivered::new(packet.to, NetworkError::NothingListens, &packet.bytes);
            if self.shown.len() == SHOWN {
                self.shown.pop_front();
            }
            self.shown.push_back((packet.from, report));
        }
    }

    /// Attackers forge reports about recently sent packets. They have seen the packets of calls, so
    /// most of these reports quote the right session id. The session ids of control packets they
    /// must guess.
    fn forge_reports(&mut self, count: u32) {
        for _ in 0..count {
            let random = &mut self.chances.report;
            let Some(at) = self.shown.len().checked_sub(1) else { return };
            let Some(&(from, shown)) = self.shown.get(random.below(at as u64 + 1) as usize) else {
                return;
            };
            let Some(&index) = self.places.get(&from) else { continue };
            let mut packet = Packet::new(from, shown.route, shown.quote().to_vec());
            let is_seen = Header::parse(&packet.bytes).is_ok_and(|h| h.kind != Kind::Control);
            if !is_seen || random.percent(20) {
                guess(&mut packet, random);
            }
            let errors = [
                NetworkError::NothingListens,
                NetworkError::Returned(Obstacle::Host),
                NetworkError::Returned(Obstacle::Prohibited),
            ];
            let report = Undelivered::new(shown.route, *random.pick(&errors), &packet.bytes);
            let nanos = random.below(100_000);
            self.driver.schedule_in(nanos, Event::Report(index, report, Truth::Forged));
            self.happened.forged_reports += 1;
        }
    }

    /// A report arrives at the endpoint that has sent the packet.
    pub(super) fn deliver_report(
        &mut self,
        index: usize,
        report: Undelivered<SimRoute>,
        truth: Truth,
    ) {
        if self.nodes[index].rpc.is_none() {
            return;
        }
        if truth == Truth::True {
            self.happened.reports += 1;
            if let Ok(header) = Header::parse(report.quote())
                && header.kind == Kind::Control
                && header.packet.get() == PING
                && header.connection.is_server_role()
            {
                let (id, nonce) = (header.connection.to_u64(), header.request.to_u32());
                self.oracle.ping_is_returned(index, report.route, id, nonce);
            }
        }
        self.nodes[index].port.report(report);
        self.driver.plan_turn_now(index);
    }

    /// Records one packet in a few, if packets will be replayed or forged.
    pub(super) fn record(&mut self, packet: &Packet) {
        let wanted = self.plan.features.has_any(&[Feature::Replay, Feature::Spoofing]);
        // Every session begins with the same request numbers. So a packet from the beginning of a
        // session may fit the next session. Such packets are recorded more often.
        let begins =
            packet.bytes.get(12..16).is_some_and(|number| number[0] < 16 && number[1..] == [0; 3]);
        let random = &mut self.chances.record;
        if !wanted || packet.forged || random.below(RECORD_ONE_IN) > 3 * u64::from(begins) {
            return;
        }
        if self.recorded.len() < RECORDED {
            self.recorded.push(packet.clone());
        } else {
            let at = random.below(RECORDED as u64) as usize;
            self.recorded[at] = packet.clone();
        }
    }

    fn hosts(&self) -> u64 {
        self.plan.topology.hosts().into()
    }

    /// Plans replays of recorded packets that endpoint `index` sent or received. Called when the
    /// endpoint restarts, or replaces one of its sessions.
    pub(super) fn replay_past(&mut self, index: usize) {
        if self.plan.features.has(Feature::Replay) {
            // 4 us to 4 ms from now: the first calls are under way, on the shortest path or the
            // longest.
            for _ in 0..4 {
                let random = &mut self.chances.replay;
                let soon = 1 << random.within(12, 21);
                let nanos = soon + random.below(soon);
                self.driver.schedule_in(nanos, Event::ReplayOf(index));
            }
        }
    }

    /// Replays some recorded packets that endpoint `index` sent or received.
    pub(super) fn replay_of(&mut self, index: usize) {
        let route = self.plan.endpoints[index].route;
        let mine: Vec<_> = (0..self.recorded.len())
            .filter(|&at| self.recorded[at].from == route || self.recorded[at].to == route)
            .collect();
        for _ in 0..mine.len().min(64) {
            let packet = self.recorded[*self.chances.replay.pick(&mine)].clone();
            let host = self.chances.replay.below(self.hosts()) as u32;
            self.send_from(host, packet);
            self.happened.replayed += 1;
        }
    }

    /// Replays recorded packets from random hosts.
    fn replay(&mut self, count: u32) {
        for _ in 0..count {
            let at = self.chances.replay.below(self.recorded.len() as u64) as usize;
            let Some(packet) = self.recorded.get(at).cloned() else { return };
            let host = self.chances.replay.below(self.hosts()) as u32;
            self.send_from(host, packet);
            self.happened.replayed += 1;
        }
    }

    /// Attackers that see no packets send forged packets with any sender address.
    fn forge(&mut self, count: u32) {
        for _ in 0..count {
            let hosts = self.hosts();
            let random = &mut self.chances.forge;
            let at = random.below(self.recorded.len() as u64) as usize;
            let Some(mut packet) = self.recorded.get(at).cloned() else { return };
            match random.below(4) {
                // A packet with the address of another sender. A control packet does not count as
                // forged, because the answer to a handshake may come from another endpoint than the
                // one that was asked.
                0 => {
                    let host = random.below(hosts) as u32;
                    let from = SimRoute::new(host, random.within(1, 3) as u16);
                    if self.places.contains_key(&from) && from == packet.to {
                        continue;
                    }
                    let control =
                        Header::parse(&packet.bytes).is_ok_and(|h| h.kind == Kind::Control);
                    packet.forged |= from != packet.from && !control;
                    packet.from = from;
                }
                // A guessed session id: the number is easy to guess, the 32 random bits are not.
                1 => guess(&mut packet, random),
                // A guessed session id and any kind of packet.
                2 => {
                    guess(&mut packet, random);
                    if let Some(kind) = packet.bytes.get_mut(8) {
                        *kind = VERSION | (random.below(8) as u8) << 2;
                    }
                }
                // Random bytes. They name no session, because an attacker cannot know a session's
                // id.
                _ => {
                    packet.bytes.resize(random.below(200) as usize, 0);
                    for byte in &mut packet.bytes {
                        *byte = random.word() as u8;
                    }
                }
            }
            let host = random.below(hosts) as u32;
            self.send_from(host, packet);
            self.happened.forged += 1;
        }
    }
}

/// Changes the random half of the session id: the id in the header, or the id in the body if the
/// packet goes to an endpoint and its header names no session.
fn guess(packet: &mut Packet, random: &mut Random) {
    let bytes = &mut packet.bytes;
    let names_none = bytes.get(4..8) == Some(&[0; 4]);
    packet.forged |= !names_none;
    let generation = if names_none { HEADER_LEN + 4 } else { 4 };
    if let Some(generation) = bytes.get_mut(generation..generation + 4) {
        let noise = random.word() as u32 | 1;
        for (byte, noise) in generation.iter_mut().zip(noise.to_le_bytes()) {
            *byte ^= noise;
        }
    }
}
