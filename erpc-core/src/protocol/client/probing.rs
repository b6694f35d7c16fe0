//! Whether a server that does not answer is there: one probe for all calls that are overdue.
//!
//! A path keeps packets in order, and so does a server's receive queue. So an answer to a packet tells of all that were
//! sent before it: the server has come to them, and those without an answer are lost or executing. Such a call is *passed*,
//! and is sent again when its timeout is over. (RACK, RFC 8985, applies the same to TCP.)
//!
//! If nothing later was answered, the calls may all wait in the queue of a server that was kept from its core. Then one of
//! them is the *probe*, and the others wait for its answer:
//!
//! ```text
//!          a timeout              answered: something that was sent after the probe
//!   Quiet -----------> Out ------------------------------------------------------> Quiet; the others are passed
//!                     | | ^
//!                     | | |  no answer for a timeout, doubled each time: the next call that is due is the next probe
//!                     | | +--- Out
//!                     | |
//!                     | |    answered: the probe's own call, one of its copies
//!                     | +----> Supposed: the others wait for a round trip; if no older answer comes, they are passed
//!                     |
//!                     |      answered: something older, that was overdue
//!                     +------> Late: the server was away, and the others wait for a timeout from now on
//! ```
//!
//! A server that was late may be so again: for one to two seconds the client waits longer before it probes, if many calls of a
//! session are silent.

use super::recent_max::RecentMax;
use crate::mutants::mutant;
use crate::time::Instant;

/// The client waits at most so many nanoseconds longer for a server that was late lately.
const MOST_LATENESS: u64 = 16_000_000;

/// What the client knows of a server's silence.
#[derive(Debug)]
pub(super) struct Probing {
    /// When the latest packet was sent that has been answered. An answer to a second copy counts for that copy, though the
    /// path may have doubled the first one.
    answered: Instant,
    /// The latest such time that is certain. What the server had sent that arrived before it has been read.
    read_until: Instant,
    /// When the latest probe was sent that was answered, perhaps by the answer to its first copy: what was sent before is
    /// supposed to be passed.
    supposed: Instant,
    state: State,
    /// Calls wait at least until then: passed ones, because that is when they were, and others for a probe's answer.
    passed_at: Instant,
    patience: Instant,
    /// How much later than a timeout answers came lately.
    lateness: RecentMax,
    /// When it said last that it does not know a session.
    reset_at: Instant,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Quiet,
    /// So many probes are out, the first one since then.
    Out {
        since: Instant,
        count: u8,
    },
    /// The probe's call was answered, which was sent for the second time then. Unless an answer to an older packet
    /// comes, the answer was the second copy's.
    Supposed {
        since: Instant,
    },
    /// The server has answered since then what it got before the probe.
    Late {
        since: Instant,
    },
}

impl Probing {
    pub(super) const fn new() -> Self {
        Self {
            answered: Instant::ZERO,
            read_until: Instant::ZERO,
            supposed: Instant::ZERO,
            state: State::Quiet,
            passed_at: Instant::ZERO,
            patience: Instant::ZERO,
            lateness: RecentMax::NONE,
            reset_at: Instant::ZERO,
        }
    }

    /// A packet that left at `sent_at` was answered: it was sent once, or the answer echoes its stamp. Returns whether
    /// [`Self::on_answer`] is to be told.
    #[inline(always)]
    pub(super) fn note_answer(&mut self, sent_at: Instant) -> bool {
        self.read_until = self.read_until.max(sent_at);
        self.note_copys_answer(sent_at)
    }

    /// The same for the second copy of a packet: the answer may be to a duplicate of the first one.
    #[inline(always)]
    pub(super) fn note_copys_answer(&mut self, sent_at: Instant) -> bool {
        self.answered = self.answered.max(sent_at);
        !matches!(self.state, State::Quiet)
    }

    /// Packets of the server that arrived before this have been read, however full the receive queue is: they lay before an
    /// answer to what was sent then.
    pub(super) fn read_until(&self) -> Instant {
        self.read_until
    }

