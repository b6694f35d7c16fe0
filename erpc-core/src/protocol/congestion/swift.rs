//! Swift (Kumar et al., SIGCOMM'20), for paths from a rack to a continent.
//!
//! # Algorithm
//!
//! A session has a *window*, in packets. It compares the queueing delay with a target once per
//! round trip. Below the target the window grows; above it the window shrinks (section 3.2).
//!
//! 1. **Sample.** The answer to a packet gives a round trip. The queueing delay is the round trip,
//!    minus the time that the hosts report as their own (section 3.3), minus the length of the
//!    path.
//! 2. **Epoch.** An epoch lasts at least one round trip and a few samples ([`SAMPLES`],
//!    [`NOISY_SAMPLES`]). Only packets that were sent in the epoch count. The least queueing delay
//!    of the epoch decides.
//! 3. **Decision.** At the end of an epoch the window grows or is cut. After [`LONGER_AFTER`] cuts
//!    in a row that did not shorten the queue, the queue counts as a part of the path.
//! 4. **Rate.** The session spaces its packets by window / round trip. A window below one packet is
//!    only a rate, as in the paper's large incasts.
//!
//! ```text
//! target   min(6 us + 2 us * log2(time between packets / 100 ns), limit) * stretch + jitter
//! limit    24 us; 16 to 24 us where the link's rate is known, by packet time and path
//! stretch  1; path / 3 ms on longer paths
//! jitter   mean change of the queueing delay between decisions, at most the transport's noise and
//!          20 us, but at least 5 % of the noise
//! growth   window += 0.125 * sqrt(window), but at least 0.5 % and at most 5.6 % of the window;
//!          after 16 decisions in a row without a queue, each further such decision doubles the
//!          growth, up to 25 % of the window
//! cut      window *= 1 - min(queueing delay / round trip, 0.5) * min(sqrt(window / 6), 1)
//! ```
//!
//! A new session is *free*: it has no window, and its credits are its only limit. The first queue
//! gives it a window. A session is free again after a pause, or when it did not use its window for
//! long.
//!
//! Constants without a reason of their own were chosen by the tables *Paths* in `BENCHMARKING.md`,
//! and by the same runs with other seeds and with hosts that sleep (`--host-us 200`).
//!
//! # Differences from the paper
//!
//! The paper's network is a single datacenter whose properties are known. Here they are not, so:
//!
//! * **The length of the path is measured.** It is the least round trip, from the handshake on. The
//!   target is a queueing delay on top of it, so no parameter depends on the number of hops. A
//!   session that joins a standing queue measures too long a path. Two rules correct this. First, a
//!   session that gets its first window *dips*: for a round trip it sends only an eighth of its
//!   packets. So its own part of the queue drains, and it measures the path without this part (as
//!   BBR's ProbeRTT does). Second, a cut of a window of six packets or more goes below the target,
//!   to where the queue is empty. All sessions see the same queue, so they cut at about the same
//!   time, and each sees the path empty once per cycle.
//! * **The target follows the session's rate**, not its window: it grows with the logarithm of the
//!   time between packets. A session below its share has a longer target, so sessions above their
//!   share are cut first, even if round trips differ. On paths longer than 3 ms targets scale with
//!   the path.
//! * **Growth scales with the square root of the window** (a binomial algorithm, Bansal and
//!   Balakrishnan, INFOCOM'01). A fixed step would be too large for hundreds of sessions and too
//!   small for a thousand packets. After [`HYPER_AFTER`] decisions without a queue, growth doubles
//!   with each decision. Below five packets the root would be a large part of the window, so growth
//!   is a fixed part of the window and *cuts* scale with the root instead. Windows converge as they
//!   do above five packets, in smaller steps.
//! * **A stall of a host has no lasting effect.** It looks like a queue far above the target that
//!   is gone a round trip later. The window then recovers half of what it lost by the cut in each
//!   round trip, until the session sees a queue again. If it sees none until the window is back,
//!   the cut was a false alarm, and growth doubles with each decision.
//! * **The link's rate may be unknown.** Free sessions do not need it.
//!
//! A queue that stays when the window shrinks is not caused by the session: the path has become
//! longer, other traffic fills the queue, or the hosts are slower than in their best moment. After
//! four cuts in a row it counts as a part of the path.

use super::config::SwiftConfig;
use super::controller::{Controller, LOSSY_TRIPS, Path, Sample};
use crate::mutants::mutant;
use crate::time::Instant;

