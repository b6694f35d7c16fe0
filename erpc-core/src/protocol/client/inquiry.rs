//! An inquiry: the client asks a server whether it is alive, because the network or the system has
//! reported that a packet did not reach it.
//!
//! A report alone ends no session. ICMP messages can be forged, and the report may be true for one
//! moment only. So the client pings the server immediately, and then decides:
//!
//! ```text
//!             a report of a recent packet           any packet of the server
//!   no inquiry --------------------------> inquiry -------------------------> no inquiry
//!                                          |  |  |
//!   a ping was not delivered either, and   |  |  |  8 pings without an answer, and the error is
//!   its answer does not come in time: the  |  |  |  one that may pass
//!   end. Errors that may pass must last  <-+  |  +--> no inquiry: the next report begins one
//!   for 25 ms.                                |
//!                                             |
//!   4 pings without an answer, and the     <--+
//!   server's host refuses: the end
//! ```
//!
//! At the end of an inquiry, all sessions to the server's address end, because their packets meet
//! the same error. If a packet has come from there since the inquiry began, on any of these
//! sessions, the server is alive: then the client pings again, and decides anew, up to 8 pings. A
//! packet that was sent by a server that has died since is read soon after the report, so it delays
//! the end by one pause.
//!
//! So an attacker who forges reports, even one who sees the pings, ends no session of a server that
//! answers in time: within 12 ms, or the timeout of a call if that is longer, if the reports quote
//! the pings, and within four times that time otherwise. The case of 4 unanswered pings is there
//! because hosts limit their ICMP messages per second, so a host may report none of the pings to a
//! dead server. Errors that may pass are all except [`NetworkError::NothingListens`]: routes
//! change, and links come back.

use super::followup::Finding;
use crate::time::Instant;
use crate::transport::NetworkError;

/// How long, in ns, the client waits for an answer to a ping or handshake message although a report
/// says that the packet was not delivered. For a ping, it waits for the timeout of a call if that
/// is longer.
pub(super) const PAUSE: u64 = 12_000_000;

/// The session ends after this number of unanswered pings if the server's host has refused a
/// packet.
const REFUSED_PINGS: u8 = 4;

/// After this number of unanswered pings, an inquiry because of another error ends without a
/// result.
const MOST_PINGS: u8 = 8;

/// An error that may pass ends a session only if a ping fails at least this long after the inquiry
/// began, in ns.
const LASTS: u64 = 25_000_000;

/// A packet that was sent longer ago than this, in ns, is not recent: a report of it shows nothing.
/// A host waits up to 3 s for the link address of a neighbour before it reports that there is none.
pub(super) const RECENT: u64 = 5_000_000_000;

/// An inquiry in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inquiry {
    error: NetworkError,
    since: Instant,
    /// Until this time, packets of the server on other sessions are known, and are no reason to
    /// doubt that the server is gone.
    quiet_since: Instant,
    /// Nonce of the inquiry's first ping.
    first_ping: u32,
    pings: u8,
    /// A ping was not delivered either.
    is_confirmed: bool,
    next_at: Instant,
}

/// What an inquiry does when its next ping is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Ping,
    /// The server is gone.
    End,
    /// Nothing is known: the session waits for its liveness timeout.
    GiveUp,
}

impl Inquiry {
    /// Begins an inquiry. The caller has just sent its first ping, with the nonce `first_ping`.
    /// `timeout` is the timeout of the session's calls, in ns.
    pub(super) fn new(now: Instant, first_ping: u32, error: NetworkError, timeout: u64) -> Self {
        let next_at = now.plus_nanos(timeout.max(PAUSE));
        Self {
            error,
            since: now,
            quiet_since: now,
            first_ping,
            pings: 1,
            is_confirmed: false,
            next_at,
        }
    }

    pub(super) fn finding(&self) -> Finding {
        Finding { error: self.error, since: self.since, quiet_since: self.quiet_since }
    }

