//! The rules for typed calls. The oracle learns what callers, handlers and resolvers see, and keeps
//! the first violation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use erpc_core::protocol::{CallError, Cause, RejectReason};
use erpc_core::status::Code;
use erpc_core::time::Instant;
use erpc_test_tools::random::mix;

use super::plan::{ChannelPlan, RetryPlan, START, Weather};
use super::resolver::Queries;
use super::service::{Kind, Reply};
use crate::oracle::Violation;

/// Handlers need a service that is `Send`.
pub(super) type Shared = Arc<Mutex<Oracle>>;

pub(super) fn lock(oracle: &Shared) -> MutexGuard<'_, Oracle> {
    oracle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call ends this long after its deadline at the latest. A loop takes a turn of a few
/// microseconds.
const LATE: Duration = Duration::from_millis(1);

/// A server knows a call's deadline, and that it was cancelled, this long after its client at the
/// latest, while no packets are lost.
const TOLD: Duration = Duration::from_millis(5);

/// How a call has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    Not,
    Cancelled(Instant),
    Done(Instant),
}

/// A call, as its user and the handlers see it.
#[derive(Clone, Debug)]
struct Call {
    channel: usize,
    idempotent: bool,
    refusals: u32,
    made: Instant,
    deadline: Option<Instant>,
    ended: Ended,
    executions: u32,
    /// How often a burst hook has seen the call's request. Hooks also see copies that are not
    /// executed.
    foreseen: u32,
    /// The servers that have executed the call, as bits.
    servers: u32,
    /// Made after the faults have ended, so it must succeed.
    is_last: bool,
}

/// How many calls ended in each way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcomes {
    /// Answered.
    pub answered: u64,
    /// Cancelled by their users.
    pub cancelled: u64,
    /// Refused by their handlers, or for lack of room at the server.
    pub refused: u64,
    /// Ended at their deadlines.
    pub late: u64,
    /// Not executed, for another reason.
    pub not_executed: u64,
    /// Perhaps executed, for another reason.
    pub maybe_executed: u64,
    /// Executions after the first one.
    pub again: u64,
}

/// The rules, and what they need to know.
pub(super) struct Oracle {
    weather: Weather,
    tight: bool,
    channels: Vec<ChannelPlan>,
    pub(super) now: Instant,
    calls: Vec<Option<Call>>,
    /// Number of calls of each channel that have not ended.
    outstanding: Vec<usize>,
    /// When each channel last had more calls than may wait for a session.
    crowded: Vec<Option<Instant>>,
    pub(super) queries: Vec<Queries>,
    pub(super) violation: Option<Violation>,
    pub(super) outcomes: Outcomes,
    pub(super) hash: u64,
    /// Whether events are printed.
    pub(super) prints: bool,
}

impl Oracle {
    pub(super) fn new(
        weather: Weather,
        tight: bool,
        channels: &[ChannelPlan],
        prints: bool,
    ) -> Self {
        Self {
            weather,
            tight,
            outstanding: vec![0; channels.len()],
            crowded: vec![None; channels.len()],
            queries: vec![Queries::default(); channels.len()],
            channels: channels.to_vec(),
            now: START,
            calls: Vec::new(),
            violation: None,
            outcomes: Outcomes::default(),
            hash: 0,
            prints,
        }
    }

    /// Records a broken rule.
    pub(super) fn violate(&mut self, place: Option<String>, what: String) {
        let at = self.now;
        self.violation.get_or_insert(Violation { at, place, what });
    }

    /// Adds an event to the trace of the run.
    pub(super) fn trace(&mut self, words: impl FnOnce() -> String) {
        if self.prints {
            let at = self.now - START;
            crate::say!("{at:?}: {}", words());
        }
    }

    pub(super) fn mix(&mut self, number: u64) {
        self.hash = mix(self.hash ^ number ^ self.now.as_nanos());
    }

    /// A call is made. Returns its number.
    pub(super) fn made(
        &mut self,
        channel: usize,
        idempotent: bool,
        refusals: u32,
        deadline: Option<Duration>,
        is_last: bool,
    ) -> usize {
        self.calls.push(Some(Call {
            channel,
            idempotent,
            refusals,
            made: self.now,
            deadline: deadline.map(|within| self.now + within),
            ended: Ended::Not,
            executions: 0,
            foreseen: 0,
            servers: 0,
            is_last,
        }));
        self.outstanding[channel] += 1;
        self.calls.len() - 1
    }

    /// Whether a channel has more calls than may wait for a session.
    fn is_crowded(&self, channel: usize) -> bool {
        self.outstanding[channel] > self.channels[channel].queue_limit
    }

