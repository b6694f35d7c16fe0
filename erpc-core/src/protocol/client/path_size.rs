//! The datagram size that a path carries (RFC 8899, packetization layer path MTU discovery).
//!
//! The path may carry less than its interfaces say: overlays and misconfigured switches drop larger
//! packets without an error (a black hole). So the client proves the size, by probes that the
//! server answers at the same length:
//!
//! ```text
//! Open, answered at full size or not --> Settled <-----------------------+
//!      a message takes several packets,  |    ^                          |
//!      or calls stall                    |    | the size in use          | Resized
//! Probing <------------------------------+    | is the largest           |
//!     +---------------------------------------+                          |
//!     +----- another size is --------------------> Resizing -------------+
//! ```
//!
//! A search starts when a message wants larger packets: sessions with small messages send no probe.
//! The first probe has the largest size that both ends can take. Usually the path carries it, and
//! the handshake has not proved this only because its proof was lost or late. If the path does not
//! carry this size, each further round of probes narrows the range in which the path's size lies. A
//! size is declared dropped if three tries brought no answer to it, while a size that the path is
//! known to carry was answered: an unresponsive server proves nothing.
//!
//! Meanwhile calls continue in packets of the size in use. It is [`BASE`] bytes until a larger size
//! is proven, after the larger size was declared dropped, and while the server adopts another size.
//!
//! A session has two sizes of packets, small and large, and a flag in each packet says which one
//! its message is cut into. So both can be in flight, and the client switches at any time. With one
//! size per session, all calls would have to end before a switch, over a path that drops their
//! packets. The price is a bit of the header and, in the common case, one indexed load per request.
//!
//! This file decides what to probe and what answers mean; it sends nothing.

use crate::time::Instant;
use crate::transport::MIN_DATAGRAM;

/// Bytes of a datagram that every path carries.
pub(super) const BASE: u32 = MIN_DATAGRAM as u32;

/// Sizes that a round probes, besides the size that is known to pass.
const PROBES: usize = 4;
/// Tries of a probe before its size is declared dropped (RFC 8899, section 5.1.2).
const MOST_TRIES: u8 = 3;
/// Pause in ns before the next search on a path that carries less than both ends can take. (Section
/// 5.1.1 has ten minutes, for paths across the Internet; here a few packets a minute cost little.)
const RAISE_AFTER: u64 = 60_000_000_000;
/// Pause in ns after a check that confirmed the size, before stalled calls may start another check.
/// It doubles from check to check, at most [`MAX_REFUTED`] times: calls to an overloaded server
/// stall all the time, and large probes would add to the overload. The longest pause is shorter
/// than the default liveness timeout, so that the client notices a path that shrinks later before
/// the session ends.
const TRUST: u64 = 250_000_000;
const MAX_REFUTED: u8 = 4;

/// The size of a session's path, and the state of the search for it.
#[derive(Debug)]
pub(super) struct PathSize {
    /// Bytes of the largest datagram that both ends can take.
    limit: u32,
    /// Bytes of a datagram of the session's large packets.
    large: u32,
    state: State,
    /// When a full large packet last arrived, per [`Way`]. A check of a way sets its time to zero.
    carried_at: [Instant; 2],
    /// Checks in a row that confirmed the size, and when the next check may start.
    refuted: u8,
    check_from: Instant,
    /// Number of the current round of probes. Answers to earlier rounds are ignored.
    round: u32,
    /// Number of the last size that the server was asked to adopt.
    epoch: u32,
}

/// Direction of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    ToServer = 0,
    ToClient = 1,
}

#[derive(Debug)]
enum State {
    /// A size is in use. From `raise_at` on, a message that takes several packets starts a search
    /// for a larger one.
    Settled { raise_at: Instant },
    /// Probes are in flight.
    Probing(Round),
    /// The server is asked to adopt the size that was found.
    Resizing { size: u32, tries: u8, due: Instant },
}

