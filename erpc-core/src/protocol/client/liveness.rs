//! Whether the server of a session is there.

use std::time::Duration;

use crate::mutants::mutant;
use crate::protocol::config::{EndpointConfig, LEAST_PINGS};
use crate::time::Instant;

/// When the server was heard, and asked for a sign of life.
#[derive(Debug)]
pub(super) struct Liveness {
    last_heard: Instant,
    last_ping: Instant,
    /// Pings without an answer.
    unanswered: u8,
    /// This session's own part of the ping interval, in 2,048ths: sessions that were opened in one instant must not ask
    /// in step.
    spread: u32,
}

impl Liveness {
    /// The server has just opened the session; `generation` is the session's.
    pub(super) fn new(now: Instant, generation: u32) -> Self {
        Self { last_heard: now, last_ping: now, unanswered: 0, spread: generation & 0xFF }
    }

    /// A packet came. Returns whether it is the first of its burst.
    #[inline(always)]
    pub(super) fn heard(&mut self, now: Instant) -> bool {
        let first = self.last_heard != now;
        self.last_heard = now;
        first
    }

    /// This endpoint was away until now and cannot have heard the server: it counts as heard at `since`.
    pub(super) fn back(&mut self, since: Instant) {
        self.last_heard = self.last_heard.max(since);
        self.unanswered = 0;
    }

    /// A ping goes out. Returns how many have, without an answer.
    pub(super) fn ping(&mut self, now: Instant) -> u8 {
        let again = self.last_ping > self.last_heard;
        self.unanswered = if again { self.unanswered.saturating_add(1) } else { 1 };
        self.last_ping = now;
        self.unanswered
    }

    /// When the ping was sent that a pong of this nonce answers, if it is the last one.
    pub(super) fn answered_ping(&self, nonce: u32) -> Option<Instant> {
        let is_last = self.unanswered > 0 && u32::from(self.unanswered) == nonce;
        is_last.then_some(self.last_ping)
    }

    /// Whether the server was heard after `then`.
    pub(super) fn was_heard_since(&self, then: Instant) -> bool {
        self.last_heard > then
    }

    /// Whether the server was neither heard nor asked since.
    pub(super) fn is_older_than(&self, then: Instant) -> bool {
        self.last_heard < then && self.last_ping < then
    }

    /// How long a silence lasts before the session asks: up to an eighth longer than configured.
    pub(super) fn interval(&self, config: &EndpointConfig) -> Duration {
        config.ping_interval + config.ping_interval / 2_048 * self.spread
    }

    /// When the next ping is due.
    pub(super) fn ping_at(&self, config: &EndpointConfig) -> Instant {
        if self.last_ping > self.last_heard {
            self.last_ping + config.ping_again()
        } else {
            self.last_heard + self.interval(config)
        }
    }

    /// When the silence so far will have lasted for the liveness timeout.
    fn death(&self, config: &EndpointConfig) -> Instant {
        let halves = if mutant!(LivenessHalved) { 2 } else { 1 };
        self.last_heard + config.liveness_timeout / halves
    }

    pub(super) fn is_dead(&self, now: Instant, config: &EndpointConfig) -> bool {
        now >= self.death(config)
            && self.last_ping > self.last_heard
            && self.unanswered >= LEAST_PINGS
    }

    /// When the session needs looking at.
    pub(super) fn due(&self, now: Instant, config: &EndpointConfig) -> Instant {
        let (ping, death) = (self.ping_at(config), self.death(config));
        if death > now { ping.min(death) } else { ping }
    }
}