    /// A call of the channel is over.
    fn leaves(&mut self, channel: usize) {
        if self.is_crowded(channel) {
            self.crowded[channel] = Some(self.now);
        }
        self.outstanding[channel] -= 1;
    }

    /// Number of calls that have not ended.
    pub(super) fn pending(&self) -> usize {
        self.outstanding.iter().sum()
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls.len() as u64
    }

    fn call(&mut self, number: usize) -> Option<Call> {
        let call = self.calls.get(number).cloned().flatten();
        if call.is_none() {
            self.violate(None, format!("a message names the unknown call {number}"));
        }
        call
    }

    /// A burst hook sees the call's request. Only idempotent methods have one.
    pub(super) fn foreseen(&mut self, number: usize) {
        let Some(mut call) = self.call(number) else { return };
        call.foreseen += 1;
        self.calls[number] = Some(call);
    }

    /// A handler begins. Returns whether it answers; otherwise it refuses the call.
    pub(super) fn begins(&mut self, number: usize, server: usize, kind: Kind) -> bool {
        let Some(mut call) = self.call(number) else { return false };
        self.trace(|| format!("server {server} executes call {number} as {kind:?}"));
        call.executions += 1;
        call.servers |= 1 << server;
        self.outcomes.again += u64::from(call.executions > 1);
        let most = self.channels[call.channel].attempts(call.idempotent);
        if call.executions > most {
            let what = format!("executed {} times, of at most {most}", call.executions);
            self.violate(Some(format!("call {number}")), what);
        }
        if call.idempotent && call.executions > call.foreseen {
            let what = "its handler begins before its burst hook has seen it";
            self.violate(Some(format!("call {number}")), what.into());
        }
        if kind == Kind::Worker && call.deadline.is_some_and(|at| self.now > at + TOLD) {
            let what = "a worker starts its handler after the deadline";
            self.violate(Some(format!("call {number}")), what.into());
        }
        self.check_told(number, &call, kind);
        let answers = call.executions > call.refusals;
        self.mix(number as u64);
        self.calls[number] = Some(call);
        answers
    }

    /// A handler begins or goes on. Its call must not have been cancelled long ago.
    fn check_told(&mut self, number: usize, call: &Call, kind: Kind) {
        let is_old = |at: Instant| self.now > at + TOLD;
        if self.weather == Weather::Calm
            && matches!(kind, Kind::Task | Kind::Worker)
            && matches!(call.ended, Ended::Cancelled(at) if is_old(at))
        {
            let what = format!("a handler ({kind:?}) runs after its call was cancelled");
            self.violate(Some(format!("call {number}")), what);
        }
    }

    /// The handler on a worker asks whether the call was cancelled.
    pub(super) fn worker_sees(&mut self, number: usize, cancelled: bool) {
        let Some(call) = self.call(number) else { return };
        if cancelled && call.ended == Ended::Not && self.weather == Weather::Calm {
            self.innocent(number, "its worker is told that it was cancelled");
        }
    }

    /// A task has run to its end.
    pub(super) fn task_ended(&mut self, number: usize) {
        let Some(call) = self.call(number) else { return };
        self.check_told(number, &call, Kind::Task);
    }

    /// A task was dropped before its end.
    pub(super) fn task_dropped(&mut self, number: usize) {
        let Some(call) = self.call(number) else { return };
        let is_due = call.deadline.is_some_and(|at| self.now >= at);
        if call.ended == Ended::Not && !is_due && self.weather == Weather::Calm {
            self.innocent(number, "its task is dropped");
        }
    }

    fn innocent(&mut self, number: usize, what: &str) {
        self.violate(Some(format!("call {number}")), format!("was not cancelled, but {what}"));
    }

    /// The caller has dropped the call.
    pub(super) fn cancelled(&mut self, number: usize) {
        let Some(mut call) = self.call(number) else { return };
        if call.ended != Ended::Not {
            return;
        }
        self.trace(|| format!("call {number} is cancelled"));
        call.ended = Ended::Cancelled(self.now);
        self.outcomes.cancelled += 1;
        self.leaves(call.channel);
        self.calls[number] = Some(call);
    }