/// A round of probes.
#[derive(Debug)]
struct Round {
    /// The largest size that was answered, and the smallest size that was dropped.
    low: u32,
    high: u32,
    /// The sizes to probe, ascending, between `low` and `high`; unused entries are 0.
    sizes: [u32; PROBES],
    /// The direction in which the large packets in use may be dropped, if this round checks that.
    suspected: Option<Way>,
    /// A probe was answered since the last try.
    is_reached: bool,
    /// `tries`: tries with an answer. `silent`: tries in a row without any answer.
    tries: u8,
    silent: u8,
    due: Instant,
}

/// What the session does after an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PathStep {
    None,
    /// Sends the [probes](PathSize::probes).
    Probe,
    /// Cuts messages into small packets, also calls that were partly sent in large ones. Then sends
    /// the [probes](PathSize::probes).
    Shrink,
    /// Cuts messages into large packets.
    Grow,
    /// Asks the server to adopt `size` for large packets, once no call uses the old size. Meanwhile
    /// messages are cut into small packets.
    Resize {
        size: u32,
        /// Cuts calls that use the old size again, instead of waiting for them.
        is_overdue: bool,
    },
    /// The server has adopted this size for large packets: cuts messages into them.
    Resized(u32),
}

impl Round {
    fn new(low: u32, high: u32) -> Self {
        let mut sizes = [0; PROBES];
        let width = high - 1 - low;
        let count = width.min(PROBES as u32);
        for (part, size) in (1..=count).zip(&mut sizes) {
            // The last probe has the largest size that may still pass, `high - 1`.
            *size = low + (width * part).div_ceil(count);
        }
        let due = Instant::ZERO;
        Self { low, high, sizes, suspected: None, is_reached: false, tries: 0, silent: 0, due }
    }
}

impl PathSize {
    /// The path between two ends that can take datagrams of `limit` bytes. `is_proven`: such a
    /// datagram has arrived at the server, and one in return; or there was no room for the proof,
    /// and the path is assumed to carry it.
    pub(super) fn new(limit: u32, is_proven: bool) -> Self {
        let is_known = is_proven || limit <= BASE;
        let raise_at = if is_known { Instant::NEVER } else { Instant::ZERO };
        let state = State::Settled { raise_at };
        Self {
            limit,
            large: limit,
            state,
            carried_at: [Instant::ZERO; 2],
            refuted: 0,
            check_from: Instant::ZERO,
            round: 0,
            epoch: 0,
        }
    }

    /// When the next step is due; [`Instant::NEVER`] while settled.
    pub(super) fn due(&self) -> Instant {
        match &self.state {
            State::Settled { .. } => Instant::NEVER,
            State::Probing(Round { due, .. }) | State::Resizing { due, .. } => *due,
        }
    }

    /// The number of the round that probes belong to.
    pub(super) fn round(&self) -> u32 {
        self.round
    }

    /// The number of the last size that the server was asked to adopt.
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Tries in a row without any answer. The caller doubles the pause before the next try for each
    /// of them, up to a cap.
    pub(super) fn silent(&self) -> u8 {
        match &self.state {
            State::Probing(round) => round.silent,
            State::Resizing { tries, .. } => *tries,
            State::Settled { .. } => 0,
        }
    }

    /// The sizes to probe, ascending. The first size is known to pass; it is the only one while the
    /// server does not answer. Empty if no search is running.
    pub(super) fn probes(&self) -> impl Iterator<Item = u32> + use<> {
        let (low, sizes) = match &self.state {
            // A server that does not answer may be overloaded: it gets no larger probes until it
            // has answered one of the size that is known to pass.
            State::Probing(round) if round.silent > 0 => (round.low, [0; PROBES]),
            State::Probing(round) => (round.low, round.sizes),
            State::Settled { .. } | State::Resizing { .. } => (0, [0; PROBES]),
        };
        let first = (low > 0).then_some(low);
        first.into_iter().chain(sizes.into_iter().filter(move |size| *size > low))
    }

    /// A full large packet got through.
    #[inline]
    pub(super) fn on_carried(&mut self, now: Instant, way: Way) {
        self.carried_at[way as usize] = now;
    }

