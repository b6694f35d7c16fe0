//! An endless load of calls, for tests in which servers or networks fail, and the check of its
//! outcomes.

use std::cell::{Cell, Ref, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use erpc::{CallError, CallOptions, Cause, Endpoint, RetryPolicy, Transport, Udp};

use crate::lab::work;
use crate::proto::LocalLabClient;
use erpc_test_tools::limit::millis;
use erpc_test_tools::random::Random;

/// Number of unanswered calls, over all sessions. The sessions have 24 slots together, so some
/// calls wait for a slot.
const OUTSTANDING: usize = 40;
/// Number of sessions, with 8 slots each.
const SESSIONS: usize = 3;

/// Upper bounds of the lengths of requests and responses, with weights: see
/// [`Random::below_one_of`].
pub type Lengths = &'static [(u64, u64)];

/// Lengths in bytes of the request and of the response of call `id`.
#[must_use]
pub fn lengths_of(lengths: Lengths, id: u64) -> (usize, usize) {
    let mut random = Random::new(id);
    let mut one = || random.below_one_of(lengths) as usize;
    (one(), one())
}

/// The outcome of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallOutcome {
    /// The client received the right answer.
    Answered,
    /// The server has not executed the call.
    NotExecuted(Cause),
    /// The server may have executed the call.
    MaybeExecuted(Cause),
    /// The server has executed the call, but the client received at most a part of the response.
    ResponseLost(Cause),
}

/// A [`CallOutcome`] without its cause. [`judge`] compares it with the calls that servers executed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "as those of `CallOutcome`")]
pub enum Ending {
    Answered,
    NotExecuted,
    MaybeExecuted,
    ResponseLost,
}

impl CallOutcome {
    /// The cause of the failure. `None` if the call was answered.
    #[must_use]
    pub fn cause(self) -> Option<Cause> {
        match self {
            Self::Answered => None,
            Self::NotExecuted(cause) | Self::MaybeExecuted(cause) | Self::ResponseLost(cause) => {
                Some(cause)
            }
        }
    }

    fn ending(self) -> Ending {
        match self {
            Self::Answered => Ending::Answered,
            Self::NotExecuted(_) => Ending::NotExecuted,
            Self::MaybeExecuted(_) => Ending::MaybeExecuted,
            Self::ResponseLost(_) => Ending::ResponseLost,
        }
    }
}

impl Ending {
    /// All endings, each with its word in the output of a process.
    pub const WORDS: [(Self, &str); 4] = [
        (Self::Answered, "ANSWERED"),
        (Self::NotExecuted, "NOT-EXECUTED"),
        (Self::MaybeExecuted, "MAYBE-EXECUTED"),
        (Self::ResponseLost, "RESPONSE-LOST"),
    ];
}

/// A load that keeps calls in flight until a call fails or [`Load::drain`] ends it. Each call has
/// its own id and is not retried.
pub struct Load<T: Transport = Udp> {
    lengths: Lengths,
    sessions: RefCell<Vec<LocalLabClient<T>>>,
    next: Cell<u64>,
    under_way: Cell<usize>,
    answered: Cell<usize>,
    outcomes: RefCell<HashMap<u64, CallOutcome>>,
    /// The load makes no further calls until the next [`Load::start`].
    halted: Cell<bool>,
}

impl<T: Transport> Load<T> {
    /// A load without calls. Its requests and responses will have random `lengths`.
    #[must_use]
    pub fn new(lengths: Lengths) -> Rc<Self> {
        Rc::new(Self {
            lengths,
            sessions: RefCell::default(),
            next: Cell::new(0),
            under_way: Cell::new(0),
            answered: Cell::new(0),
            outcomes: RefCell::default(),
            halted: Cell::new(false),
        })
    }

    /// Opens sessions with `open` and starts calls on them.
    pub fn start(load: &Rc<Self>, open: impl FnMut() -> LocalLabClient<T>) {
        let once = CallOptions::new().retry(RetryPolicy::never());
        *load.sessions.borrow_mut() =
            std::iter::repeat_with(open).take(SESSIONS).map(|lab| lab.with(once.clone())).collect();
        load.halted.set(false);
        for _ in 0..OUTSTANDING {
            Self::call(load);
        }
    }

