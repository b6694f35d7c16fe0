//! How long a server's handlers take, per method.
//!
//! An answer tells how long the server had the request. That time includes the absence of the
//! server's event loop, which says nothing about the method. So each slow method has two recorded
//! times, for two questions:
//!
//! - A later call was answered, and this one was not: is it lost, or is its handler slow? The
//!   client waits for the longest time of *overtaken* answers within the last one to two seconds. A
//!   server that is away delays all answers, and changes their order no more than a path does.
//! - No later call was answered: is the server away, or is the handler slow? The client waits for
//!   the longest time told, less an eighth with every response of the method. So the time that an
//!   absence of the server added to one answer is forgotten some twenty responses later.
//!
//! Both times are capped, and forgotten within two seconds after the last answer. A call is
//! *passed* if a later call was answered. If its own answer still arrives, that answer is
//! *overtaken*.
//!
//! While other calls wait for capacity, an executing call must release its capacity soon: the
//! client sends the call again, and the server answers `Accepted`. Without loss, and without the
//! round trips, this takes at most 9 floors (the call's timeout and [`MOST_FLOORS`]). It takes at
//! most 17 floors if other calls of the same method are sent again before ([`most_held`]).

use super::recent_max::{self, RecentMax};
use crate::mutants::mutant;
use crate::protocol::rtt::MAX_RTO;
use crate::time::Instant;

/// The client records times of at most this many methods of one server. If more methods are slow at
/// the same time, it forgets the times of the quickest one, and probes the calls of that method.
const METHODS: usize = 16;

/// Cap of the handler's time that a timeout includes, in floors of the timeout, if the server
/// answers probes. The ceiling [`MAX_RTO`] caps that time in any case. Up to the cap the client
/// waits, because probes of a slow server cost packets. Beyond the cap, a probe costs less than a
/// late recovery.
const MOST_FLOORS: u64 = 8;

/// Cap for passed calls, in floors, while they keep no other call waiting. If a method takes longer
/// than that, the client has to send a packet anyway, so it sends the packet after [`MOST_FLOORS`].
const MOST_FLOORS_OVERTAKEN: u64 = 32;

/// The time of an overtaken answer is often exceeded soon, so it is recorded with 1/`MARGIN` added.
const MARGIN: u64 = 4;

/// Times up to 1/`NOTABLE` of the floor are not recorded: the floor covers them.
const NOTABLE: u64 = 4;

/// The server's processing times above this, in ns, are recorded.
#[inline(always)]
pub(super) fn notable(floor: u64) -> u64 {
    floor / NOTABLE
}

/// Cap, in ns, of the extra wait of a call while other calls of its method are sent again to ask.
/// The cap is needed because the waiting call may be lost.
pub(super) fn most_held(floor: u64) -> u64 {
    (floor * MOST_FLOORS).min(MAX_RTO)
}

/// What an answer tells about its method.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) method: u32,
    /// How long the server has had the request, in ns.
    pub(super) nanos: u64,
    /// The server still has the request: the handler takes longer than `nanos`.
    pub(super) runs_on: bool,
    /// A later call was answered before this one.
    pub(super) overtaken: bool,
    /// The call was probed, and no probe was answered until now. Then only the ceiling caps the
    /// recorded time: probes do not help while a server is unresponsive, so the client waits for
    /// the server.
    pub(super) probes_unanswered: bool,
}

/// The recorded times of one server's slow methods.
#[derive(Debug)]
pub(super) struct MethodTimes {
    times: [MethodTime; METHODS],
    /// The first `len` entries of `times` are in use.
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct MethodTime {
    method: u32,
    /// Times of overtaken answers.
    overtaken: RecentMax,
    /// The longest time of all answers, in ns, reduced with each response.
    fading: u64,
    /// When `fading` was last updated.
    told_at: Instant,
    asking: Asking,
}

/// Passed calls of a method are sent again a few at a time, because the server may still execute
/// them all: one call, and if no `Accepted` arrives, two, four, and so on, up to 64.
#[derive(Clone, Copy, Debug)]
struct Asking {
    /// When the next group of calls may be sent again. Until then, the client waits for answers to
    /// the current group.
    next: Instant,
    /// Number of calls of the current group that have been sent again.
    sent: u8,
    /// Size of the current group: at most this number of calls is sent again before `next`.
    allowed: u8,
}

impl Asking {
    const NONE: Self = Self { next: Instant::ZERO, sent: 0, allowed: 0 };
    const MOST: u8 = 64;

