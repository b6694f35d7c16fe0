//! How often a server that shuts down tells a client so.

use crate::time::Instant;

/// First pause between two copies of `GoAway`, in ns. All later pauses are twice as long.
const FIRST_PAUSE: u64 = 25_000_000;

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
    /// The first copy is sent at `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self { sent: now, due: now.plus_nanos(FIRST_PAUSE), copies: 1 }
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
        self.due = now.plus_nanos(2 * FIRST_PAUSE);
        if !is_idle {
            return Parting::Nothing;
        }
        if heard >= self.sent {
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
        let mut farewell = Farewell::new(START);
        let mut copies = 1;
        let end = loop {
            let now = farewell.due();
            match farewell.on_timer(now, HEARD, true) {
                Parting::Tell => copies += 1,
                Parting::End => break now,
                Parting::Nothing => panic!("a copy is due"),
            }
        };
        assert_eq!((copies, end.nanos_since(START)), (10, 475_000_000));
    }

    #[test]
    fn a_client_that_is_heard_is_told_again_and_again() {
        let mut farewell = Farewell::new(START);
        for _ in 0..100 {
            let now = farewell.due();
            assert_eq!(farewell.on_timer(now, now, true), Parting::Tell);
        }
    }

    #[test]
    fn a_busy_session_is_not_told_again() {
        let mut farewell = Farewell::new(START);
        for _ in 0..100 {
            let now = farewell.due();
            assert_eq!(farewell.on_timer(now, HEARD, false), Parting::Nothing);
            assert!(farewell.due() > now);
        }
        assert_eq!(farewell.on_timer(farewell.due(), HEARD, true), Parting::Tell);
    }

    #[test]
    fn nothing_is_sent_before_the_pause_is_over() {
        let mut farewell = Farewell::new(START);
        assert_eq!(farewell.on_timer(START.plus_nanos(1), HEARD, true), Parting::Nothing);
    }
}
