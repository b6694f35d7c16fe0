//! Event sequences for the oracle. It must report every wrong sequence and accept every correct
//! one.

use erpc_core::protocol::{CallError, Cause, ConnectError, RejectReason};
use erpc_core::status::{Code, Status};
use erpc_core::transport::NetworkError;

use super::calls::LATEST;
use super::*;
use crate::plan::Cut;
use crate::{Features, Scenario, pattern};

const REQUEST: u32 = 40;
const RESPONSE: u32 = 50;
const SERVER: Incarnation = (1, 0);
/// The address of every session.
pub(super) const ADDRESS: Address = Address {
    server: SimRoute::new(1, 1),
    to_server: Some(0x0007_8000_0600),
    to_client: 0x0008_0000_0000,
};
/// When every sequence begins, in ns.
const START: u64 = 1_000;

/// A session and a call of it, with the oracle that follows them.
struct Fixture {
    oracle: Oracle,
    session: u32,
    id: u32,
}

impl Fixture {
    /// A session that is opening and a call that was just begun, in a run with these features.
    fn new(features: &[Feature]) -> Self {
        let mut plan = Plan::draw(1, Scenario::Calm, &Cut::default());
        plan.features = Features::of(features);
        plan.drawn = plan.features;
        let mut oracle = Oracle::new(&plan);
        oracle.set_now(Instant::from_nanos(START));
        let session = oracle.session(0, ADDRESS);
        let id = oracle.begin(session, REQUEST, RESPONSE);
        Self { oracle, session, id }
    }

    fn after(&mut self, nanos: u64) -> &mut Self {
        self.oracle.set_now(Instant::from_nanos(START + nanos));
        self
    }

    fn opens(&mut self) -> &mut Self {
        self.oracle.opened(self.session, None);
        self
    }

    /// The whole request is sent.
    fn is_sent(&mut self) -> &mut Self {
        self.oracle.sent(self.id, REQUEST as usize);
        self
    }

    fn request(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        pattern::fill(&mut bytes, self.oracle.request_key(self.id), REQUEST as usize);
        bytes
    }

    fn response(&self) -> Vec<u8> {
        let key = pattern::answer(self.oracle.request_key(self.id), REQUEST as usize);
        let mut bytes = Vec::new();
        pattern::fill(&mut bytes, key, RESPONSE as usize);
        bytes
    }

    fn is_executed_at(&mut self, at: Incarnation) -> &mut Self {
        let request = self.request();
        let asked = self.oracle.executed(at, self.id, &request);
        assert_eq!(asked.response_len, RESPONSE as usize);
        self
    }

    fn is_executed(&mut self) -> &mut Self {
        self.is_executed_at(SERVER)
    }

    /// The call, which was just begun, has a deadline in `nanos` ns.
    fn is_due_in(&mut self, nanos: u64) -> &mut Self {
        self.oracle.extend(self.id, Some(nanos));
        self
    }

    fn is_cancelled(&mut self) -> &mut Self {
        self.oracle.cancelled(self.id, true);
        self
    }

    fn is_cancelled_in_vain(&mut self) -> &mut Self {
        self.oracle.cancelled(self.id, false);
        self
    }

    /// The handler learns that `left` ns are left.
    fn is_told(&mut self, left: i64) -> &mut Self {
        self.oracle.told_deadline(self.id, Some(left));
        self
    }

    /// The request's first packet says that `micros` us are left.
    fn says(&mut self, micros: u32) -> &mut Self {
        self.oracle.sent_deadline(self.id, micros);
        self
    }

    /// The handler learns that its caller no longer waits.
    fn is_told_to_stop(&mut self) -> &mut Self {
        self.oracle.told_of_cancel(self.id);
        self
    }

    fn panics(&mut self) -> &mut Self {
        self.oracle.panicked(self.id);
        self
    }

    /// A packet of the client arrives at the server.
    fn server_hears(&mut self) -> &mut Self {
        self.oracle.hears(SERVER.0, self.oracle.routes[0]);
        self
    }

    fn server_lives(&mut self) -> &mut Self {
        self.oracle.routes[SERVER.0] = ADDRESS.server;
        self.oracle.endpoint_lives(SERVER.0);
        self
    }

