//! How long a server's handlers take, method by method.
//!
//! An answer tells how long the server had the request. That includes what its loop was away, which says nothing of the
//! method. So two times are kept of each slow method, for two questions:
//!
//! - A later call was answered, and this one was not: is it lost, or does its handler take long? The client waits for as
//!   long as such answers took *that came after later ones*, at most, within the last one to two seconds. A server that
//!   is away delays all answers, and changes their order no more than a path does.
//! - No later call was answered: is the server away, or does the handler take long that it runs? The client waits for the
//!   longest time told, less an eighth with every response of the method: what the server's absence added to one
//!   answer is forgotten some twenty responses later.
//!
//! Both are bounded, and forgotten two seconds after the last answer. A call is *passed* if a later one was answered; its
//! answer, when it comes, is *overtaken*.

use super::recent_max::{self, RecentMax};
use crate::mutants::mutant;
use crate::protocol::rtt::MAX_RTO;
use crate::time::Instant;

/// Methods of one server whose times are kept. If more are slow at a time, the quickest of them is forgotten: its calls are
/// probed.
const METHODS: usize = 16;

/// The server's own time adds so many floors to a timeout at most, if the server answers probes, and never more than the
/// ceiling. Up to there the client waits, as probes of a slow server cost packets; beyond, a probe costs less than a late
/// recovery.
const MOST_FLOORS: u64 = 8;

/// Passed calls may wait for so many floors, while they keep no other call waiting. If a method takes longer than that, a
/// question has to be sent anyway, so it goes out after [`MOST_FLOORS`].
const MOST_FLOORS_OVERTAKEN: u64 = 32;

/// The longest time of some answers is exceeded soon: a call waits longer by this part of it.
const MARGIN: u64 = 4;

/// A time below this part of the floor is not kept: the floor covers it.
const NOTABLE: u64 = 4;

/// The least time of a server's own that is worth a note, in nanoseconds.
#[inline(always)]
pub(super) fn notable(floor: u64) -> u64 {
    floor / NOTABLE
}

/// A call waits at most so much longer while others of its method ask, in nanoseconds: it may be the one that is lost.
pub(super) fn most_held(floor: u64) -> u64 {
    (floor * MOST_FLOORS).min(MAX_RTO)
}

/// What an answer tells of its method.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) method: u32,
    /// The server had the request for so many nanoseconds.
    pub(super) nanos: u64,
    /// And still has it: the handler takes longer than that.
    pub(super) runs_on: bool,
    /// A later call was answered before.
    pub(super) overtaken: bool,
    /// The call's probes, of which there were some, have gone without an answer until now. An unresponsive server is waited
    /// for, not probed: it may be away for as long as the ceiling.
    pub(super) probes_unanswered: bool,
}

/// What the slow methods of one server have lately taken.
#[derive(Debug)]
pub(super) struct MethodTimes {
    times: [MethodTime; METHODS],
    /// So many of them, the first ones, are in use.
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct MethodTime {
    method: u32,
    /// Of answers that were overtaken.
    overtaken: RecentMax,
    /// Of all answers, fading with each, and when it was told last.
    fading: u64,
    told_at: Instant,
    asking: Asking,
}

/// Calls that were passed are sent again few at a time, as the server may still execute them all: one, and if no `Accepted`
/// comes, two, four, and so on.
#[derive(Clone, Copy, Debug)]
struct Asking {
    /// When the next ones may be sent.
    next: Instant,
    /// Of `allowed` ones so many were sent since the last time.
    sent: u8,
    allowed: u8,
}

impl Asking {
    const NONE: Self = Self { next: Instant::ZERO, sent: 0, allowed: 0 };
    const MOST: u8 = 64;

    /// A call is sent again. The server answers within `pause` nanoseconds.
    fn ask(&mut self, now: Instant, pause: u64) {
        if now < self.next {
            self.sent = self.sent.saturating_add(1);
            return;
        }
        let before = if now.nanos_since(self.next) < recent_max::WINDOW { self.allowed } else { 0 };
        let allowed = before.saturating_mul(2).clamp(1, Self::MOST);
        *self = Self { next: now.plus_nanos(pause), sent: 1, allowed };
    }

    /// Until when calls wait.
    fn until(&self) -> Instant {
        if self.sent < self.allowed { Instant::ZERO } else { self.next }
    }
}

/// How long a call waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    /// So many nanoseconds longer than one of a quick method.
    pub(super) nanos: u64,
    /// And until then: another call of the method was asked after.
    pub(super) until: Instant,
}

impl Wait {
    /// Of a call of a quick method.
    pub(super) const NONE: Self = Self { nanos: 0, until: Instant::ZERO };

    /// For a call that keeps others waiting, to a server to which timeouts are at least `floor` nanoseconds.
    pub(super) fn shortened(self, floor: u64) -> Self {
        Self { nanos: self.nanos.min(floor * MOST_FLOORS), ..self }
    }
}

impl MethodTime {
    const NONE: Self = Self {
        method: 0,
        overtaken: RecentMax::NONE,
        fading: 0,
        told_at: Instant::ZERO,
        asking: Asking::NONE,
    };

    /// How long a passed call waits, or any other call while the server is silent.
    fn get(&self, now: Instant, is_passed: bool) -> u64 {
        let overtaken = self.overtaken.get(now);
        if is_passed { overtaken } else { overtaken.max(self.faded(now)) }
    }

