//! Swift (Kumar et al., SIGCOMM'20), for paths from a rack to a continent.
//!
//! Each session has a *window*, in packets, and compares the queueing delay with a target once per round trip. Below the
//! target the window grows, above it the window shrinks by the excess (section 3.2). A window below one packet is a rate:
//! packets are spaced (section 3.5). Delays of hosts are not delays of the network (section 3.3): what the loops at both
//! ends tell of themselves is taken out before a sample comes here, and the least sample of a round trip counts.
//!
//! What differs from the paper, whose network is one datacenter that it knows:
//!
//! * **The length of the path is measured**: the least round trip, from the handshake on. The target is a queueing delay on
//!   top of it, so no parameter speaks of hops. A session that joins a standing queue measures too much. Therefore a session
//!   that gets its first window *dips*: for a round trip it sends an eighth, so that its own part of the queue drains and it
//!   measures the rest of the path (as BBR's ProbeRTT does). And cuts of six packets or more go below the target, to where the
//!   queue is empty: all sessions see the same queue, so they cut at about the same time, and each sees the path empty once
//!   per cycle.
//! * **The target follows the session's rate**, not its window: it grows with the logarithm of the time between its packets.
//!   A session with less than its share has a longer target, so a session with more cuts first, also if their round trips
//!   differ. Above 3 ms targets scale with the path.
//! * **Growth scales with the square root of the window** (a binomial algorithm, Bansal and Balakrishnan, INFOCOM'01), and
//!   doubles from round trip to round trip while there is no queue: a fixed step is too large for hundreds of sessions and
//!   too small for a thousand packets. Below five packets, where that would be a large part of the window, growth is a part of
//!   the window and *cuts* scale with the root instead: windows come together as they do above, in smaller steps.
//! * **A host that stands still is forgiven.** It looks like a queue far above the target, which is gone a round trip later.
//!   The window then goes back half the way in each round trip, until it sees a queue again.
//! * **The link's rate need not be known.** A session is *free* until it first sees a queue: its credits are its only limit.
//!
//! A queue that stays when the window shrinks is not the session's: the path has become longer, something else fills it, or the
//! hosts take longer than in their best moment. After four cuts in a row it counts as a part of the path.

use super::config::SwiftConfig;
use super::controller::{Controller, LOSSY_TRIPS, Path, Sample};
use crate::mutants::mutant;
use crate::time::Instant;

/// The target of a session that sends a packet every 100 ns, in nanoseconds.
const TARGET: f64 = 6_000.0;
/// What doubling the time between packets adds to it, and what the target is at most, in nanoseconds.
const TARGET_PER_DOUBLING: f64 = 2_000.0;
const MOST_TARGET: f64 = 24_000.0;
/// On a link of a known rate, the largest target is shorter by this part of a packet's transmission
/// time, down to [`LEAST_MOST_TARGET`]: on a slow link the queue holds a few packets, and the
/// minimum delay of an epoch misses a large part of one. It is longer by [`PATH_PART`] of the path:
/// with short targets, sessions with long round trips share less evenly.
const PACKET_PART: f64 = 0.8;
const LEAST_MOST_TARGET: f64 = 16_000.0;
const PATH_PART: f64 = 0.07;
/// The time between packets to which [`TARGET`] belongs, in nanoseconds.
const TARGET_GAP: f64 = 100.0;
/// Round trips above this, in nanoseconds, lengthen all targets in proportion.
const SHORT_PATH: f64 = 3_000_000.0;
/// What part of the transport's noise the target allows for at least: most of it is taken out with the hosts' own delays, and
/// the least of several samples counts.
const NOISE_PART: f64 = 0.05;
/// The target allows for so many times the jitter, up to the transport's noise, and up to so many nanoseconds. Jitter is by how
/// much queueing delays differ from one decision to the next: a queue of the session's own making grows slowly.
const JITTERS: f64 = 2.0;
const MOST_JITTER: f64 = 50_000.0;
/// What a decision adds to the mean jitter, as a part.
const JITTER_PART: f64 = 0.125;
/// Samples that a decision needs, besides a round trip; and where the transport's noise is larger than any target.
const SAMPLES: u32 = 2;
const NOISY_SAMPLES: u32 = 8;
/// A window below which half of them will do: the next packet is ten round trips away.
const RARE: f64 = 0.1;
/// Growth per round trip: so many packets times the root of the window, in packets.
const STEP: f64 = 0.125;
/// And at least and at most these parts of the window.
const LEAST_STEP: f64 = 0.005;
const MOST_STEP: f64 = 0.056;
/// A window below so many packets shrinks by a smaller part, in proportion to its root, unless the queue is [`FAR`] times the
/// target: where sessions have few packets each, one packet more or less in the queue would move all of them far. And the
/// session with more shrinks by more.
const GENTLE: f64 = 6.0;
const FAR: f64 = 4.0;
/// A window below so many packets is narrow: any change of rate is seen many round trips later. The delay that its rate follows is
/// smoothed.
const NARROW: f64 = 0.35;
const SMOOTHING: f64 = 0.1;
/// Round trips without a cut after which growth doubles each time, and the largest growth, as a part of the window.
const HYPER_AFTER: u32 = 16;
const MOST_GROWTH: f64 = 0.25;
/// What a cut takes of a window at most (`max_mdf` in section 3.2).
const MOST_CUT: f64 = 0.5;
/// What is left of the packets of a free session while it dips.
const DIP: f64 = 0.125;
/// Round trips without a queue after which a window that a queue [`FAR`] above the target has cut goes back to what it was:
/// half the way each time, until this part is missing.
const BACK_AFTER: u32 = 1;
const NEARLY: f64 = 0.1;
/// After so many cuts in a row a queue that has kept this part of its length is not the session's: it counts as a part of the
/// path.
const LONGER_AFTER: u32 = 4;
const STAYS: f64 = 0.7;
/// What is left of a window after losses, and the window from which on losses without a queue change nothing: fewer packets
/// would not be lost less.
const LEFT_AFTER_LOSSES: f64 = 0.7;
const LEAST_LOSSY: f64 = 4.0;
/// A window of so many packets or more limits by itself, and packets are spaced a little closer than it says.
const WIDE: f64 = 8.0;
const SPACING: f64 = 1.25;
/// A session that has had nothing on its way for so many round trips, or packets if these are rarer, is free again.
const IDLE: f64 = 16.0;
/// A session whose window was so many times what it had on its way, for [`HYPER_AFTER`] round trips, is free again.
const UNUSED: f64 = 2.0;

