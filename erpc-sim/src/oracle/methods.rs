//! Checks that a client, before it probes, waits for a slow method about as long as the method
//! recently took.

use std::collections::{BTreeMap, BTreeSet};

use erpc_core::time::Instant;

use super::Oracle;
use super::calls::CallPhase;

/// What a client has learned about a method of a server.
#[derive(Clone, Copy, Debug)]
struct Told {
    /// The shortest and the longest time of an execution, in ns.
    least: u64,
    most: u64,
    /// When the client last received an answer of this method.
    last: Instant,
    /// When the client last received a response of one packet to a request of one packet that it
    /// had sent only once. Only such a response certainly tells the client how long the handler
    /// took.
    last_plain: Option<Instant>,
}

/// What clients have learned about methods. The keys are client and server, then the method.
#[derive(Default)]
pub(super) struct MethodTimes(BTreeMap<(usize, usize), BTreeMap<u32, Told>>);

/// A client certainly still knows a time that it learned less than this long ago, in ns.
const LATELY: u64 = 500_000_000;

/// A client may have forgotten times that it learned this long ago, in ns.
const LONG_AGO: u64 = 2_500_000_000;

/// The number of methods per server whose times a client certainly keeps. The client keeps the
/// times of 16 methods, but [`Oracle::slow_methods`] does not count all of them: an acceptance may
/// tell a time after the handler has run for [`LONG_AGO`], and then the caller cancels the call.
const KEPT: usize = 12;

/// A client need not wait longer for a handler than this many minimum timeouts.
const MOST_FLOORS: u64 = 8;

/// A client need not keep times below 1/`NOTABLE` of the minimum timeout.
const NOTABLE: u64 = 8;

/// The longest response that surely fits into one packet, in bytes.
const SHORT: u32 = 512;

impl Oracle {
    /// Sets the method of a call that was begun.
    pub(crate) fn is_of_method(&mut self, id: u32, method: u32) {
        self.calls[id as usize].method = method;
    }

    /// The handler of a call answers.
    pub(crate) fn handler_answers(&mut self, id: u32) {
        if let Some(call) = self.calls.get_mut(id as usize) {
            call.took = call.executed_at.map(|since| self.now.nanos_since(since));
        }
    }

    /// The caller of a call gets the answer, which tells how long the handler took.
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

    /// A client repeats a request of one packet that it sent at `before`. The server has answered
    /// nothing that the client sent later. `floor` is the minimum timeout in ns.
    pub(crate) fn is_probed(&mut self, id: u32, before: Instant, floor: u64) {
        let Some(call) = self.calls.get(id as usize) else { return };
        let session = &self.sessions[call.session as usize];
        // Two packets: the request's only packet and its repeat. When the last session to a server
        // ends, the client forgets the server's times. So the check needs a run in which no session
        // ends early.
        let (2, true, Some((server, _))) = (call.packets, self.spares_sessions, session.home)
        else {
            return;
        };
        let Some(times) = self.method_times.0.get(&(session.of, server)) else { return };
        let Some(told) = times.get(&call.method) else { return };
        if told.last_plain.is_none_or(|at| self.now.nanos_since(at) >= LATELY) {
            return;
        }
        // Every quicker answer, also to a cancelled call, reduces the client's wait by an eighth.
        // The check demands only 3/4 of the wait, which allows for two such answers.
        let least = told.least.min(MOST_FLOORS * floor) / 4 * 3;
        let waited = self.now.nanos_since(before);
        let is_early = told.least > floor && waited < floor + least;
        if is_early && self.slow_methods(session.of, server, floor) <= KEPT {
            let (method, took) = (call.method, told.least);
            self.blame_call(id, format!(
                "call {id} is repeated after {waited} ns, but its client knows that method {method} takes {took} ns or more"
            ));
        }
    }

    /// Number of slow methods of a server whose times a client may keep now. An acceptance or an
    /// announcement of the response tells the client a time before the call ends. So a call that is
    /// under way, or was cancelled, counts from its execution.
    fn slow_methods(&self, client: usize, server: usize, floor: u64) -> usize {
        let is_slow = |nanos| nanos >= floor / NOTABLE;
        let is_recent = |at| self.now.nanos_since(at) < LONG_AGO;
        let times = self.method_times.0.get(&(client, server)).into_iter().flatten();
        let told = times.filter(|(_, told)| is_slow(told.most) && is_recent(told.last));
        let executed = self.calls.iter().filter(|call| {
            let session = &self.sessions[call.session as usize];
            let is_of_both =
                session.of == client && session.home.is_some_and(|(at, _)| at == server);
            call.executed_at.is_some_and(|since| {
                let took = call.took.unwrap_or(self.now.nanos_since(since));
                let may_be_told = call.phase == CallPhase::UnderWay || is_recent(since);
                is_of_both && may_be_told && is_slow(took)
            })
        });
        let methods = told.map(|(method, _)| *method).chain(executed.map(|call| call.method));
        methods.collect::<BTreeSet<_>>().len()
    }
}
