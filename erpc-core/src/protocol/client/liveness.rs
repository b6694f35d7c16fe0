//! Whether the server of a session is alive.

use std::time::Duration;

use crate::mutants::mutant;
use crate::protocol::config::{EndpointConfig, LEAST_PINGS, STEPS};
use crate::time::Instant;

/// When the server was last heard, and last pinged.
#[derive(Debug)]
pub(super) struct Liveness {
    last_heard: Instant,
    last_ping: Instant,
    /// Pings in a row without an answer.
    unanswered: u8,
    /// Pings so far: the nonce of the last one. Wraps around.
    pings: u32,
    /// `Some` while the session's calls wait until the server has answered a ping.
    check: Option<Check>,
    /// This session's random extra part of the ping interval, in steps, so that sessions opened at
    /// the same time do not ping in step.
    spread: u32,
}

/// Pings until the server answers one, because the session may have ended at the server.
#[derive(Clone, Copy, Debug)]
struct Check {
    /// Nonce of the ping before the first one of this check.
    after: u32,
    /// Time to the next ping, in ns. Doubled with each ping.
    pause: u64,
}

impl Liveness {
    /// A session that its server has just accepted. `generation` is the session's.
    pub(super) fn new(now: Instant, generation: u32) -> Self {
        let spread = generation % (STEPS as u32 / 8);
        Self { last_heard: now, last_ping: now, unanswered: 0, pings: 0, check: None, spread }
    }

    /// A packet arrived. Returns whether it is the first one since the clock was last read, so
    /// usually the first one of its burst.
    #[inline(always)]
    pub(super) fn heard(&mut self, now: Instant) -> bool {
        let first = self.last_heard != now;
        self.last_heard = now;
        first
    }

    /// This endpoint was stopped until now and could not receive: the server counts as heard at
    /// `since`.
    pub(super) fn back(&mut self, since: Instant) {
        self.last_heard = self.last_heard.max(since);
        self.unanswered = 0;
    }

    /// A ping is sent. Returns its nonce.
    pub(super) fn ping(&mut self, now: Instant) -> u32 {
        let again = self.last_ping > self.last_heard;
        self.unanswered = if again { self.unanswered.saturating_add(1) } else { 1 };
        self.last_ping = now;
        self.pings = self.pings.wrapping_add(1);
        if let Some(check) = &mut self.check
            && self.pings.wrapping_sub(check.after) > 1
        {
            check.pause = check.pause.saturating_mul(2);
        }
        self.pings
    }

    /// When the last ping was sent.
    pub(super) fn last_ping(&self) -> Instant {
        self.last_ping
    }

    /// When the last ping was sent, if a pong with this nonce answers that ping; `None` for a pong
    /// to an earlier ping.
    pub(super) fn answered_ping(&self, nonce: u32) -> Option<Instant> {
        (self.unanswered > 0 && self.pings == nonce).then_some(self.last_ping)
    }

    /// Whether the ping with this nonce was sent, and nothing was heard since.
    pub(super) fn is_unanswered(&self, nonce: u32) -> bool {
        self.last_ping > self.last_heard
            && self.pings.wrapping_sub(nonce) < u32::from(self.unanswered)
    }

    /// Whether nothing was heard for so long that a server with this session would have sent a
    /// ping. Then the server may have dropped the session.
    #[inline]
    pub(super) fn is_silent(&self, now: Instant, config: &EndpointConfig) -> bool {
        now >= self.last_heard + config.server_ping_interval()
    }

    /// From now on, only the answer to a later ping shows that the server knows the session. `rto`
    /// is the time, in ns, between the first such ping and the second.
    pub(super) fn begin_check(&mut self, rto: u64) {
        self.check = Some(Check { after: self.pings, pause: rto });
    }

    pub(super) fn is_checking(&self) -> bool {
        self.check.is_some()
    }

    /// Whether a pong with this nonce answers a ping of the current check.
    pub(super) fn answers_check(&self, nonce: u32) -> bool {
        self.check.is_some_and(|Check { after, .. }| {
            (1..=self.pings.wrapping_sub(after)).contains(&nonce.wrapping_sub(after))
        })
    }

    pub(super) fn end_check(&mut self) {
        self.check = None;
    }

    /// Whether the server was heard after `then`.
    pub(super) fn was_heard_since(&self, then: Instant) -> bool {
        self.last_heard > then
    }

    /// Whether the server was neither heard nor pinged since `then`.
    pub(super) fn is_older_than(&self, then: Instant) -> bool {
        self.last_heard < then && self.last_ping < then
    }

    /// The silence after which the session sends a ping, up to an eighth longer than configured,
    /// together with the step in [`EndpointConfig::in_step`].
    pub(super) fn interval(&self, config: &EndpointConfig) -> Duration {
        config.ping_interval + config.ping_interval / STEPS as u32 * self.spread
    }

    /// When the next ping is due.
    pub(super) fn ping_at(&self, config: &EndpointConfig) -> Instant {
        if let Some(Check { pause, .. }) = self.check {
            self.last_ping.plus_nanos(pause.min(config.ping_again().as_nanos() as u64))
        } else if self.last_ping > self.last_heard {
            self.last_ping + config.ping_again()
        } else {
            config.in_step(self.last_heard + self.interval(config))
        }
    }

    /// When the current silence reaches the liveness timeout.
    fn death(&self, config: &EndpointConfig) -> Instant {
        let halves = if mutant!(LivenessHalved) { 2 } else { 1 };
        self.last_heard + config.liveness_timeout / halves
    }

    pub(super) fn is_dead(&self, now: Instant, config: &EndpointConfig) -> bool {
        now >= self.death(config)
            && self.last_ping > self.last_heard
            && self.unanswered >= LEAST_PINGS
    }

    /// When the session's timer must check whether the server is alive.
    pub(super) fn due(&self, now: Instant, config: &EndpointConfig) -> Instant {
        let (ping, death) = (self.ping_at(config), self.death(config));
        if death > now { ping.min(death) } else { ping }
    }
}