    fn server_dies(&mut self) -> &mut Self {
        self.oracle.endpoint_dies(SERVER.0);
        self
    }

    /// One ping of the session is returned every 100 ms, `count` in all, because the server is
    /// dead. Each of them is reported twice.
    fn has_pings_returned(&mut self, count: u32) -> &mut Self {
        for nonce in 0..count {
            self.oracle.now = self.oracle.now.plus_nanos(100 * MS);
            let id = ADDRESS.to_server.expect("the session has an id");
            self.oracle.ping_is_returned(0, ADDRESS.server, id, nonce);
            self.oracle.ping_is_returned(0, ADDRESS.server, id, nonce);
        }
        self
    }

    /// The next steps are about another call of the same session.
    fn calls_again(&mut self) -> &mut Self {
        self.id = self.oracle.begin(self.session, REQUEST, RESPONSE);
        self
    }

    fn is_answered(&mut self) -> &mut Self {
        let (request, response) = (self.request(), self.response());
        self.oracle.ended(self.id, Ok(&response), &request);
        self
    }

    fn is_of_method(&mut self, method: u32) -> &mut Self {
        self.oracle.is_of_method(self.id, method);
        self
    }

    /// A call of `method` is sent, executed, and answered after `nanos` ns.
    fn method_takes(&mut self, method: u32, from: u64, nanos: u64) -> &mut Self {
        self.method_runs(method, from);
        let id = self.id;
        self.after(from + nanos).oracle.handler_answers(id);
        self.is_answered()
    }

    /// A call of `method` is sent and executed, and its handler goes on.
    fn method_runs(&mut self, method: u32, from: u64) -> &mut Self {
        self.after(from).calls_again().is_of_method(method).is_sent().is_executed()
    }

    /// A call of `method` is sent at `from`, and again `nanos` ns later.
    fn is_probed(&mut self, method: u32, from: u64, nanos: u64) -> &mut Self {
        self.after(from).calls_again().is_of_method(method).is_sent();
        self.after(from + nanos).is_sent();
        self.oracle.is_probed(self.id, Instant::from_nanos(START + from), MS);
        self
    }

    fn fails(&mut self, error: CallError) -> &mut Self {
        let request = self.request();
        self.oracle.ended(self.id, Err(&error), &request);
        self
    }

    fn has_status(&mut self, code: Code) -> &mut Self {
        self.fails(CallError::Status(Status::new(code, "a test status")))
    }

    fn closes(&mut self, cause: Cause) -> &mut Self {
        self.oracle.session_ended(self.session, cause);
        self
    }
}

const CALM: &[Feature] = &[];
/// Sessions may die. No other fault is allowed.
const DEADLY: &[Feature] = &[Feature::Crashes];
/// Packets may arrive damaged.
const UNTRUSTED: &[Feature] = &[Feature::Crashes, Feature::Corruption];
/// Packets to dead endpoints are returned.
const REPORTED: &[Feature] = &[Feature::Crashes, Feature::Reports];
const UNREACHABLE: Cause = Cause::Unreachable(NetworkError::NothingListens);
const NEVER_REACHED: Cause =
    Cause::Connect(ConnectError::Unreachable(NetworkError::NothingListens));
const MS: u64 = 1_000_000;
const LIVENESS: u64 = 10_000_000_000;
const CONNECT: u64 = 2_000_000_000;

type Steps = fn(&mut Fixture);

