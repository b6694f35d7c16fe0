//! Reports to the log what counters tell: a loop that stood still, refused handshakes and calls,
//! lost packets, a link that went down.

use std::cell::Cell;
use std::fmt::Display;
use std::time::Duration;

use super::parts::EndpointParts;
use crate::event_loop::Rpc;
use crate::log::{self, Refused};
use crate::protocol::{DropReason, ProtocolStats, Retransmissions};
use crate::serving::RefusedCalls;
use crate::time::Instant;
use crate::transport::Transport;

/// The counters' values that were reported. The loop looks at its counters every 1,024 turns, and
/// before it sleeps.
///
/// If an event is suppressed, its count waits for the next event.
#[derive(Default)]
pub(crate) struct Watch {
    seen: Cell<Seen>,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    /// Refused handshakes, in the order of [`REFUSED`].
    handshakes: [u64; REFUSED.len()],
    /// Calls that were refused by the drain.
    drained: u64,
    /// Calls that were refused because there was no memory.
    turned_down: u64,
    /// Calls that were refused because too many run as tasks, or wait for a worker.
    beyond_tasks: u64,
    beyond_queue: u64,
    overflow: u64,
    link_downs: u64,
    link_ups: u64,
    resent: Retransmissions,
    sent: u64,
    /// When the transport's counters were read. That may take a system call.
    read: Instant,
}

const REFUSED: [Refused; 5] =
    [Refused::Draining, Refused::Sessions, Refused::Host, Refused::OpenRate, Refused::Parameters];

/// The transport's counters are read at most this often.
const INTERVAL: Duration = Duration::from_secs(1);

/// Retransmissions are reported if they are at least this many per second ...
const MANY_RESENT: u64 = 100;
/// ... and at least one in this number of sent packets.
const RESENT_SHARE: u64 = 10;

impl Watch {
    /// Called after each turn; `turns` is the number of turns so far.
    #[inline]
    pub(crate) fn look<T: Transport>(&self, endpoint: &EndpointParts<T>, turns: u64) {
        if turns.is_multiple_of(1_024) {
            self.look_now(endpoint);
        }
    }

    /// Called before the loop sleeps, in its last turn's time.
    #[cold]
    pub(crate) fn look_now<T: Transport>(&self, endpoint: &EndpointParts<T>) {
        let Some(mut rpc) = endpoint.rpc() else { return };
        let Some(now) = rpc.last_turn() else { return };
        let mut seen = self.seen.get();
        if let Some(held) = rpc.take_held()
            && endpoint.requests().serves()
        {
            let method = held.method.and_then(|id| endpoint.requests().method_name(id));
            log::loop_held(now, &rpc.local_route(), Duration::from_nanos(held.nanos), method);
        }
        seen.refusals(now, rpc.protocol_stats(), &rpc.local_route());
        seen.limits(now, endpoint.requests().refused(), &rpc.local_route());
        if now - seen.read >= INTERVAL {
            seen.losses(now, &mut rpc);
        }
        self.seen.set(seen);
    }
}

impl Seen {
    fn refusals(&mut self, now: Instant, stats: &ProtocolStats, endpoint: &dyn Display) {
        let ProtocolStats { refused, refused_full, refused_host_full, refused_draining, .. } =
            *stats;
        let counts = [
            refused_draining,
            refused_full,
            refused_host_full,
            stats.dropped(DropReason::OpenRate),
            refused - refused_draining - refused_full - refused_host_full,
        ];
        for ((seen, count), reason) in self.handshakes.iter_mut().zip(counts).zip(REFUSED) {
            report(seen, count, |new| log::handshakes_refused(now, endpoint, reason, new));
        }
        report(&mut self.drained, stats.refused_requests, |new| {
            log::calls_refused_by_drain(now, endpoint, new)
        });
        report(&mut self.turned_down, stats.turned_down, |new| {
            log::calls_refused_for_memory(now, endpoint, new)
        });
    }

    fn limits(&mut self, now: Instant, [tasks, queue]: [RefusedCalls; 2], endpoint: &dyn Display) {
        report(&mut self.beyond_tasks, tasks.total, |new| {
            log::task_limit_reached(now, endpoint, tasks.method, tasks.limit, new)
        });
        report(&mut self.beyond_queue, queue.total, |new| {
            log::worker_queue_full(now, endpoint, queue.method, queue.limit, new)
        });
    }

    fn losses<T: Transport>(&mut self, now: Instant, rpc: &mut Rpc<T>) {
        let (stats, endpoint) = (rpc.stats(), rpc.local_route());
        report(&mut self.overflow, stats.transport.rx_overflow, |new| {
            log::receive_overflow(now, &endpoint, new, T::OVERFLOW_HINT)
        });
        report(&mut self.link_downs, stats.transport.link_downs, |new| {
            log::link_down(now, &endpoint, new)
        });
        report(&mut self.link_ups, stats.transport.link_ups, |new| {
            log::link_up(now, &endpoint, new)
        });
        let (resent, sent) = (stats.protocol.retransmissions, stats.transport.tx_packets);
        let (newly_resent, newly_sent) = (resent - self.resent, sent - self.sent);
        // The first period begins with the first look.
        let period = if self.read == Instant::ZERO { INTERVAL } else { now - self.read };
        if is_storm(newly_resent.packets(), newly_sent, period) {
            log::retransmissions(now, &endpoint, newly_resent, newly_sent, period);
        }
        (self.resent, self.sent, self.read) = (resent, sent, now);
    }
}

/// Reports by how much a counter has grown since the last report.
fn report(seen: &mut u64, count: u64, emit: impl FnOnce(u64) -> bool) {
    if count > *seen && emit(count - *seen) {
        *seen = count;
    }
}

fn is_storm(resent: u64, sent: u64, period: Duration) -> bool {
    let many = u128::from(MANY_RESENT) * period.as_millis() / 1_000;
    u128::from(resent) >= many.max(1) && resent.saturating_mul(RESENT_SHARE) >= sent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_is_many_retransmissions_per_second_and_a_large_share_of_the_packets() {
        let second = Duration::from_secs(1);
        assert!(is_storm(100, 1_000, second));
        assert!(!is_storm(99, 100, second), "too few");
        assert!(!is_storm(100, 1_001, second), "a small share");
        assert!(!is_storm(999, 1_000, 10 * second), "too few per second");
        assert!(is_storm(1_000, 10_000, 10 * second));
    }

    #[test]
    fn a_count_waits_until_it_is_reported() {
        let mut seen = 3;
        report(&mut seen, 3, |_| panic!("nothing is new"));
        report(&mut seen, 5, |new| new == 0);
        assert_eq!(seen, 3);
        report(&mut seen, 6, |new| new == 3);
        assert_eq!(seen, 6);
    }
}
