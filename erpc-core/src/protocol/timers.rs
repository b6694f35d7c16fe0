//! One timer per session in a hierarchical timing wheel (Varghese and Lauck, SOSP'87).
//!
//! Four levels of 64 slots. A timer sits in the level whose slot width fits its distance and moves down
//! as its time comes nearer. Arming and cancelling are O(1); advancing over an idle stretch costs a few
//! bitmap operations per occupied slot, whatever the length of the stretch.

use crate::mutants::mutant;
use crate::time::Instant;

/// Log2 of a tick in nanoseconds: 65.5 us.
const TICK_SHIFT: u32 = 16;
/// Log2 of the slots per level.
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 4;
/// Farthest distance that is represented, in ticks: 18 minutes. Later timers fire then, early.
const HORIZON: u64 = (1 << (SLOT_BITS * LEVELS as u32)) - 1;
const NONE: u32 = u32::MAX;

/// Names a timer; small dense numbers.
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

/// The wheel. Timers fire at most one tick late and, within the horizon, never early.
pub(super) struct Timers {
    nodes: Vec<Node>,
    heads: [u32; LEVELS * SLOTS],
    occupied: [u64; LEVELS],
    /// All timers up to and including this tick have been moved to the current slot of level 0.
    tick: u64,
    armed: usize,
}

