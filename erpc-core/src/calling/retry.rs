//! Retries of calls: conditions, backoff, and the budget that the calls of a channel share.

use std::cell::Cell;
use std::time::Duration;

use crate::mutants::mutant;
use crate::protocol::{CallError, Cause, RejectReason};
use crate::status::Code;
use crate::time::Instant;

/// When a failed call is retried, and how often.
///
/// # Without a policy
/// A call over a [`Channel`](crate::client::Channel) that was certainly not executed
/// ([`CallError::NotExecuted`]), because its session ended or because its server shuts down and
/// refused it, is made again on another session until its deadline. Its method need not be
/// idempotent. All calls of the channel share a budget for these retries: it holds at most 1,000
/// retries, starts full, and refills by 100 per second. Retries of refused calls are outside of the
/// budget: a server that shuts down refuses each call once, and gets no further calls. The pauses
/// are those of [`RetryPolicy::backoff`]. If no server can be reached, the call fails; see
/// [`CallOptions::wait_for_ready`](super::CallOptions::wait_for_ready). [`RetryPolicy::never`]
/// switches these retries off.
///
/// # With a policy
/// A call is retried if its method is declared idempotent and the failure is one of these: the
/// server could not be reached, a queue of calls was full, it is unknown whether the handler ran,
/// the response was lost, or the handler answered [`Code::Unavailable`]. A call is not retried
/// after its deadline or a cancel, if a message was too large or malformed, or when the endpoint
/// ends. Calls of other methods are retried as without a policy, unless
/// [`RetryPolicy::also_unexecuted`] is set.
///
/// A retry avoids the server of the previous attempt, if the session of that attempt is still open
/// and another server is connected. The retry sends the request as it was first encoded, and has
/// the rest of the call's time.
///
/// ```
/// use std::time::Duration;
/// use erpc_core::calling::{CallOptions, RetryPolicy};
///
/// let policy = RetryPolicy::new(3).backoff(Duration::from_micros(500)).budget(0.1, 10);
/// let options = CallOptions::new().retry(policy);
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct RetryPolicy {
    attempts: u32,
    backoff: Duration,
    unexecuted: bool,
    ratio: f32,
    per_second: u32,
}

impl RetryPolicy {
    /// Makes up to `attempts` attempts, including the first, within the default budget.
    #[must_use]
    pub const fn new(attempts: u32) -> Self {
        Self {
            attempts,
            backoff: Duration::from_millis(1),
            unexecuted: false,
            ratio: 0.2,
            per_second: 10,
        }
    }

    /// Makes one attempt: no retries, even of calls that were certainly not executed.
    #[must_use]
    pub const fn never() -> Self {
        Self::new(1)
    }

    /// Pause before the second attempt. It doubles with each further attempt, up to 1 s, and is
    /// reduced at random by up to half. Default: 1 ms.
    #[must_use]
    pub const fn backoff(mut self, base: Duration) -> Self {
        self.backoff = base;
        self
    }

    /// Applies this policy also to calls of methods that are not idempotent, if they were certainly
    /// not executed. Without it, such calls are retried as without a policy.
    #[must_use]
    pub const fn also_unexecuted(mut self) -> Self {
        self.unexecuted = true;
        self
    }

    /// How many retries all calls of a channel may make together, so that retries do not overload
    /// servers in trouble: `ratio` per call, plus `per_second` each second. Unused retries are kept
    /// up to ten times `per_second`, or up to 100 if that is more. Defaults: 0.2 and 10. Calls that
    /// a server refuses because it shuts down are retried outside of the budget.
    #[must_use]
    pub const fn budget(mut self, ratio: f32, per_second: u32) -> Self {
        self.ratio = ratio;
        self.per_second = per_second;
        self
    }

    /// Whether this policy allows no retry at all.
    pub(crate) fn is_never(&self) -> bool {
        self.attempts <= 1
    }

    /// Whether this policy allows any retry of calls of a method that is, or is not, `idempotent`.
    pub(crate) fn covers(&self, idempotent: bool) -> bool {
        self.attempts > 1 && (idempotent || self.unexecuted)
    }