    /// What was sent at `sent_at`, once, was answered now. `timeout` is what such a packet waits for. Calls that wait are
    /// to be looked at.
    pub(super) fn on_answer(&mut self, now: Instant, sent_at: Instant, timeout: u64) {
        let is_late = now.nanos_since(sent_at) > timeout;
        if !matches!(self.state, State::Quiet) {
            self.passed_at = now;
        }
        match self.state {
            State::Quiet => {}
            State::Out { since, .. } | State::Supposed { since } | State::Late { since }
                if sent_at >= since =>
            {
                // A call that was sent after all of that is due now at the earliest.
                self.state = State::Quiet;
                self.patience = now;
            }
            State::Out { .. } | State::Supposed { .. } if is_late => {
                self.was_late(now, now.nanos_since(sent_at), timeout);
            }
            State::Out { .. } | State::Supposed { .. } | State::Late { .. } => {}
        }
    }

    /// The probe's call was answered: sent again at `since` for the first time, answered now, after a time of
    /// `processing` at the server. A round trip takes `rtt`. Returns whether calls that wait are to be looked at.
    pub(super) fn on_ambiguous_answer(
        &mut self,
        now: Instant,
        since: Instant,
        processing: u64,
        rtt: u64,
        timeout: u64,
    ) -> bool {
        if !matches!(self.state, State::Out { .. }) {
            return false;
        }
        if processing >= now.nanos_since(since) {
            // The server has had it since before the probe.
            self.was_late(now, processing, timeout);
        } else {
            self.state = State::Supposed { since };
            self.patience = now.plus_nanos(rtt);
        }
        true
    }

    /// An answer to what was sent before the probe has come: the probe was needless.
    fn was_late(&mut self, now: Instant, trip: u64, timeout: u64) {
        self.lateness.record(now, trip.saturating_mul(2).min(MOST_LATENESS));
        self.state = State::Late { since: now };
        self.patience = now.plus_nanos(timeout);
    }

    /// Whether something was answered that was sent after `sent_at`.
    #[inline(always)]
    pub(super) fn is_passed(&self, sent_at: Instant) -> bool {
        sent_at < self.answered
    }

    /// When what was sent last at `sent_at`, and is due at `own_due`, is lost or the server is to be probed. `is_widespread`
    /// if nothing comes for many calls.
    pub(super) fn due(
        &self,
        now: Instant,
        own_due: Instant,
        sent_at: Instant,
        is_widespread: bool,
    ) -> Instant {
        if sent_at < self.answered.max(self.supposed) || mutant!(EveryCallProbes) {
            return own_due.max(self.passed_at);
        }
        if let State::Supposed { since } = self.state
            && sent_at < since
        {
            return own_due.max(self.patience);
        }
        own_due.plus_nanos(self.lateness(now, is_widespread)).max(self.patience)
    }

    /// A call is overdue that was sent last at `sent_at`. Returns whether it is passed; else it is the probe, after which
    /// the client waits for the timeout `timeout(doublings)`, in nanoseconds.
    pub(super) fn on_overdue(
        &mut self,
        now: Instant,
        sent_at: Instant,
        is_widespread: bool,
        timeout: impl Fn(u8) -> u64,
    ) -> bool {
        if sent_at < self.answered.max(self.supposed) {
            return true;
        }
        if let State::Supposed { since } = self.state
            && sent_at < since
        {
            (self.supposed, self.passed_at) = (since, now);
            self.state = State::Quiet;
            return true;
        }
        let (since, before) = match self.state {
            State::Out { since, count } => (since, count),
            State::Quiet | State::Supposed { .. } | State::Late { .. } => (now, 0),
        };
        let count = before.saturating_add(1);
        self.state = State::Out { since, count };
        let lateness = self.lateness(now, is_widespread);
        self.patience = now.plus_nanos(timeout(count)).plus_nanos(lateness);
        false
    }

    /// How much longer the client waits for a server that was late lately, in nanoseconds.
    fn lateness(&self, now: Instant, is_widespread: bool) -> u64 {
        if is_widespread { self.lateness.get(now) } else { 0 }
    }

    /// The server does not know a session any more.
    pub(super) fn on_reset(&mut self, now: Instant) {
        self.reset_at = now;
    }

    pub(super) fn reset_at(&self) -> Instant {
        self.reset_at
    }

    /// Whether a probe is out, or what its answer says is not known yet.
    pub(super) fn is_out(&self) -> bool {
        !matches!(self.state, State::Quiet)
    }

    /// Probes that were not answered.
    pub(super) fn unanswered(&self) -> u8 {
        match self.state {
            State::Out { count, .. } => count,
            State::Quiet | State::Supposed { .. } | State::Late { .. } => 0,
        }
    }
}