/// Links that a packet crosses, as slow as the slowest that is known. A session whose first large packets met a queue does not
/// take it for the time that they need for being large.
const LINKS: f64 = 4.0;
/// No path counts as longer, in nanoseconds; nothing was measured yet.
const LONGEST_PATH: u64 = 4_000_000_000;

/// One session's window.
#[derive(Clone, Debug)]
pub(crate) struct Swift {
    /// Bytes of a packet on its way.
    datagram: f64,
    /// Of the link to the network, bytes per second, if it is known.
    line: Option<f64>,
    /// In bytes per second.
    min_rate: f64,
    /// The transport's, in nanoseconds.
    noise: f64,
    /// The mean change of the queueing delay from one decision to the next, in nanoseconds, and the last delay.
    jitter: f64,
    last_queue: u64,
    /// The path's length: the least round trip of any packet, and of the largest ones, in nanoseconds.
    base: u64,
    full_base: u64,
    /// By how much the latter is longer at most.
    most_longer: u64,
    /// No target is exceeded by less than this, in nanoseconds.
    calm: u64,
    /// In packets; `None` while the session is free.
    window: Option<f64>,
    /// The least queueing delay of the last epoch, in nanoseconds.
    queue: u64,
    /// Since the last decision: what was sent before does not count.
    epoch: Epoch,
    /// The window before a cut that a queue far above the target made. It may have been a host that stood still.
    before: Option<f64>,
    /// The window after a dip, while the session dips.
    dip: Option<f64>,
    /// The most packets on their way in the last epoch.
    last_used: f64,
    /// Decisions in a row that found no queue, or one.
    calm_trips: u32,
    cuts: u32,
    /// The queue before the first of these cuts, in nanoseconds.
    first_queue: u64,
    /// The last decision found a queue, and no loss has counted since.
    is_queued: bool,
    /// The last answer that was looked at.
    last_rtt: Instant,
    /// When a loss last counted, and round trips in a row that had one.
    last_loss: Instant,
    lossy_trips: u32,
}

/// What was seen since the last decision.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    since: Instant,
    samples: u32,
    /// The least queueing delay, in nanoseconds.
    queue: u64,
    /// The most packets on their way.
    in_flight: u32,
}

impl Epoch {
    fn at(since: Instant) -> Self {
        Self { since, samples: 0, queue: u64::MAX, in_flight: 0 }
    }
}