/// Features, a wrong sequence, and part of the expected violation.
const WRONG: &[(&[Feature], Steps, &str)] = &[
    // Executions.
    (
        CALM,
        |s| {
            s.oracle.executed(SERVER, 99, b"");
        },
        "call 99, which was never made",
    ),
    (
        CALM,
        |s| {
            s.is_executed().is_executed();
        },
        "call 0 is executed 2 times",
    ),
    (
        CALM,
        |s| {
            s.is_executed().is_answered().calls_again().is_executed_at((1, 1));
        },
        "call 1 is executed by",
    ),
    (
        CALM,
        |s| {
            s.is_executed().is_answered().calls_again().is_executed_at((2, 0));
        },
        "call 1 is executed by",
    ),
    (
        DEADLY,
        |s| {
            s.opens().fails(CallError::NotExecuted(Cause::PeerReset)).is_executed();
        },
        "call 0 is executed after it ended as not executed",
    ),
    (
        DEADLY,
        |s| {
            let request = s.request();
            s.oracle.rejected(s.id, &request);
            s.is_executed();
        },
        "call 0 is executed after it ended as not executed",
    ),
    (
        CALM,
        |s| {
            let mut request = s.request();
            request[30] ^= 1;
            s.oracle.executed(SERVER, s.id, &request);
        },
        "the request of call 0 is not what was sent",
    ),
    (
        CALM,
        |s| {
            let request = s.request();
            s.oracle.executed(SERVER, s.id, &request[..39]);
        },
        "not what was sent: 39 of 40 bytes",
    ),
    // Responses.
    (
        CALM,
        |s| {
            let (request, mut response) = (s.request(), s.is_executed().response());
            response[40] ^= 1;
            s.oracle.ended(s.id, Ok(&response), &request);
        },
        "the response of call 0 is not its own",
    ),
    (
        CALM,
        |s| {
            let (request, response) = (s.request(), s.is_executed().response());
            s.oracle.ended(s.id, Ok(&response[..49]), &request);
        },
        "not its own: 49 of 50 bytes",
    ),
    (
        CALM,
        |s| {
            s.is_answered();
        },
        "call 0 has a response, and was never executed",
    ),
    (
        CALM,
        |s| {
            s.is_executed().panics().is_answered();
        },
        "call 0 has a response, and its handler panicked",
    ),
    (
        CALM,
        |s| {
            s.is_executed().has_status(Code::Internal);
        },
        "status for no reason",
    ),
    (
        CALM,
        |s| {
            s.is_executed().has_status(Code::ResourceExhausted);
        },
        "status for no reason",
    ),
    (
        CALM,
        |s| {
            s.is_executed().panics().has_status(Code::NotFound);
        },
        "status for no reason",
    ),
    // Requests that come back.
    (
        CALM,
        |s| {
            let (mut request, response) = (s.request(), s.is_executed().response());
            request[39] ^= 1;
            s.oracle.ended(s.id, Ok(&response), &request);
        },
        "the request that comes back from call 0 has changed",
    ),
    (
        CALM,
        |s| {
            let request = s.request();
            s.oracle.rejected(s.id, &request[1..]);
        },
        "the request that comes back from call 0 has changed",
    ),
    // Ends.
    (
        CALM,
        |s| {
            s.is_executed().is_answered().is_answered();
        },
        "call 0 ends, and is not under",
    ),
    (
        DEADLY,
        |s| {
            s.oracle.abandoned(s.id);
            s.is_executed().is_answered();
        },
        "call 0 ends, and is not under way",
    ),
    (CALM, |s| s.oracle.ended(7, Ok(b""), b""), "call 7 ends, and is not under way"),
    (
        CALM,
        |s| {
            s.fails(CallError::Rejected(RejectReason::QueueFull));
        },
        "call 0 ends with",
    ),
    // Errors that tell whether the handler ran.
    (
        DEADLY,
        |s| {
            s.opens().is_executed().fails(CallError::NotExecuted(Cause::PeerReset));
        },
        "call 0 was executed, and its error says that it was not",
    ),
    (
        DEADLY,
        |s| {
            s.oracle.sent(s.id, 39);
            s.opens().fails(CallError::MaybeExecuted(Cause::PeerReset));
        },
        "39 of 40 bytes were sent",
    ),
    (
        &[Feature::Memory],
        |s| {
            s.opens().is_sent().fails(CallError::ResponseLost(Cause::NoMemory));
        },
        "call 0 has lost its response, and was never executed",
    ),
    // Early ends.
    (
        CALM,
        |s| {
            s.opens().fails(CallError::NotExecuted(Cause::Cancelled));
        },
        "nothing happened to the session",
    ),
    (
        CALM,
        |s| {
            s.opens().fails(CallError::NotExecuted(Cause::DeadlineExceeded));
        },
        "call 0 fails, but its deadline has not passed",
    ),
    (
        CALM,
        |s| {
            s.is_due_in(1_000).opens().after(999);
            s.fails(CallError::NotExecuted(Cause::DeadlineExceeded));
        },
        "call 0 fails, but its deadline has not passed",
    ),
    (
        CALM,
        |s| {
            s.is_due_in(1_000).opens().is_executed().after(LATEST + 1_001).is_answered();
        },
        "call 0 ends long after its deadline",
    ),
    (
        CALM,
        |s| {
            s.is_cancelled().fails(CallError::NotExecuted(Cause::Cancelled)).is_executed();
        },
        "call 0 is executed after it ended as not executed",
    ),
    (
        CALM,
        |s| {
            s.is_cancelled_in_vain();
        },
        "call 0 is under way, but the protocol does not know it",
    ),
    (
        CALM,
        |s| {
            s.is_due_in(1_500).after(1_499).is_cancelled_in_vain();
        },
        "call 0 is under way, but the protocol does not know it",
    ),
    (
        CALM,
        |s| {
            s.is_cancelled().is_cancelled();
        },
        "call 0 can be cancelled twice",
    ),
    (
        CALM,
        |s| {
            s.is_told_to_stop();
        },
        "the handler of call 0 is told to stop, but its caller waits",
    ),
    (
        CALM,
        |s| {
            s.is_due_in(1_000).is_told(999);
        },
        "call 0 has the deadline",
    ),
    (
        CALM,
        |s| {
            s.is_due_in(1_000).after(10).is_told(2_001);
        },
        "call 0 has the deadline",
    ),
    (
        CALM,
        |s| {
            s.is_told(1);
        },
        "call 0 has the deadline None",
    ),
    (
        CALM,
        |s| {
            s.is_due_in(1_001).says(1);
        },
        "call 0 has 2 us left and says 1",
    ),
    (
        CALM,
        |s| {
            s.is_due_in(5);
            let mut request = pattern::extension(s.oracle.request_key(s.id));
            request[2] ^= 1;
            s.oracle.bare_request(s.id, &request, None);
        },
        "the extension of a message of call 0 has changed",
    ),
    (
        CALM,
        |s| {
            s.oracle.bare_request(s.id, b"", Some(true));
        },
        "the request of call 0 is extended: false",
    ),
    // Causes.
    (CALM, |s| s.oracle.no_memory(), "nothing happened to the memory"),
    (
        DEADLY,
        |s| {
            s.opens().is_executed().fails(CallError::ResponseLost(Cause::NoMemory));
        },
        "nothing happened to the memory",
    ),
    (
        DEADLY,
        |s| {
            s.closes(Cause::Connect(ConnectError::Full));
        },
        "nothing happened to the memory",
    ),
    (
        DEADLY,
        |s| {
            s.closes(Cause::Connect(ConnectError::NotListening));
        },
        "ends for a reason that is not in the plan",
    ),
    (
        DEADLY,
        |s| {
            s.opens().is_sent().fails(CallError::MaybeExecuted(Cause::PeerClosed));
        },
        "call 0 fails for a reason that is not in the plan",
    ),
    (
        CALM,
        |s| {
            s.opens().fails(CallError::NotExecuted(Cause::Disconnected));
        },
        "its user ended the session, but the session waits for it",
    ),
    (
        CALM,
        |s| {
            s.opens().after(LIVENESS).fails(CallError::NotExecuted(Cause::PeerDead));
        },
        "call 0 fails, and nothing happened to the session",
    ),
    (
        CALM,
        |s| {
            s.opens().closes(Cause::PeerReset);
        },
        "ends, and nothing happened",
    ),
    (
        DEADLY,
        |s| {
            s.opens().after(LIVENESS - 1).closes(Cause::PeerDead);
        },
        "ends after 9999999999 ns",
    ),
    (
        DEADLY,
        |s| {
            s.opens().is_executed().after(5).is_answered().after(LIVENESS);
            s.closes(Cause::PeerDead);
        },
        "ends after 9999999995 ns",
    ),
    (
        DEADLY,
        |s| {
            s.opens().is_executed().panics().after(5).has_status(Code::Internal).after(LIVENESS);
            s.closes(Cause::PeerDead);
        },
        "ends after 9999999995 ns",
    ),
    (
        DEADLY,
        |s| {
            s.opens().is_sent().after(LIVENESS / 2);
            s.fails(CallError::MaybeExecuted(Cause::PeerDead));
        },
        "call 0 fails after 5000000000 ns",
    ),
    (
        DEADLY,
        |s| {
            s.after(9).opens().after(LIVENESS).closes(Cause::NoProgress);
        },
        "ends after 9999999991 ns",
    ),
    (
        DEADLY,
        |s| {
            s.after(LIVENESS).closes(Cause::PeerDead);
        },
        "and has never opened",
    ),
    (
        DEADLY,
        |s| {
            s.after(LIVENESS).closes(Cause::NoProgress);
        },
        "and has never opened",
    ),
    (
        CALM,
        |s| {
            s.after(CONNECT - 1).closes(Cause::Connect(ConnectError::Timeout));
        },
        "ends after 1999999999 ns, before 2s have passed",
    ),
    (
        DEADLY,
        |s| {
            s.opens().after(CONNECT).closes(Cause::Connect(ConnectError::Timeout));
        },
        "because it does not open, and was open",
    ),
    (
        DEADLY,
        |s| {
            s.opens().closes(UNREACHABLE);
        },
        "and no packet was returned",
    ),
    (
        &[Feature::Reports],
        |s| {
            s.server_lives().opens().after(9).server_hears().after(48 * MS).closes(UNREACHABLE);
        },
        "nothing happened to the session",
    ),
    (
        REPORTED,
        |s| {
            s.server_lives().opens().after(48 * MS - 1).closes(UNREACHABLE);
        },
        "although its server 1:1 is alive and was heard 47999999 ns ago",
    ),
    (
        REPORTED,
        |s| {
            s.server_lives().after(48 * MS - 1).closes(NEVER_REACHED);
        },
        "although its server 1:1 is alive",
    ),
    (
        REPORTED,
        |s| {
            s.server_lives().server_dies().server_lives().after(9).opens().after(99);
            s.fails(CallError::NotExecuted(UNREACHABLE));
        },
        "although its server 1:1 is alive",
    ),
    (
        REPORTED,
        |s| {
            s.server_lives().closes(UNREACHABLE);
        },
        "although its server",
    ),
    (
        REPORTED,
        |s| {
            s.server_lives().opens().server_dies().has_pings_returned(17);
        },
        "a session to 1:1 goes on after 17 of its pings were returned",
    ),
    (
        DEADLY,
        |s| {
            s.opens().opens();
        },
        "opens twice",
    ),
    // Probes.
    (
        CALM,
        |s| {
            s.opens().method_takes(3, 0, 5 * MS).method_takes(3, 5 * MS, 4 * MS);
            s.is_probed(3, 10 * MS, 3 * MS);
        },
        "is repeated after 3000000 ns, but its client knows that method 3 takes 4000000 ns or more",
    ),
    (
        CALM,
        |s| {
            s.opens().method_takes(3, 0, 90 * MS).is_probed(3, 100 * MS, 6 * MS);
        },
        "method 3 takes 90000000 ns or more",
    ),
    (
        CALM,
        |s| {
            s.opens();
            (0..12).for_each(|method| {
                s.method_takes(method, 10 * MS * u64::from(method), 5 * MS);
            });
            s.is_probed(0, 120 * MS, 4 * MS);
        },
        "method 0 takes 5000000 ns or more",
    ),
    // Seventeen methods, and so few of them slow that the client knows their times: twelve take
    // long, and the calls of the others were executed a moment ago.
    (
        CALM,
        |s| {
            s.opens().method_takes(0, 0, 5 * MS);
            (1..12).for_each(|method| {
                s.method_runs(method, 10 * MS);
            });
            (12..17).for_each(|method| {
                s.method_runs(method, 24 * MS);
            });
            s.is_probed(0, 20 * MS, 4 * MS);
        },
        "method 0 takes 5000000 ns or more",
    ),
];

