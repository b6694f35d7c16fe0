//! The size of datagrams that a path carries (RFC 8899, packetization layer path MTU discovery).
//!
//! What the interfaces say is not what the path carries: overlays and misconfigured switches swallow larger packets, and
//! tell no one. So the size is proven, by probes that are answered at the same length:
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
//! A search begins when a message wants larger packets: sessions with small messages send no probe. First the size
//! that both ends can take is probed: mostly the path carries that, and the handshake was slow or lost its proof. Then each round of probes narrows the range that the size is in. A size counts as swallowed if it was not answered three
//! times while a size that the path is known to carry was: a server that is away swallows nothing.
//!
//! Meanwhile calls go on, in packets of [`BASE`] bytes. This file decides what to probe and what answers say; it sends
//! nothing.

use crate::time::Instant;
use crate::transport::MIN_DATAGRAM;

/// Bytes of a datagram that every path carries.
pub(super) const BASE: u32 = MIN_DATAGRAM as u32;

/// Sizes that a round probes besides the one that is known to pass.
const PROBES: usize = 4;
/// Times that a probe is sent before its size counts as swallowed (RFC 8899, section 5.1.2).
const MOST_TRIES: u8 = 3;
/// A path that carries less than both ends can take is searched again after so many nanoseconds. (Section 5.1.1 has ten
/// minutes, for paths across the Internet; a few packets a minute are little.)
const RAISE_AFTER: u64 = 60_000_000_000;

/// What is known of the size of a session's path, and what is being found out.
#[derive(Debug)]
pub(super) struct PathSize {
    /// Bytes of a datagram that both ends can take.
    limit: u32,
    /// Of a session's large packets.
    large: u32,
    state: State,
    /// When a full large packet last got through, there and back.
    carried_at: [Instant; 2],
    /// Counts the rounds of probes: answers to earlier ones count for nothing.
    round: u32,
    /// Counts the sizes that the server was told.
    epoch: u32,
}

/// Which way a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    ToServer = 0,
    ToClient = 1,
}

#[derive(Debug)]
enum State {
    /// From then on, a message that would be fewer packets if they were larger makes the session search for larger ones.
    Settled { raise_at: Instant },
    /// Probes are on their way.
    Probing(Round),
    /// The server is being told the size that was found.
    Resizing { size: u32, tries: u8, due: Instant },
}

/// A round of probes.
#[derive(Debug)]
struct Round {
    /// The largest size that was answered, and the least that was swallowed.
    low: u32,
    high: u32,
    /// What is probed, ascending, between the two; 0 if fewer are.
    sizes: [u32; PROBES],
    /// Whether the large packets are swallowed, on this way, that messages are cut into.
    suspected: Option<Way>,
    /// Since the last try, a probe was answered.
    is_reached: bool,
    /// Tries in which one was, and tries in a row in which none was.
    tries: u8,
    silent: u8,
    due: Instant,
}

/// What the session does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PathStep {
    None,
    /// Sends the [probes](PathSize::probes).
    Probe,
    /// Cuts messages into small packets, also those that have begun to leave in large ones. Then the same.
    Shrink,
    /// Cuts messages into large packets.
    Grow,
    /// Tells the server that large packets have so many bytes, once no call uses the size of before: messages are cut into
    /// small ones meanwhile.
    Resize {
        size: u32,
        /// Calls that use it are cut again.
        is_overdue: bool,
    },
    /// The server knows that large packets have so many bytes: cuts messages into these.
    Resized(u32),
}

impl Round {
    fn new(low: u32, high: u32) -> Self {
        let mut sizes = [0; PROBES];
        let width = high - 1 - low;
        let count = width.min(PROBES as u32);
        for (part, size) in (1..=count).zip(&mut sizes) {
            // The last one is the largest that may pass.
            *size = low + (width * part).div_ceil(count);
        }
        let due = Instant::ZERO;
        Self { low, high, sizes, suspected: None, is_reached: false, tries: 0, silent: 0, due }
    }
}

impl PathSize {
    /// Of a path between ends that can take datagrams of `limit` bytes. If it `is_proven`, such a datagram has arrived at the
    /// server, and one in return; or there was no room for the proof, and the path is taken to carry it.
    pub(super) fn new(limit: u32, is_proven: bool) -> Self {
        let is_known = is_proven || limit <= BASE;
        let raise_at = if is_known { Instant::NEVER } else { Instant::ZERO };
        let state = State::Settled { raise_at };
        Self { limit, large: limit, state, carried_at: [Instant::ZERO; 2], round: 0, epoch: 0 }
    }

    /// When there is something to do.
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

    /// The number of the size that the server is being told.
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Tries in a row without any answer: the next pause is longer.
    pub(super) fn silent(&self) -> u8 {
        match &self.state {
            State::Probing(round) => round.silent,
            State::Resizing { tries, .. } => *tries,
            State::Settled { .. } => 0,
        }
    }