impl Swift {
    /// Free.
    pub(super) fn new(config: &SwiftConfig, path: &Path) -> Self {
        let line = path.line_rate.map(|line| line.max(1) as f64);
        let mut swift = Self {
            datagram: 1.0,
            line,
            min_rate: config.min(path.line_rate) as f64,
            noise: path.noise.as_nanos() as f64,
            jitter: 0.0,
            last_queue: 0,
            base: 0,
            full_base: LONGEST_PATH,
            most_longer: LONGEST_PATH,
            calm: 0,
            window: None,
            queue: 0,
            epoch: Epoch::at(Instant::ZERO),
            before: None,
            dip: None,
            last_used: 0.0,
            calm_trips: 0,
            cuts: 0,
            first_queue: 0,
            is_queued: false,
            last_rtt: Instant::ZERO,
            last_loss: Instant::ZERO,
            lossy_trips: 0,
        };
        swift.set_base(path.round_trip.unwrap_or(LONGEST_PATH));
        swift.set_datagram(path.datagram);
        swift
    }

    fn set_base(&mut self, nanos: u64) {
        self.base = nanos.clamp(1, LONGEST_PATH);
        self.full_base = self.full_base.min(self.base.saturating_add(self.most_longer));
        self.calm = self.base + (TARGET * self.stretch() + self.noise * NOISE_PART) as u64;
    }

    /// Full packets have so many bytes from now on. Their shortest round trip is measured anew.
    pub(super) fn set_datagram(&mut self, bytes: u32) {
        self.datagram = f64::from(bytes.max(1));
        let most_longer = |packet| (LINKS * packet) as u64;
        self.most_longer = self.packet_time().map_or(LONGEST_PATH, most_longer);
        self.full_base = LONGEST_PATH.min(self.base.saturating_add(self.most_longer));
    }

    /// Transmission time of a full packet on the link, in ns, if the rate is known.
    fn packet_time(&self) -> Option<f64> {
        self.line.map(|line| self.datagram * 1e9 / line)
    }

    /// The largest target before it is stretched, in ns.
    fn most_target(&self) -> f64 {
        self.packet_time().map_or(MOST_TARGET, |packet| {
            let most = (MOST_TARGET - PACKET_PART * packet).max(LEAST_MOST_TARGET);
            (most + PATH_PART * self.base as f64).min(MOST_TARGET)
        })
    }

    /// By how much the path's length multiplies targets.
    fn stretch(&self) -> f64 {
        (self.base as f64 / SHORT_PATH).max(1.0)
    }

    #[inline]
    pub(super) fn is_at_line(&self) -> bool {
        self.window.is_none()
    }

    /// Without a limit, and without a queue that any target would be exceeded by, a round trip changes nothing.
    #[inline]
    pub(super) fn is_calm(&self, nanos: u64, network: u64, is_full: bool) -> bool {
        let shortest = if is_full { self.full_base } else { self.base };
        self.window.is_none() && nanos >= shortest && network < self.calm
    }

    /// Packets that may be on their way, `u16::MAX` for no limit.
    #[inline]
    pub(super) fn window(&self) -> u16 {
        self.window.map_or(u16::MAX, |window| {
            window.ceil().clamp(self.least(), f64::from(u16::MAX)) as u16
        })
    }

    /// The transport's noise is larger than any target.
    fn is_noisy(&self) -> bool {
        self.noise > MOST_TARGET
    }

    /// Samples that a decision needs.
    fn samples(&self) -> u32 {
        if self.is_noisy() { NOISY_SAMPLES } else { SAMPLES }
    }

    /// Packets that may be on their way however small the window is: their rate is what limits. With one only, a session that
    /// waits for a timeout would do nothing else.
    fn least(&self) -> f64 {
        if self.is_noisy() { LEAST_LOSSY } else { 1.0 }
    }

    /// The target's queueing delay for a session with so many packets per round trip, in nanoseconds.
    fn target(&self, packets: f64, trip: f64) -> f64 {
        let gap = trip / packets.max(1e-6);
        let doublings = (gap / TARGET_GAP).max(1.0).log2();
        let target = (TARGET + TARGET_PER_DOUBLING * doublings).min(self.most_target());
        let most = self.noise.min(MOST_JITTER);
        let jitter = (JITTERS * self.jitter).min(most).max(self.noise * NOISE_PART);
        target * self.stretch() + jitter
    }

    fn set(&mut self, packets: f64) {
        let least = self.min_rate * self.base as f64 / (self.datagram * 1e9);
        self.window = Some(packets.max(least).min(f64::from(u16::MAX)));
    }