/// Features, and a correct sequence.
const TRUE: &[(&[Feature], Steps)] = &[
    (CALM, |s| {
        s.opens().is_sent().is_executed().is_answered().closes(Cause::Disconnected);
    }),
    (CALM, |s| {
        s.is_executed().panics().has_status(Code::Internal);
    }),
    (CALM, |s| {
        s.after(CONNECT).closes(Cause::Connect(ConnectError::Timeout));
    }),
    // In this order: a probe at the right time; another method; a method that is sometimes quick; a
    // time learned long ago; a probe after more than eight minimum timeouts.
    (CALM, |s| {
        s.opens().method_takes(3, 0, 4 * MS).is_probed(3, 10 * MS, 5 * MS);
    }),
    (CALM, |s| {
        s.opens().method_takes(3, 0, 4 * MS).is_probed(4, 10 * MS, MS);
    }),
    (CALM, |s| {
        s.opens().method_takes(3, 0, 4 * MS).method_takes(3, 4 * MS, MS).is_probed(3, 10 * MS, MS);
    }),
    (CALM, |s| {
        s.opens().method_takes(3, 0, 4 * MS).is_probed(3, 504 * MS, MS);
    }),
    (CALM, |s| {
        s.opens().method_takes(3, 0, 90 * MS).is_probed(3, 100 * MS, 9 * MS);
    }),
    // More slow methods than a client remembers.
    (CALM, |s| {
        s.opens();
        (0..17).for_each(|method| {
            s.method_takes(method, 10 * MS * u64::from(method), 5 * MS);
        });
        s.is_probed(16, 170 * MS, MS);
    }),
    // The same, but the calls of the other methods are not answered yet, or were cancelled: their
    // acceptances have told the client their times.
    (CALM, |s| {
        s.opens().method_takes(0, 0, 5 * MS);
        (1..17).for_each(|method| {
            s.method_runs(method, 10 * MS);
        });
        s.is_probed(0, 20 * MS, MS);
    }),
    (CALM, |s| {
        s.opens().method_takes(0, 0, 5 * MS);
        (1..17).for_each(|method| {
            s.method_runs(method, 10 * MS).is_cancelled();
            s.fails(CallError::MaybeExecuted(Cause::Cancelled));
        });
        s.is_probed(0, 20 * MS, MS);
    }),
    // A method that has run for longer than the client keeps times.
    (CALM, |s| {
        s.opens();
        (1..17).for_each(|method| {
            s.method_runs(method, 10 * MS);
        });
        s.method_takes(0, 2_995 * MS, 5 * MS).is_probed(0, 3_001 * MS, MS);
    }),
    (DEADLY, |s| {
        s.opens().method_takes(3, 0, 4 * MS).is_probed(3, 10 * MS, MS);
    }),
    (CALM, |s| {
        let request = s.request();
        s.oracle.rejected(s.id, &request);
    }),
    (CALM, |s| {
        s.is_executed().is_answered().calls_again().is_executed().is_answered();
    }),
    (&[Feature::Memory], |s| {
        s.oracle.no_memory();
        s.opens().is_executed().has_status(Code::ResourceExhausted);
        s.calls_again().is_executed().fails(CallError::ResponseLost(Cause::NoMemory));
    }),
    (DEADLY, |s| {
        s.opens().after(LIVENESS).closes(Cause::PeerDead);
    }),
    (DEADLY, |s| {
        s.opens().after(LIVENESS).closes(Cause::NoProgress);
    }),
    (DEADLY, |s| {
        s.opens().is_sent().fails(CallError::MaybeExecuted(Cause::PeerReset));
    }),
    // The oracle sees the packets of a turn only at the end of the turn, here after the call's
    // error.
    (DEADLY, |s| {
        s.opens().fails(CallError::MaybeExecuted(Cause::PeerReset)).is_sent();
    }),
    (DEADLY, |s| {
        s.is_executed();
        s.oracle.abandoned(s.id);
    }),
    (REPORTED, |s| {
        s.server_lives().opens().after(48 * MS).closes(UNREACHABLE);
    }),
    // The network delivers no ping.
    (&[Feature::Reports], |s| {
        s.server_lives().opens().after(48 * MS).closes(UNREACHABLE);
    }),
    (REPORTED, |s| {
        s.server_lives().opens().server_dies().after(9).closes(UNREACHABLE);
    }),
    (REPORTED, |s| {
        s.server_lives()
            .opens()
            .server_dies()
            .after(9)
            .server_lives()
            .after(10)
            .closes(UNREACHABLE);
    }),
    (REPORTED, |s| {
        s.server_lives().server_dies().closes(NEVER_REACHED);
    }),
    (REPORTED, |s| {
        s.server_lives().opens().server_dies().has_pings_returned(16);
        s.oracle.hears(0, ADDRESS.server);
        s.has_pings_returned(16);
    }),
    // Packets of a session that has ended waited in a stopped link, or are replayed.
    (REPORTED, |s| {
        s.server_lives().opens().server_dies().has_pings_returned(1);
        s.closes(UNREACHABLE).has_pings_returned(17);
    }),
    (&[Feature::ClockLeap], |s| {
        s.opens().after(1).closes(Cause::PeerDead);
    }),
    (&[Feature::ClockStall], |s| {
        s.after(1).closes(Cause::Connect(ConnectError::Timeout));
    }),
    (CALM, |s| {
        s.is_due_in(1_500).opens().after(10).is_told(2_000).says(2);
        s.after(1_500).fails(CallError::NotExecuted(Cause::DeadlineExceeded)).is_told_to_stop();
    }),
    (CALM, |s| {
        s.is_due_in(1_500).opens().after(1_500).is_cancelled_in_vain();
        s.fails(CallError::NotExecuted(Cause::DeadlineExceeded));
    }),
    (CALM, |s| {
        s.is_sent().is_executed().is_cancelled().is_told_to_stop();
        s.fails(CallError::MaybeExecuted(Cause::Cancelled));
        s.oracle.cancelled(s.id, false);
    }),
    // With damaged packets, everything is allowed.
    (UNTRUSTED, |s| {
        s.is_executed().is_executed();
        let request = s.request();
        s.oracle.executed((5, 5), s.id, b"nonsense");
        s.oracle.ended(s.id, Ok(b"nonsense"), &request);
        s.oracle.executed(SERVER, 99, b"");
    }),
];

