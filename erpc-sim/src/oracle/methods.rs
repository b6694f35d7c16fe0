//! Whether clients wait for slow methods as long as they were lately told that these take.

use std::collections::BTreeMap;

use erpc_core::time::Instant;

use super::Oracle;

/// What a client was told of a method of a server endpoint.
#[derive(Clone, Copy, Debug)]
struct Told {
    /// The least and the most time that an answer took, in nanoseconds.
    least: u64,
    most: u64,
    /// When the last answer came.
    last: Instant,
    /// When the last one came that was of one packet, to a request that was sent once: it told the time then.
    last_plain: Option<Instant>,
}

/// What clients were told of the methods of servers: by client, server and method.
#[derive(Default)]
pub(super) struct MethodTimes(BTreeMap<(usize, usize), BTreeMap<u32, Told>>);

/// What was told so long ago counts for sure, in nanoseconds.
const LATELY: u64 = 500_000_000;

/// What was told so long ago does not count for sure, in nanoseconds.
const LONG_AGO: u64 = 2_500_000_000;

/// Methods of one server whose times a client keeps for sure: 16, of which some may be of calls that were given up.
const KEPT: usize = 12;

/// A client need not wait longer than so many of its least timeouts for a handler.
const MOST_FLOORS: u64 = 8;

/// A time below this part of the least timeout is not worth keeping.
const NOTABLE: u64 = 8;

/// The longest response that surely comes in one packet, in bytes.
const SHORT: u32 = 512;

impl Oracle {
    /// The call that was begun is of this method.
    pub(crate) fn is_of_method(&mut self, id: u32, method: u32) {
        self.calls[id as usize].method = method;
    }

    /// The handler of a call answers.
    pub(crate) fn handler_answers(&mut self, id: u32) {
        if let Some(call) = self.calls.get_mut(id as usize) {
            call.took = call.executed_at.map(|since| self.now.nanos_since(since));
        }
    }

    /// A call's caller has the answer of its handler, which tells how long that took.
    pub(super) fn told_time(&mut self, id: u32) {
        let call = &self.calls[id as usize];
        let session = &self.sessions[call.session as usize];
        let (Some(took), Some((server, _))) = (call.took, session.home) else { return };
        let times = self.method_times.0.entry((session.of, server)).or_default();
        let told = times.entry(call.method).or_insert(Told {
            least: u64::MAX,
            most: 0,
            last: self.now,
            last_plain: None,
        });
        (told.least, told.most) = (told.least.min(took), told.most.max(took));
        told.last = self.now;
        if call.packets == 1 && call.response_len <= SHORT {
            told.last_plain = Some(self.now);
        }
    }

    /// A client repeats a request of one packet that it sent at `before`, and nothing that it sent later was answered. Its
    /// timeouts are not below `floor` nanoseconds.
    pub(crate) fn is_probed(&mut self, id: u32, before: Instant, floor: u64) {
        let Some(call) = self.calls.get(id as usize) else { return };
        let session = &self.sessions[call.session as usize];
        // Where sessions end, so does what clients know of servers.
        let (2, true, Some((server, _))) = (call.packets, self.spares_sessions, session.home)
        else {
            return;
        };
        let Some(times) = self.method_times.0.get(&(session.of, server)) else { return };
        let Some(told) = times.get(&call.method) else { return };
        let is_recent = told.last_plain.is_some_and(|at| self.now.nanos_since(at) < LATELY);
        let is_kept = |told: &&Told| {
            told.most >= floor / NOTABLE && self.now.nanos_since(told.last) < LONG_AGO
        };
        if !is_recent || times.values().filter(is_kept).count() > KEPT {
            return;
        }
        // Every quicker answer, also of a call that was given up meanwhile, takes an eighth off what the client waits.
        let least = told.least.min(MOST_FLOORS * floor) / 4 * 3;
        let waited = self.now.nanos_since(before);
        if told.least > floor && waited < floor + least {
            let (method, took) = (call.method, told.least);
            self.blame(format!(
                "call {id} is repeated after {waited} ns; method {method} takes {took} ns or more, its client was told"
            ));
        }
    }
}
