//! The timers of an endpoint: a binary heap by deadline. Most timers are removed before they are
//! due. Each timer knows its position in the heap, so its entry is found without a search. Each
//! change costs O(log n), and reading the next deadline O(1). The event loop checks once per turn
//! which timers are due.

use slab::Slab;

use super::tasks::WakeSlot;
use crate::mutants::mutant;
use crate::time::Instant;

/// What happens when a timer is due.
pub(crate) enum Alarm {
    /// Wake the waiter. The timer stays until it is removed.
    Wake(WakeSlot),
    /// Check the call with this key. The timer is removed.
    Call(usize),
}

/// The timers of an endpoint.
#[derive(Default)]
pub(crate) struct Timers {
    /// A heap: the entry at index i is no earlier than its parent at (i - 1) / 2.
    heap: Vec<Armed>,
    timers: Slab<Timer>,
}

#[derive(Clone, Copy)]
struct Armed {
    deadline: Instant,
    key: usize,
}

enum Timer {
    Armed {
        at: usize,
        alarm: Alarm,
    },
    /// The timer was due. Only for [`Alarm::Wake`].
    Fired,
}

impl Timers {
    /// When the next timer is due, [`Instant::NEVER`] without timers.
    #[inline]
    pub(crate) fn next(&self) -> Instant {
        self.heap.first().map_or(Instant::NEVER, |armed| armed.deadline)
    }

    /// Numbers of all timers that were not removed, and of those of calls.
    pub(crate) fn numbers(&self) -> (usize, usize) {
        let is_call = |timer: &Timer| matches!(timer, Timer::Armed { alarm: Alarm::Call(_), .. });
        (self.timers.len(), self.timers.iter().filter(|(_, timer)| is_call(timer)).count())
    }

    /// Arms a timer and returns its key.
    pub(crate) fn arm(&mut self, deadline: Instant, alarm: Alarm) -> usize {
        let at = self.heap.len();
        let key = self.timers.insert(Timer::Armed { at, alarm });
        self.heap.push(Armed { deadline, key });
        self.rise(at);
        key
    }

    /// Makes `waiter` wait for the timer, unless it was already due. Returns the previous alarm;
    /// drop it after the borrow of the timers has ended.
    pub(crate) fn wait(&mut self, key: usize, waiter: WakeSlot) -> Option<Alarm> {
        match &mut self.timers[key] {
            Timer::Armed { alarm, .. } => Some(std::mem::replace(alarm, Alarm::Wake(waiter))),
            Timer::Fired => None,
        }
    }

    /// Removes a timer, whether or not it was due. If it was not due yet, returns its alarm; drop
    /// the alarm after the borrow of the timers has ended.
    pub(crate) fn remove(&mut self, key: usize) -> Option<Alarm> {
        match self.timers.remove(key) {
            Timer::Armed { at, alarm } => {
                self.unlink(at);
                Some(alarm)
            }
            Timer::Fired => None,
        }
    }

    /// Takes the next timer's alarm if it is due at `now`.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Alarm> {
        let armed = *self.heap.first().filter(|armed| armed.deadline <= now)?;
        self.unlink(0);
        match std::mem::replace(&mut self.timers[armed.key], Timer::Fired) {
            Timer::Armed { alarm: Alarm::Call(call), .. } => {
                self.timers.remove(armed.key);
                Some(Alarm::Call(call))
            }
            Timer::Armed { alarm, .. } => Some(alarm),
            Timer::Fired => unreachable!("every timer in the heap is armed"),
        }
    }

    /// Removes the entry at `at` from the heap.
    fn unlink(&mut self, at: usize) {
        self.heap.swap_remove(at);
        if at < self.heap.len() {
            self.place(at);
            self.sink(at);
            if !mutant!(HeapNotMended) {
                self.rise(at);
            }
        }
    }

    /// Stores the position `index` in that entry's timer.
    fn place(&mut self, index: usize) {
        if let Timer::Armed { at, .. } = &mut self.timers[self.heap[index].key] {
            *at = index;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.place(a);
        self.place(b);
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 {
            let above = (at - 1) / 2;
            if self.heap[above].deadline <= self.heap[at].deadline {
                return;
            }
            self.swap(at, above);
            at = above;
        }
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let below = 2 * at + 1;
            let children = below..(below + 2).min(self.heap.len());
            let Some(least) = children.min_by_key(|&child| self.heap[child].deadline) else {
                return;
            };
            if self.heap[at].deadline <= self.heap[least].deadline {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn due(timers: &mut Timers, now: u64) -> Vec<usize> {
        std::iter::from_fn(|| timers.pop(at(now)))
            .map(|alarm| match alarm {
                Alarm::Call(call) => call,
                Alarm::Wake(_) => panic!("all timers here are of calls"),
            })
            .collect()
    }

    #[test]
    fn timers_are_due_in_order_and_not_earlier() {
        let mut timers = Timers::default();
        assert_eq!(timers.next(), Instant::NEVER);
        for deadline in [50, 10, 40, 20, 30] {
            timers.arm(at(deadline), Alarm::Call(deadline as usize));
        }
        assert_eq!(timers.next(), at(10));
        assert_eq!(due(&mut timers, 9), []);
        assert_eq!(due(&mut timers, 30), [10, 20, 30]);
        assert_eq!(due(&mut timers, 50), [40, 50]);
        assert!(timers.timers.is_empty());
    }

    #[test]
    fn a_waiter_sees_that_its_timer_was_due() {
        let mut timers = Timers::default();
        let key = timers.arm(at(5), Alarm::Wake(WakeSlot::Task(1)));
        assert!(matches!(
            timers.wait(key, WakeSlot::Task(2)),
            Some(Alarm::Wake(WakeSlot::Task(1)))
        ));
        assert!(matches!(timers.pop(at(5)), Some(Alarm::Wake(WakeSlot::Task(2)))));
        assert!(timers.wait(key, WakeSlot::Task(3)).is_none());
        assert!(timers.remove(key).is_none());
        assert!(timers.timers.is_empty());
    }

    proptest! {
        #[test]
        fn removed_timers_are_never_due_and_the_rest_are_in_order(
            deadlines in prop::collection::vec(0..100u64, 1..80),
            removed in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        ) {
            let mut timers = Timers::default();
            let mut left: Vec<(u64, usize, usize)> = Vec::new();
            for (call, &deadline) in deadlines.iter().enumerate() {
                left.push((deadline, call, timers.arm(at(deadline), Alarm::Call(call))));
            }
            for index in removed {
                if !left.is_empty() {
                    let (_, _, key) = left.swap_remove(index.index(left.len()));
                    prop_assert!(timers.remove(key).is_some());
                }
            }
            let fired: Vec<_> =
                due(&mut timers, 100).into_iter().map(|call| (deadlines[call], call)).collect();
            prop_assert!(fired.is_sorted_by_key(|(deadline, _)| *deadline));
            let sorted = |mut calls: Vec<usize>| {
                calls.sort_unstable();
                calls
            };
            prop_assert_eq!(
                sorted(fired.into_iter().map(|(_, call)| call).collect()),
                sorted(left.into_iter().map(|(_, call, _)| call).collect())
            );
        }
    }
}