/// The target of a session that sends a packet every [`TARGET_GAP`], in ns.
const TARGET: f64 = 6_000.0;
/// What each doubling of the time between packets adds to the target, and the largest target, in
/// ns.
const TARGET_PER_DOUBLING: f64 = 2_000.0;
const MAX_TARGET: f64 = 24_000.0;
/// On a link of a known rate, the largest target is shorter by this part of a packet's transmission
/// time, down to [`MIN_MAX_TARGET`]: on a slow link the queue holds only a few packets, and the
/// least delay of an epoch is shorter than the queue by most of one packet's time. The largest
/// target is longer by [`PATH_PART`] of the path: with short targets, sessions with long round
/// trips share less evenly.
const PACKET_PART: f64 = 0.8;
const MIN_MAX_TARGET: f64 = 16_000.0;
const PATH_PART: f64 = 0.07;
/// The time between packets to which [`TARGET`] belongs, in ns.
const TARGET_GAP: f64 = 100.0;
/// Paths longer than this, in ns, lengthen all targets in proportion.
const SHORT_PATH: f64 = 3_000_000.0;
/// The target always includes this part of the transport's noise. A small part is enough: most of
/// the noise is subtracted with the hosts' own delays, and only the least of several samples
/// counts.
const NOISE_PART: f64 = 0.05;
/// The target includes the jitter, limited by the transport's noise and by [`MAX_JITTER`] ns.
/// Jitter is the change of the queueing delay from one decision to the next. A queue of the
/// session's own making grows slowly and adds little to it.
const MAX_JITTER: f64 = 20_000.0;
/// Weight of one decision in the mean jitter.
const JITTER_PART: f64 = 0.125;
/// Samples that a decision needs, besides a round trip. The second value applies where the
/// transport's noise is larger than any target: there, the least of two samples is mostly noise.
const SAMPLES: u32 = 2;
const NOISY_SAMPLES: u32 = 6;
/// Below this window, in packets, a decision needs half as many samples, because few packets make a
/// round trip. The second value applies where the transport is noisy.
const RARE: f64 = 0.1;
const NOISY_RARE: f64 = 2.0;
/// Growth per round trip: this many packets times the square root of the window in packets.
const STEP: f64 = 0.125;
/// The least and the largest growth per round trip, as a part of the window.
const MIN_STEP: f64 = 0.005;
const MAX_STEP: f64 = 0.056;
/// A window below [`GENTLE`] packets shrinks by a smaller part, in proportion to its square root,
/// unless the queue is longer than [`FAR`] times the target. Where sessions have few packets each,
/// one packet more or less in the queue would change all windows much. The root also makes the
/// larger of two windows shrink by the larger part.
const GENTLE: f64 = 6.0;
const FAR: f64 = 4.0;
/// Below this window, in packets, a change of rate shows only several round trips later. So the
/// queueing delay that enters the rate is smoothed with weight [`SMOOTHING`], but not after a queue
/// longer than [`FAR`] times the target: smoothing would keep a host's stall in the rate.
const NARROW: f64 = 1.0;
const SMOOTHING: f64 = 0.1;
/// After this many decisions without a cut, growth doubles with each decision, up to
/// [`MAX_GROWTH`] of the window.
const HYPER_AFTER: u32 = 16;
const MAX_GROWTH: f64 = 0.25;
/// The largest cut, as a part of the window (`max_mdf` in section 3.2).
const MAX_CUT: f64 = 0.5;
/// The window during a dip, as a part of the free session's packets.
const DIP: f64 = 0.125;
/// Recovery from a cut by a queue longer than [`FAR`] times the target, such as a host's stall:
/// with each decision without a queue the window gets back half of what is missing, until only
/// [`NEARLY`] of the old window is missing.
const NEARLY: f64 = 0.1;
/// If, after [`LONGER_AFTER`] cuts in a row, the queue is still longer than [`STAYS`] of its first
/// length, it is not the session's queue. It counts as a part of the path.
const LONGER_AFTER: u32 = 4;
const STAYS: f64 = 0.7;
/// A loss that counts multiplies the window by [`LEFT_AFTER_LOSSES`]. Windows up to [`LEAST_LOSSY`]
/// packets ignore losses without a queue: with fewer packets in flight, no fewer would be lost.
const LEFT_AFTER_LOSSES: f64 = 0.7;
const LEAST_LOSSY: f64 = 4.0;
/// After a loss over a noisy transport, the session may have [`LEAST_LOSSY`] packets in flight even
/// if its window is smaller. This ends when the session has made this many decisions without
/// another loss. With a window below [`NOISY_RARE`], a decision takes three samples, so these
/// decisions take about 200 packets. If the path loses more than one packet in 200, the session may
/// have [`LEAST_LOSSY`] packets in flight all the time.
const LOSSLESS: u32 = 64;
/// A window of [`WIDE`] packets or more limits the packets in flight well enough without pacing. So
/// the session's rate is [`SPACING`] times the window per round trip.
const WIDE: f64 = 8.0;
const SPACING: f64 = 1.25;
/// A session is free again after a pause of this many round trips, or of this many packet intervals
/// if these are longer.
const IDLE: f64 = 16.0;
/// A session is free again if, after more than [`HYPER_AFTER`] decisions in a row without a queue,
/// its window is at least this multiple of its packets in flight.
const UNUSED: f64 = 2.0;

/// The assumed number of links on a path, all as slow as the slowest known one. It bounds how much
/// longer full packets may take because of their size. A session whose first full packets meet a
/// queue thus does not mistake the queue for transmission time.
const LINKS: f64 = 4.0;
/// The longest path, in ns. Also the initial value: nothing was measured yet.
const LONGEST_PATH: u64 = 4_000_000_000;

