//! Seeded faults under a virtual clock. Whatever the network does, every call completes exactly
//! once, with its own bytes, and its handler runs at most once. The tests count the faults, because
//! a network without faults would prove nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use super::pair::{CLIENT, Pair, SERVER, Side, connected, ms, pattern};
use super::times;
use crate::protocol::ids::IdSource;
use crate::protocol::{
    CallError, DropReason, EndpointConfig, ProtocolStats, SessionEvent, SessionId,
};
use crate::time::Instant;
use crate::transport::ChargeModel;

/// Probability of each fault, in percent.
#[derive(Clone, Copy, Default, Debug)]
struct Faults {
    loss: u32,
    repeat: u32,
    delay: u32,
    /// A few bits flipped, the end cut off, or bytes added.
    damage: u32,
}

/// Number of faults that the network has caused.
#[derive(Clone, Copy, Default, Debug)]
struct Acted {
    lost: u64,
    repeated: u64,
    delayed: u64,
    damaged: u64,
}

/// Packets in flight, ordered by arrival.
struct Air {
    draw: IdSource,
    faults: Faults,
    acted: Acted,
    packets: BTreeMap<(u64, u64), (bool, Vec<u8>)>,
    serial: u64,
}

impl Air {
    fn new(seed: u64, faults: Faults) -> Self {
        let draw = IdSource::new((seed, 77));
        Self { draw, faults, acted: Acted::default(), packets: BTreeMap::new(), serial: 0 }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.draw.draw() as usize % limit
    }

    fn happens(&mut self, percent: u32) -> bool {
        self.draw.draw() % 100 < percent
    }

    /// Takes the packets that both sides have sent.
    fn take(&mut self, pair: &mut Pair) {
        for (to_server, packets) in [(true, pair.take_to_server()), (false, pair.take_to_client())]
        {
            for bytes in packets {
                self.send(pair.now, to_server, &bytes);
                if self.happens(self.faults.repeat) {
                    self.acted.repeated += 1;
                    self.send(pair.now, to_server, &bytes);
                }
            }
        }
    }

    fn send(&mut self, now: Instant, to_server: bool, bytes: &[u8]) {
        if self.happens(self.faults.loss) {
            self.acted.lost += 1;
            return;
        }
        let mut delay = 5_000;
        if self.happens(self.faults.delay) {
            self.acted.delayed += 1;
            delay += u64::from(self.draw.draw() % 20_000_000);
        }
        let mut bytes = bytes.to_vec();
        if self.faults.damage > 0 && self.happens(self.faults.damage) {
            self.acted.damaged += 1;
            self.damage(&mut bytes);
        }
        self.serial += 1;
        self.packets.insert((now.as_nanos() + delay, self.serial), (to_server, bytes));
    }

    fn damage(&mut self, bytes: &mut Vec<u8>) {
        match self.below(4) {
            0 => bytes.truncate(self.below(bytes.len())),
            1 => bytes.resize(bytes.len() + 1 + self.below(16), self.below(256) as u8),
            _ => {
                for _ in 0..=self.below(8) {
                    let bit = self.below(bytes.len() * 8);
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
            }
        }
    }

    /// Runs the next event: packets that arrive together, or a timer.
    fn step(&mut self, pair: &mut Pair) {
        self.take(pair);
        let timer = pair.client.next_deadline().min(pair.server.next_deadline());
        let arrival = self.packets.first_key_value().map(|(key, _)| Instant::from_nanos(key.0));
        let Some(arrival) = arrival.filter(|arrival| *arrival <= timer) else {
            return pair.pass(timer - pair.now);
        };
        pair.now = pair.now.max(arrival);
        let later = self.packets.split_off(&(pair.now.as_nanos() + 1, 0));
        let arrived = std::mem::replace(&mut self.packets, later);
        let (requests, replies): (Vec<_>, Vec<_>) =
            arrived.into_values().partition(|(to_server, _)| *to_server);
        let bytes = |packets: Vec<(bool, Vec<u8>)>| packets.into_iter().map(|(_, bytes)| bytes);
        let (requests, replies): (Vec<_>, Vec<_>) =
            (bytes(requests).collect(), bytes(replies).collect());
        for burst in requests.chunks(32) {
            pair.burst_at_server(CLIENT, burst);
        }
        for burst in replies.chunks(32) {
            pair.burst_at_client(SERVER, burst);
        }
    }
}

/// Calls over a network with faults.
struct Run {
    seed: u64,
    faults: Faults,
    client: Side,
    server: Side,
    sessions: usize,
    calls: u64,
    max_size: usize,
}

impl Run {
    fn new(seed: u64, faults: Faults) -> Self {
        let side = Side::new(1_472);
        Self {
            seed,
            faults,
            client: side.clone(),
            server: side,
            sessions: 1,
            calls: 60,
            max_size: 20_000,
        }
    }