    /// The caller learns the outcome. Returns the server that has answered.
    pub(super) fn ended(
        &mut self,
        number: usize,
        outcome: Result<Vec<u8>, CallError>,
    ) -> Option<usize> {
        let mut call = self.call(number)?;
        self.trace(|| match &outcome {
            Ok(_) => format!("call {number} is answered"),
            Err(error) => format!("call {number} fails: {error:?}"),
        });
        let place = Some(format!("call {number}"));
        if call.ended != Ended::Not {
            self.violate(place, format!("ends although it was over: {:?}", call.ended));
            return None;
        }
        if let Err(what) = self.check_outcome(number, &call, &outcome) {
            let what = format!("{what}: {outcome:?}");
            self.violate(place.clone(), what.chars().take(400).collect());
        }
        if call.deadline.is_some_and(|at| self.now > at + LATE) {
            self.violate(place, "ends after its deadline".into());
        }
        call.ended = Ended::Done(self.now);
        self.leaves(call.channel);
        self.mix(number as u64 ^ u64::from(outcome.is_ok()) << 32);
        self.count(&outcome);
        self.calls[number] = Some(call);
        outcome.ok().map(|bytes| Reply::decode(&bytes).server)
    }

    fn count(&mut self, outcome: &Result<Vec<u8>, CallError>) {
        let outcomes = &mut self.outcomes;
        use CallError::{MaybeExecuted, NotExecuted, ResponseLost, Status};
        *match outcome {
            Ok(_) => &mut outcomes.answered,
            Err(Status(_)) => &mut outcomes.refused,
            Err(
                MaybeExecuted(Cause::DeadlineExceeded)
                | NotExecuted(Cause::DeadlineExceeded)
                | ResponseLost(Cause::DeadlineExceeded),
            ) => &mut outcomes.late,
            Err(MaybeExecuted(_) | ResponseLost(_)) => &mut outcomes.maybe_executed,
            Err(_) => &mut outcomes.not_executed,
        } += 1;
    }