    /// Whether another attempt is allowed after `made` attempts, the last of which failed with
    /// `error`.
    pub(crate) fn allows(&self, made: u32, idempotent: bool, error: &CallError) -> bool {
        made < self.attempts
            && match failure(error) {
                FailureKind::NotExecuted => idempotent || self.unexecuted,
                FailureKind::Unknown => idempotent || mutant!(UnknownRetried),
                FailureKind::Final => false,
            }
    }

    /// The pause after `made` attempts; `random` reduces it by up to half.
    pub(crate) fn pause(&self, made: u32, random: u64) -> Duration {
        Backoff { base: self.backoff, cap: Duration::from_secs(1) }.pause(made, random)
    }
}

/// The policy that applies to calls without a policy of their own, and to streams that begin on
/// another server. The pauses double up to a
/// second, so that calls without a deadline do not retry often.
pub(crate) const UNEXECUTED: RetryPolicy =
    RetryPolicy::new(u32::MAX).also_unexecuted().budget(0.0, 100);

/// Whether a call without a policy is made again after this failure on a session, and whether a
/// stream begins on another server.
pub(crate) fn is_repeatable(error: &CallError) -> bool {
    match error {
        // The caller has to slow down: another attempt would hide that.
        CallError::Rejected(RejectReason::QueueFull) => false,
        error => matches!(failure(error), FailureKind::NotExecuted),
    }
}

/// What a failure means for a retry.
enum FailureKind {
    NotExecuted,
    /// The handler has run or may have run.
    Unknown,
    /// A retry would fail again, or the caller does not want one.
    Final,
}

fn failure(error: &CallError) -> FailureKind {
    match error {
        CallError::Status(status) if status.code() == Code::Unavailable => FailureKind::Unknown,
        CallError::Rejected(
            RejectReason::QueueFull
            | RejectReason::NoSession
            | RejectReason::Disconnecting
            | RejectReason::PeerDraining,
        ) => FailureKind::NotExecuted,
        CallError::NoServer(_) => FailureKind::NotExecuted,
        CallError::NotExecuted(cause) if !is_final(*cause) => FailureKind::NotExecuted,
        CallError::MaybeExecuted(cause) | CallError::ResponseLost(cause) if !is_final(*cause) => {
            FailureKind::Unknown
        }
        _ => FailureKind::Final,
    }
}

/// Whether another attempt would end the same way, or is not wanted.
fn is_final(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::Cancelled
            | Cause::DeadlineExceeded
            | Cause::Shutdown
            | Cause::RequestTooLarge(_)
            | Cause::ResponseTooLarge(_)
            | Cause::Malformed
    )
}

/// Exponential backoff with jitter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    /// The pause after the first failure, before the random reduction.
    pub(crate) base: Duration,
    /// Cap of the pause after any number of failures.
    pub(crate) cap: Duration,
}

impl Backoff {
    /// The pause after `failures` consecutive failures, at least one: `base`, doubled with each
    /// further failure, up to `cap`. `random` reduces it by up to half.
    pub(crate) fn pause(self, failures: u32, random: u64) -> Duration {
        let doubled = self.base.saturating_mul(1 << (failures.max(1) - 1).min(24)).min(self.cap);
        doubled - doubled.mul_f64(0.5 * (random >> 11) as f64 / (1u64 << 53) as f64)
    }
}

/// The retry budgets of a channel. Policies fill a budget at different rates, so the retries
/// without a policy have a budget of their own.
#[derive(Default)]
pub(crate) struct RetryBudgets {
    pub(crate) of_policies: RetryBudget,
    pub(crate) unexecuted: RetryBudget,
}

impl RetryBudgets {
    /// Numbers of retries granted and refused.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let (one, other) = (&self.of_policies, &self.unexecuted);
        (one.granted.get() + other.granted.get(), one.refused.get() + other.refused.get())
    }
}