    /// The sizes to probe, ascending. The first one is known to pass.
    pub(super) fn probes(&self) -> impl Iterator<Item = u32> + use<> {
        let (low, sizes) = match &self.state {
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

    /// A message takes several packets. Returns whether to probe for larger ones.
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

    /// A message that is cut into large packets has brought no answer since: packets on this way are missing, or on either
    /// way. Returns whether to send probes.
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
        let round = self.check(way);
        self.begin(round, now, timeout);
        true
    }

    /// A probe of so many bytes of this round was answered. `is_large` if messages are cut into large packets.
    pub(super) fn on_probed(
        &mut self,
        now: Instant,
        timeout: u64,
        number: u32,
        size: u32,
        is_large: bool,
    ) -> PathStep {
        let State::Probing(round) = &mut self.state else { return PathStep::None };
        // An answer without padding proves nothing.
        if number != self.round || size >= round.high || size < round.low {
            return PathStep::None;
        }
        round.is_reached = true;
        if size >= self.large {
            self.carried_at = [now; 2];
        }
        round.low = round.low.max(size);
        if round.low + 1 < round.high { PathStep::None } else { self.found(now, timeout, is_large) }
    }

    /// The answer to an `Open` came after another one, with so many bytes. `is_large` as above.
    pub(super) fn on_opened(&mut self, now: Instant, size: u32, is_large: bool) -> PathStep {
        let is_resizing = matches!(self.state, State::Resizing { .. });
        if size < self.limit || self.large != self.limit || is_large || is_resizing {
            return PathStep::None;
        }
        self.settle(now, self.limit);
        PathStep::Grow
    }

    /// If the time has come, does what is due. The next pause is `timeout` nanoseconds.
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

    /// The server has taken over the size of this number.
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

    /// Not even the size is answered that the path was known to carry: it may have become smaller.
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

    /// The way on which a large packet last got through longer ago.
    fn rarer(&self) -> Way {
        let [to_server, to_client] = self.carried_at;
        if to_server < to_client { Way::ToServer } else { Way::ToClient }
    }

    /// A round that finds out whether large packets are swallowed on this way.
    fn check(&mut self, way: Way) -> Round {
        self.carried_at[way as usize] = Instant::ZERO;
        let sizes = [self.large, 0, 0, 0];
        Round { sizes, suspected: Some(way), ..Round::new(BASE, self.large + 1) }
    }

    /// What was not answered in this round is swallowed.
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

    /// The bounds meet.
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

    /// Messages are cut into datagrams of so many bytes until further notice.
    fn settle(&mut self, now: Instant, size: u32) {
        let is_whole = size == self.limit;
        let raise_at = if is_whole { Instant::NEVER } else { now.plus_nanos(RAISE_AFTER) };
        self.state = State::Settled { raise_at };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: u64 = 1_000_000;

    /// A session's size, over a path that carries some bytes, and how messages are cut.
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

        /// Until nothing is to be done.
        fn settle(&mut self) {
            while self.size.due() < Instant::NEVER {
                self.now = self.now.max(self.size.due());
                let step = self.size.on_due(self.now, TIMEOUT, self.is_large);
                self.take(step);
                self.answer();
            }
        }

        /// Answers what the path carries.
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
    fn a_path_that_becomes_smaller_while_a_larger_size_is_searched_is_followed() {
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
    fn an_answer_without_padding_is_none() {
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
    fn a_server_that_is_not_told_a_size_soon_is_told_whatever_uses_the_last_one() {
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
    fn every_size_is_found_to_the_byte() {
        for limit in [1_053, 1_472, 8_972, 65_507] {
            for carried in (BASE..=limit).step_by(97).chain([limit, limit - 1]) {
                let mut found = Found::new(limit, false, carried);
                assert!(found.want() && !found.want(), "it is being found out");
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
                assert!(!found.want(), "not so soon");
                found.now = found.now.plus_nanos(50 * TIMEOUT);
                assert_eq!(found.want(), carried < limit);
            }
        }
    }

    #[test]
    fn a_path_that_carries_what_it_was_proven_to_is_left_alone() {
        let mut found = Found::new(1_472, true, 1_472);
        assert!(!found.want());
        assert_eq!((found.probes, found.size.due()), (0, Instant::NEVER));
        assert!(found.suspect());
        assert!(!found.suspect(), "it is being found out");
        found.answer();
        assert_eq!((found.steps.len(), found.size.due()), (0, Instant::NEVER));
    }

    #[test]
    fn a_path_that_has_become_smaller_and_larger_again_is_followed() {
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
        assert!(!found.want(), "the ends take no more");
    }

    #[test]
    fn a_server_that_is_away_swallows_nothing() {
        let mut found = Found::new(8_972, true, 0);
        assert!(found.suspect());
        for _ in 0..100 {
            found.now = found.size.due();
            let step = found.size.on_due(found.now, TIMEOUT, true);
            assert_eq!(step, PathStep::Probe);
        }
        assert_eq!(found.size.silent(), 100);
        found.carried = 8_972;
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
        assert!(!found.suspect(), "one got through since");
        let now = found.now;
        assert!(found.size.suspect(now, TIMEOUT, None, now), "but perhaps not its answer");
    }

    #[test]
    fn answers_of_earlier_rounds_and_of_sizes_that_are_swallowed_count_for_nothing() {
        let mut size = PathSize::new(8_972, false);
        let now = Instant::from_nanos(1);
        assert!(size.want(now, || TIMEOUT, false));
        let stale = size.round().wrapping_sub(1);
        assert_eq!(size.on_probed(now, TIMEOUT, stale, 8_972, false), PathStep::None);
        assert_eq!(size.on_probed(now, TIMEOUT, size.round(), 8_973, false), PathStep::None);
        assert_eq!(size.on_probed(now, TIMEOUT, size.round(), 8_972, false), PathStep::Grow);
        assert_eq!(size.on_resized(now, size.epoch()), PathStep::None, "nothing was to be resized");
    }
}
