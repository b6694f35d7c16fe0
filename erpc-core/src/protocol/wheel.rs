//! A hierarchical timing wheel (Varghese and Lauck, SOSP'87) with one entry per session. It is used
//! for timers and, as in Carousel (Saeed et al., SIGCOMM'17, section 4.2), for pacing.
//!
//! There are four levels of 64 slots. An entry is in the level whose slot width fits its distance,
//! and moves down as its time approaches. Arming and cancelling are O(1). Advancing over an idle
//! stretch costs a few bitmap operations per occupied slot, whatever the length of the stretch. A
//! tick is a power of two in nanoseconds. So a shift finds the slot of an instant, without rounding
//! errors that depend on the clock.
//!
//! Carousel keeps packets in its wheel. Here the wheel keeps sessions, which send when their time
//! comes. So a wheel's memory is 24 bytes per [`TimerId`] plus 1 KB, whatever the rates, and no
//! queue refers to a msgbuf.

use crate::mutants::mutant;
use crate::time::Instant;

/// One call of [`Core::expire`](super::Core::expire) handles at most this many timers, and lets at
/// most this many paced sessions send. The next call handles the rest.
pub const MAX_EXPIRED: usize = 32;

/// Retransmissions, pings and deadlines: a tick is 16.4 us, the horizon 4.6 minutes.
pub(super) type Timers = Wheel<14>;
/// Departures of paced sessions: a tick is 1.02 us, the horizon 17 s.
pub(super) type PaceWheel = Wheel<10>;

/// Log2 of the number of slots per level.
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 4;
/// The farthest distance that the wheel represents, in ticks. An entry that is due later fires at
/// that distance, early.
const HORIZON: u64 = (1 << (SLOT_BITS * LEVELS as u32)) - 1;
const NONE: u32 = u32::MAX;

// The gap after the longest datagram, 65,507 bytes, at the lowest rate, 0.1 MB/s, is within the
// pace wheel's horizon.
const _: () = assert!(HORIZON << 10 > 65_507 * 1_000_000_000 / 100_000);

/// Identifies an entry. The wheel's memory grows with the largest id, so ids must be small and
/// dense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TimerId(pub(super) u32);

#[derive(Clone, Copy)]
struct Node {
    tick: u64,
    prev: u32,
    next: u32,
    /// `level * SLOTS + slot`, `NONE` if not armed.
    place: u32,
}

// The memory of an entry, in bytes.
const _: () = assert!(size_of::<Node>() == 24);

/// The wheel, with ticks of `2^TICK_SHIFT` nanoseconds. Entries fire at most one tick late and,
/// within the horizon, never early.
pub(super) struct Wheel<const TICK_SHIFT: u32> {
    nodes: Vec<Node>,
    heads: Box<[u32; LEVELS * SLOTS]>,
    occupied: [u64; LEVELS],
    /// All entries up to and including this tick have been moved to the current slot of level 0.
    tick: u64,
    /// No slot has to be checked before this tick; [`Self::IDLE`] if no entry is armed. May be too
    /// early after a cancel.
    soonest: u64,
    armed: usize,
}

impl<const TICK_SHIFT: u32> Wheel<TICK_SHIFT> {
    /// The tick of [`Instant::NEVER`].
    const IDLE: u64 = u64::MAX >> TICK_SHIFT;