/// A retry budget: a token bucket, counted in billionths of a token. At one retry per second, each
/// nanosecond adds one unit, so refills round nothing away, however frequent they are.
#[derive(Default)]
pub(crate) struct RetryBudget {
    tokens: Cell<u64>,
    /// When the time-based part was last added; `None` before a retry is first requested.
    filled: Cell<Option<Instant>>,
    /// Numbers of retries granted and refused.
    granted: Cell<u64>,
    refused: Cell<u64>,
}

/// The longest time that one refill counts. The bucket can hold the refill of this time, or 100
/// tokens if that is more.
const KEPT: Duration = Duration::from_secs(10);

/// One token, in billionths. A retry costs one token.
const TOKEN: u64 = 1_000_000_000;

impl RetryBudget {
    /// Adds the part that a call under `policy` earns.
    pub(super) fn earn(&self, policy: &RetryPolicy) {
        // The cast saturates for negative and for huge ratios.
        self.add((f64::from(policy.ratio) * TOKEN as f64) as u64, policy);
    }

    /// Whether a call that failed with `error` may be made again. Takes the retry from the budget,
    /// unless a server that shuts down has refused the call: this server gets no further calls, so
    /// these retries overload no server in trouble.
    pub(crate) fn grants(&self, policy: &RetryPolicy, error: &CallError, now: Instant) -> bool {
        if *error == CallError::NotExecuted(Cause::PeerDraining) && !mutant!(DrainCharged) {
            self.granted.set(self.granted.get() + 1);
            return true;
        }
        self.spend(policy, now)
    }

    /// Takes one retry from the budget. False if the budget is empty.
    fn spend(&self, policy: &RetryPolicy, now: Instant) -> bool {
        // A channel starts with the refill of `KEPT`, 10 s.
        let since = self.filled.replace(Some(now)).map_or(KEPT, |filled| now - filled);
        let nanos = since.min(KEPT).as_nanos() as u64;
        self.add(nanos.saturating_mul(policy.per_second.into()), policy);
        let Some(left) = self.tokens.get().checked_sub(TOKEN) else {
            self.refused.set(self.refused.get() + 1);
            return false;
        };
        if !mutant!(RetriesFree) {
            self.tokens.set(left);
        }
        self.granted.set(self.granted.get() + 1);
        true
    }