    fn faded(&self, now: Instant) -> u64 {
        let is_old = now.nanos_since(self.told_at) >= 2 * recent_max::WINDOW;
        if is_old { 0 } else { self.fading }
    }

    fn record(&mut self, now: Instant, told: &Told, floor: u64) {
        let most = (floor * MOST_FLOORS).min(MAX_RTO);
        if told.overtaken {
            // The method is answered out of order: passed calls may execute. Begin again with one question.
            self.asking.allowed = 0;
            let nanos = told.nanos.saturating_add(told.nanos / MARGIN);
            let is_covered = nanos <= (floor * MOST_FLOORS_OVERTAKEN).min(MAX_RTO);
            self.overtaken.record(now, if is_covered { nanos } else { most });
        }
        let known = self.faded(now);
        let most = if told.probes_unanswered { MAX_RTO } else { most.max(known) };
        let left = if told.runs_on { known } else { known - (known >> 3) };
        self.fading = told.nanos.min(most).max(left);
        self.told_at = now;
    }
}

impl MethodTimes {
    pub(super) const fn new() -> Self {
        Self { times: [MethodTime::NONE; METHODS], len: 0 }
    }

    /// Whether no method is known to be slow.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How long a call of this method waits: if a later one was answered (`is_passed`), or if nothing comes.
    pub(super) fn get(&self, now: Instant, method: u32, is_passed: bool) -> Wait {
        let times = self.times[..self.len].iter().find(|time| time.method == method);
        times.map_or(Wait::NONE, |time| Wait {
            nanos: time.get(now, is_passed),
            until: if is_passed { time.asking.until() } else { Instant::ZERO },
        })
    }

    /// A call of this method that was passed is sent again, and keeps no other waiting. Within two round trips of `rtt` the
    /// server says whether its handler runs. Methods that are answered in order are not asked about: the call is lost.
    pub(super) fn ask(&mut self, now: Instant, method: u32, rtt: u64) {
        if let Some(time) = self.find(method)
            && time.overtaken.get(now) > 0
        {
            time.asking.ask(now, rtt.saturating_mul(2).min(MAX_RTO));
        }
    }

    /// A handler has run for as long as is `told`, the server says, and not for how much longer. That is kept if there is a
    /// place for it.
    pub(super) fn runs(&mut self, now: Instant, told: &Told, floor: u64) {
        if self.len < METHODS || self.find(told.method).is_some() {
            self.record(now, told, floor);
        }
    }

    /// The other calls of a method whose handler has run for as long as is `told` wait for as long again.
    pub(super) fn hold_on(&mut self, now: Instant, told: &Told, floor: u64) {
        if let Some(time) = self.find(told.method) {
            let nanos = told.nanos.min(most_held(floor));
            let next = now.plus_nanos(nanos).max(time.asking.next);
            time.asking = Asking { next, ..Asking::NONE };
        }
    }

    fn find(&mut self, method: u32) -> Option<&mut MethodTime> {
        self.times[..self.len].iter_mut().find(|time| time.method == method)
    }

    /// Takes in what an answer tells, of a server to which timeouts are at least `floor` nanoseconds.
    pub(super) fn record(&mut self, now: Instant, told: &Told, floor: u64) {
        if mutant!(MethodTimeForgotten) {
            return;
        }
        let known = self.times[..self.len].iter().position(|time| time.method == told.method);
        if known.is_none() && mutant!(MethodTimeShared) {
            self.len = 0;
        }
        let at = match known {
            Some(at) => at,
            None if told.nanos <= notable(floor) => return self.forget_last(now),
            None => self.place(now),
        };
        if known.is_none() {
            self.times[at] = MethodTime { method: told.method, ..MethodTime::NONE };
        }
        self.times[at].record(now, told, floor);
        let time = &self.times[at];
        if time.asking.next <= now && time.get(now, false) <= notable(floor) {
            self.len -= 1;
            self.times.swap(at, self.len);
        }
    }

    /// Forgets a method of which nothing was heard lately.
    fn forget_last(&mut self, now: Instant) {
        let last = self.times[..self.len].last();
        if last.is_some_and(|time| time.asking.next <= now && time.get(now, false) == 0) {
            self.len -= 1;
        }
    }

    /// A place for another method, in the stead of the quickest if there is no other.
    fn place(&mut self, now: Instant) -> usize {
        if self.len < METHODS {
            self.len += 1;
            return self.len - 1;
        }
        let key = |at: &usize| {
            let time = &self.times[*at];
            (time.asking.next > now, time.get(now, false))
        };
        (0..METHODS).min_by_key(key).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const FLOOR: u64 = 5 * MS;

    fn told(millis: u64, runs_on: bool) -> Told {
        let nanos = millis * MS;
        Told { method: 2, nanos, runs_on, overtaken: false, probes_unanswered: false }
    }

    #[test]
    fn a_response_takes_an_eighth_off_the_wait_and_an_acceptance_nothing() {
        let now = Instant::from_nanos(1_000 * MS);
        let wait = |times: &MethodTimes| times.get(now, 2, false).nanos;
        let mut times = MethodTimes::new();
        times.record(now, &told(32, false), FLOOR);
        assert_eq!(wait(&times), 32 * MS);
        (0..20).for_each(|_| times.runs(now, &told(1, true), FLOOR));
        assert_eq!(wait(&times), 32 * MS, "handlers that run may take as long again");
        times.record(now, &told(1, false), FLOOR);
        assert_eq!(wait(&times), 28 * MS);
    }
}