    /// A message takes several packets. Returns whether to send probes for larger ones.
    #[inline]
    pub(super) fn want(
        &mut self,
        now: Instant,
        timeout: impl FnOnce() -> u64,
        is_large: bool,
    ) -> bool {
        let is_wanted = matches!(self.state, State::Settled { raise_at } if raise_at <= now);
        if is_wanted {
            let low = if is_large { self.large } else { BASE };
            let sizes = [self.limit, 0, 0, 0];
            self.begin(Round { sizes, ..Round::new(low, self.limit + 1) }, now, timeout());
        }
        is_wanted
    }

    /// A call that is cut into large packets has had no answer since `since`: packets in direction
    /// `way` are missing, or in an unknown direction (`None`). Returns whether to send probes.
    pub(super) fn suspect(
        &mut self,
        now: Instant,
        timeout: u64,
        way: Option<Way>,
        since: Instant,
    ) -> bool {
        let way = way.unwrap_or(self.rarer());
        let is_settled = matches!(self.state, State::Settled { .. });
        if !is_settled || self.large <= BASE || self.carried_at[way as usize] >= since {
            return false;
        }
        if now < self.check_from {
            return false;
        }
        let round = self.check(way);
        self.begin(round, now, timeout);
        true
    }

    /// A probe of `size` bytes in round `number` was answered. `is_large`: new calls are cut into
    /// large packets.
    pub(super) fn on_probed(
        &mut self,
        now: Instant,
        timeout: u64,
        number: u32,
        size: u32,
        is_large: bool,
    ) -> PathStep {
        let State::Probing(round) = &mut self.state else { return PathStep::None };
        // An answer that has lost its padding is shorter than `low`, and proves nothing.
        if number != self.round || size >= round.high || size < round.low {
            return PathStep::None;
        }
        if std::mem::take(&mut round.silent) > 0 && size == round.low {
            round.due = now.plus_nanos(timeout);
            return PathStep::Probe;
        }
        round.is_reached = true;
        if size >= self.large {
            self.carried_at = [now; 2];
        }
        round.low = round.low.max(size);
        if round.low + 1 < round.high { PathStep::None } else { self.found(now, timeout, is_large) }
    }

    /// A further `Opened` of `size` bytes arrived, after the session was open. `is_large` as in
    /// [`Self::on_probed`].
    pub(super) fn on_opened(&mut self, now: Instant, size: u32, is_large: bool) -> PathStep {
        let is_resizing = matches!(self.state, State::Resizing { .. });
        if size < self.limit || self.large != self.limit || is_large || is_resizing {
            return PathStep::None;
        }
        self.settle(now, self.limit);
        PathStep::Grow
    }

    /// Does what is due at `now`. The next pause is `timeout` ns.
    pub(super) fn on_due(&mut self, now: Instant, timeout: u64, is_large: bool) -> PathStep {
        if now < self.due() {
            return PathStep::None;
        }
        match &mut self.state {
            State::Settled { .. } => PathStep::None,
            State::Probing(Round { suspected: Some(way), .. })
                if self.carried_at[*way as usize] > Instant::ZERO =>
            {
                self.settle(now, self.large);
                PathStep::None
            }
            State::Probing(round) => {
                round.due = now.plus_nanos(timeout);
                if std::mem::take(&mut round.is_reached) {
                    (round.tries, round.silent) = (round.tries + 1, 0);
                } else {
                    round.silent = round.silent.saturating_add(1);
                    if round.silent >= MOST_TRIES && round.low > BASE {
                        return self.begin_anew(now, timeout, is_large);
                    }
                }
                let State::Probing(round) = &self.state else { return PathStep::None };
                if round.tries < MOST_TRIES {
                    PathStep::Probe
                } else {
                    self.narrow(now, timeout, is_large)
                }
            }
            State::Resizing { size, tries, due } => {
                *due = now.plus_nanos(timeout);
                *tries = tries.saturating_add(1);
                PathStep::Resize { size: *size, is_overdue: *tries >= MOST_TRIES }
            }
        }
    }

    /// The server has adopted the size with number `epoch`.
    pub(super) fn on_resized(&mut self, now: Instant, epoch: u32) -> PathStep {
        match self.state {
            State::Resizing { size, .. } if epoch == self.epoch => {
                self.large = size;
                self.settle(now, size);
                PathStep::Resized(size)
            }
            _ => PathStep::None,
        }
    }

