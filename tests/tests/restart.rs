//! The server is killed in the middle of its work and comes back at the same address: every call ends,
//! once, and says truly whether it was executed.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use erpc::{CallError, Cause, ConnectFailure, Endpoint, EndpointConfig};
use erpc_tests::data::Dice;
use erpc_tests::lab::{client, work};
use erpc_tests::limit::{millis, secs, within};
use erpc_tests::process::Process;
use erpc_tests::proto::*;

/// Calls under way at once: the 8 slots of each session and some that wait.
const OUTSTANDING: usize = 40;
const SESSIONS: usize = 3;
const LIVENESS: Duration = millis(500);

fn config() -> EndpointConfig {
    EndpointConfig::new()
        .ping_interval(millis(100))
        .liveness_timeout(LIVENESS)
        .connect_timeout(secs(2))
}

fn start(address: &str) -> (Process, SocketAddr) {
    let process = Process::start("server", env!("CARGO_BIN_EXE_lab_server"), &[address, "2"]);
    let address = process.expect_address("LISTENING");
    (process, address)
}

/// The pieces of work that a server, now dead, has executed.
fn executed(server: &mut Process) -> Vec<u64> {
    let number = |line: String| {
        let id =
            line.strip_prefix("EXECUTED ").unwrap_or_else(|| panic!("the server said: {line}"));
        id.parse().unwrap_or_else(|_| panic!("the server said: {line}"))
    };
    // Lines this short enter a pipe whole or not at all.
    server.rest().into_iter().map(number).collect()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Answered,
    NotExecuted(Cause),
    MaybeExecuted(Cause),
    /// Executed, but only part of the response came.
    ResponseLost(Cause),
}

/// Lengths of request and response: some in several packets, so that kills hit all phases of a call.
fn lengths(id: u64) -> (usize, usize) {
    let mut dice = Dice::new(id);
    let mut one = || match dice.below(20) {
        0..16 => dice.below(500) as usize,
        16..19 => dice.below(100_000) as usize,
        _ => dice.below(1 << 20) as usize,
    };
    (one(), one())
}

/// Calls without end; each has an id of its own and is never repeated.
struct Load {
    sessions: RefCell<Vec<LabClient>>,
    next: Cell<u64>,
    under_way: Cell<usize>,
    outcomes: RefCell<HashMap<u64, Outcome>>,
    /// A session has failed: no more calls until there are new ones.
    halted: Cell<bool>,
}

impl Load {
    fn new() -> Rc<Self> {
        Rc::new(Self {
            sessions: RefCell::default(),
            next: Cell::new(0),
            under_way: Cell::new(0),
            outcomes: RefCell::default(),
            halted: Cell::new(false),
        })
    }

    /// Opens sessions and starts calls on them.
    fn start(load: &Rc<Self>, endpoint: &Endpoint, server: SocketAddr) {
        let open = |_| LabClient::new(endpoint.connect(server).expect("a new session opens"));
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
            let before = again.outcomes.borrow_mut().insert(id, outcome);
            assert_eq!(before, None, "call {id} ends twice");
            again.under_way.set(again.under_way.get() - 1);
            if outcome != Outcome::Answered {
                again.halted.set(true);
            }
            if !again.halted.get() {
                Self::call(&again);
            }
        });
    }

    fn answered(&self) -> usize {
        self.outcomes.borrow().values().filter(|outcome| **outcome == Outcome::Answered).count()
    }

    /// Until every call has ended, which it must within `limit`.
    fn drain(&self, endpoint: &Endpoint, limit: Duration) {
        let begun = Instant::now();
        while self.under_way.get() > 0 && begun.elapsed() < limit {
            endpoint.run_for(millis(1));
        }
        assert_eq!(self.under_way.get(), 0, "calls have not ended after {limit:?}");
    }
}