    /// The round trip of the largest packets behind a queue of so many nanoseconds.
    fn trip(&self, queue: u64) -> u64 {
        let base = if self.full_base == LONGEST_PATH { self.base } else { self.full_base };
        base + queue
    }

    /// The session has nothing on its way and begins to send. After a while, what it knows of the path's queue is no longer true.
    #[inline]
    pub(super) fn on_begin(&mut self, now: Instant) {
        let Some(window) = self.window else { return };
        let pause = IDLE * self.trip(self.queue) as f64 / window.min(1.0);
        if now.nanos_since(self.last_rtt) as f64 >= pause {
            self.window = None;
            (self.before, self.dip, self.last_used) = (None, None, 0.0);
            (self.calm_trips, self.cuts, self.lossy_trips) = (0, 0, 0);
            (self.queue, self.is_queued) = (0, false);
            self.epoch = Epoch::at(now);
        }
    }

    /// A round trip has passed.
    fn decide(&mut self, now: Instant) {
        let Epoch { since, queue, in_flight, .. } = self.epoch;
        self.epoch = Epoch::at(now);
        if let Some(window) = self.dip.take() {
            self.set(window);
            self.last_used = window;
            return;
        }
        // An epoch with few packets on their way, as after a dip or an absence, does not show that the window is not used.
        let used = f64::from(in_flight.max(1));
        let used = std::mem::replace(&mut self.last_used, used).max(used);
        let packets = self.window.unwrap_or(used);
        self.queue = if packets < NARROW {
            (self.queue as f64 * (1.0 - SMOOTHING) + queue as f64 * SMOOTHING) as u64
        } else {
            queue
        };
        let jump = queue.abs_diff(std::mem::replace(&mut self.last_queue, queue));
        self.jitter += (jump as f64 - self.jitter) * JITTER_PART;
        let trip = self.trip(queue) as f64;
        let trips =
            (now.nanos_since(since) as f64 / trip).clamp(1.0, f64::from(self.samples() / SAMPLES));
        let target = self.target(packets, trip);
        self.is_queued = queue as f64 > target && !mutant!(QueueUnseen);
        if !self.is_queued {
            self.grow(used, trips);
        } else if self.cuts >= LONGER_AFTER && queue as f64 > STAYS * self.first_queue as f64 {
            self.lengthen(queue);
        } else {
            if self.cuts.is_multiple_of(LONGER_AFTER) {
                self.first_queue = queue;
                self.cuts = 0;
            }
            self.calm_trips = 0;
            self.cuts += 1;
            let is_far = queue as f64 > FAR * target;
            self.before = is_far.then_some(packets);
            let gentle = if is_far { 1.0 } else { (packets / GENTLE).sqrt().min(1.0) };
            // To where the queue is empty.
            let cut = (queue as f64 / trip).min(MOST_CUT) * gentle;
            let window = packets.min(used) * (1.0 - cut);
            if self.window.is_none() {
                self.dip = Some(window);
                self.set(packets * DIP);
            } else {
                self.set(window);
            }
        }
    }

    /// There was no queue to speak of, with so many packets on their way, for so many round trips. Few samples come in a small
    /// window, so that decisions are several round trips apart.
    fn grow(&mut self, used: f64, trips: f64) {
        self.cuts = 0;
        self.calm_trips += 1;
        let Some(window) = self.window else { return };
        if let Some(before) = self.before
            && self.calm_trips >= BACK_AFTER
        {
            let way = before - window;
            if way > before * NEARLY {
                self.before = Some(before);
            } else {
                // The queue that was seen was not the path's limit.
                self.before = None;
                self.calm_trips = self.calm_trips.max(HYPER_AFTER);
            }
            self.set(window + (way / 2.0).max(0.0));
        } else if window >= UNUSED * used {
            if self.calm_trips > HYPER_AFTER {
                self.window = None;
            }
        } else {
            let doublings = self.calm_trips.saturating_sub(HYPER_AFTER).min(20);
            let step = (STEP * window.sqrt()).clamp(window * LEAST_STEP, window * MOST_STEP);
            let step = step * f64::from(1u32 << doublings) * trips;
            self.set(window + step.min(MOST_GROWTH * window));
        }
    }

