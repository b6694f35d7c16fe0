//! Whether the client of a session is still alive.

use crate::protocol::config::{EndpointConfig, LEAST_PINGS};
use crate::time::Instant;

/// Liveness of a session's client. The server pings a silent client, and declares it dead after the
/// liveness timeout and at least [`LEAST_PINGS`] unanswered pings.
pub(super) struct Liveness {
    last_heard: Instant,
    last_ping: Instant,
    /// Number of pings since the client was last heard.
    unanswered: u8,
    /// When the session's timer fires.
    due: Instant,
}

/// What the session must do when its timer has fired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Nothing to do until the next timer.
    Alive,
    /// The client has been silent for a ping interval, or has not answered the last ping: ping it.
    Ping,
    /// The client is dead: end the session.
    Gone,
}

impl Liveness {
    /// For a client that was heard at `now`.
    pub(super) fn new(now: Instant, config: &EndpointConfig) -> Self {
        let due = config.in_step(now + config.server_ping_interval());
        Self { last_heard: now, last_ping: now, unanswered: 0, due }
    }

    /// A valid packet has arrived.
    #[inline(always)]
    pub(super) fn heard(&mut self, now: Instant) {
        self.last_heard = now;
    }

    /// When the client was last heard.
    pub(super) fn last_heard(&self) -> Instant {
        self.last_heard
    }

    /// When the timer must fire next, as of the last [`Self::new`] or [`Self::on_timer`].
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Decides what to do at `now`, and when the timer must fire next.
    pub(super) fn on_timer(&mut self, now: Instant, config: &EndpointConfig) -> Verdict {
        if let Some(since) = config.back_since(now, self.due) {
            self.last_heard = self.last_heard.max(since);
            self.unanswered = 0;
        }
        if self.last_heard >= self.last_ping {
            self.unanswered = 0;
        }
        let silent_for = now - self.last_heard;
        if silent_for >= config.liveness_timeout && self.unanswered >= LEAST_PINGS {
            return Verdict::Gone;
        }
        let ping = now >= self.next_ping(config);
        if ping {
            self.unanswered = self.unanswered.saturating_add(1);
            self.last_ping = now;
        }
        self.due = self.next_ping(config);
        if ping { Verdict::Ping } else { Verdict::Alive }
    }

    fn next_ping(&self, config: &EndpointConfig) -> Instant {
        if self.last_ping > self.last_heard {
            self.last_ping + config.ping_again()
        } else {
            config.in_step(self.last_heard + config.server_ping_interval())
        }
    }

    /// # Panics
    /// If an invariant does not hold.
    pub(super) fn check_invariants(&self) {
        assert!(self.due < Instant::NEVER, "a session always has a timer");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn config() -> EndpointConfig {
        EndpointConfig::new().ping_interval(2 * SECOND).liveness_timeout(10 * SECOND)
    }

    #[test]
    fn a_client_that_is_heard_is_not_pinged() {
        let config = config();
        let mut now = Instant::ZERO + SECOND;
        let mut liveness = Liveness::new(now, &config);
        for _ in 0..10 {
            assert_eq!(liveness.due(), now + 3 * SECOND);
            now = liveness.due();
            liveness.heard(now);
            assert_eq!(liveness.on_timer(now, &config), Verdict::Alive);
        }
    }

    #[test]
    fn idle_clients_are_checked_in_common_steps() {
        let config = config();
        let dues: Vec<_> = (1..=3)
            .map(|nanos| Instant::ZERO.plus_nanos(nanos))
            .map(|begin| Liveness::new(begin, &config).due())
            .collect();
        assert_eq!(dues, [config.in_step(Instant::ZERO + 3 * SECOND + Duration::from_nanos(1)); 3]);
    }

    #[test]
    fn a_silent_client_is_pinged_and_declared_dead_after_the_liveness_timeout() {
        let config = config();
        let begin = Instant::ZERO + SECOND;
        let mut liveness = Liveness::new(begin, &config);
        let mut pings = 0;
        loop {
            let now = liveness.due();
            match liveness.on_timer(now, &config) {
                Verdict::Ping => pings += 1,
                Verdict::Gone => break assert!(now - begin >= 10 * SECOND),
                Verdict::Alive => panic!("the client is silent"),
            }
        }
        assert!(pings >= u32::from(LEAST_PINGS), "{pings} pings");
    }

    #[test]
    fn after_this_process_was_stopped_the_client_gets_time_to_answer() {
        let config = config();
        let mut liveness = Liveness::new(Instant::ZERO, &config);
        let late = liveness.due() + 60 * SECOND;
        assert_eq!(liveness.on_timer(late, &config), Verdict::Ping);
        assert!(liveness.due() < late + SECOND);
    }
}