/// One session's window and what it has measured.
#[derive(Clone, Debug)]
pub(crate) struct Swift {
    /// Size of a full packet, in bytes.
    datagram: f64,
    /// Rate of the slowest known link, in bytes per second, if it is known.
    line: Option<f64>,
    /// The minimum rate, in bytes per second.
    min_rate: f64,
    /// The transport's scatter of round trips, in ns.
    noise: f64,
    /// The mean change of the queueing delay between decisions, and the last delay, in ns.
    jitter: f64,
    last_queue: u64,
    /// The path's length: the least round trip of any packet, and of full packets, in ns.
    base: u64,
    full_base: u64,
    /// The most by which `full_base` exceeds `base`, in ns.
    most_longer: u64,
    /// A round trip below this exceeds no target, in ns.
    calm: u64,
    /// The window in packets; `None` while the session is free.
    window: Option<f64>,
    /// The least queueing delay of the last epoch, in ns; smoothed for narrow windows.
    queue: u64,
    /// The current epoch. Packets sent before its start do not count.
    epoch: Epoch,
    /// The window before a cut by a queue far above the target, in packets. The queue may have been
    /// a host's stall, so the window may return to this value.
    before: Option<f64>,
    /// The window to use after the dip, in packets; `None` unless the session dips.
    dip: Option<f64>,
    /// The most packets in flight in the last epoch.
    last_used: f64,
    /// Consecutive decisions without a queue, and consecutive cuts.
    calm_trips: u32,
    cuts: u32,
    /// The queueing delay at the first of these cuts, in ns.
    first_queue: u64,
    /// The last decision found a queue, and no loss has counted since then.
    is_queued: bool,
    /// Time of the last sample that was not calm.
    last_rtt: Instant,
    /// Time of the last loss that was considered, and consecutive round trips with losses.
    last_loss: Instant,
    lossy_trips: u32,
    /// Decisions since the last loss; [`LOSSLESS`] before the first.
    lossless: u32,
}

/// Samples since the last decision.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    since: Instant,
    samples: u32,
    /// The least queueing delay, in ns; `u64::MAX` without samples.
    queue: u64,
    /// The most packets in flight.
    in_flight: u32,
}

impl Epoch {
    fn at(since: Instant) -> Self {
        Self { since, samples: 0, queue: u64::MAX, in_flight: 0 }
    }
}

