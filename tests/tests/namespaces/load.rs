//! Calls through bad weather, and what must be true of them afterwards.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use erpc::transport::fault::Faulty;
use erpc::{CallError, Cause, Endpoint, Udp};
use erpc_tests::data::Dice;
use erpc_tests::lab::work;
use erpc_tests::limit::millis;
use erpc_tests::proto::*;

use crate::net::{SERVER, say};

/// Calls under way at once: the 8 slots of each session and some that wait.
const OUTSTANDING: usize = 40;
const SESSIONS: usize = 3;

/// How a call has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Answered,
    NotExecuted(Cause),
    MaybeExecuted(Cause),
    ResponseLost(Cause),
}

impl Outcome {
    /// Why it has failed.
    pub(crate) fn cause(self) -> Option<Cause> {
        match self {
            Self::Answered => None,
            Self::NotExecuted(cause) | Self::MaybeExecuted(cause) | Self::ResponseLost(cause) => {
                Some(cause)
            }
        }
    }
}

/// Lengths of request and response: mostly small, some of several packets.
fn lengths(id: u64) -> (usize, usize) {
    let mut dice = Dice::new(id);
    let mut one = || match dice.below(20) {
        0..17 => dice.below(500) as usize,
        17..19 => dice.below(5_000) as usize,
        _ => dice.below(20_000) as usize,
    };
    (one(), one())
}

/// Calls without end, each with an id of its own and never repeated, until one of them fails.
#[derive(Default)]
pub(crate) struct Load {
    sessions: RefCell<Vec<LabClient<Faulty<Udp>>>>,
    pub(crate) next: Cell<u64>,
    under_way: Cell<usize>,
    pub(crate) answered: Cell<usize>,
    pub(crate) outcomes: RefCell<HashMap<u64, Outcome>>,
    /// No more calls for now.
    halted: Cell<bool>,
}

impl Load {
    /// Opens sessions and makes calls on them until one fails or `is_over` says so, and lets those end
    /// that are under way.
    pub(crate) fn round(
        load: &Rc<Self>,
        endpoint: &Endpoint<Faulty<Udp>>,
        mut is_over: impl FnMut() -> bool,
    ) {
        Self::start(load, endpoint);
        while !is_over() && !load.halted.get() {
            endpoint.run_for(millis(2));
        }
        load.halted.set(true);
        while load.under_way.get() > 0 {
            endpoint.run_for(millis(2));
        }
    }

    /// Says how each call has ended, for [`compare`].
    ///
    /// # Panics
    /// If one has not.
    pub(crate) fn say(&self) {
        let outcomes = self.outcomes.borrow();
        assert_eq!(outcomes.len() as u64, self.next.get(), "every call has ended");
        for (id, outcome) in outcomes.iter() {
            let word = match outcome {
                Outcome::Answered => "ANSWERED",
                Outcome::NotExecuted(_) => "NOT-EXECUTED",
                Outcome::MaybeExecuted(_) => "MAYBE-EXECUTED",
                Outcome::ResponseLost(_) => "RESPONSE-LOST",
            };
            say(&format!("{word} {id}"));
        }
    }

    fn start(load: &Rc<Self>, endpoint: &Endpoint<Faulty<Udp>>) {
        let open = |_| LabClient::new(endpoint.open(SERVER.into()));
        *load.sessions.borrow_mut() = (0..SESSIONS).map(open).collect();
        load.halted.set(false);
        for _ in 0..OUTSTANDING {
            Self::call(load);
        }
    }

    fn call(load: &Rc<Self>) {
        let id = load.next.get();
        load.next.set(id + 1);
        load.under_way.set(load.under_way.get() + 1);
        let (request, expected) = work(id, lengths(id).0, lengths(id).1);
        let again = Rc::clone(load);
        let lab = load.sessions.borrow()[id as usize % SESSIONS].clone();
        lab.work_with(request, move |reply| {
            let outcome = match reply {
                Ok(reply) => {
                    assert!(reply == expected, "call {id} brings a wrong answer");
                    Outcome::Answered
                }
                Err(CallError::NotExecuted(cause)) => Outcome::NotExecuted(cause),
                Err(CallError::MaybeExecuted(cause)) => Outcome::MaybeExecuted(cause),
                Err(CallError::ResponseLost(cause)) => Outcome::ResponseLost(cause),
                Err(error) => panic!("call {id} ends with {error:?}"),
            };
            again.end(id, outcome);
            if !again.halted.get() {
                Self::call(&again);
            }
        });
    }

    fn end(&self, id: u64, outcome: Outcome) {
        let before = self.outcomes.borrow_mut().insert(id, outcome);
        assert_eq!(before, None, "call {id} ends twice");
        self.under_way.set(self.under_way.get() - 1);
        match outcome {
            Outcome::Answered => self.answered.set(self.answered.get() + 1),
            _ => self.halted.set(true),
        }
    }
}

/// Compares what a server says, `EXECUTED` with an id per request, and what its client says at the end.
/// Returns how many calls were answered.
///
/// # Panics
/// If one of them is wrong.
pub(crate) fn compare(server: &[String], client: &[String]) -> usize {
    let mut executed: HashMap<String, u32> = HashMap::new();
    for id in server.iter().filter_map(|line| line.strip_prefix("EXECUTED ")) {
        *executed.entry(id.to_owned()).or_default() += 1;
    }
    let repeated: Vec<_> = executed.iter().filter(|(_, times)| **times != 1).collect();
    assert!(repeated.is_empty(), "executed more than once: {repeated:?}");
    let mut answered = 0;
    for (word, id) in client.iter().filter_map(|line| line.split_once(' ')) {
        let was_executed = executed.contains_key(id);
        match word {
            "ANSWERED" => {
                answered += 1;
                assert!(was_executed, "call {id} was answered by nobody");
            }
            "NOT-EXECUTED" => assert!(!was_executed, "call {id} was executed after all"),
            "RESPONSE-LOST" => assert!(was_executed, "call {id} was not executed after all"),
            // May be. The rest are the harness's words.
            _ => {}
        }
    }
    answered
}