    fn begin(&mut self, round: Round, now: Instant, timeout: u64) {
        self.round = self.round.wrapping_add(1);
        self.state = State::Probing(Round { due: now.plus_nanos(timeout), ..round });
    }

    /// Probes of the size that the path was known to carry are not answered any more: the path may
    /// have shrunk. Starts a new search, from [`BASE`] bytes.
    fn begin_anew(&mut self, now: Instant, timeout: u64, is_large: bool) -> PathStep {
        let State::Probing(Round { low, .. }) = self.state else { return PathStep::None };
        let round = if is_large {
            self.check(self.rarer())
        } else {
            Round { sizes: [low, 0, 0, 0], ..Round::new(BASE, low + 1) }
        };
        self.begin(round, now, timeout);
        PathStep::Probe
    }

    /// The direction in which a full large packet last arrived longer ago than in the other.
    fn rarer(&self) -> Way {
        let [to_server, to_client] = self.carried_at;
        if to_server < to_client { Way::ToServer } else { Way::ToClient }
    }

    /// A round that checks whether large packets are dropped in this direction.
    fn check(&mut self, way: Way) -> Round {
        self.carried_at[way as usize] = Instant::ZERO;
        let sizes = [self.large, 0, 0, 0];
        Round { sizes, suspected: Some(way), ..Round::new(BASE, self.large + 1) }
    }

    /// Takes the sizes of this round's unanswered probes for dropped, and starts the next round.
    fn narrow(&mut self, now: Instant, timeout: u64, is_large: bool) -> PathStep {
        let State::Probing(round) = &self.state else { return PathStep::None };
        let (low, is_check) = (round.low, round.suspected.is_some());
        let high = round.sizes.into_iter().find(|size| *size > low).unwrap_or(round.high);
        if low + 1 >= high {
            return self.found(now, timeout, is_large);
        }
        self.begin(Round::new(low, high), now, timeout);
        if is_check { PathStep::Shrink } else { PathStep::Probe }
    }

    /// Ends the search: `low` is the size of the path.
    fn found(&mut self, now: Instant, timeout: u64, is_large: bool) -> PathStep {
        let State::Probing(Round { low, .. }) = self.state else { return PathStep::None };
        let used = if is_large { self.large } else { BASE };
        if low == used || low == self.large {
            self.settle(now, low);
            return if low == used { PathStep::None } else { PathStep::Grow };
        }
        self.epoch = self.epoch.wrapping_add(1);
        self.state = State::Resizing { size: low, tries: 0, due: now.plus_nanos(timeout) };
        PathStep::Resize { size: low, is_overdue: false }
    }