    /// When the inquiry began. A packet of the server that arrived later ends it.
    pub(super) fn since(&self) -> Instant {
        self.since
    }

    pub(super) fn next_at(&self) -> Instant {
        self.next_at
    }

    /// The unanswered ping with the nonce `ping` was not delivered, says a report. Pings that were
    /// sent before the inquiry do not count. A report may arrive after further pings were sent.
    pub(super) fn ping_failed(&mut self, now: Instant, ping: u32, error: NetworkError) {
        if ping.wrapping_sub(self.first_ping) > u32::MAX / 2 {
            return;
        }
        self.error = error;
        self.is_confirmed = error.is_refusal() || now.nanos_since(self.since) >= LASTS;
    }

    /// Decides what to do when the next ping is due and nothing has come from the server.
    pub(super) fn step(&mut self, now: Instant, timeout: u64) -> Step {
        if self.is_confirmed {
            return Step::End;
        }
        let is_refusal = self.error.is_refusal();
        if self.pings >= if is_refusal { REFUSED_PINGS } else { MOST_PINGS } {
            return if is_refusal { Step::End } else { Step::GiveUp };
        }
        self.ping_again(now, timeout);
        Step::Ping
    }

    /// The finding was refuted: a packet of the server came on another session. Returns whether the
    /// inquiry goes on, with one more ping.
    pub(super) fn doubt(&mut self, now: Instant, timeout: u64) -> bool {
        self.quiet_since = now;
        let goes_on = self.pings < MOST_PINGS;
        if goes_on {
            self.ping_again(now, timeout);
        }
        goes_on
    }

    fn ping_again(&mut self, now: Instant, timeout: u64) {
        self.pings += 1;
        self.next_at = now.plus_nanos(timeout.max(PAUSE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Obstacle;

    const START: Instant = Instant::from_nanos(1_000_000_000);
    const PASSING: NetworkError = NetworkError::Returned(Obstacle::Host);

    #[test]
    fn a_refused_ping_ends_the_session_and_another_error_must_last() {
        let failed = |nanos, error| {
            let mut inquiry = Inquiry::new(START, 7, PASSING, 0);
            inquiry.ping_failed(START.plus_nanos(nanos), 7, error);
            inquiry.step(START.plus_nanos(PAUSE), 0)
        };
        assert_eq!(failed(0, NetworkError::NothingListens), Step::End);
        assert_eq!(failed(LASTS - 1, PASSING), Step::Ping);
        assert_eq!(failed(LASTS, PASSING), Step::End);
    }

    #[test]
    fn reports_of_pings_count_from_the_first_ping_of_the_inquiry_on() {
        let step_after_report_of = |ping: u32| {
            let mut inquiry = Inquiry::new(START, u32::MAX, PASSING, 0);
            inquiry.ping_failed(START.plus_nanos(LASTS), ping, PASSING);
            inquiry.step(START.plus_nanos(LASTS), 0)
        };
        assert_eq!(step_after_report_of(u32::MAX - 1), Step::Ping, "sent before the inquiry");
        assert_eq!(step_after_report_of(u32::MAX), Step::End);
        assert_eq!(step_after_report_of(1), Step::End, "nonces wrap around");
    }

    #[test]
    fn silence_alone_confirms_only_a_refusal() {
        for (error, end) in [(NetworkError::NothingListens, Step::End), (PASSING, Step::GiveUp)] {
            let mut inquiry = Inquiry::new(START, 7, error, 30_000_000);
            let mut now = START;
            let mut pings = 1;
            loop {
                assert_eq!(inquiry.next_at().nanos_since(now), 30_000_000);
                now = inquiry.next_at();
                match inquiry.step(now, 30_000_000) {
                    Step::Ping => pings += 1,
                    step => break assert_eq!(step, end),
                }
            }
            assert_eq!(pings, if error.is_refusal() { REFUSED_PINGS } else { MOST_PINGS });
        }
    }
}