    fn call(load: &Rc<Self>) {
        let id = load.next.get();
        load.next.set(id + 1);
        load.under_way.set(load.under_way.get() + 1);
        let (request, reply) = lengths_of(load.lengths, id);
        let (request, expected) = work(id, request, reply);
        let again = Rc::clone(load);
        let lab = load.sessions.borrow()[id as usize % SESSIONS].clone();
        lab.work_with(request, move |reply| {
            again.end(
                id,
                match reply {
                    Ok(reply) => {
                        assert!(reply == expected, "call {id} has a wrong answer");
                        CallOutcome::Answered
                    }
                    Err(CallError::NotExecuted(cause)) => CallOutcome::NotExecuted(cause),
                    Err(CallError::MaybeExecuted(cause)) => CallOutcome::MaybeExecuted(cause),
                    Err(CallError::ResponseLost(cause)) => CallOutcome::ResponseLost(cause),
                    Err(error) => panic!("call {id} ends with {error:?}"),
                },
            );
            if !again.halted.get() {
                Self::call(&again);
            }
        });
    }

    fn end(&self, id: u64, outcome: CallOutcome) {
        let before = self.outcomes.borrow_mut().insert(id, outcome);
        assert_eq!(before, None, "call {id} ends twice");
        self.under_way.set(self.under_way.get() - 1);
        match outcome {
            CallOutcome::Answered => self.answered.set(self.answered.get() + 1),
            _ => self.halted.set(true),
        }
    }

    /// Runs until `answers` further calls are answered.
    pub fn run(&self, endpoint: &Endpoint<T>, answers: usize) {
        let wanted = self.answered() + answers;
        endpoint.run_until(|| self.answered() >= wanted);
    }

    /// Stops making calls, and runs until all calls have ended.
    ///
    /// # Panics
    /// If calls are still in flight after `limit`.
    pub fn drain(&self, endpoint: &Endpoint<T>, limit: Duration) {
        self.halted.set(true);
        let begun = Instant::now();
        while self.under_way.get() > 0 && begun.elapsed() < limit {
            endpoint.run_for(millis(1));
        }
        assert_eq!(self.under_way.get(), 0, "calls have not ended after {limit:?}");
    }

    /// Whether a call has failed, or [`Load::drain`] was called, since the last start.
    #[must_use]
    pub fn is_halted(&self) -> bool {
        self.halted.get()
    }

    /// Number of answered calls.
    #[must_use]
    pub fn answered(&self) -> usize {
        self.answered.get()
    }

    /// Number of calls made, which is also the id of the next call.
    #[must_use]
    pub fn made(&self) -> u64 {
        self.next.get()
    }

    /// The outcome of each call, by id.
    ///
    /// # Panics
    /// If a call has not ended.
    #[must_use]
    pub fn outcomes(&self) -> Ref<'_, HashMap<u64, CallOutcome>> {
        let outcomes = self.outcomes.borrow();
        assert_eq!(outcomes.len() as u64, self.made(), "every call has ended");
        outcomes
    }

    /// The ending of each call, for [`judge`].
    #[must_use]
    pub fn endings(&self) -> Vec<(u64, Ending)> {
        self.outcomes().iter().map(|(id, outcome)| (*id, outcome.ending())).collect()
    }
}

/// Compares the endings of calls with the ids of the calls that servers executed. Returns the
/// number of calls per ending.
///
/// # Panics
/// If a call was executed twice, or its ending contradicts the servers.
#[must_use]
pub fn judge(executed: &[u64], endings: &[(u64, Ending)]) -> HashMap<Ending, usize> {
    let mut times: HashMap<u64, u32> = HashMap::new();
    for id in executed {
        *times.entry(*id).or_default() += 1;
    }
    let repeated: Vec<_> = times.iter().filter(|(_, times)| **times != 1).collect();
    assert!(repeated.is_empty(), "executed more than once: {repeated:?}");
    let mut counts = HashMap::new();
    for (id, ending) in endings {
        let was_executed = times.contains_key(id);
        match ending {
            Ending::Answered => assert!(was_executed, "call {id}: answered but not executed"),
            Ending::NotExecuted => assert!(!was_executed, "call {id}: NotExecuted but executed"),
            Ending::ResponseLost => {
                assert!(was_executed, "call {id}: ResponseLost but not executed")
            }
            Ending::MaybeExecuted => {}
        }
        *counts.entry(*ending).or_default() += 1;
    }
    counts
}