    /// The session uses datagrams of `size` bytes until further notice.
    fn settle(&mut self, now: Instant, size: u32) {
        let was_checked = matches!(self.state, State::Probing(Round { suspected: Some(_), .. }));
        if was_checked && size == self.large {
            self.check_from = now.plus_nanos(TRUST << self.refuted);
            self.refuted = (self.refuted + 1).min(MAX_REFUTED);
        } else {
            (self.refuted, self.check_from) = (0, Instant::ZERO);
        }
        let is_whole = size == self.limit;
        let raise_at = if is_whole { Instant::NEVER } else { now.plus_nanos(RAISE_AFTER) };
        self.state = State::Settled { raise_at };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: u64 = 1_000_000;

    /// A search under test. The path carries datagrams of at most `carried` bytes, and `is_large`
    /// says whether messages are cut into large packets.
    struct Found {
        size: PathSize,
        now: Instant,
        carried: u32,
        is_large: bool,
        steps: Vec<PathStep>,
        probes: u32,
    }

    impl Found {
        fn new(limit: u32, is_proven: bool, carried: u32) -> Self {
            let size = PathSize::new(limit, is_proven);
            let now = Instant::from_nanos(1);
            Self { size, now, carried, is_large: is_proven, steps: Vec::new(), probes: 0 }
        }

        fn take(&mut self, step: PathStep) {
            match step {
                PathStep::None | PathStep::Probe => return,
                PathStep::Shrink => self.is_large = false,
                PathStep::Grow | PathStep::Resized(_) => self.is_large = true,
                PathStep::Resize { .. } => {
                    self.is_large = false;
                    self.steps.push(step);
                    let step = self.size.on_resized(self.now, self.size.epoch());
                    return self.take(step);
                }
            }
            self.steps.push(step);
        }

        /// A call stalls.
        fn suspect(&mut self) -> bool {
            self.size.suspect(self.now, TIMEOUT, Some(Way::ToServer), self.now)
        }

        /// A message wants larger packets.
        fn want(&mut self) -> bool {
            let is_wanted = self.size.want(self.now, || TIMEOUT, self.is_large);
            if is_wanted {
                self.answer();
            }
            is_wanted
        }

        /// Advances time until no step is due.
        fn settle(&mut self) {
            while self.size.due() < Instant::NEVER {
                self.now = self.now.max(self.size.due());
                let step = self.size.on_due(self.now, TIMEOUT, self.is_large);
                self.take(step);
                self.answer();
            }
        }

        /// Answers the probes that the path carries.
        fn answer(&mut self) {
            for size in self.size.probes() {
                self.probes += 1;
                if size <= self.carried {
                    let (now, round) = (self.now, self.size.round());
                    let step = self.size.on_probed(now, TIMEOUT, round, size, self.is_large);
                    self.take(step);
                }
            }
        }
    }

    fn resize(size: u32) -> PathStep {
        PathStep::Resize { size, is_overdue: false }
    }

    #[test]
    fn a_path_that_shrinks_during_a_search_for_a_larger_size_is_followed() {
        for (is_large, shrinks) in [(true, 1), (false, 0)] {
            let mut found = Found::new(8_972, false, 1_372);
            assert!(found.want());
            found.settle();
            found.is_large = is_large;
            found.steps.clear();
            found.now = found.now.plus_nanos(RAISE_AFTER);
            found.carried = 1_300;
            assert!(found.want());
            found.settle();
            let shrunk = found.steps.iter().filter(|step| **step == PathStep::Shrink).count();
            assert_eq!(shrunk, shrinks);
            assert_eq!(found.steps.last(), Some(&PathStep::Resized(1_300)));
        }
    }

    #[test]
    fn an_answer_without_padding_proves_nothing() {
        let mut found = Found::new(8_972, true, 0);
        assert!(found.suspect());
        for _ in 0..20 {
            let (now, round) = (found.now, found.size.round());
            let step = found.size.on_probed(now, TIMEOUT, round, 28, true);
            assert_eq!(step, PathStep::None);
            found.now = found.size.due();
            assert_eq!(found.size.on_due(found.now, TIMEOUT, true), PathStep::Probe);
        }
    }

    #[test]
    fn a_resize_is_overdue_after_three_tries() {
        let mut size = PathSize::new(8_972, false);
        let mut now = Instant::from_nanos(1);
        assert!(size.want(now, || TIMEOUT, false));
        let mut overdue = Vec::new();
        while overdue.len() < 4 {
            for probe in size.probes().filter(|probe| *probe <= 1_372) {
                let _ = size.on_probed(now, TIMEOUT, size.round(), probe, false);
            }
            now = size.due();
            if let PathStep::Resize { size: 1_372, is_overdue } = size.on_due(now, TIMEOUT, false) {
                overdue.push(is_overdue);
            }
        }
        assert_eq!(overdue.iter().position(|is_overdue| *is_overdue), Some(3), "{overdue:?}");
    }

    #[test]
    fn a_search_finds_every_size_to_the_byte() {
        for limit in [1_053, 1_472, 8_972, 65_507] {
            for carried in (BASE..=limit).step_by(97).chain([limit, limit - 1]) {
                let mut found = Found::new(limit, false, carried);
                assert!(found.want() && !found.want(), "a search is running");
                found.settle();
                match carried {
                    BASE => assert_eq!(found.steps, []),
                    all if all == limit => assert_eq!(found.steps, [PathStep::Grow]),
                    _ => assert_eq!(found.steps, [resize(carried), PathStep::Resized(carried)]),
                }
                assert_eq!(found.is_large, carried > BASE);
                assert!(found.probes < 200, "{} probes for {carried} of {limit}", found.probes);
                assert!(found.now < Instant::from_nanos(40 * TIMEOUT), "{carried} of {limit}");
                found.now = found.now.plus_nanos(RAISE_AFTER - 50 * TIMEOUT);
                assert!(!found.want(), "the pause is not over");
                found.now = found.now.plus_nanos(50 * TIMEOUT);
                assert_eq!(found.want(), carried < limit);
            }
        }
    }

    #[test]
    fn a_path_that_carries_its_proven_size_is_not_searched() {
        let mut found = Found::new(1_472, true, 1_472);
        assert!(!found.want());
        assert_eq!((found.probes, found.size.due()), (0, Instant::NEVER));
        assert!(found.suspect());
        assert!(!found.suspect(), "a search is running");
        found.answer();
        assert_eq!((found.steps.len(), found.size.due()), (0, Instant::NEVER));
    }

    #[test]
    fn a_path_that_shrinks_and_grows_again_is_followed() {
        let mut found = Found::new(8_972, true, 1_372);
        assert!(found.suspect());
        found.answer();
        found.settle();
        let shrunk = [PathStep::Shrink, resize(1_372), PathStep::Resized(1_372)];
        assert_eq!(found.steps, shrunk);
        found.carried = 8_872;
        found.now = found.now.plus_nanos(RAISE_AFTER);
        assert!(found.want());
        found.settle();
        assert_eq!(found.steps[3..], [resize(8_872), PathStep::Resized(8_872)]);
        found.carried = 8_972;
        found.now = found.now.plus_nanos(RAISE_AFTER);
        assert!(found.want());
        found.settle();
        found.now = found.now.plus_nanos(RAISE_AFTER);
        assert!(!found.want(), "the size is at the ends' limit");
    }

    #[test]
    fn an_unresponsive_server_does_not_reduce_the_size() {
        let mut found = Found::new(8_972, true, 0);
        assert!(found.suspect());
        for _ in 0..100 {
            found.now = found.size.due();
            let step = found.size.on_due(found.now, TIMEOUT, true);
            assert_eq!(step, PathStep::Probe);
        }
        assert_eq!(found.size.silent(), 100);
        assert_eq!(found.size.probes().count(), 1, "a silent server is sent small probes only");
        found.carried = 8_972;
        found.answer();
        assert_eq!(found.size.probes().count(), 2, "an answer brings the large probe back");
        found.answer();
        assert_eq!((found.steps.len(), found.size.due()), (0, Instant::NEVER));
    }

    #[test]
    fn packets_that_get_through_the_same_way_end_a_suspicion() {
        for (way, is_ended) in [(Way::ToServer, true), (Way::ToClient, false)] {
            let mut found = Found::new(8_972, true, 0);
            assert!(found.suspect());
            found.size.on_carried(found.now, way);
            found.now = found.size.due();
            let step = found.size.on_due(found.now, TIMEOUT, true);
            assert_eq!(step, if is_ended { PathStep::None } else { PathStep::Probe });
            assert_eq!(found.size.due() == Instant::NEVER, is_ended);
        }
        let mut found = Found::new(8_972, true, 0);
        found.size.on_carried(found.now, Way::ToServer);
        assert!(!found.suspect(), "a large packet got through");
        let now = found.now;
        assert!(found.size.suspect(now, TIMEOUT, None, now), "its answer may be dropped");
    }

    #[test]
    fn answers_of_earlier_rounds_and_of_dropped_sizes_are_ignored() {
        let mut size = PathSize::new(8_972, false);
        let now = Instant::from_nanos(1);
        assert!(size.want(now, || TIMEOUT, false));
        let stale = size.round().wrapping_sub(1);
        assert_eq!(size.on_probed(now, TIMEOUT, stale, 8_972, false), PathStep::None);
        assert_eq!(size.on_probed(now, TIMEOUT, size.round(), 8_973, false), PathStep::None);
        assert_eq!(size.on_probed(now, TIMEOUT, size.round(), 8_972, false), PathStep::Grow);
        assert_eq!(size.on_resized(now, size.epoch()), PathStep::None, "no resize is pending");
    }
}
