//! Whether channels use the servers that they can reach.

use std::time::Duration;

use erpc_core::time::Instant;

use super::node::CONNECT;

/// A session that was open for this long, besides the base of the backoff, has ended the outage.
const STABLE: Duration = Duration::from_millis(20);
/// How much later than computed a session may open.
const SLACK: Duration = Duration::from_millis(100);

/// A server, as one channel sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reach {
    /// Since when the server can be reached; `None` while it cannot.
    reachable: Option<Instant>,
    /// When the outage began, which has not ended; `None` while a session is open.
    outage: Option<Instant>,
    open: Option<Instant>,
    /// `None` while the server can be reached.
    gone: Option<Gone>,
}

/// A server that cannot be reached.
#[derive(Clone, Copy, Debug)]
struct Gone {
    since: Instant,
    /// When the channel tries to reach the server at the latest: immediately if a session was open,
    /// otherwise after the pause in progress.
    tried: Instant,
}

impl Reach {
    /// Looks at the server: whether the channel can reach it, and whether it has an open session.
    /// The channel pauses between attempts, from `base` up to `cap`.
    ///
    /// # Errors
    /// How long the channel has not used the server, if that is longer than a pause and an attempt
    /// take.
    pub(super) fn look(
        &mut self,
        now: Instant,
        is_reachable: bool,
        is_open: bool,
        (base, cap): (Duration, Duration),
    ) -> Result<(), Duration> {
        let was_open = self.open.is_some();
        self.open = is_open.then(|| self.open.unwrap_or(now));
        if !is_reachable {
            self.reachable = None;
            let outage = now - *self.outage.get_or_insert(now);
            let pause = if is_open { Duration::ZERO } else { pause_after(outage, base, cap) };
            self.gone.get_or_insert(Gone { since: now, tried: now + pause });
            return Ok(());
        }
        self.gone = None;
        let since = *self.reachable.get_or_insert(now);
        match self.open {
            Some(open) if now - open >= base + STABLE => self.outage = None,
            Some(_) => {}
            None => {
                // The channel may have learned only now that the session has ended.
                let since = if was_open { now } else { since };
                self.reachable = Some(since);
                let outage = since - *self.outage.get_or_insert(now);
                if now - since > pause_after(outage, base, cap) + CONNECT + SLACK {
                    return Err(now - since);
                }
            }
        }
        Ok(())
    }

    /// Whether the channel should have asked its resolver by `now`, because the server cannot be
    /// reached. The channel last asked at `asked`. `notice` is the longest time in which an open
    /// session or an attempt to open one fails, and the channel then asks.
    ///
    /// A channel that pauses learns nothing about the server. If the server was there during the
    /// pause, the channel asks again only when its next attempt fails.
    pub(super) fn is_overlooked(&self, now: Instant, asked: Instant, notice: Duration) -> bool {
        self.gone.is_some_and(|gone| asked < gone.since && now > gone.tried + notice)
    }

    /// The channel does not know the server.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

/// The longest pause of a channel that has not reached a server for `outage`. Pauses double, and
/// each is at least half as long as it could be. So the pause in progress is not longer than twice
/// the outage and the base.
fn pause_after(outage: Duration, base: Duration, cap: Duration) -> Duration {
    cap.min(2 * outage + base)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(50);
    const CAP: Duration = Duration::from_secs(5);

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_server_must_be_used_again_after_a_pause_as_long_as_the_outage() {
        let mut reach = Reach::default();
        let mut look = |millis, is_reachable, is_open| {
            reach.look(at(millis), is_reachable, is_open, (BASE, CAP))
        };
        assert_eq!(look(0, true, true), Ok(()));
        assert_eq!(look(100, true, true), Ok(()));
        assert_eq!(look(200, false, false), Ok(()));
        assert_eq!(look(300, true, false), Ok(()));
        // An outage of 100 ms: a pause of 250 ms, then 200 ms.
        assert_eq!(look(750, true, false), Ok(()));
        assert_eq!(look(760, true, false), Err(Duration::from_millis(460)));
    }

    #[test]
    fn a_session_that_was_open_for_a_short_time_does_not_end_the_outage() {
        let mut reach = Reach::default();
        let mut look = |millis, is_reachable, is_open| {
            reach.look(at(millis), is_reachable, is_open, (BASE, CAP))
        };
        assert_eq!(look(0, false, false), Ok(()));
        assert_eq!(look(2_000, true, false), Ok(()));
        assert_eq!(look(2_010, true, true), Ok(()));
        assert_eq!(look(2_020, false, false), Ok(()));
        assert_eq!(look(2_030, true, false), Ok(()));
        assert_eq!(
            look(6_000, true, false),
            Ok(()),
            "the pause may be as long as the first outage"
        );
        assert!(look(7_000, true, false).is_err());
    }
    /// How long the channel of the next tests takes to notice that a server has gone.
    const NOTICE: Duration = Duration::from_millis(500);

    #[test]
    fn a_channel_whose_server_goes_must_ask_its_resolver() {
        let mut reach = Reach::default();
        for (millis, is_reachable) in [(0, true), (100, true), (200, false)] {
            assert_eq!(reach.look(at(millis), is_reachable, true, (BASE, CAP)), Ok(()));
        }
        assert!(!reach.is_overlooked(at(700), at(0), NOTICE));
        assert!(reach.is_overlooked(at(701), at(0), NOTICE));
        assert!(!reach.is_overlooked(at(701), at(201), NOTICE), "it has asked");
    }

    #[test]
    fn a_channel_that_pauses_must_ask_only_after_its_next_attempt() {
        let mut reach = Reach::default();
        let mut look = |millis, is_reachable, is_open| {
            assert_eq!(reach.look(at(millis), is_reachable, is_open, (BASE, CAP)), Ok(()));
        };
        look(0, true, true);
        look(100, true, true);
        look(200, false, false);
        // The channel pauses, perhaps until 1,050 ms after the server goes again. So it misses that
        // the server was there for 100 ms.
        look(600, true, false);
        look(700, false, false);
        assert!(!reach.is_overlooked(at(1_300), at(590), NOTICE));
        assert!(!reach.is_overlooked(at(2_250), at(590), NOTICE));
        assert!(reach.is_overlooked(at(2_251), at(590), NOTICE));
    }
}