impl Swift {
    /// A free session.
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
            lossless: LOSSLESS,
        };
        swift.set_base(path.round_trip.unwrap_or(LONGEST_PATH));
        swift.set_datagram(path.datagram);
        swift
    }

    fn set_base(&mut self, nanos: u64) {
        self.base = nanos.clamp(1, LONGEST_PATH);
        self.full_base = self.full_base.min(self.base.saturating_add(self.most_longer));
        let above = TARGET * self.stretch() + self.noise * NOISE_PART;
        self.calm = self.base.saturating_add(above as u64);
    }

    /// Sets the size of full packets, in bytes. The session keeps its bytes in flight. The least
    /// round trip of full packets, and the queue, are measured anew.
    pub(super) fn set_datagram(&mut self, bytes: u32) {
        let before = std::mem::replace(&mut self.datagram, f64::from(bytes.max(1)));
        let part = before / self.datagram;
        self.before = self.before.map(|packets| packets * part);
        self.dip = self.dip.map(|packets| packets * part);
        self.last_used *= part;
        if let Some(window) = self.window {
            self.set(window * part);
        }
        self.epoch = Epoch::at(self.epoch.since);
        let most_longer = |packet| (LINKS * packet) as u64;
        self.most_longer = self.packet_time().map_or(LONGEST_PATH, most_longer);
        self.full_base = LONGEST_PATH.min(self.base.saturating_add(self.most_longer));
    }

    /// Transmission time of a full packet on the link, in ns, if the rate is known.
    fn packet_time(&self) -> Option<f64> {
        self.line.map(|line| self.datagram * 1e9 / line)
    }

    /// The largest target before it is stretched, in ns.
    fn max_target(&self) -> f64 {
        self.packet_time().map_or(MAX_TARGET, |packet| {
            let most = (MAX_TARGET - PACKET_PART * packet).max(MIN_MAX_TARGET);
            (most + PATH_PART * self.base as f64).min(MAX_TARGET)
        })
    }

    /// The factor by which a long path lengthens targets.
    fn stretch(&self) -> f64 {
        (self.base as f64 / SHORT_PATH).max(1.0)
    }

    #[inline]
    pub(super) fn is_at_line(&self) -> bool {
        self.window.is_none()
    }

    /// Whether a round trip changes nothing: the session is free, the sample is no new least round
    /// trip, and its network part exceeds no target. After a late sample over a noisy transport, no
    /// sample of the epoch is calm, so that short round trips count as well: one of them shows that
    /// the hosts caused the delay.
    #[inline]
    pub(super) fn is_calm(&self, nanos: u64, network: u64, is_full: bool) -> bool {
        let shortest = if is_full { self.full_base } else { self.base };
        self.window.is_none()
            && nanos >= shortest
            && network < self.calm
            && (self.epoch.samples == 0 || !self.is_noisy())
    }

    /// The most packets that may be in flight; `u16::MAX` for no limit.
    #[inline]
    pub(super) fn window(&self) -> u16 {
        self.window.map_or(u16::MAX, |window| {
            window.ceil().clamp(self.least(), f64::from(u16::MAX)) as u16
        })
    }

    /// Whether the transport's noise is larger than any target.
    fn is_noisy(&self) -> bool {
        self.noise > MAX_TARGET
    }

    /// Samples that a decision needs.
    fn samples(&self) -> u32 {
        if self.is_noisy() { NOISY_SAMPLES } else { SAMPLES }
    }

    /// Whether the window is so small that a decision needs half of the samples.
    fn is_rare(&self) -> bool {
        let rare = if self.is_noisy() { NOISY_RARE } else { RARE };
        self.window.is_some_and(|window| window < rare)
    }

    /// The packets that may be in flight even if the window is smaller; the rate still limits them.
    /// If packets are lost over a noisy transport, one packet is not enough: a lost packet would
    /// stop the session until its timeout. Without losses, more packets would only leave in bursts.
    fn least(&self) -> f64 {
        if self.is_noisy() && self.lossless < LOSSLESS { LEAST_LOSSY } else { 1.0 }
    }

    /// The target of a session that sends `packets` per round trip of `trip` ns, as a queueing
    /// delay in ns.
    fn target(&self, packets: f64, trip: f64) -> f64 {
        let gap = trip / packets.max(1e-6);
        let doublings = (gap / TARGET_GAP).max(1.0).log2();
        let target = (TARGET + TARGET_PER_DOUBLING * doublings).min(self.max_target());
        let most = self.noise.min(MAX_JITTER);
        let jitter = self.jitter.min(most).max(self.noise * NOISE_PART);
        target * self.stretch() + jitter
    }

    fn set(&mut self, packets: f64) {
        let least = self.min_rate * self.base as f64 / (self.datagram * 1e9);
        self.window = Some(packets.max(least).min(f64::from(u16::MAX)));
    }

    /// The round trip of full packets behind a queue of `queue` ns.
    fn trip(&self, queue: u64) -> u64 {
        let base = if self.full_base == LONGEST_PATH { self.base } else { self.full_base };
        base + queue
    }

    /// The session, with nothing in flight, begins to send. After a long pause its knowledge of the
    /// queue is outdated, so it is free again.
    #[inline]
    pub(super) fn on_begin(&mut self, now: Instant) {
        let Some(window) = self.window else { return };
        let pause = IDLE * self.trip(self.queue) as f64 / window.min(1.0);
        if now.nanos_since(self.last_rtt) as f64 >= pause {
            self.window = None;
            (self.before, self.dip, self.last_used) = (None, None, 0.0);
            (self.calm_trips, self.cuts, self.lossy_trips) = (0, 0, 0);
            (self.queue, self.is_queued) = (0, false);
            (self.jitter, self.last_queue) = (0.0, 0);
            self.epoch = Epoch::at(now);
        }
    }

    /// Ends the epoch. Grows or cuts the window, begins or ends a dip, or counts a queue that stays
    /// after [`LONGER_AFTER`] cuts as a part of the path.
    fn decide(&mut self, now: Instant) {
        let Epoch { since, queue, in_flight, .. } = self.epoch;
        self.epoch = Epoch::at(now);
        self.lossless = self.lossless.saturating_add(1);
        if let Some(window) = self.dip.take() {
            self.set(window);
            self.last_used = window;
            return;
        }
        // Use the larger value of this epoch and the one before: one epoch with few packets in
        // flight, as after a dip or a stall, does not show that the window is unused.
        let used = f64::from(in_flight.max(1));
        let used = std::mem::replace(&mut self.last_used, used).max(used);
        let packets = self.window.unwrap_or(used);
        self.queue = if packets < NARROW && self.before.is_none() {
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
            // Cut to the window that leaves the queue empty.
            let cut = (queue as f64 / trip).min(MAX_CUT) * gentle;
            let window = packets.min(used) * (1.0 - cut);
            if self.window.is_none() {
                self.dip = Some(window);
                self.set(packets * DIP);
            } else {
                self.set(window);
            }
        }
    }

    /// Grows the window, or frees the session, after an epoch without a queue. `used` is the number
    /// of packets in flight. `trips` is the epoch's length in round trips: with few samples per
    /// round trip, an epoch lasts several.
    fn grow(&mut self, used: f64, trips: f64) {
        self.cuts = 0;
        self.calm_trips = self.calm_trips.saturating_add(1);
        let Some(window) = self.window else { return };
        if let Some(before) = self.before {
            let way = before - window;
            if way <= before * NEARLY {
                // The queue that caused the cut was not the path's limit.
                self.before = None;
                if window < UNUSED * used {
                    self.calm_trips = self.calm_trips.max(HYPER_AFTER);
                }
            }
            self.set(window + (way / 2.0).max(0.0));
        } else if window >= UNUSED * used {
            if self.calm_trips > HYPER_AFTER {
                self.window = None;
            }
        } else {
            let doublings = self.calm_trips.saturating_sub(HYPER_AFTER).min(20);
            let step = (STEP * window.sqrt()).clamp(window * MIN_STEP, window * MAX_STEP);
            let step = step * f64::from(1u32 << doublings) * trips;
            self.set(window + step.min(MAX_GROWTH * window));
        }
    }

    /// Adds a standing queue to the path. The cause may be a slow link between faster ones, which
    /// delays only full packets. A later small packet then shortens `base` but not `full_base`.
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
            self.full_base = self.full_base.min(nanos.max(self.base));
            base = self.full_base;
        }
        if now.minus_nanos(nanos) < self.epoch.since {
            return;
        }
        let (samples, is_rare) = (self.samples(), self.is_rare());
        let epoch = &mut self.epoch;
        epoch.samples += 1;
        epoch.queue = epoch.queue.min(nanos.saturating_sub(waited).saturating_sub(base));
        epoch.in_flight = epoch.in_flight.max(in_flight);
        let needed = if is_rare { samples / 2 } else { samples };
        if epoch.samples >= needed && now.nanos_since(epoch.since) >= base {
            self.decide(now);
        }
    }

    #[inline]
    fn on_mark(&mut self, _: Instant) {}

    /// A loss behind a queue cuts the window, at most once per decision. A loss without a queue may
    /// be random. Losses in several consecutive round trips are congestion that round trips do not
    /// show.
    fn on_loss(&mut self, now: Instant, in_flight: u32) {
        self.lossless = 0;
        let trip = self.trip(self.queue);
        let since = now.nanos_since(self.last_loss);
        // Clients find losses of successive round trips about one round trip apart. The allowance
        // keeps a small error of `trip` from merging two round trips.
        if since < trip - trip / 8 {
            return;
        }
        self.last_loss = now;
        self.lossy_trips = if since < 2 * trip { self.lossy_trips.saturating_add(1) } else { 1 };
        let window = self.dip.take().or(self.window);
        let packets = window.unwrap_or_else(|| f64::from(in_flight.max(1)));
        let is_behind_queue = std::mem::take(&mut self.is_queued);
        let is_lossy = self.lossy_trips >= LOSSY_TRIPS && packets > LEAST_LOSSY;
        if is_behind_queue || is_lossy {
            self.lossy_trips = 0;
            self.calm_trips = 0;
            // The loss shows that an earlier cut by a long queue was no false alarm, and that the
            // session has not paused.
            self.before = None;
            self.last_rtt = now;
            self.set(packets * LEFT_AFTER_LOSSES);
        }
    }

    /// The window divided by the round trip, in bytes per second.
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

    /// A session over a path of 100 us. The link's rate is unknown.
    fn swift() -> Swift {
        let path = Path {
            line_rate: None,
            noise: Duration::ZERO,
            datagram: 1_000,
            round_trip: Some(BASE),
        };
        Swift::new(&SwiftConfig::new(), &path)
    }

    /// A clock that starts at one second.
    struct Clock(Instant);

    impl Clock {
        fn new() -> Self {
            Self(Instant::from_nanos(1_000_000_000))
        }

        /// Feeds two samples of a round trip of `nanos` ns, of which `waited` ns were spent at the
        /// hosts, with `in_flight` packets in flight.
        fn trip(&mut self, swift: &mut Swift, nanos: u64, waited: u64, in_flight: u32) {
            self.0 = self.0.plus_nanos(nanos);
            for _ in 0..SAMPLES {
                let sample = Sample { now: self.0, nanos, waited, in_flight, is_full: true };
                if !swift.is_calm(nanos, nanos.saturating_sub(waited), true) {
                    swift.on_rtt(&sample);
                }
            }
        }

        /// Feeds samples of `nanos` ns with one packet in flight, one after the other, until the
        /// session decides. Returns the number of samples.
        fn decision(&mut self, swift: &mut Swift, nanos: u64) -> u32 {
            let since = swift.epoch.since;
            for samples in 1..=NOISY_SAMPLES {
                self.0 = self.0.plus_nanos(nanos);
                let now = self.0;
                swift.on_rtt(&Sample { now, nanos, waited: 0, in_flight: 1, is_full: true });
                if swift.epoch.since != since {
                    return samples;
                }
            }
            panic!("no decision: {swift:?}");
        }

        fn trips(&mut self, swift: &mut Swift, count: u32, nanos: u64, in_flight: u32) {
            (0..count).for_each(|_| self.trip(swift, nanos, 0, in_flight));
        }
    }

    /// A session in its dip, and the clock. When the dip ends, the window will be 32 packets.
    fn dipping() -> (Swift, Clock) {
        let (mut swift, mut clock) = (swift(), Clock::new());
        clock.trip(&mut swift, BASE, 0, 40);
        while swift.is_at_line() {
            clock.trip(&mut swift, BASE + 25 * US, 0, 40);
        }
        (swift, clock)
    }

    /// A session whose window was just set to 32 packets, and the clock.
    fn cut() -> (Swift, Clock) {
        let (mut swift, mut clock) = dipping();
        clock.trip(&mut swift, BASE, 0, 5);
        (swift, clock)
    }

    /// Other sessions fill the link before this one joins, so it has never seen the path without a
    /// queue of 50 us. The queue drains during its dip.
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
            "30 in 150 us are 20 in 100 us, though 5 were in flight"
        );
    }

    #[test]
    fn a_loss_in_a_dip_costs_a_part_of_the_window_and_ends_the_dip() {
        let (mut swift, clock) = dipping();
        assert_eq!(swift.window(), 5);
        swift.on_loss(clock.0, 5);
        assert_eq!(swift.window(), 23, "0.7 of 32");
    }

    /// A cut starts from the packets in flight, not from the window. After a host's stall, few
    /// packets are in flight for one epoch, so the epoch before counts as well.
    #[test]
    fn a_cut_starts_from_the_most_packets_in_flight_of_two_epochs() {
        let (mut swift, mut clock) = cut();
        clock.trip(&mut swift, BASE, 0, 32);
        clock.trip(&mut swift, BASE + 30 * US, 0, 4);
        assert_eq!(swift.window(), 25, "100/130 of 32, and not of 4");
        clock.trip(&mut swift, BASE + 30 * US, 0, 4);
        assert_eq!(swift.window(), 4, "100/130 of 4: both epochs had only 4 in flight");
    }

    #[test]
    fn a_session_is_free_until_its_first_queue_and_then_its_window_fills_an_empty_path() {
        let (mut swift, mut clock) = (swift(), Clock::new());
        clock.trips(&mut swift, 100, BASE + 5 * US, 40);
        assert!(swift.is_at_line() && swift.window() == u16::MAX && swift.rate() == u64::MAX);
        let (swift, _) = cut();
        assert_eq!(swift.window(), 32, "40 packets in 125 us are 32 in 100 us");
        // A quarter more than 32,000 bytes per 125 us.
        assert_eq!(swift.rate(), 320_000_000);
    }

    #[test]
    fn only_packets_sent_after_a_cut_count_for_the_next_cut() {
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
        assert_eq!(swift.window(), 45, "16 steps of an eighth of the window's root");
        clock.trips(&mut swift, 8, BASE, 80);
        assert!((80..200).contains(&swift.window()), "{}", swift.window());
    }

    /// The remaining part of a window of `packets` after a round trip with a queue of `queue` ns.
    fn after(packets: f64, queue: u64) -> f64 {
        let (mut swift, mut clock) = (swift(), Clock::new());
        for nanos in [BASE, BASE + queue] {
            swift.set(packets);
            clock.trip(&mut swift, nanos, 0, packets.ceil() as u32);
        }
        swift.window.expect("it has a window") / packets
    }

    #[test]
    fn small_windows_change_by_small_parts_and_the_larger_window_is_cut_by_more() {
        for packets in [0.15, 0.6, 1.5] {
            assert!((after(packets, 0) - 1.056).abs() < 1e-3, "{packets} grow");
            let [less, more] =
                [packets, 2.0 * packets].map(|packets| 1.0 - after(packets, 50 * US));
            assert!((more / less - 2f64.sqrt()).abs() < 1e-3, "{packets}: {less}, {more}");
        }
        assert!(
            (after(1.5, 50 * US) - 5.0 / 6.0).abs() < 1e-3,
            "half of the cut that would empty the queue"
        );
        assert!((after(0.15, 200 * US) - 0.5).abs() < 1e-3, "far above the target");
    }

    #[test]
    fn an_unused_window_does_not_grow_and_the_session_becomes_free() {
        let (mut swift, mut clock) = cut();
        clock.trips(&mut swift, HYPER_AFTER, BASE, 1);
        assert_eq!(swift.window(), 33, "the window grows once, right after the dip");
        clock.trip(&mut swift, BASE, 0, 1);
        assert!(swift.is_at_line());
    }

    #[test]
    fn a_noisy_transport_or_a_large_minimum_on_a_long_path_keeps_the_window_in_range() {
        let path = Path {
            line_rate: None,
            noise: Duration::from_millis(50),
            datagram: 1_000,
            round_trip: Some(1_000_000 * US),
        };
        let config = SwiftConfig::new().min_rate(1_000_000_000);
        let (mut swift, mut clock) = (Swift::new(&config, &path), Clock::new());
        clock.trip(&mut swift, 1_000_000 * US, 0, 40);
        clock.trips(&mut swift, 12, 3_000_000 * US, 40);
        assert!(!swift.is_at_line());
        assert_eq!(swift.window(), u16::MAX, "the minimum rate needs a larger window");
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
    fn a_delay_that_a_host_reports_as_its_own_cuts_no_window() {
        let (mut swift, mut clock) = (swift(), Clock::new());
        clock.trips(&mut swift, 2, BASE, 40);
        clock.trip(&mut swift, BASE + 1_000 * US, 995 * US, 40);
        assert!(swift.is_at_line());
    }

    /// The reported host delay is an upper bound. The rest of the round trip after its subtraction
    /// may be shorter than the path.
    #[test]
    fn a_round_trip_with_a_host_delay_does_not_shorten_the_path() {
        let (mut swift, mut clock) = (swift(), Clock::new());
        clock.trips(&mut swift, 2, BASE, 40);
        clock.trip(&mut swift, BASE + 100 * US, 190 * US, 40);
        clock.trips(&mut swift, 10, BASE + 5 * US, 40);
        assert!(swift.is_at_line(), "{swift:?}");
    }

    /// A path whose links have a known rate of 8 Gb/s.
    fn known() -> Swift {
        let path = Path {
            line_rate: Some(1_000_000_000),
            noise: Duration::ZERO,
            datagram: 1_000,
            round_trip: Some(BASE),
        };
        Swift::new(&SwiftConfig::new(), &path)
    }

    /// Twenty sessions that begin together never see an empty path with their full packets.
    #[test]
    fn a_delay_that_only_full_packets_show_is_a_queue_if_the_link_is_fast() {
        let (mut swift, mut clock) = (known(), Clock::new());
        clock.trips(&mut swift, 2, BASE + 30 * US, 40);
        assert_eq!(swift.window(), 32, "40 packets in 130 us are 32 in 104 us");
    }

    #[test]
    fn a_slow_link_is_learned_for_full_packets_and_a_small_packet_does_not_unlearn_it() {
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
    fn only_the_first_loss_behind_one_queue_cuts_the_window() {
        let (mut swift, clock) = cut();
        for at in 1..10 {
            swift.on_loss(clock.0.plus_nanos(at * 10 * BASE), 32);
        }
        assert_eq!(swift.window(), 23, "0.7 of 32");
    }

    /// After a cut by a host's stall, the window would get back half of what is missing with each
    /// decision. A lost packet prevents this, because it shows that the path was full.
    #[test]
    fn after_a_loss_the_window_does_not_return_to_its_size_before_a_long_queue() {
        let (mut swift, mut clock) = cut();
        clock.trip(&mut swift, BASE + 5_000 * US, 0, 32);
        swift.on_loss(clock.0, 16);
        assert_eq!(swift.window(), 12, "0.7 of 16");
        clock.trip(&mut swift, BASE, 0, 12);
        assert_eq!(swift.window(), 12, "one step of growth");
    }

    #[test]
    fn a_loss_ends_a_pause() {
        let (mut swift, mut clock) = cut();
        clock.trip(&mut swift, BASE + 30 * US, 0, 32);
        let lost = clock.0.plus_nanos(20 * BASE);
        swift.on_loss(lost, 32);
        swift.on_begin(lost.plus_nanos(BASE));
        assert_eq!(swift.window(), 18, "0.7 of 25");
    }

    #[test]
    fn another_packet_size_keeps_the_bytes_in_flight_and_the_rate() {
        let (mut swift, mut clock) = cut();
        clock.trip(&mut swift, BASE, 0, 32);
        let rate = swift.rate();
        swift.set_datagram(500);
        assert_eq!(swift.window(), 66, "twice 32.7");
        assert!(swift.rate().abs_diff(rate) <= 1);
        // Samples from before the change do not count.
        clock.trip(&mut swift, BASE, 0, 64);
        let now = clock.0.plus_nanos(BASE);
        swift.on_rtt(&Sample { now, nanos: BASE, waited: 0, in_flight: 64, is_full: true });
        assert_eq!(swift.epoch.samples, 1);
        swift.set_datagram(1_000);
        assert_eq!((swift.epoch.samples, swift.last_used), (0, 32.0));
    }

    /// A path of 100 us over a transport with the noise of kernel UDP.
    fn noisy() -> Swift {
        let path = Path {
            line_rate: None,
            noise: Duration::from_micros(200),
            datagram: 1_000,
            round_trip: Some(BASE),
        };
        Swift::new(&SwiftConfig::new(), &path)
    }

    /// Over kernel UDP the least of two samples is mostly noise.
    #[test]
    fn with_noisy_hosts_the_least_of_six_samples_counts() {
        let (mut swift, mut clock) = (noisy(), Clock::new());
        for _ in 0..21 {
            clock.trips(&mut swift, 2, 4 * BASE, 40);
            clock.trip(&mut swift, BASE + 20 * US, 0, 40);
        }
        assert!(swift.is_at_line(), "one sample in three shows a short queue");
        clock.trips(&mut swift, 3, 4 * BASE, 40);
        assert!(!swift.is_at_line());
    }

    /// One round trip in ten is late. Nine in ten show an empty path.
    #[test]
    fn with_noisy_hosts_rare_late_samples_are_no_queue() {
        let (mut swift, mut clock) = (noisy(), Clock::new());
        for _ in 0..100 {
            clock.trips(&mut swift, 9, BASE, 40);
            clock.trip(&mut swift, 4 * BASE, 0, 40);
            assert!(swift.is_at_line(), "{swift:?}");
        }
    }

    #[test]
    fn with_noisy_hosts_three_samples_decide_below_two_packets_and_six_from_there() {
        for (packets, samples) in [(0.5, 3), (1.9, 3), (2.0, 6), (40.0, 6)] {
            let (mut swift, mut clock) = (noisy(), Clock::new());
            swift.set(packets);
            assert_eq!(clock.decision(&mut swift, BASE), samples, "{packets}");
        }
    }

    #[test]
    fn with_noisy_hosts_jitter_raises_the_target_by_10_to_20_us() {
        let target = |swift: &Swift| swift.target(0.01, BASE as f64);
        let (mut swift, mut clock) = (noisy(), Clock::new());
        assert_eq!(target(&swift), 34e3, "10 us above the largest target");
        for _ in 0..40 {
            swift.set(0.5);
            clock.decision(&mut swift, BASE);
            clock.decision(&mut swift, 2 * BASE);
        }
        assert_eq!(target(&swift), 44e3);
    }

    #[test]
    fn after_a_pause_the_jitter_is_measured_anew() {
        let (mut swift, mut clock) = (noisy(), Clock::new());
        for nanos in [BASE, 2 * BASE] {
            swift.set(0.5);
            clock.decision(&mut swift, nanos);
        }
        assert!(swift.jitter > 0.0);
        swift.on_begin(clock.0.plus_nanos(10_000 * BASE));
        assert_eq!((swift.jitter, swift.last_queue), (0.0, 0));
    }

    #[test]
    fn with_noisy_hosts_a_loss_lets_four_packets_fly_until_64_decisions_pass_without_another() {
        let (mut swift, mut clock) = (noisy(), Clock::new());
        clock.trips(&mut swift, 30, 4 * BASE, 1);
        swift.set(0.5);
        assert_eq!(swift.window(), 1);
        swift.on_loss(clock.0, 1);
        assert_eq!(swift.window(), 4, "a packet that waits for a timeout does not stop the others");
        let mut decisions = 0;
        while swift.window() == 4 && decisions < 100 {
            clock.decision(&mut swift, 4 * BASE);
            swift.set(0.5);
            decisions += 1;
        }
        assert_eq!((decisions, swift.window()), (64, 1));
    }

    #[test]
    fn a_tenth_of_a_change_of_the_queue_enters_the_rate_below_one_packet_and_all_from_there() {
        for (packets, queue) in [(0.5, 4 * US), (0.99, 4 * US), (1.0, 40 * US)] {
            let (mut swift, mut clock) = (swift(), Clock::new());
            for nanos in [BASE, BASE + 40 * US] {
                swift.set(packets);
                clock.trip(&mut swift, nanos, 0, 1);
            }
            swift.set(packets);
            let rate = packets * 1e12 / (BASE + queue) as f64;
            assert!((swift.rate() as f64 - rate).abs() <= 1.0, "{packets}: {}", swift.rate());
        }
    }

    #[test]
    fn a_stall_does_not_stay_in_the_rate_of_a_small_window() {
        let (mut swift, mut clock) = (swift(), Clock::new());
        swift.set(1.2);
        clock.trip(&mut swift, BASE, 0, 1);
        clock.trip(&mut swift, BASE + 5_000 * US, 0, 1);
        assert_eq!((swift.queue, swift.window()), (5_000 * US, 1), "the stall cuts the window");
        clock.trip(&mut swift, BASE, 0, 1);
        assert_eq!(swift.queue, 0);
    }

    #[test]
    fn after_a_host_stall_the_window_recovers_within_four_round_trips() {
        let (mut swift, mut clock) = cut();
        clock.trip(&mut swift, BASE + 5_000 * US, 0, 32);
        assert_eq!(swift.window(), 16);
        clock.trips(&mut swift, 4, BASE, 32);
        assert!(swift.window() >= 30, "{}", swift.window());
    }

    #[test]
    fn after_a_false_alarm_the_window_doubles_within_ten_round_trips() {
        let (mut swift, mut clock) = cut();
        clock.trip(&mut swift, BASE + 5_000 * US, 0, 32);
        clock.trips(&mut swift, 15, BASE, 200);
        assert!(swift.window() >= 64, "{}", swift.window());
    }

    #[test]
    fn a_path_that_has_become_longer_is_learned_after_four_cuts() {
        let (mut swift, mut clock) = cut();
        clock.trips(&mut swift, LONGER_AFTER, 3 * BASE, 40);
        assert_eq!(swift.window(), 4);
        clock.trips(&mut swift, 60, 3 * BASE, 1_000);
        assert!(swift.window() > 100, "{}", swift.window());
    }

    /// A buffer may overflow before round trips show its queue.
    #[test]
    fn losses_in_three_consecutive_round_trips_cut_the_window_and_a_single_loss_does_not() {
        let mut swift = swift();
        let lose = |swift: &mut Swift, trips: u64| {
            swift.on_loss(Instant::from_nanos(1_000_000_000 + trips * (BASE + 1)), 40);
        };
        (0..20).for_each(|count| lose(&mut swift, 3 * count));
        assert!(swift.is_at_line());
        (100..103).for_each(|trip| lose(&mut swift, trip));
        assert_eq!(swift.window(), 28);
        (200..500).for_each(|trip| lose(&mut swift, trip));
        assert!(swift.window() >= 2, "losses without a queue cut no window of 4 packets or fewer");
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
        assert!((micros(1_000.0) - 6.0).abs() < 0.1, "one packet per 100 ns");
        assert!((micros(1_000.0 / 16.0) - 14.0).abs() < 0.1);
        assert!((micros(0.01) - 24.0).abs() < 0.1, "the largest target");
        let mut long = swift;
        long.set_base(30_000 * US);
        assert!((long.target(300_000.0, 30e6) - 60e3).abs() < 1.0, "ten times the length");
    }

    #[test]
    fn no_sample_makes_the_rate_or_the_window_zero() {
        let path =
            Path { line_rate: None, noise: Duration::MAX, datagram: 0, round_trip: Some(u64::MAX) };
        for mut swift in [swift(), noisy(), known(), Swift::new(&SwiftConfig::new(), &path)] {
            let mut now = Instant::ZERO;
            for nanos in [0, 1, u64::MAX >> 1, 0, u64::MAX >> 2] {
                for (waited, is_full) in
                    [(0, false), (nanos, false), (0, true), (nanos, true), (u64::MAX, true)]
                {
                    now = now.plus_nanos(1 << 40);
                    swift.on_begin(now);
                    swift.on_rtt(&Sample { now, nanos, waited, in_flight: 0, is_full });
                    swift.on_loss(now, 0);
                    assert!(swift.rate() > 0 && swift.window() > 0, "{swift:?}");
                    assert!(swift.trip(0) > 0, "{swift:?}");
                }
            }
        }
    }
}
