//! Seeded faults under a virtual clock: whatever the network does, every call completes exactly once,
//! with its own bytes, and its handler runs at most once.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use super::pair::{CLIENT, Pair, SERVER, pattern};
use crate::protocol::EndpointConfig;
use crate::protocol::ids::IdSource;

/// A network that loses, repeats, delays and reorders.
struct Faults {
    draw: IdSource,
    loss: u32,
    duplicate: u32,
    delay: u32,
}

impl Faults {
    fn percent(&mut self, of: u32) -> bool {
        self.draw.draw() % 100 < of
    }

    /// When each copy of a packet arrives, nanoseconds from now.
    fn copies(&mut self) -> Vec<u64> {
        let mut copies = Vec::new();
        let count = 1 + u32::from(self.percent(self.duplicate));
        for _ in 0..count {
            if !self.percent(self.loss) {
                let delay = if self.percent(self.delay) {
                    u64::from(self.draw.draw() % 20_000_000)
                } else {
                    0
                };
                copies.push(5_000 + delay);
            }
        }
        copies
    }
}

struct Run {
    seed: u64,
    loss: u32,
    duplicate: u32,
    delay: u32,
    max_datagram: usize,
    calls: u64,
    max_size: u32,
}

fn run(plan: &Run) -> Pair {
    let (mut pair, session) = Pair::connected(plan.max_datagram, EndpointConfig::new());
    let mut faults = Faults {
        draw: IdSource::new((plan.seed, 77)),
        loss: plan.loss,
        duplicate: plan.duplicate,
        delay: plan.delay,
    };
    let mut air: BTreeMap<(u64, u64), (bool, Vec<u8>)> = BTreeMap::new();
    let mut serial = 0;
    let mut expected = BTreeMap::new();
    for token in 0..plan.calls {
        let body = pattern(token, (faults.draw.draw() % plan.max_size) as usize);
        pair.call(session, token, &body);
        expected.insert(token, body);
    }
    let end = pair.now + Duration::from_secs(600);
    while pair.outcomes.len() < expected.len() {
        assert!(
            pair.now < end,
            "seed {}: {} of {} calls done",
            plan.seed,
            pair.outcomes.len(),
            expected.len()
        );
        for (to_server, packets) in [(true, pair.take_to_server()), (false, pair.take_to_client())]
        {
            for bytes in packets {
                for delay in faults.copies() {
                    serial += 1;
                    air.insert((pair.now.as_nanos() + delay, serial), (to_server, bytes.clone()));
                }
            }
        }
        let timer = pair.client.next_deadline().min(pair.server.next_deadline());
        match air.first_key_value() {
            Some((&(at, serial), _)) if at <= timer.as_nanos() => {
                pair.now = pair.now.max(crate::time::Instant::from_nanos(at));
                let (to_server, bytes) = air.remove(&(at, serial)).expect("just seen");
                if to_server {
                    pair.at_server(CLIENT, &bytes);
                } else {
                    pair.at_client(SERVER, &bytes);
                }
            }
            _ => {
                let wait = timer - pair.now;
                pair.pass(wait);
            }
        }
    }
    let mut seen = HashSet::new();
    for outcome in &pair.outcomes {
        assert!(
            seen.insert(outcome.token),
            "seed {}: call {} completed twice",
            plan.seed,
            outcome.token
        );
        assert_eq!(outcome.result.as_ref(), Ok(&expected[&outcome.token]), "seed {}", plan.seed);
    }
    assert_eq!(pair.executed, plan.calls, "seed {}: each handler ran once", plan.seed);
    pair
}

#[test]
fn without_faults_nothing_is_sent_twice() {
    let pair = run(&Run {
        seed: 1,
        loss: 0,
        duplicate: 0,
        delay: 0,
        max_datagram: 1_472,
        calls: 300,
        max_size: 100_000,
    });
    assert_eq!(pair.client.stats().retransmissions + pair.server.stats().retransmissions, 0);
    assert_eq!(pair.client.stats().dropped_in_all() + pair.server.stats().dropped_in_all(), 0);
}

#[test]
fn all_calls_complete_once_under_every_mix_of_faults() {
    for seed in 0..60 {
        let mixes = [(10, 0, 0), (0, 20, 0), (0, 0, 20), (10, 10, 10), (30, 5, 5)];
        let (loss, duplicate, delay) = mixes[seed as usize % mixes.len()];
        let max_size = if seed % 2 == 0 { 40_000 } else { 2_000 };
        let mut pair =
            run(&Run { seed, loss, duplicate, delay, max_datagram: 1_472, calls: 60, max_size });
        // At rest every buffer is back, but for what slots keep on purpose.
        assert_eq!(pair.client.pool_stats().in_use, 0, "seed {seed}");
        for stats in [*pair.client.stats(), *pair.server.stats()] {
            assert_eq!(
                stats.rx_packets,
                stats.rx_delivered + stats.dropped_in_all(),
                "seed {seed}"
            );
        }
    }
}