    /// The queue that stays counts as a part of the path. It may be a slow link between faster ones, that is, a part for large
    /// packets only.
    fn lengthen(&mut self, queue: u64) {
        self.queue = 0;
        self.most_longer = self.most_longer.saturating_add(queue);
        if self.full_base < LONGEST_PATH {
            self.full_base = (self.full_base + queue).min(LONGEST_PATH - 1);
        }
        self.set_base(self.base + queue);
        self.cuts = 0;
    }
}

impl Controller for Swift {
    #[inline]
    fn on_sent(&mut self, _: Instant, _: u32) {}

    fn on_rtt(&mut self, sample: &Sample) {
        let Sample { now, nanos, waited, in_flight, is_full } = *sample;
        self.last_rtt = now;
        if nanos < self.base {
            self.set_base(nanos);
        }
        let mut base = self.base;
        if is_full {
            self.full_base = self.full_base.min(nanos);
            base = self.full_base;
        }
        if now.minus_nanos(nanos) < self.epoch.since {
            return;
        }
        let samples = self.samples();
        let epoch = &mut self.epoch;
        epoch.samples += 1;
        epoch.queue = epoch.queue.min(nanos.saturating_sub(waited).saturating_sub(base));
        epoch.in_flight = epoch.in_flight.max(in_flight);
        let is_rare = self.window.is_some_and(|window| window < RARE);
        let needed = if is_rare { samples / 2 } else { samples };
        if epoch.samples >= needed && now.nanos_since(epoch.since) >= base {
            self.decide(now);
        }
    }

    #[inline]
    fn on_mark(&mut self, _: Instant) {}

    /// A loss behind a queue costs a part of the window, once per decision. A loss without one may be chance; losses in
    /// several round trips one after the other are congestion that round trips do not show.
    fn on_loss(&mut self, now: Instant, in_flight: u32) {
        let trip = self.trip(self.queue);
        let since = now.nanos_since(self.last_loss);
        if since < trip {
            return;
        }
        self.last_loss = now;
        self.lossy_trips = if since < 2 * trip { self.lossy_trips + 1 } else { 1 };
        let window = self.dip.take().or(self.window);
        let packets = window.unwrap_or_else(|| f64::from(in_flight.max(1)));
        let is_behind_queue = std::mem::take(&mut self.is_queued);
        let is_lossy = self.lossy_trips >= LOSSY_TRIPS && packets > LEAST_LOSSY;
        if is_behind_queue || is_lossy {
            self.lossy_trips = 0;
            self.calm_trips = 0;
            self.set(packets * LEFT_AFTER_LOSSES);
        }
    }