impl Timers {
    pub(super) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            heads: [NONE; LEVELS * SLOTS],
            occupied: [0; LEVELS],
            tick: 0,
            armed: 0,
        }
    }

    /// Says what time it is before the first timer is armed: how far a timer is away counts from there,
    /// and the clock's origin may be long ago. Does nothing while timers are armed.
    pub(super) fn begin(&mut self, now: Instant) {
        if self.armed == 0 {
            self.tick = self.tick.max(now.as_nanos() >> TICK_SHIFT);
        }
    }

    /// Arms the timer for `at`, or moves it there.
    pub(super) fn arm(&mut self, id: TimerId, at: Instant) {
        self.cancel(id);
        let tick =
            (at.as_nanos() >> TICK_SHIFT) + u64::from(at.as_nanos() & ((1 << TICK_SHIFT) - 1) != 0);
        let tick = tick.clamp(self.tick + 1, self.tick + HORIZON);
        let index = id.0 as usize;
        if index >= self.nodes.len() {
            self.nodes.resize(index + 1, Node { tick: 0, prev: NONE, next: NONE, place: NONE });
        }
        self.nodes[index].tick = tick;
        self.armed += 1;
        self.link(id.0);
    }

    /// Disarms the timer if it is armed.
    pub(super) fn cancel(&mut self, id: TimerId) {
        if self.nodes.get(id.0 as usize).is_some_and(|node| node.place != NONE) {
            self.unlink(id.0);
            self.armed -= 1;
        }
    }

    /// A timer whose time has come, disarmed; `None` when there is none left at `now`.
    #[inline]
    pub(super) fn expire(&mut self, now: Instant) -> Option<TimerId> {
        let target = now.as_nanos() >> TICK_SHIFT;
        loop {
            let head = self.heads[(self.tick as usize) & (SLOTS - 1)];
            if head != NONE && self.nodes[head as usize].tick <= self.tick {
                self.unlink(head);
                self.armed -= 1;
                return Some(TimerId(head));
            }
            if self.tick >= target {
                return None;
            }
            self.advance(target);
        }
    }

    /// No timer fires before this; [`Instant::NEVER`] if none is armed. Exact for timers within 4 ms,
    /// else a lower bound.
    pub(super) fn next(&self) -> Instant {
        if self.armed == 0 {
            return Instant::NEVER;
        }
        let head = self.heads[(self.tick as usize) & (SLOTS - 1)];
        if head != NONE && self.nodes[head as usize].tick <= self.tick {
            // Whoever expired timers has left some for later.
            return Instant::from_nanos(self.tick << TICK_SHIFT);
        }
        Instant::from_nanos(self.next_tick() << TICK_SHIFT)
    }

    /// The next tick at which a slot has to be looked at, at most `u64::MAX >> TICK_SHIFT`.
    fn next_tick(&self) -> u64 {
        let mut next = u64::MAX >> TICK_SHIFT;
        for level in 0..LEVELS {
            let shift = SLOT_BITS * level as u32;
            let current = self.tick >> shift;
            // Bit 0 becomes the slot after the current one; the current one itself is a full turn away.
            let ahead =
                self.occupied[level].rotate_right((current as u32 + 1) & (SLOTS as u32 - 1));
            if ahead != 0 {
                next = next.min((current + 1 + u64::from(ahead.trailing_zeros())) << shift);
            }
        }
        next
    }

    #[cold]
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
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const TICK: u64 = 1 << TICK_SHIFT;

    proptest! {
        /// Against a map of deadlines: never early, never lost, at most one tick late.
        #[test]
        fn behaves_like_a_sorted_map(
            steps in proptest::collection::vec((0u32..20, 0u64..30_000_000_000, 0u64..2_000_000_000), 1..200),
        ) {
            let mut timers = Timers::new();
            let mut model = BTreeMap::new();
            let mut now = 0u64;
            for (id, delay, pass) in steps {
                timers.arm(TimerId(id), Instant::from_nanos(now + delay));
                model.insert(id, now + delay);
                if id % 5 == 0 {
                    timers.cancel(TimerId(id));
                    model.remove(&id);
                }
                let earliest = model.values().min().copied();
                let next = timers.next().as_nanos();
                prop_assert!(earliest.map_or(next == u64::MAX, |earliest| next <= earliest.max(now) + 2 * TICK));
                now += pass;
                while let Some(TimerId(id)) = timers.expire(Instant::from_nanos(now)) {
                    let due = model.remove(&id).expect("fires once");
                    prop_assert!(due <= now, "{id} fired {} ns early", due - now);
                }
                prop_assert_eq!(timers.occupied, occupied(&timers));
                for (id, due) in &model {
                    prop_assert!(due + 2 * TICK > now, "{id} is {} ns late", now - due);
                }
            }
        }
    }

    #[test]
    fn a_clock_that_runs_for_long_makes_no_timer_early() {
        let mut timers = Timers::new();
        let month = Instant::from_nanos(30 * 86_400 * 1_000_000_000);
        timers.begin(month);
        timers.arm(TimerId(1), month.plus_nanos(25_000_000));
        assert_eq!(timers.expire(month.plus_nanos(24_000_000)), None);
        assert_eq!(timers.expire(month.plus_nanos(26_000_000)), Some(TimerId(1)));
        timers.arm(TimerId(1), month.plus_nanos(50_000_000));
        timers.begin(month.plus_nanos(60_000_000));
        assert_eq!(
            timers.expire(month.plus_nanos(60_000_000)),
            Some(TimerId(1)),
            "it is not passed over"
        );
    }

    /// The slots' bits, put together from the timers.
    fn occupied(timers: &Timers) -> [u64; LEVELS] {
        let bits = |level| (0..SLOTS).filter(move |at| timers.heads[level * SLOTS + at] != NONE);
        std::array::from_fn(|level| bits(level).fold(0, |all, at| all | 1 << at))
    }

    #[test]
    fn next_is_exact_within_4_ms_and_says_so_while_some_that_are_due_are_left() {
        let mut timers = Timers::new();
        for ticks in [1, 2, 5, 63] {
            timers.arm(TimerId(1), Instant::from_nanos(ticks * TICK));
            assert_eq!(timers.next(), Instant::from_nanos(ticks * TICK));
        }
        timers.arm(TimerId(2), Instant::from_nanos(63 * TICK));
        let due = timers.next();
        assert!(timers.expire(due).is_some());
        assert_eq!(timers.next(), due, "the other one is due too");
        assert!(timers.expire(due).is_some());
        assert_eq!(timers.next(), Instant::NEVER);
        // In a slot that comes round again: not now.
        timers.arm(TimerId(3), due.plus_nanos(SLOTS as u64 * TICK));
        assert!(timers.next() > due);
    }

    #[test]
    fn a_long_idle_stretch_is_skipped() {
        let mut timers = Timers::new();
        timers.arm(TimerId(1), Instant::from_nanos(2_000_000));
        timers.arm(TimerId(2), Instant::from_nanos(70_000_000));
        timers.arm(TimerId(3), Instant::from_nanos(600_000_000_000));
        [1, 2].map(TimerId).into_iter().for_each(|id| timers.cancel(id));
        let mut looked = 0;
        loop {
            let now = timers.next();
            looked += 1;
            if timers.expire(now).is_some() {
                break;
            }
        }
        assert!(looked <= LEVELS, "{looked} stops within 10 minutes");
    }
}