    pub(super) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            heads: Box::new([NONE; LEVELS * SLOTS]),
            occupied: [0; LEVELS],
            tick: 0,
            soonest: Self::IDLE,
            armed: 0,
        }
    }

    /// Sets the current time if no entry is armed. Must be called before the first entry is armed:
    /// the distance of an entry counts from the current time, and a new wheel begins at the clock's
    /// origin, which may be long ago.
    pub(super) fn begin(&mut self, now: Instant) {
        if self.armed == 0 {
            self.tick = self.tick.max(now.as_nanos() >> TICK_SHIFT);
        }
    }

    /// Arms the entry for `at`. An armed entry is moved to `at`.
    pub(super) fn arm(&mut self, id: TimerId, at: Instant) {
        self.cancel(id);
        let begun = at.as_nanos() & ((1 << TICK_SHIFT) - 1) != 0;
        let tick = (at.as_nanos() >> TICK_SHIFT) + u64::from(begun);
        let tick = tick.clamp(self.tick + 1, self.tick + HORIZON);
        let index = id.0 as usize;
        if index >= self.nodes.len() {
            let missing = index + 1 - self.nodes.len();
            if self.nodes.capacity() <= index {
                // As `Table` grows: a half-empty vector would be much memory per session.
                self.nodes.reserve_exact(missing.max(self.nodes.len() / 32));
            }
            self.nodes.resize(index + 1, Node { tick: 0, prev: NONE, next: NONE, place: NONE });
        }
        self.nodes[index].tick = tick;
        self.armed += 1;
        self.link(id.0);
    }

    /// Disarms the entry if it is armed.
    pub(super) fn cancel(&mut self, id: TimerId) {
        if self.is_armed(id) {
            self.unlink(id.0);
            self.armed -= 1;
        }
    }

    /// Whether the entry is armed.
    pub(super) fn is_armed(&self, id: TimerId) -> bool {
        self.nodes.get(id.0 as usize).is_some_and(|node| node.place != NONE)
    }

    /// Disarms and returns an entry that is due at `now`; `None` if no such entry remains. Costs
    /// one comparison while no slot has to be checked.
    #[inline]
    pub(super) fn expire(&mut self, now: Instant) -> Option<TimerId> {
        let target = now.as_nanos() >> TICK_SHIFT;
        if target < self.soonest {
            self.tick = self.tick.max(target);
            return None;
        }
        self.expire_until(target)
    }

    fn expire_until(&mut self, target: u64) -> Option<TimerId> {
        loop {
            if let Some(head) = self.due() {
                self.unlink(head);
                self.armed -= 1;
                return Some(TimerId(head));
            }
            if self.tick >= target {
                self.soonest = self.next_tick();
                return None;
            }
            self.advance(target);
        }
    }

    /// No entry fires before this time; [`Instant::NEVER`] if none is armed. Exact while all
    /// entries are in level 0. Otherwise it may be only a lower bound: the time at which the wheel
    /// moves entries of a higher level down.
    pub(super) fn next(&self) -> Instant {
        if self.armed == 0 {
            return Instant::NEVER;
        }
        // The caller of `expire` may have stopped before all due entries were returned.
        let tick = if self.due().is_some() { self.tick } else { self.next_tick() };
        Instant::from_nanos(tick << TICK_SHIFT)
    }

    /// An entry in the current slot that is due.
    #[inline]
    fn due(&self) -> Option<u32> {
        let head = self.heads[(self.tick as usize) & (SLOTS - 1)];
        (head != NONE && self.nodes[head as usize].tick <= self.tick).then_some(head)
    }

    /// The next tick at which a slot has to be checked, at most [`Self::IDLE`].
    fn next_tick(&self) -> u64 {
        let mut next = Self::IDLE;
        for level in 0..LEVELS {
            let shift = SLOT_BITS * level as u32;
            let current = self.tick >> shift;
            // After the rotation, bit 0 stands for the slot after the current slot. The current
            // slot itself has the highest bit: its entries are due a full revolution of the level
            // later.
            let ahead =
                self.occupied[level].rotate_right((current as u32 + 1) & (SLOTS as u32 - 1));
            if ahead != 0 {
                next = next.min((current + 1 + u64::from(ahead.trailing_zeros())) << shift);
            }
        }
        next
    }

    /// Advances to `target`, or to the next tick at which a slot has to be checked if that is
    /// earlier.
    fn advance(&mut self, target: u64) {
        let next = self.next_tick();
        if next > target {
            self.tick = target;
            return;
        }
        self.tick = next;
        for level in (1..LEVELS).rev() {
            let shift = SLOT_BITS * level as u32;
            if next & ((1 << shift) - 1) == 0 {
                let place = level * SLOTS + ((next >> shift) as usize & (SLOTS - 1));
                while self.heads[place] != NONE {
                    let node = self.heads[place];
                    self.unlink(node);
                    if mutant!(TimerLost) {
                        continue;
                    }
                    self.link(node);
                }
            }
        }
    }

    fn link(&mut self, index: u32) {
        let tick = self.nodes[index as usize].tick;
        let distance = tick - self.tick;
        let level = (63 - (distance | 1).leading_zeros()) / SLOT_BITS;
        let slot = (tick >> (SLOT_BITS * level)) as usize & (SLOTS - 1);
        let place = level as usize * SLOTS + slot;
        let head = self.heads[place];
        self.nodes[index as usize] = Node { tick, prev: NONE, next: head, place: place as u32 };
        if head != NONE {
            self.nodes[head as usize].prev = index;
        }
        self.heads[place] = index;
        self.soonest = self.soonest.min((tick >> (SLOT_BITS * level)) << (SLOT_BITS * level));
        self.occupied[level as usize] |= 1 << slot;
    }

    fn unlink(&mut self, index: u32) {
        let Node { prev, next, place, .. } = self.nodes[index as usize];
        let place = place as usize;
        if prev == NONE {
            self.heads[place] = next;
            if next == NONE {
                self.occupied[place / SLOTS] &= !(1 << (place % SLOTS));
            }
        } else {
            self.nodes[prev as usize].next = next;
        }
        if next != NONE {
            self.nodes[next as usize].prev = prev;
        }
        self.nodes[index as usize].place = NONE;
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use proptest::prelude::*;

    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    impl<const SHIFT: u32> Wheel<SHIFT> {
        const TICK: u64 = 1 << SHIFT;

        /// The bits of occupied slots, computed from the entries.
        fn occupied(&self) -> [u64; LEVELS] {
            let bits = |level| (0..SLOTS).filter(move |at| self.heads[level * SLOTS + at] != NONE);
            std::array::from_fn(|level| bits(level).fold(0, |all, at| all | 1 << at))
        }

        /// Advances to `now`, drops all due entries, and counts the stops.
        fn stops_until(&mut self, now: u64) -> usize {
            let mut stops = 0;
            while self.tick < now >> SHIFT {
                self.advance(now >> SHIFT);
                stops += 1;
                while let Some(entry) = self.due() {
                    self.cancel(TimerId(entry));
                }
            }
            stops
        }
    }

    /// A model of the wheel: a binary heap of deadlines.
    #[derive(Default)]
    struct Heap {
        heap: BinaryHeap<Reverse<(u64, u32)>>,
        armed: [Option<u64>; 20],
    }

    impl Heap {
        fn arm(&mut self, id: u32, due: u64) {
            self.armed[id as usize] = Some(due);
            self.heap.push(Reverse((due, id)));
        }

        /// The earliest deadline; skips entries that were moved or cancelled.
        fn earliest(&mut self) -> Option<u64> {
            while let Some(&Reverse((due, id))) = self.heap.peek() {
                if self.armed[id as usize] == Some(due) {
                    return Some(due);
                }
                self.heap.pop();
            }
            None
        }
    }

    /// Each step arms an entry at a random distance of less than `2^bits` ns, sometimes cancels an
    /// entry, and lets time pass. After each step, the function compares the wheel with the heap.
    fn follows_a_heap<const SHIFT: u32>(steps: &[(u32, u32, u64, u32)], longest: u32) {
        let mut wheel = Wheel::<SHIFT>::new();
        let tick = Wheel::<SHIFT>::TICK;
        let mut model = Heap::default();
        let mut now = 0;
        for &(id, bits, random, pass) in steps {
            let due = now + (random & ((1 << bits) - 1)).min(tick * (HORIZON - 1));
            wheel.arm(TimerId(id), at(due));
            model.arm(id, due);
            if id % 5 == 0 {
                wheel.cancel(TimerId(id / 5));
                model.armed[id as usize / 5] = None;
            }
            let earliest = model.earliest();
            let next = wheel.next().as_nanos();
            assert!(earliest.map_or(next == u64::MAX, |due| next < due.max(now) + 2 * tick));
            now += u64::from(pass) % (1 << longest);
            let mut last = 0;
            while let Some(TimerId(id)) = wheel.expire(at(now)) {
                let due = model.armed[id as usize].take().expect("fires once");
                assert!(due <= now, "{id} fired {} ns early", due - now);
                // Within a tick the order is undefined. An entry that is due at the current tick
                // fires at the next tick.
                assert!(due + tick >= last, "{id} fired after one that was due a tick later");
                last = due;
            }
            let left = model.earliest();
            assert!(left.is_none_or(|due| due + tick > now), "{left:?} was due before {now}");
            assert_eq!(wheel.occupied, wheel.occupied());
            assert_eq!(wheel.armed, model.armed.iter().flatten().count());
        }
    }

    fn steps() -> impl Strategy<Value = Vec<(u32, u32, u64, u32)>> {
        proptest::collection::vec((0u32..20, 0u32..40, any::<u64>(), any::<u32>()), 1..200)
    }

    proptest! {
        #[test]
        fn the_wheel_polled_every_tick_follows_a_binary_heap(steps in steps()) {
            follows_a_heap::<10>(&steps, 9);
            follows_a_heap::<14>(&steps, 13);
        }

        #[test]
        fn the_wheel_polled_rarely_follows_a_binary_heap(steps in steps()) {
            follows_a_heap::<10>(&steps, 31);
            follows_a_heap::<14>(&steps, 31);
        }

        /// The clock converts the processor's cycle counter to nanoseconds and rounds each reading
        /// down. The rounding must not make an entry early or late.
        #[test]
        fn an_entry_at_the_horizon_is_on_time_at_any_clock_frequency(
            hertz in 1_000_000_000u64..5_000_000_000, begin in 0u64..1 << 50,
        ) {
            let hertz = if begin % 2 == 0 { 2_599_998_123 } else { hertz };
            let nanos = |count: u64| (u128::from(count) * 1_000_000_000 / u128::from(hertz)) as u64;
            let mut wheel = PaceWheel::new();
            wheel.begin(at(nanos(begin)));
            let due = nanos(begin) + HORIZON * PaceWheel::TICK - PaceWheel::TICK;
            wheel.arm(TimerId(3), at(due));
            let mut count = begin;
            while wheel.expire(at(nanos(count))).is_none() {
                let left = due.saturating_sub(nanos(count));
                prop_assert!(nanos(count) < due + PaceWheel::TICK, "late");
                // Advance by half the distance, but by at least about half a tick of the wheel.
                count += (left / 2).max(500) * (hertz / 1_000_000) / 1_000;
            }
            prop_assert!(nanos(count) >= due, "{} ns early", due - nanos(count));
        }
    }

    #[test]
    fn an_entry_that_is_due_now_shares_the_next_tick_with_entries_due_exactly_there() {
        follows_a_heap::<10>(&[(2, 0, 0, 0), (1, 11, 1_024, 1_024)], 31);
        follows_a_heap::<10>(&[(1, 11, 1_024, 0), (2, 0, 0, 1_024)], 31);
    }

    #[test]
    fn an_entry_due_at_or_beyond_the_horizon_fires_at_the_horizon() {
        fn horizon<const SHIFT: u32>() {
            let tick = Wheel::<SHIFT>::TICK;
            for begin in [0, 1, 62, 63, 64, 4_095, 4_097, (1 << 24) - 1, 1 << 24, 12_345_678] {
                for due in [begin + HORIZON, begin + 3 * HORIZON] {
                    let mut wheel = Wheel::<SHIFT>::new();
                    wheel.begin(at(begin * tick));
                    wheel.arm(TimerId(0), at(due * tick));
                    let horizon = (begin + HORIZON) * tick;
                    assert_eq!(wheel.expire(at(begin * tick + 1_000)), None);
                    assert_eq!(wheel.expire(at(horizon - 1)), None);
                    assert_eq!(wheel.expire(at(horizon)), Some(TimerId(0)));
                }
            }
        }
        horizon::<10>();
        horizon::<14>();
    }

    #[test]
    fn an_entry_is_on_time_when_the_clock_has_run_for_a_month() {
        let mut timers = Timers::new();
        let month = at(30 * 86_400 * 1_000_000_000);
        timers.begin(month);
        timers.arm(TimerId(1), month.plus_nanos(25_000_000));
        assert_eq!(timers.expire(month.plus_nanos(24_000_000)), None);
        assert_eq!(timers.expire(month.plus_nanos(26_000_000)), Some(TimerId(1)));
        timers.arm(TimerId(1), month.plus_nanos(50_000_000));
        timers.begin(month.plus_nanos(60_000_000));
        let expired = timers.expire(month.plus_nanos(60_000_000));
        assert_eq!(expired, Some(TimerId(1)), "`begin` does not skip an armed entry");
    }

    #[test]
    fn next_is_exact_for_64_ticks_even_while_due_entries_remain() {
        let mut timers = Timers::new();
        for ticks in [1, 2, 5, 63] {
            timers.arm(TimerId(1), at(ticks * Timers::TICK));
            assert_eq!(timers.next(), at(ticks * Timers::TICK));
        }
        timers.arm(TimerId(2), at(63 * Timers::TICK));
        let due = timers.next();
        assert!(timers.expire(due).is_some());
        assert_eq!(timers.next(), due, "the other one is due too");
        assert!(timers.expire(due).is_some());
        assert_eq!(timers.next(), Instant::NEVER);
        // This entry is due one revolution of level 0 later. It must not count as due now.
        timers.arm(TimerId(3), due.plus_nanos(SLOTS as u64 * Timers::TICK));
        assert!(timers.next() > due);
    }

    #[test]
    fn the_cost_of_an_idle_stretch_does_not_depend_on_its_length() {
        fn stops<const SHIFT: u32>(entries: u32, seconds: u64) -> usize {
            let mut wheel = Wheel::<SHIFT>::new();
            wheel.begin(at(123_456_789));
            for entry in 0..entries {
                wheel.arm(TimerId(entry), at(123_456_789 + (5_000 << (5 * entry))));
            }
            wheel.stops_until(123_456_789 + seconds * 1_000_000_000)
        }
        // Without entries there is one stop. With four entries, due within the first second, there
        // is at most one stop per entry and level, plus one stop at the target.
        assert_eq!([stops::<10>(0, 1), stops::<14>(0, 1), stops::<10>(0, 60)], [1; 3]);
        assert_eq!(stops::<10>(4, 1), stops::<10>(4, 60));
        assert_eq!(stops::<14>(4, 1), stops::<14>(4, 60));
        assert!(stops::<10>(4, 1) <= 4 * LEVELS + 1, "{}", stops::<10>(4, 1));
    }

    #[test]
    fn a_loop_that_sleeps_until_the_next_entry_wakes_a_few_times_in_200_seconds() {
        let mut timers = Timers::new();
        timers.arm(TimerId(1), at(2_000_000));
        timers.arm(TimerId(2), at(70_000_000));
        timers.arm(TimerId(3), at(200_000_000_000));
        [1, 2].map(TimerId).into_iter().for_each(|id| timers.cancel(id));
        let mut looked = 0;
        loop {
            let now = timers.next();
            looked += 1;
            if timers.expire(now).is_some() {
                break;
            }
        }
        assert!(looked <= LEVELS, "{looked} stops");
    }
}