    /// What the error says must be true, and the run's faults must explain it.
    fn check_outcome(
        &self,
        number: usize,
        call: &Call,
        outcome: &Result<Vec<u8>, CallError>,
    ) -> Result<(), &'static str> {
        use CallError::{MaybeExecuted, NoServer, NotExecuted, Rejected, ResponseLost, Status};
        let error = match outcome {
            Ok(bytes) => {
                let Reply { call: named, server } = Reply::decode(bytes);
                let is_executed = server < 32 && call.servers & 1 << server != 0;
                return match named == number && is_executed {
                    true => Ok(()),
                    false => Err("is answered with the response of another call"),
                };
            }
            Err(error) => error,
        };
        if call.is_last {
            return Err("fails although all faults have ended");
        }
        let is_due = call.deadline.is_some_and(|at| self.now >= at);
        let says_unexecuted = matches!(error, NotExecuted(_) | NoServer(_) | Rejected(_));
        if says_unexecuted && call.executions > 0 {
            return Err("was executed, and its error says that it was not");
        }
        match error {
            NotExecuted(Cause::DeadlineExceeded) | MaybeExecuted(Cause::DeadlineExceeded)
                if !is_due =>
            {
                Err("fails before its deadline")
            }
            NotExecuted(Cause::DeadlineExceeded) | MaybeExecuted(Cause::DeadlineExceeded) => Ok(()),
            Rejected(RejectReason::DeadlineExceeded) if is_due => Ok(()),
            NotExecuted(Cause::Cancelled) | MaybeExecuted(Cause::Cancelled) => {
                Err("was not cancelled, but its error says so")
            }
            Rejected(RejectReason::QueueFull) => {
                // The user learns of it some turns later.
                let was_crowded =
                    self.crowded[call.channel].is_some_and(|at| self.now <= at + LATE);
                match was_crowded || self.is_crowded(call.channel) {
                    true => Ok(()),
                    false => Err("finds the queue full although few calls wait"),
                }
            }
            Status(status) => self.check_status(call, is_due, status.code()),
            ResponseLost(_) if call.executions == 0 => {
                Err("was not executed, and its error says that it was")
            }
            ResponseLost(Cause::DeadlineExceeded) if is_due => Ok(()),
            NotExecuted(_) | MaybeExecuted(_) | NoServer(_) | Rejected(_) | ResponseLost(_) => {
                self.check_weather(call, error)
            }
            _ => Err("fails for an unknown reason"),
        }
    }

    fn check_status(&self, call: &Call, is_due: bool, code: Code) -> Result<(), &'static str> {
        match code {
            Code::Unavailable if call.executions > 0 && call.refusals > 0 => Ok(()),
            // A server that was drained cuts off the calls that still run. On a simulated worker, the
            // handler of such a call may run later.
            Code::Unavailable if self.weather == Weather::Rolling => Ok(()),
            Code::ResourceExhausted if self.tight => Ok(()),
            Code::DeadlineExceeded if is_due => Ok(()),
            Code::Cancelled => Err("was not cancelled, but its server says so"),
            _ => Err("gets a status that no handler has returned"),
        }
    }

    /// Whether the faults of the run can be the reason of the error.
    fn check_weather(&self, call: &Call, error: &CallError) -> Result<(), &'static str> {
        let channel = &self.channels[call.channel];
        let retries_never = channel.retries == RetryPlan::Never;
        match self.weather {
            Weather::Calm => Err("fails without a fault"),
            // A session that ends soon after it has opened is reopened after a pause.
            Weather::Quick | Weather::Rolling if matches!(error, CallError::NoServer(_)) => {
                let known = self.queries[call.channel].known;
                match known.is_some_and(|known| self.now > known + 2 * channel.base + TOLD) {
                    true => Err("finds no server although one can always be reached"),
                    false => Ok(()),
                }
            }
            // An earlier attempt was executed, and its handler refused the call.
            Weather::Rolling if call.executions > 0 && call.refusals > 0 => Ok(()),
            Weather::Rolling if matches!(error, CallError::MaybeExecuted(_)) => {
                Err("is not told that its server shuts down")
            }
            // There is no time for another attempt.
            Weather::Rolling if call.deadline.is_some_and(|at| self.now + TOLD > at) => Ok(()),
            Weather::Rolling if !retries_never && !channel.covers(call.idempotent) => {
                Err("is not made again on another server")
            }
            Weather::Quick | Weather::Rolling | Weather::Wild => Ok(()),
        }
    }

    /// A resolver is asked.
    pub(super) fn asked(&mut self, channel: usize) {
        self.trace(|| format!("channel {channel} asks its resolver"));
        let pause = self.channels[channel].resolve_pause;
        if self.queries[channel].ended.is_some_and(|ended| self.now < ended + pause) {
            self.violate(
                Some(format!("channel {channel}")),
                "does not wait between queries".into(),
            );
        }
        self.queries[channel].count += 1;
        self.queries[channel].begun = self.now;
        self.queries[channel].ended = None;
    }

    /// A resolver has answered. `is_known`: with servers.
    pub(super) fn resolved(&mut self, channel: usize, is_known: bool) {
        self.queries[channel].ended = Some(self.now);
        if is_known {
            self.queries[channel].known.get_or_insert(self.now);
        }
    }

    /// The oldest call that has passed its deadline by more than [`LATE`], or the oldest call at
    /// all with `all`.
    pub(super) fn check_overdue(&mut self, all: bool) {
        let is_overdue = |call: &Call| {
            call.ended == Ended::Not
                && (all || call.deadline.is_some_and(|at| self.now > at + LATE))
        };
        let overdue = self.calls.iter().position(|call| call.as_ref().is_some_and(is_overdue));
        if let Some(number) = overdue {
            let made = self.calls[number].as_ref().map(|call| call.made - START);
            let what = match all {
                true => format!("made at {made:?}, has not ended"),
                false => format!("made at {made:?}, goes on after its deadline"),
            };
            self.violate(Some(format!("call {number}")), what);
        }
    }

    /// Whether the last calls of a channel have reached each of its servers equally often.
    pub(super) fn last_calls_took_turns(
        &self,
        channel: usize,
        servers: usize,
        each: usize,
    ) -> bool {
        let mut counts = [0; 32];
        let own = |call: &&Call| call.channel == channel && call.is_last;
        for call in self.calls.iter().flatten().filter(own) {
            counts[call.servers.trailing_zeros() as usize % 32] += 1;
        }
        counts.iter().filter(|count| **count == each).count() == servers
    }

    /// Checks that the calls of a channel were not executed again more often than its policy's
    /// budget allows.
    pub(super) fn check_budget(&mut self, channel: usize) {
        let RetryPlan::Policy { ratio, per_second, .. } = self.channels[channel].retries else {
            return;
        };
        let covers = |call: &&Call| self.channels[channel].covers(call.idempotent);
        let own = || self.calls.iter().flatten().filter(|call| call.channel == channel);
        let again: u32 = own().map(|call| call.executions.saturating_sub(1)).sum();
        let seconds = 10.0 + (self.now - START).as_secs_f64();
        let budget = f64::from(per_second) * seconds
            + f64::from(ratio) * own().filter(covers).count() as f64;
        if f64::from(again) > budget + 1.0 {
            let what = format!("executes {again} calls again, more than its budget of {budget:.1}");
            self.violate(Some(format!("channel {channel}")), what);
        }
    }
}