#[test]
fn the_oracle_reports_every_wrong_sequence() {
    for (at, (features, tell, words)) in WRONG.iter().enumerate() {
        let mut fixture = Fixture::new(features);
        tell(&mut fixture);
        fixture.oracle.all_is_sent();
        let violation = fixture.oracle.violation();
        let what = violation.map_or("nothing", |violation| &violation.what);
        assert!(what.contains(words), "case {at} ({words}): the oracle reports {what}");
    }
}

#[test]
fn the_oracle_accepts_every_correct_sequence() {
    for (at, (features, tell)) in TRUE.iter().enumerate() {
        let mut fixture = Fixture::new(features);
        tell(&mut fixture);
        fixture.oracle.all_is_sent();
        assert_eq!(fixture.oracle.violation(), None, "case {at}");
    }
}

#[test]
fn the_oracle_keeps_the_first_violation() {
    let mut fixture = Fixture::new(CALM);
    fixture.oracle.blame("one");
    fixture.after(1).oracle.blame("two");
    let violation = fixture.oracle.violation().map(ToString::to_string);
    assert_eq!(violation.as_deref(), Some("at 0.000001000 s: one"));
}

#[test]
fn a_violation_names_the_ids_of_its_session_in_both_directions() {
    let mut fixture = Fixture::new(CALM);
    let client = fixture.oracle.routes[0];
    fixture.is_executed().is_executed();
    let violation = fixture.oracle.violation().map(ToString::to_string).expect("a violation");
    let place = format!(", session {client} -> 1:1 id 780000600, 1:1 -> {client} id 800000000: ");
    assert!(violation.contains(&place), "{violation}");
}

#[test]
fn a_call_is_under_way_until_it_ends() {
    let mut fixture = Fixture::new(CALM);
    fixture.calls_again();
    assert_eq!((fixture.oracle.under_way(), fixture.oracle.calls()), (2, 2));
    assert_eq!(fixture.oracle.backlog_bytes(), u64::from(2 * (REQUEST + RESPONSE)));
    fixture.is_executed().is_answered();
    assert_eq!((fixture.oracle.under_way(), fixture.oracle.outcomes().responses), (1, 1));
    assert_eq!(fixture.oracle.backlog_bytes(), u64::from(REQUEST + RESPONSE));
}