    /// Makes all calls and checks their outcomes.
    fn go(self) -> (Pair, Acted) {
        let mut pair = Pair::of(self.client, self.server);
        let sessions: Vec<_> = (0..self.sessions).map(|_| pair.open()).collect();
        let mut air = Air::new(self.seed, self.faults);
        let mut expected = BTreeMap::new();
        for token in 0..self.calls {
            let body = pattern(token, air.below(self.max_size));
            pair.call(sessions[token as usize % sessions.len()], token, &body);
            expected.insert(token, body);
        }
        let end = pair.now + Duration::from_secs(600);
        while pair.outcomes.len() < expected.len() {
            let done = pair.outcomes.len();
            assert!(pair.now < end, "seed {}: {done} of {} calls done", self.seed, expected.len());
            air.step(&mut pair);
        }
        for outcome in &pair.outcomes {
            let body = expected.remove(&outcome.token).expect("each call completes once");
            assert!(outcome.result == Ok(body), "seed {}: call {}", self.seed, outcome.token);
        }
        assert_eq!(pair.executed, self.calls, "seed {}: each handler ran once", self.seed);
        assert_eq!(
            pair.client.pool_stats().in_use,
            0,
            "seed {}: every request buffer is back in the pool",
            self.seed
        );
        for stats in [*pair.client.stats(), *pair.server.stats()] {
            assert_eq!(
                stats.rx_packets,
                stats.rx_delivered + stats.dropped_in_all(),
                "every received packet is counted"
            );
        }
        (pair, air.acted)
    }
}

/// The number of events that a test expects at least, over all seeds. Lower under Miri, where fewer
/// seeds run.
fn enough(count: u32) -> u64 {
    times(count).into()
}

/// Runs the calls with every seed. Returns the sums of both sides' counters, and of the faults.
fn all_seeds(run: impl Fn(u64) -> Run) -> (ProtocolStats, Acted) {
    let (mut stats, mut acted) = (ProtocolStats::default(), Acted::default());
    for seed in 0..times(20).into() {
        let (pair, did) = run(seed).go();
        stats += *pair.client.stats();
        stats += *pair.server.stats();
        acted.lost += did.lost;
        acted.repeated += did.repeated;
        acted.delayed += did.delayed;
        acted.damaged += did.damaged;
    }
    (stats, acted)
}

/// Number of packets that both sides sent again.
fn again(stats: &ProtocolStats) -> u64 {
    stats.retransmissions.packets() + stats.repeated_responses
}

#[test]
fn without_faults_no_packet_is_sent_twice() {
    let (pair, acted) =
        Run { calls: 300, max_size: 100_000, ..Run::new(1, Faults::default()) }.go();
    assert_eq!((acted.lost, acted.repeated, acted.delayed), (0, 0, 0));
    assert_eq!(
        pair.client.stats().retransmissions.packets() + pair.server.stats().repeated_responses,
        0
    );
    assert_eq!(pair.client.stats().dropped_in_all() + pair.server.stats().dropped_in_all(), 0);
}

#[test]
fn calls_withstand_loss() {
    let (stats, acted) = all_seeds(|seed| Run::new(seed, Faults { loss: 10, ..Faults::default() }));
    assert!(acted.lost > enough(1_000) && again(&stats) > acted.lost / 2, "{acted:?}, {stats:?}");
    assert!(
        stats.dropped(DropReason::OutOfOrder) > enough(100)
            && stats.dropped(DropReason::Duplicate) > enough(100)
    );
}

#[test]
fn calls_withstand_duplicates() {
    let (stats, acted) =
        all_seeds(|seed| Run::new(seed, Faults { repeat: 30, ..Faults::default() }));
    assert!(acted.repeated > enough(3_000), "{acted:?}");
    assert!(stats.dropped(DropReason::Duplicate) > acted.repeated / 4);
    let lost = stats.retransmissions.probes + stats.dropped(DropReason::OutOfOrder);
    assert_eq!(lost, 0, "a duplicate must not be treated as a loss");
}

#[test]
fn calls_withstand_delay_and_reordering() {
    let (stats, acted) =
        all_seeds(|seed| Run::new(seed, Faults { delay: 20, ..Faults::default() }));
    assert!(acted.delayed > enough(2_000), "{acted:?}");
    assert!(
        stats.dropped(DropReason::OutOfOrder) > enough(100)
            && stats.dropped(DropReason::OldRequest) > enough(10)
    );
}

#[test]
fn calls_withstand_all_faults_together() {
    let (stats, acted) = all_seeds(|seed| {
        Run::new(seed, Faults { loss: 30, repeat: 10, delay: 10, ..Faults::default() })
    });
    assert!(acted.lost > enough(3_000) && again(&stats) > enough(3_000), "{acted:?}, {stats:?}");
}

/// The server's transport lets damaged packets through, so the session has checksums.
fn damaged(seed: u64, faults: Faults) -> Run {
    let run = Run::new(seed, Faults { damage: 10, ..faults });
    Run { server: run.server.clone().unprotected(), ..run }
}

#[test]
fn calls_withstand_damage_where_packets_carry_checksums() {
    let (stats, acted) = all_seeds(|seed| damaged(seed, Faults::default()));
    assert!(acted.damaged > enough(1_000), "{acted:?}");
    let found = [DropReason::Checksum, DropReason::Truncated, DropReason::Version];
    let found: u64 = found.iter().map(|reason| stats.dropped(*reason)).sum();
    assert!(found > acted.damaged / 2, "{acted:?}, {stats:?}");
}

#[test]
fn small_calls_withstand_damage_together_with_all_other_faults() {
    let faults = Faults { loss: 10, repeat: 10, delay: 10, ..Faults::default() };
    all_seeds(|seed| Run { max_size: 1_400, sessions: 3, calls: 200, ..damaged(seed, faults) });
}

#[test]
fn small_calls_withstand_all_faults_together() {
    let faults = Faults { loss: 20, repeat: 20, delay: 20, ..Faults::default() };
    all_seeds(|seed| Run { max_size: 1_400, sessions: 3, calls: 200, ..Run::new(seed, faults) });
}

#[test]
fn many_sessions_withstand_faults_in_a_window_of_a_few_packets() {
    let faults = Faults { loss: 5, repeat: 5, delay: 5, ..Faults::default() };
    all_seeds(|seed| {
        let queue = |packets: u64| (2 + packets as u32 % 14) * ChargeModel::RING_ENTRY * 4 / 3;
        let config =
            EndpointConfig::new().credits(1 + seed as u16 % 8).max_credits(1 + seed as u16 % 8);
        Run {
            client: Side::new(1_472).queue(ChargeModel::Ring, queue(seed * 7)).config(config),
            server: Side::new(1_472).queue(ChargeModel::Ring, queue(seed)),
            sessions: 6,
            ..Run::new(seed, faults)
        }
    });
}

#[test]
fn many_sessions_withstand_faults_in_a_socket_buffer_of_bytes() {
    let faults = Faults { loss: 5, repeat: 5, delay: 5, ..Faults::default() };
    all_seeds(|seed| {
        let side = |datagram| {
            Side::new(datagram).queue(ChargeModel::LinuxUdp, 20_000 + 9_000 * seed as u32)
        };
        Run { client: side(8_972), server: side(65_507), sessions: 5, ..Run::new(seed, faults) }
    });
}

#[test]
fn sessions_open_and_close_under_faults() {
    for seed in 0..times(40).into() {
        let mut pair =
            Pair::new(1_472, EndpointConfig::new().connect_timeout(Duration::from_secs(20)));
        let mut air =
            Air::new(seed, Faults { loss: 20, repeat: 20, delay: 20, ..Faults::default() });
        let sessions: Vec<SessionId> = (0..10).map(|_| pair.connect()).collect();
        for (token, session) in sessions.iter().enumerate() {
            pair.call(*session, token as u64, &pattern(token as u64, 3_000));
            pair.disconnect(*session);
        }
        let end = pair.now + Duration::from_secs(60);
        while pair.client.sessions().0 > 0 {
            assert!(pair.now < end, "seed {seed}");
            air.step(&mut pair);
        }
        assert!(
            pair.outcomes.len() == 10 && pair.outcomes.iter().all(|outcome| outcome.result.is_ok())
        );
        // Late copies of `Open` may have opened sessions without a client. The server pings the
        // client when such a session is silent. The client answers `Reset`, which ends the session.
        air.faults = Faults::default();
        let end = pair.now + Duration::from_secs(30);
        while pair.now < end && (pair.server.sessions().1 > 0 || !air.packets.is_empty()) {
            air.step(&mut pair);
        }
        assert_eq!((pair.executed, pair.server.sessions()), (10, (0, 0)), "seed {seed}");
        assert_eq!(pair.server.pool_stats().in_use, 0, "seed {seed}");
    }
}

#[test]
fn errors_report_the_execution_correctly_when_servers_restart_under_faults() {
    let mut errors = [0; 3];
    for seed in 0..times(40).into() {
        let (mut pair, mut session) =
            Pair::connected(1_472, EndpointConfig::new().credits(8).max_credits(8));
        let mut air =
            Air::new(seed, Faults { loss: 10, repeat: 10, delay: 10, ..Faults::default() });
        let (mut token, mut restarts) = (0u64, 0);
        let end = pair.now + Duration::from_secs(300);
        while restarts < 4 || pair.outcomes.len() < token as usize {
            assert!(pair.now < end, "seed {seed}");
            if matches!(pair.sessions.get(&session), Some(SessionEvent::Closed(_))) {
                session = pair.connect();
            }
            while restarts < 4 && token < pair.outcomes.len() as u64 + 12 {
                let mut body = pattern(token, 8 + air.below(20_000));
                body[..8].copy_from_slice(&token.to_le_bytes());
                if pair.try_call(session, token, &body).is_err() {
                    break;
                }
                token += 1;
            }
            if restarts < 4 && air.below(300) == 0 {
                restarts += 1;
                pair.restart_server(1_000 + restarts);
            }
            air.step(&mut pair);
        }
        assert_eq!(pair.outcomes.len() as u64, token, "seed {seed}: each call ends once");
        for outcome in &pair.outcomes {
            let ran = pair.handled.get(&outcome.token).copied().unwrap_or(0);
            let truth = match &outcome.result {
                Ok(_) => ran == 1,
                Err(CallError::NotExecuted(_)) => ran == 0,
                Err(CallError::MaybeExecuted(_)) => ran <= 1,
                Err(CallError::ResponseLost(_)) => ran == 1,
                Err(_) => false,
            };
            assert!(
                truth,
                "seed {seed}: {:?} ran {ran} times",
                outcome.result.as_ref().map(Vec::len)
            );
            match &outcome.result {
                Err(CallError::NotExecuted(_)) => errors[0] += 1,
                Err(CallError::MaybeExecuted(_)) => errors[1] += 1,
                Err(CallError::ResponseLost(_)) => errors[2] += 1,
                _ => {}
            }
        }
    }
    assert!(
        errors.iter().all(|count| *count > enough(20)),
        "each kind of error must occur: {errors:?}"
    );
}

#[test]
fn a_network_that_heals_lets_every_call_finish() {
    for seed in 0..times(20).into() {
        let (mut pair, session) = connected();
        let mut air = Air::new(seed, Faults { loss: 100, ..Faults::default() });
        for token in 0..20 {
            pair.call(session, token, &pattern(token, 10_000));
        }
        let healed = pair.now + ms(9_000);
        while pair.now < healed {
            air.step(&mut pair);
        }
        air.faults = Faults::default();
        let start = pair.now;
        while pair.outcomes.len() < 20 {
            air.step(&mut pair);
        }
        assert!(pair.outcomes.iter().all(|outcome| outcome.result.is_ok()));
        assert!(
            pair.now - start < ms(1_000),
            "the calls took longer than one capped pause: {:?}",
            pair.now - start
        );
    }
}