    /// What the window is per round trip.
    fn rate(&self) -> u64 {
        let Some(window) = self.window else {
            return self.line.map_or(u64::MAX, |line| line as u64);
        };
        let spacing = if window >= WIDE { SPACING } else { 1.0 };
        let rate = window * spacing * self.datagram * 1e9 / self.trip(self.queue) as f64;
        rate.max(self.min_rate) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const US: u64 = 1_000;
    const BASE: u64 = 100 * US;

    /// A session over a path of 100 us, whose link it does not know.
    fn swift() -> Swift {
        let path = Path {
            line_rate: None,
            noise: Duration::ZERO,
            datagram: 1_000,
            round_trip: Some(BASE),
        };
        Swift::new(&SwiftConfig::new(), &path)
    }

    /// A second's worth of time before the first sample.
    struct Clock(Instant);

    impl Clock {
        fn new() -> Self {
            Self(Instant::from_nanos(1_000_000_000))
        }

        /// A round trip of `nanos`, of which `waited` were the hosts', with so many packets on their way: two samples of it.
        fn trip(&mut self, swift: &mut Swift, nanos: u64, waited: u64, in_flight: u32) {
            self.0 = self.0.plus_nanos(nanos);
            for _ in 0..SAMPLES {
                let sample = Sample { now: self.0, nanos, waited, in_flight, is_full: true };
                if !swift.is_calm(nanos, nanos.saturating_sub(waited), true) {
                    swift.on_rtt(&sample);
                }
            }
        }

        fn trips(&mut self, swift: &mut Swift, count: u32, nanos: u64, in_flight: u32) {
            (0..count).for_each(|_| self.trip(swift, nanos, 0, in_flight));
        }
    }

    /// A session that dips and has a window of 32 packets next, and the clock.
    fn dipping() -> (Swift, Clock) {
        let (mut swift, mut clock) = (swift(), Clock::new());
        clock.trip(&mut swift, BASE, 0, 40);
        while swift.is_at_line() {
            clock.trip(&mut swift, BASE + 25 * US, 0, 40);
        }
        (swift, clock)
    }

    /// A session whose window has just become 32 packets, and the clock.
    fn cut() -> (Swift, Clock) {
        let (mut swift, mut clock) = dipping();
        clock.trip(&mut swift, BASE, 0, 5);
        (swift, clock)
    }

    /// Sessions fill the link before this one joins: it has never seen the path without a queue of 50 us. In its dip the queue
    /// drains.
    #[test]
    fn a_session_dips_before_its_first_window_and_measures_the_path() {
        let (mut swift, mut clock) = (swift(), Clock::new());
        swift.set_base(BASE + 50 * US);
        clock.trip(&mut swift, BASE + 50 * US, 0, 40);
        clock.trips(&mut swift, 2, BASE + 100 * US, 40);
        assert_eq!(swift.window(), 5, "an eighth");
        clock.trip(&mut swift, BASE, 0, 5);
        assert_eq!(
            (swift.base, swift.window()),
            (BASE, 30),
            "40 packets in 200 us are 30 in 150 us"
        );
        clock.trip(&mut swift, BASE + 50 * US, 0, 5);
        let left = swift.window.expect("it has a window");
        assert!(
            (left - 20.0).abs() < 1e-3,
            "30 in 150 us are 20 in 100 us, though 5 were on their way"
        );
    }

    #[test]
    fn a_loss_in_a_dip_costs_a_part_of_the_window_and_ends_the_dip() {
        let (mut swift, clock) = dipping();
        assert_eq!(swift.window(), 5);
        swift.on_loss(clock.0, 5);
        assert_eq!(swift.window(), 23, "0.7 of 32");
    }

    /// A cut's measure is what the session has on its way. A host that stood still had little.
    #[test]
    fn an_epoch_with_few_packets_on_their_way_does_not_cost_a_window_that_was_used() {
        let (mut swift, mut clock) = cut();
        clock.trip(&mut swift, BASE, 0, 32);
        clock.trip(&mut swift, BASE + 30 * US, 0, 4);
        assert_eq!(swift.window(), 25, "100/130 of 32, and not of 4");
        clock.trip(&mut swift, BASE + 30 * US, 0, 4);
        assert_eq!(swift.window(), 4, "100/130 of 4: two epochs with little are use");
    }

    #[test]
    fn a_session_is_free_until_it_sees_a_queue_then_its_window_is_what_an_empty_path_holds() {
        let (mut swift, mut clock) = (swift(), Clock::new());
        clock.trips(&mut swift, 100, BASE + 5 * US, 40);
        assert!(swift.is_at_line() && swift.window() == u16::MAX && swift.rate() == u64::MAX);
        let (swift, _) = cut();
        assert_eq!(swift.window(), 32, "40 packets in 125 us are 32 in 100 us");
        // A quarter more than 32,000 bytes per 125 us.
        assert_eq!(swift.rate(), 320_000_000);
    }

    #[test]
    fn only_what_was_sent_after_a_cut_counts_for_the_next_one() {
        let (mut swift, clock) = cut();
        let nanos = BASE + 80 * US;
        for at in [10, 50, 100, 179] {
            let now = clock.0.plus_nanos(at * US);
            swift.on_rtt(&Sample { now, nanos, waited: 0, in_flight: 40, is_full: true });
        }
        assert_eq!(swift.window(), 32);
    }

    #[test]
    fn without_a_queue_the_window_grows_slowly_then_by_a_quarter_per_round_trip() {
        let (mut swift, mut clock) = cut();
        clock.trips(&mut swift, HYPER_AFTER, BASE, 40);
        assert_eq!(swift.window(), 45, "16 steps of an eighth of the root");
        clock.trips(&mut swift, 8, BASE, 80);
        assert!((80..200).contains(&swift.window()), "{}", swift.window());
    }

    /// What is left of so many packets after a round trip with so long a queue, or without one.
    fn after(packets: f64, queue: u64) -> f64 {
        let (mut swift, mut clock) = (swift(), Clock::new());
        for nanos in [BASE, BASE + queue] {
            swift.set(packets);
            clock.trip(&mut swift, nanos, 0, packets.ceil() as u32);
        }
        swift.window.expect("it has a window") / packets
    }

    #[test]
    fn windows_of_few_packets_change_by_small_parts_and_the_larger_one_is_cut_by_more() {
        for packets in [0.15, 0.6, 1.5] {
            assert!((after(packets, 0) - 1.056).abs() < 1e-3, "{packets} grow");
            let [less, more] =
                [packets, 2.0 * packets].map(|packets| 1.0 - after(packets, 50 * US));
            assert!((more / less - 2f64.sqrt()).abs() < 1e-3, "{packets}: {less}, {more}");
        }
        assert!((after(1.5, 50 * US) - 5.0 / 6.0).abs() < 1e-3, "half the way to an empty queue");
        assert!((after(0.15, 200 * US) - 0.5).abs() < 1e-3, "far above the target");
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow_and_is_lifted_in_the_end() {
        let (mut swift, mut clock) = cut();
        clock.trips(&mut swift, HYPER_AFTER, BASE, 1);
        assert_eq!(swift.window(), 33, "right after a dip it grows");
        clock.trip(&mut swift, BASE, 0, 1);
        assert!(swift.is_at_line());
    }

    #[test]
    fn neither_a_noisy_transport_nor_a_large_minimum_on_a_long_path_is_out_of_range() {
        let path = Path {
            line_rate: None,
            noise: Duration::from_millis(50),
            datagram: 1_000,
            round_trip: Some(1_000_000 * US),
        };
        let config = SwiftConfig::new().min_rate(1_000_000_000);
        let (mut swift, mut clock) = (Swift::new(&config, &path), Clock::new());
        clock.trips(&mut swift, 9, 3_000_000 * US, 40);
        assert_eq!(swift.window(), u16::MAX, "the minimum is more than that");
    }

    #[test]
    fn after_a_pause_a_session_is_free_again() {
        let (mut swift, clock) = cut();
        swift.on_begin(clock.0.plus_nanos(15 * BASE));
        assert_eq!(swift.window(), 32);
        swift.on_begin(clock.0.plus_nanos(16 * BASE + 26 * 16 * US));
        assert!(swift.is_at_line());
    }

    #[test]
    fn a_session_whose_packets_are_rare_is_not_idle_between_them() {
        let (mut swift, mut clock) = cut();
        clock.trips(&mut swift, 5, 5 * BASE, 1);
        swift.set(0.1);
        swift.on_begin(clock.0.plus_nanos(100 * BASE));
        assert_eq!(swift.window(), 1);
    }

    #[test]
    fn no_window_is_cut_for_what_a_host_says_was_its_own() {
        let (mut swift, mut clock) = (swift(), Clock::new());
        clock.trips(&mut swift, 2, BASE, 40);
        clock.trip(&mut swift, BASE + 1_000 * US, 995 * US, 40);
        assert!(swift.is_at_line());
    }

    /// Finding A6: what is left of a round trip when a host's absence is taken out says nothing of the path's length.
    #[test]
    fn the_paths_length_is_not_learned_from_what_an_absence_leaves() {
        let (mut swift, mut clock) = (swift(), Clock::new());
        clock.trips(&mut swift, 2, BASE, 40);
        clock.trip(&mut swift, BASE + 100 * US, 190 * US, 40);
        clock.trips(&mut swift, 10, BASE + 5 * US, 40);
        assert!(swift.is_at_line(), "{swift:?}");
    }

    /// A path over links of 8 Gb/s.
    fn known() -> Swift {
        let path = Path {
            line_rate: Some(1_000_000_000),
            noise: Duration::ZERO,
            datagram: 1_000,
            round_trip: Some(BASE),
        };
        Swift::new(&SwiftConfig::new(), &path)
    }

    /// Twenty sessions that begin at once never see an empty path with their large packets.
    #[test]
    fn what_only_large_packets_have_measured_is_a_queue_if_the_link_is_fast() {
        let (mut swift, mut clock) = (known(), Clock::new());
        clock.trips(&mut swift, 2, BASE + 30 * US, 40);
        assert_eq!(swift.window(), 32, "40 packets in 130 us are 32 in 104 us");
    }

    #[test]
    fn a_slow_link_between_fast_ones_is_learned_for_large_packets_and_stays_after_a_small_one() {
        let (mut swift, mut clock) = (known(), Clock::new());
        clock.trips(&mut swift, 6, BASE + 60 * US, 40);
        let sample = Sample { now: clock.0, nanos: BASE, waited: 0, in_flight: 1, is_full: false };
        swift.on_rtt(&sample);
        assert_eq!((swift.base, swift.trip(0)), (BASE, BASE + 60 * US));
        let before = swift.window();
        clock.trips(&mut swift, 20, BASE + 60 * US, 40);
        assert!(swift.window() > before, "no queue: {swift:?}");
    }

    #[test]
    fn behind_one_queue_only_the_first_loss_costs_something() {
        let (mut swift, clock) = cut();
        for at in 1..10 {
            swift.on_loss(clock.0.plus_nanos(at * 10 * BASE), 32);
        }
        assert_eq!(swift.window(), 23, "0.7 of 32");
    }

    /// What the least of two samples says over kernel UDP is mostly noise.
    #[test]
    fn where_hosts_are_noisy_the_least_of_eight_samples_counts() {
        let path = Path {
            line_rate: None,
            noise: Duration::from_micros(200),
            datagram: 1_000,
            round_trip: Some(BASE),
        };
        let (mut swift, mut clock) = (Swift::new(&SwiftConfig::new(), &path), Clock::new());
        for _ in 0..21 {
            clock.trips(&mut swift, 3, 4 * BASE, 40);
            clock.trip(&mut swift, BASE, 0, 40);
        }
        assert!(swift.is_at_line(), "one sample in four is of an empty path");
        clock.trips(&mut swift, 4, 4 * BASE, 40);
        assert!(!swift.is_at_line());
        clock.trips(&mut swift, 20, 4 * BASE, 1);
        assert_eq!(swift.window(), 4, "one that waits for a timeout does not hold up the others");
    }

    #[test]
    fn after_a_host_stood_still_the_window_is_soon_what_it_was() {
        let (mut swift, mut clock) = cut();
        clock.trip(&mut swift, BASE + 5_000 * US, 0, 32);
        assert_eq!(swift.window(), 16);
        clock.trips(&mut swift, 4, BASE, 32);
        assert!(swift.window() >= 30, "{}", swift.window());
    }

    #[test]
    fn a_path_that_has_become_longer_is_learned_after_four_cuts() {
        let (mut swift, mut clock) = cut();
        clock.trips(&mut swift, LONGER_AFTER, 3 * BASE, 40);
        assert!(swift.window() <= 4, "{}", swift.window());
        clock.trips(&mut swift, 60, 3 * BASE, 1_000);
        assert!(swift.window() > 100, "{}", swift.window());
    }

    /// Finding A8: a buffer that overflows before round trips show it.
    #[test]
    fn losses_in_three_round_trips_in_a_row_are_congestion_and_one_alone_is_chance() {
        let mut swift = swift();
        let lose = |swift: &mut Swift, trips: u64| {
            swift.on_loss(Instant::from_nanos(1_000_000_000 + trips * (BASE + 1)), 40);
        };
        (0..20).for_each(|count| lose(&mut swift, 3 * count));
        assert!(swift.is_at_line());
        (100..103).for_each(|trip| lose(&mut swift, trip));
        assert_eq!(swift.window(), 28);
        (200..500).for_each(|trip| lose(&mut swift, trip));
        assert!(swift.window() >= 2, "if every other packet is lost, it is not for the rate");
    }

    #[test]
    fn a_loss_behind_a_queue_counts_once_per_round_trip() {
        let (mut swift, mut clock) = cut();
        clock.trip(&mut swift, BASE + 40 * US, 0, 32);
        let before = swift.window();
        (0..10).for_each(|_| swift.on_loss(clock.0, 32));
        assert!(swift.window() >= before / 10 * 7 && swift.window() < before, "{before}");
    }

    #[test]
    fn targets_grow_with_the_time_between_packets_and_with_long_paths() {
        let swift = swift();
        let micros = |packets: f64| swift.target(packets, BASE as f64) / 1e3;
        assert!((micros(1_000.0) - 6.0).abs() < 0.1, "a packet per 100 ns");
        assert!((micros(1_000.0 / 16.0) - 14.0).abs() < 0.1);
        assert!((micros(0.01) - 24.0).abs() < 0.1, "the longest");
        let mut long = swift;
        long.set_base(30_000 * US);
        assert!((long.target(300_000.0, 30e6) - 60e3).abs() < 1.0, "ten times the length");
    }

    #[test]
    fn no_sample_makes_a_window_that_is_no_number() {
        let mut swift = swift();
        for nanos in [0, 1, u64::MAX, 0, u64::MAX / 2] {
            for waited in [0, nanos] {
                let now = Instant::from_nanos(u64::MAX / 2);
                swift.on_rtt(&Sample { now, nanos, waited, in_flight: 0, is_full: nanos & 1 == 0 });
                swift.on_loss(now, 0);
                assert!(swift.rate() > 0 && swift.window() > 0);
            }
        }
    }
}
