//! Whether an unresponsive server is alive: one probe for all overdue calls.
//!
//! A path keeps packets in order, and so does a server's receive queue. So an answer to a packet
//! covers all packets sent before it: the server has read them, and those without an answer are
//! lost, or their requests are executing. Such a call is *passed*, and is sent again when its
//! timeout expires. (RACK, RFC 8985, applies the same idea to TCP.)
//!
//! If nothing later was answered, the calls may all wait in the queue of a server that was not
//! scheduled. Then one of them is the *probe*, and the others wait for its answer:
//!
//! ```text
//!          a timeout              answered: a packet sent after the probe
//!   Quiet -----------> Out ------------------------------------------> Quiet; others are passed
//!                     | | ^
//!                     | | |  no answer for a timeout, doubled each time:
//!                     | | +--- Out: the next due call becomes the next probe
//!                     | |
//!                     | |    answered: the probe's own call, by one of its copies
//!                     | +----> Supposed: others wait one RTT; passed if no older answer arrives
//!                     |
//!                     |      answered: an older packet, overdue
//!                     +------> Late: the server was away; others wait a timeout from now on
//! ```
//!
//! A server that was late may be late again: for one to two seconds the client waits longer before
//! it probes, if many calls of a session are silent.

use super::recent_max::RecentMax;
use crate::mutants::mutant;
use crate::time::Instant;

/// Cap of the extra time that the client waits for a server that was recently late, in ns.
const MOST_LATENESS: u64 = 16_000_000;

/// What the client knows about a silent server.
#[derive(Debug)]
pub(super) struct Probing {
    /// When the latest answered packet was sent. An answer to a second copy counts for that copy,
    /// although the path may have duplicated the first one.
    answered: Instant,
    /// As `answered`, but without second copies, so it is certain. All packets from the server that
    /// arrived before this time have been read.
    read_until: Instant,
    /// The `since` of the latest [`State::Supposed`] in which no older answer arrived for one RTT.
    /// So the server probably answered the second copy, which was sent at that time. Calls whose
    /// packets were sent earlier count as passed.
    supposed: Instant,
    state: State,
    /// The earliest times at which calls are due: passed calls at `passed_at`, calls that wait for
    /// the answer to a probe at `patience`.
    passed_at: Instant,
    patience: Instant,
    /// Extra time to wait for a late server, in ns: twice the time that recent late answers took.
    lateness: RecentMax,
    /// When the peer last said that it does not know a session.
    reset_at: Instant,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Quiet,
    /// The client has sent `count` probes without an answer, the first one at `since`.
    Out {
        since: Instant,
        count: u8,
    },
    /// The probe's call was answered, but the client does not know which copy of its packet the
    /// server answered. The second copy was sent at `since`. The client supposes that the server
    /// answered the second copy, unless an answer to an older packet arrives within one RTT.
    Supposed {
        since: Instant,
    },
    /// At `since`, an answer arrived to a packet that the server had received before the probe. The
    /// server was away and is now working off its queue.
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

    /// A packet sent at `sent_at` was answered: it was sent only once, or the answer echoes its
    /// stamp. Returns whether to call [`Self::on_answer`].
    #[inline(always)]
    pub(super) fn note_answer(&mut self, sent_at: Instant) -> bool {
        self.read_until = self.read_until.max(sent_at);
        self.note_copys_answer(sent_at)
    }

    /// As [`Self::note_answer`], for the second copy of a packet. The answer may belong to a
    /// duplicate of the first copy, made by the path.
    #[inline(always)]
    pub(super) fn note_copys_answer(&mut self, sent_at: Instant) -> bool {
        self.answered = self.answered.max(sent_at);
        !matches!(self.state, State::Quiet)
    }

    /// The client has read all packets of the server that arrived before this time, however full
    /// its own receive queue is: they were in front of an answer to a packet sent at this time.
    pub(super) fn read_until(&self) -> Instant {
        self.read_until
    }

    /// A packet that was sent at `sent_at` was answered now. The caller has first called
    /// [`Self::note_answer`] or [`Self::note_copys_answer`] for this answer. Afterwards, the caller
    /// checks the calls whose timeouts have expired. `timeout` is the timeout of such a packet, in
    /// ns.
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
                // Calls that are not passed by this answer are due now at the earliest.
                self.state = State::Quiet;
                self.patience = now;
            }
            State::Out { .. } | State::Supposed { .. } if is_late => {
                self.was_late(now, now.nanos_since(sent_at), timeout);
            }
            State::Out { .. } | State::Supposed { .. } | State::Late { .. } => {}
        }
    }

    /// The probe's call was answered now. The client first sent the call again at `since`, and the
    /// server processed the request for `processing` ns. `rtt` is a round trip, in ns. Returns
    /// whether the caller must check the calls whose timeouts have expired.
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
            // The server has had the request since before the probe.
            self.was_late(now, processing, timeout);
        } else {
            self.state = State::Supposed { since };
            self.patience = now.plus_nanos(rtt);
        }
        true
    }

    /// The server has answered, late, a packet that it received before the probe. So the probe was
    /// needless.
    fn was_late(&mut self, now: Instant, trip: u64, timeout: u64) {
        self.lateness.record(now, trip.saturating_mul(2).min(MOST_LATENESS));
        self.state = State::Late { since: now };
        self.patience = now.plus_nanos(timeout);
    }

    /// Whether a packet sent after `sent_at` was answered.
    #[inline(always)]
    pub(super) fn is_passed(&self, sent_at: Instant) -> bool {
        sent_at < self.answered
    }

    /// The time at which the client acts on an unanswered call: it treats the call as passed, or
    /// makes it the probe. The call was last sent at `sent_at`, and its own timeout expires at
    /// `own_due`. `is_widespread`: many calls of the session are silent.
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

    /// The timeout of a call that was last sent at `sent_at` has expired. Returns whether the call
    /// is passed; if not, the call is the next probe, and the client waits for its answer for
    /// `timeout(count)` ns, where `count` is the number of probes so far, this probe included. A
    /// server that was recently late gets extra time.
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

    /// Extra time to wait for a server that was recently late, in ns.
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

    /// Whether a probe is out, or the meaning of its answer is still open.
    pub(super) fn is_out(&self) -> bool {
        !matches!(self.state, State::Quiet)
    }

    /// Probes in a row without an answer.
    pub(super) fn unanswered(&self) -> u8 {
        match self.state {
            State::Out { count, .. } => count,
            State::Quiet | State::Supposed { .. } | State::Late { .. } => 0,
        }
    }
}