/// What the client was told against what the servers did.
fn check(load: &Load, executed: &[u64]) {
    let mut times: HashMap<u64, u32> = HashMap::new();
    for id in executed {
        *times.entry(*id).or_default() += 1;
    }
    let outcomes = load.outcomes.borrow();
    assert_eq!(outcomes.len() as u64, load.next.get(), "every call has ended");
    for (id, times) in &times {
        assert_eq!(*times, 1, "call {id} was executed {times} times");
    }
    let mut counts = [0; 4];
    for (id, outcome) in outcomes.iter() {
        let was_executed = times.contains_key(id);
        match outcome {
            Outcome::Answered => assert!(was_executed, "call {id} was answered by nobody"),
            Outcome::ResponseLost(cause) => {
                assert!(was_executed, "call {id} was not executed, in spite of: {cause}")
            }
            Outcome::NotExecuted(cause) => {
                assert!(!was_executed, "call {id} was executed, in spite of: {cause}")
            }
            Outcome::MaybeExecuted(_) => {}
        }
        counts[match outcome {
            Outcome::Answered => 0,
            Outcome::NotExecuted(_) => 1,
            Outcome::MaybeExecuted(_) => 2,
            Outcome::ResponseLost(_) => 3,
        }] += 1;
    }
    let [answered, not, maybe, lost] = counts;
    eprintln!(
        "{answered} answered, {not} not executed, {maybe} maybe executed, {lost} executed in vain"
    );
}

#[test]
fn a_server_that_comes_back_at_once() {
    within(secs(100), || {
        let endpoint = client(config());
        let load = Load::new();
        let (mut server, address) = start("127.0.0.1:0");
        let mut did = Vec::new();
        for round in 1..=5 {
            Load::start(&load, &endpoint, address);
            let answered = load.answered();
            endpoint.run_until(|| load.answered() >= answered + 300 + round * 37);
            server.kill();
            did.extend(executed(&mut server));
            // While the client goes on asking.
            server = start(&address.to_string()).0;
            let begun = Instant::now();
            load.drain(&endpoint, secs(10));
            eprintln!("round {round}: all calls ended {:?} after the restart", begun.elapsed());
        }
        Load::start(&load, &endpoint, address);
        let answered = load.answered();
        endpoint.run_until(|| load.answered() >= answered + 300);
        load.halted.set(true);
        load.drain(&endpoint, secs(10));
        server.kill();
        did.extend(executed(&mut server));
        check(&load, &did);
        let outcomes = load.outcomes.borrow();
        let of = |wanted: fn(&Outcome) -> bool| {
            outcomes.values().filter(|outcome| wanted(outcome)).count()
        };
        assert!(
            of(|outcome| matches!(outcome, Outcome::MaybeExecuted(_))) > 0,
            "kills hit calls under way"
        );
        assert!(
            of(|outcome| matches!(outcome, Outcome::NotExecuted(_))) > 0,
            "kills hit calls that waited"
        );
    });
}

#[test]
fn a_server_that_stays_away() {
    within(secs(60), || {
        let endpoint = client(config());
        let load = Load::new();
        let (mut server, address) = start("127.0.0.1:0");
        Load::start(&load, &endpoint, address);
        endpoint.run_until(|| load.answered() >= 300);
        server.kill();
        let begun = Instant::now();
        load.drain(&endpoint, LIVENESS * 20);
        eprintln!("all calls ended {:?} after the kill", begun.elapsed());
        assert!(load.outcomes.borrow().values().all(|outcome| match outcome {
            Outcome::Answered => true,
            Outcome::NotExecuted(cause)
            | Outcome::MaybeExecuted(cause)
            | Outcome::ResponseLost(cause) => {
                *cause == Cause::PeerDead
            }
        }));

        // Nobody is there: that is said, and soon.
        let quick = client(config().connect_timeout(millis(300)));
        let error = LabClient::connect(&quick, address).expect_err("nobody listens");
        assert!(matches!(error.reason(), ConnectFailure::Handshake(_)), "{error}");
        assert_eq!(error.address(), address.to_string());

        // Somebody is there again, and the old client goes on with new sessions.
        let mut did = executed(&mut server);
        let (mut server, _) = start(&address.to_string());
        Load::start(&load, &endpoint, address);
        let answered = load.answered();
        endpoint.run_until(|| load.answered() >= answered + 300);
        load.halted.set(true);
        load.drain(&endpoint, secs(10));
        server.kill();
        did.extend(executed(&mut server));
        check(&load, &did);
    });
}