    /// A call is sent again. The server answers within `pause` ns.
    fn ask(&mut self, now: Instant, pause: u64) {
        if now < self.next {
            self.sent = self.sent.saturating_add(1);
            return;
        }
        let before = if now.nanos_since(self.next) < recent_max::WINDOW { self.allowed } else { 0 };
        let allowed = before.saturating_mul(2).clamp(1, Self::MOST);
        *self = Self { next: now.plus_nanos(pause), sent: 1, allowed };
    }

    /// Until when further calls wait.
    fn until(&self) -> Instant {
        if self.sent < self.allowed { Instant::ZERO } else { self.next }
    }
}

/// The extra time, beyond its timeout, that a call waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    /// Extra wait, in ns; 0 for a quick method.
    pub(super) nanos: u64,
    /// The call waits at least until this time, because another call of its method was sent again
    /// to ask.
    pub(super) until: Instant,
}

impl Wait {
    /// For a call of a quick method.
    pub(super) const NONE: Self = Self { nanos: 0, until: Instant::ZERO };

    /// For a call that keeps others waiting. `floor` is the least timeout for this server, in ns.
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

    /// The extra wait in ns: of a passed call, or of any other call while the server is silent.
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
            // The method is answered out of order, so passed calls may still execute. The client
            // asks about one call first, before it asks about two, four and so on.
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

    /// The extra time, beyond its timeout, that a call of this method waits for its answer.
    /// `is_passed`: a later call was answered.
    pub(super) fn get(&self, now: Instant, method: u32, is_passed: bool) -> Wait {
        let times = self.times[..self.len].iter().find(|time| time.method == method);
        times.map_or(Wait::NONE, |time| Wait {
            nanos: time.get(now, is_passed),
            until: if is_passed { time.asking.until() } else { Instant::ZERO },
        })
    }

    /// A passed call of this method is sent again, and keeps no other call waiting. Within two
    /// round trips of `rtt` ns the server says whether the call's handler runs. The client does not
    /// ask about a method whose answers arrive in order: a passed call of such a method is lost.
    pub(super) fn ask(&mut self, now: Instant, method: u32, rtt: u64) {
        if let Some(time) = self.find(method)
            && time.overtaken.get(now) > 0
        {
            time.asking.ask(now, rtt.saturating_mul(2).min(MAX_RTO));
        }
    }

    /// The server says that a handler has run for the time in `told`, and still runs. Recorded if
    /// the method has an entry or there is a free one.
    pub(super) fn runs(&mut self, now: Instant, told: &Told, floor: u64) {
        if self.len < METHODS || self.find(told.method).is_some() {
            self.record(now, told, floor);
        }
    }

    /// A handler has run for the time in `told`: the other calls of its method wait as long again,
    /// but at most [`most_held`].
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

    /// Records what an answer tells. `floor` is the least timeout for this server, in ns.
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

    /// Forgets the last method of the table if nothing was recorded for it recently.
    fn forget_last(&mut self, now: Instant) {
        let last = self.times[..self.len].last();
        if last.is_some_and(|time| time.asking.next <= now && time.get(now, false) == 0) {
            self.len -= 1;
        }
    }

    /// Selects the entry for a new method: a free one if there is one. Otherwise the caller
    /// overwrites the selected entry. It is the entry of the quickest method that the client does
    /// not ask about now. If the client asks about all methods, it is the entry of the quickest of
    /// all.
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
