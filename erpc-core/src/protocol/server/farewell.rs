//! How often a server that shuts down tells a client so.

use crate::time::Instant;

/// First pause between two copies of `GoAway`, in ns.
const FIRST_PAUSE: u64 = 25_000_000;

/// Pause before a further copy, in ns, if the client was not heard since the last copy.
const SHORT_PAUSE: u64 = 2 * FIRST_PAUSE;

/// The pause doubles with each copy after which the client was heard, up to this time, in ns. Such
/// a client probably knows, and keeps its session open.
const LONG_PAUSE: u64 = 1_000_000_000;

/// Number of copies of `GoAway` without a sign of life from the client after which the server ends
/// an idle session. The client is gone, or does not run its loop.
const MOST_COPIES: u8 = 10;

/// The copies of `GoAway` that a session has sent.
///
/// A client that was told closes the session when it has no use for it any more. So if an idle
/// session stays open, the client may not have been told. The server repeats `GoAway` only while
/// the session is idle.
#[derive(Debug)]
pub(super) struct Farewell {
    /// When the last copy was sent.
    sent: Instant,
    /// When the next copy is due.
    due: Instant,
    /// The last pause, in ns, without the session's extra part.
    pause: u64,
    /// The session's random extra part of each pause, in 1,024ths: below a quarter. Without it, the
    /// copies of all sessions, and their answers, would come at the same moments.
    spread: u64,
    /// Copies in a row without a sign of life from the client.
    copies: u8,
}

/// What the session must do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Parting {
    Nothing,
    /// Send `GoAway`.
    Tell,
    /// The client does not answer: end the session.
    End,
}

impl Farewell {
    /// The first copy is sent at `now`. `generation` is the session's.
    pub(super) fn new(now: Instant, generation: u32) -> Self {
        let spread = u64::from(generation & 0xFF);
        let mut farewell = Self { sent: now, due: now, pause: FIRST_PAUSE, spread, copies: 1 };
        farewell.wait(now);
        farewell
    }

    fn wait(&mut self, now: Instant) {
        self.due = now.plus_nanos(self.pause + self.pause / 1_024 * self.spread);
    }

    /// Distinguishes the copies.
    pub(super) fn nonce(&self) -> u32 {
        self.copies.into()
    }

    /// When the next copy is due.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Decides what to do at `now`. The client was last heard at `heard`; `is_idle` if it has no
    /// unanswered request.
    pub(super) fn on_timer(&mut self, now: Instant, heard: Instant, is_idle: bool) -> Parting {
        if now < self.due {
            return Parting::Nothing;
        }
        let is_told = heard >= self.sent;
        if is_idle {
            self.pause = if is_told { (2 * self.pause).min(LONG_PAUSE) } else { SHORT_PAUSE };
        }
        self.wait(now);
        if !is_idle {
            return Parting::Nothing;
        }
        if is_told {
            self.copies = 0;
        } else if self.copies >= MOST_COPIES {
            return Parting::End;
        }
        self.copies += 1;
        self.sent = now;
        Parting::Tell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEARD: Instant = Instant::from_nanos(999_999_999);
    const START: Instant = Instant::from_nanos(1_000_000_000);

    #[test]
    fn an_idle_session_of_a_silent_client_ends_after_ten_copies() {
        for (generation, least) in [(0, 475_000_000), (0xFFFF_FFFF, 593_000_000)] {
            let mut farewell = Farewell::new(START, generation);
            let mut copies = 1;
            let end = loop {
                let now = farewell.due();
                match farewell.on_timer(now, HEARD, true) {
                    Parting::Tell => copies += 1,
                    Parting::End => break now,
                    Parting::Nothing => panic!("a copy is due"),
                }
            };
            let took = end.nanos_since(START);
            assert!(copies == 10 && (least..least + 1_000_000).contains(&took), "{copies} {took}");
        }
    }

    #[test]
    fn a_client_that_is_heard_is_told_again_and_again_at_most_once_per_second() {
        let mut farewell = Farewell::new(START, 0);
        let mut now = START;
        for copy in 0..100 {
            let pause = farewell.due().nanos_since(now);
            assert_eq!(pause, (FIRST_PAUSE << copy.min(10)).min(LONG_PAUSE));
            now = farewell.due();
            assert_eq!(farewell.on_timer(now, now, true), Parting::Tell);
        }
        // A client that falls silent is told more often again.
        now = farewell.due();
        assert_eq!(farewell.on_timer(now, HEARD, true), Parting::Tell);
        assert_eq!(farewell.due().nanos_since(now), SHORT_PAUSE);
    }

    #[test]
    fn a_busy_session_is_not_told_again() {
        let mut farewell = Farewell::new(START, 0);
        for _ in 0..100 {
            let now = farewell.due();
            assert_eq!(farewell.on_timer(now, HEARD, false), Parting::Nothing);
            assert!(farewell.due() > now);
        }
        assert_eq!(farewell.on_timer(farewell.due(), HEARD, true), Parting::Tell);
    }

    #[test]
    fn nothing_is_sent_before_the_pause_is_over() {
        let mut farewell = Farewell::new(START, 0);
        assert_eq!(farewell.on_timer(START.plus_nanos(1), HEARD, true), Parting::Nothing);
    }
}