    fn add(&self, tokens: u64, policy: &RetryPolicy) {
        // The cap is at least 100 retries, so that tokens that calls earn are kept even if
        // `per_second` is 0.
        let most = KEPT.as_secs() * u64::from(policy.per_second).max(10);
        let full = most.saturating_mul(TOKEN);
        self.tokens.set(self.tokens.get().saturating_add(tokens).min(full));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Status;

    #[test]
    fn a_policy_allows_retries_by_error_and_idempotence() {
        use CallError::{MaybeExecuted, NotExecuted, Rejected, ResponseLost};
        let policy = RetryPolicy::new(2);
        let not_run = [NotExecuted(Cause::PeerDead), Rejected(RejectReason::QueueFull)];
        let unknown = [
            MaybeExecuted(Cause::PeerReset),
            ResponseLost(Cause::NoMemory),
            CallError::Status(Status::unavailable("")),
        ];
        let last = [
            NotExecuted(Cause::Cancelled),
            MaybeExecuted(Cause::DeadlineExceeded),
            ResponseLost(Cause::Malformed),
            Rejected(RejectReason::DeadlineExceeded),
            CallError::Status(Status::internal("")),
        ];
        let all = |policy: &RetryPolicy, idempotent: bool, errors: &[CallError], expected: bool| {
            errors.iter().for_each(|error| {
                assert_eq!(policy.allows(1, idempotent, error), expected, "{error:?}");
                assert!(!policy.allows(2, idempotent, error), "{error:?}");
            });
        };
        all(&policy, true, &not_run, true);
        all(&policy, true, &unknown, true);
        all(&policy, true, &last, false);
        all(&policy, false, &not_run, false);
        let bold = policy.also_unexecuted();
        all(&bold, false, &not_run, true);
        all(&bold, false, &unknown, false);
        assert!(bold.covers(false) && !RetryPolicy::never().also_unexecuted().covers(true));
    }

    #[test]
    fn without_a_policy_only_unexecuted_calls_are_retried() {
        for error in [
            CallError::NotExecuted(Cause::PeerReset),
            CallError::NotExecuted(Cause::PeerDead),
            CallError::Rejected(RejectReason::NoSession),
            CallError::Rejected(RejectReason::Disconnecting),
            CallError::NotExecuted(Cause::PeerDraining),
        ] {
            assert!(is_repeatable(&error), "{error}");
        }
        for error in [
            CallError::NotExecuted(Cause::Cancelled),
            CallError::NotExecuted(Cause::DeadlineExceeded),
            CallError::NotExecuted(Cause::Shutdown),
            CallError::Rejected(RejectReason::QueueFull),
            CallError::MaybeExecuted(Cause::PeerReset),
            CallError::ResponseLost(Cause::PeerReset),
            CallError::Status(Status::unavailable("")),
        ] {
            assert!(!is_repeatable(&error), "{error}");
        }
    }

    #[test]
    fn pauses_double_up_to_the_cap_and_vary_by_half() {
        let ms = Duration::from_millis;
        let backoff = Backoff { base: ms(50), cap: ms(300) };
        for (failures, longest) in [(1, 50), (2, 100), (3, 200), (4, 300), (99, 300)] {
            assert_eq!(backoff.pause(failures, 0), ms(longest));
            let shortest = backoff.pause(failures, u64::MAX);
            assert!((ms(longest) / 2..ms(longest) / 2 + ms(1)).contains(&shortest), "{shortest:?}");
        }
    }

    #[test]
    fn the_budget_grows_with_calls_and_with_time() {
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let spend = |budget: &RetryBudget, policy: &RetryPolicy, now: Instant| {
            std::iter::from_fn(|| budget.spend(policy, now).then_some(())).count()
        };
        let (budget, policy) = (RetryBudget::default(), RetryPolicy::new(2).budget(0.1, 2));
        assert_eq!(spend(&budget, &policy, at(5)), 20, "a new budget holds the refill of 10 s");
        assert_eq!(spend(&budget, &policy, at(5)), 0);
        assert_eq!(spend(&budget, &policy, at(1_505)), 3);
        (0..50).for_each(|_| budget.earn(&policy));
        assert_eq!(spend(&budget, &policy, at(1_505)), 5);
        (0..10_000).for_each(|_| budget.earn(&policy));
        assert_eq!(spend(&budget, &policy, at(900_000)), 100, "the budget is capped");
        let boundless = RetryPolicy::new(2).budget(f32::INFINITY, u32::MAX);
        assert!(budget.spend(&boundless, at(1_000_000)));
        let (budget, none) = (RetryBudget::default(), RetryPolicy::new(2).budget(-1.0, 0));
        budget.earn(&none);
        assert_eq!(spend(&budget, &none, at(5)), 0);
    }

    #[test]
    fn calls_that_a_draining_server_refused_are_outside_of_the_budget() {
        let (budgets, none) = (RetryBudgets::default(), RetryPolicy::new(2).budget(0.0, 0));
        let budget = &budgets.unexecuted;
        let at = Instant::from_nanos(5);
        let refused = CallError::NotExecuted(Cause::PeerDraining);
        assert!((0..10).all(|_| budget.grants(&none, &refused, at)));
        assert!(!budget.grants(&none, &CallError::NotExecuted(Cause::PeerReset), at));
        assert_eq!(budgets.counts(), (10, 1));
    }

    #[test]
    fn the_refill_is_exact_however_often_the_budget_is_spent() {
        let policy = RetryPolicy::new(2).budget(0.0, 10);
        for pause in [70_001, 400_000, 1_999_999, 150_000_000] {
            let (budget, end) = (RetryBudget::default(), 20_000_000_000);
            let asked = (0..=end).step_by(pause).map(Instant::from_nanos);
            let retries = asked.filter(|&now| budget.spend(&policy, now)).count();
            // The initial refill of 10 s, plus the refill of 20 s.
            let expected = (end as usize / pause + 1).min(300);
            assert!((expected - 2..=expected).contains(&retries), "every {pause} ns: {retries}");
        }
    }
}
