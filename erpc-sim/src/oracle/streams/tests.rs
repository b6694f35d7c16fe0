//! Event sequences of streams for the oracle. It must report every wrong sequence and accept every
//! correct one.

use erpc_core::protocol::ConnectError;

use super::*;
use crate::oracle::tests::ADDRESS;
use crate::plan::{Cut, Plan};
use crate::{Feature, Features, Scenario};

const SERVER: Incarnation = (1, 0);
const ITEMS: u32 = 3;
const LIVENESS: u64 = 10_000_000_000;

/// An open session and a stream on it, with the oracle that follows them.
struct Fixture {
    oracle: Oracle,
    session: u32,
    id: u32,
    now: u64,
}

impl Fixture {
    fn new(features: &[Feature]) -> Self {
        let mut plan = Plan::draw(1, Scenario::Calm, &Cut::default());
        plan.features = Features::of(features);
        plan.drawn = plan.features;
        let mut oracle = Oracle::new(&plan);
        let session = oracle.session(0, ADDRESS);
        oracle.opened(session, None);
        let id = oracle.stream_begins(session, StreamScript::plain(ITEMS, ITEMS));
        Self { oracle, session, id, now: 0 }
    }

    /// The next steps are about another stream, with a deadline in `nanos` ns.
    fn is_due_in(&mut self, nanos: u64) -> &mut Self {
        let script = StreamScript { deadline: Some(nanos), ..StreamScript::plain(ITEMS, ITEMS) };
        self.id = self.oracle.stream_begins(self.session, script);
        self
    }

    fn after(&mut self, nanos: u64) -> &mut Self {
        self.now += nanos;
        self.oracle.set_now(Instant::from_nanos(self.now));
        self
    }

    fn starts_at(&mut self, at: Incarnation) -> &mut Self {
        self.oracle.handler_starts(self.id, at);
        self
    }

    fn starts(&mut self) -> &mut Self {
        self.starts_at(SERVER)
    }

    fn item(&self, of: Direction, number: u32) -> Vec<u8> {
        let key = self.oracle.item_key(self.id, of, number);
        let mut bytes = Vec::new();
        pattern::fill(&mut bytes, key, StreamScript::plain(ITEMS, ITEMS).up.len(key));
        bytes
    }

    fn sends(&mut self, of: Direction, count: u32) -> &mut Self {
        for _ in 0..count {
            self.oracle.item_sent(self.id, of, 16);
        }
        self
    }

    fn reads(&mut self, of: Direction, numbers: impl IntoIterator<Item = u32>) -> &mut Self {
        for number in numbers {
            let item = self.item(of, number);
            self.oracle.item_read(self.id, of, &item);
        }
        self
    }

    /// One side sends all its items, and the other side reads them.
    fn passes(&mut self, of: Direction) -> &mut Self {
        self.sends(of, ITEMS).reads(of, 0..ITEMS)
    }

    fn has_no_more(&mut self) -> &mut Self {
        self.oracle.items_are_over(self.id);
        self
    }

    fn handler_ends(&mut self, end: StreamResult) -> &mut Self {
        self.oracle.handler_ends(self.id, &end);
        self
    }

    fn is_told(&mut self, end: Result<(), CallError>) -> &mut Self {
        self.oracle.end_is_told(self.id, end.as_ref().copied());
        self
    }

    fn leaves(&mut self, of: Direction) -> &mut Self {
        self.oracle.reader_leaves(self.id, of);
        self
    }

    fn stops(&mut self) -> &mut Self {
        self.oracle.handler_stops(self.id);
        self
    }

    fn is_over(&mut self) -> &mut Self {
        self.oracle.stream_is_over(self.id, false);
        self
    }

    fn spoils(&mut self) -> &mut Self {
        self.oracle.stream_is_over(self.id, true);
        self
    }

    fn has_ended(&mut self) -> &mut Self {
        self.oracle.stream_has_ended(self.id);
        self
    }

    fn is_refused(&mut self) -> &mut Self {
        let ended = CallError::Rejected(RejectReason::StreamEnded);
        self.oracle.sending_is_refused(self.id, &ended);
        self
    }

    /// The stream succeeds, up to the handler's end.
    fn goes_well(&mut self) -> &mut Self {
        self.starts().passes(Up).has_no_more().passes(Down).handler_ends(Ok(()))
    }
}

use Direction::{Down, Up};

fn failed() -> Status {
    Status::aborted("as drawn")
}

const CALM: &[Feature] = &[];
/// Sessions may die. No other fault is allowed.
const DEADLY: &[Feature] = &[Feature::Crashes];

type Steps = fn(&mut Fixture);

/// Features, a wrong sequence, and part of the expected violation.
const WRONG: &[(&[Feature], Steps, &str)] = &[
    // Items.
    (
        CALM,
        |s| {
            s.sends(Down, 3).reads(Down, [0, 2]);
        },
        "stream 0 has item 1 Down altered, or another one",
    ),
    (
        CALM,
        |s| {
            s.sends(Up, 3).reads(Up, [0, 0]);
        },
        "stream 0 has item 1 Up altered, or another one",
    ),
    (
        CALM,
        |s| {
            let mut item = s.sends(Up, 1).item(Up, 0);
            item.push(0);
            s.oracle.item_read(s.id, Up, &item);
        },
        "stream 0 has item 0 Up altered",
    ),
    (
        CALM,
        |s| {
            s.sends(Down, 1).reads(Down, [0, 1]);
        },
        "stream 0 has item 1 Down read, of 1",
    ),
    (
        CALM,
        |s| {
            s.goes_well().is_told(Ok(())).sends(Down, 1).reads(Down, [3]);
        },
        "its reader was told of the end: true",
    ),
    (
        CALM,
        |s| {
            s.sends(Down, 1).leaves(Down).reads(Down, [0]);
        },
        "its reader was told of the end: true",
    ),
    (
        CALM,
        |s| {
            let batch = BATCH.min(s.oracle.largest_message);
            (0..=MOST_UP).for_each(|_| s.oracle.item_sent(s.id, Up, batch - ITEM_HEAD));
        },
        "unread bytes Up, more than 4 batches",
    ),
    (
        CALM,
        |s| {
            let batch = BATCH.min(s.oracle.largest_message);
            (0..=MOST_DOWN).for_each(|_| s.oracle.item_sent(s.id, Down, batch - ITEM_HEAD));
        },
        "unread bytes Down, more than 4 batches",
    ),
    (
        CALM,
        |s| {
            s.starts().sends(Up, ITEMS).reads(Up, [0, 1]).has_no_more();
        },
        "has no more items for its handler, which has read 2 of 3",
    ),
    (
        CALM,
        |s| {
            s.starts().sends(Up, 2).reads(Up, [0, 1]).has_no_more();
        },
        "has no more items for its handler, which has read 2 of 3",
    ),
    (
        CALM,
        |s| {
            s.starts().is_refused();
        },
        "refuses items, but its handler reads them",
    ),
    // Handlers.
    (
        CALM,
        |s| {
            s.starts().starts();
        },
        "has its handler started again",
    ),
    (
        CALM,
        |s| {
            s.leaves(Down).is_over().starts();
        },
        "has its handler started, and is over",
    ),
    (
        DEADLY,
        |s| {
            s.is_told(Err(CallError::NotExecuted(Cause::PeerReset))).starts();
        },
        "has its handler started, and is over",
    ),
    (
        DEADLY,
        |s| {
            s.starts().is_due_in(1).starts_at((2, 0));
        },
        "stream 1 has its handler started in another place",
    ),
    (
        CALM,
        |s| {
            s.starts().stops();
        },
        "has its handler stopped for no reason",
    ),
    (
        CALM,
        |s| {
            s.starts().leaves(Down).stops().stops();
        },
        "has its handler stopped, Stopped",
    ),
    (
        CALM,
        |s| {
            s.goes_well().leaves(Down).stops();
        },
        "has its handler stopped, Ended",
    ),
    (
        CALM,
        |s| {
            s.starts().handler_ends(Err(Status::deadline_exceeded("")));
        },
        "has its handler end as if it were too late: None",
    ),
    (
        CALM,
        |s| {
            s.is_due_in(10).starts().after(9).handler_ends(Err(Status::deadline_exceeded("")));
        },
        "has its handler end as if it were too late",
    ),
    // Ends.
    (
        CALM,
        |s| {
            s.starts().passes(Up).has_no_more().sends(Down, ITEMS).reads(Down, [0, 1]);
            s.handler_ends(Ok(())).is_told(Ok(()));
        },
        "stream 0 ends after 2 of 3 items",
    ),
    (
        CALM,
        |s| {
            s.starts().sends(Down, 1).handler_ends(Err(failed()));
            s.is_told(Err(CallError::Status(failed())));
        },
        "stream 0 ends after 0 of 1 items",
    ),
    (
        CALM,
        |s| {
            s.starts().is_told(Ok(()));
        },
        "stream 0 ends with Ok(()), its handler: Runs",
    ),
    (
        CALM,
        |s| {
            s.starts().handler_ends(Err(failed())).is_told(Ok(()));
        },
        "stream 0 ends with Ok(()), its handler: Ended(Err",
    ),
    (
        CALM,
        |s| {
            s.goes_well().is_told(Err(CallError::Status(failed())));
        },
        "stream 0 ends with Err(",
    ),
    (
        CALM,
        |s| {
            s.starts().handler_ends(Err(failed()));
            s.is_told(Err(CallError::Status(failed().with_details(b"more"))));
        },
        "stream 0 ends with Err(",
    ),
    (
        CALM,
        |s| {
            s.starts().is_told(Err(CallError::Status(Status::resource_exhausted("none"))));
        },
        "stream 0 ends with Err(",
    ),
    (
        CALM,
        |s| {
            s.is_told(Err(CallError::Status(Status::deadline_exceeded("late"))));
        },
        "is turned down as if it were too late",
    ),
    (
        CALM,
        |s| {
            s.goes_well().is_told(Ok(())).is_told(Ok(()));
        },
        "ends twice for its client",
    ),
    (
        DEADLY,
        |s| {
            s.starts().is_told(Err(CallError::NotExecuted(Cause::PeerReset)));
        },
        "was executed, and its error says that it was not",
    ),
    (
        DEADLY,
        |s| {
            s.is_told(Err(CallError::ResponseLost(Cause::PeerReset)));
        },
        "has lost a response, and was never executed",
    ),
    (
        CALM,
        |s| {
            s.starts().is_told(Err(CallError::ResponseLost(Cause::Malformed)));
        },
        "stream 0 fails",
    ),
    (
        CALM,
        |s| {
            s.starts().is_told(Err(CallError::MaybeExecuted(Cause::PeerReset)));
        },
        "stream 0 fails, and nothing happened to the session",
    ),
    (
        DEADLY,
        |s| {
            s.starts().after(LIVENESS - 1).is_told(Err(CallError::MaybeExecuted(Cause::PeerDead)));
        },
        "stream 0 fails after 9999999999 ns",
    ),
    (
        DEADLY,
        |s| {
            s.starts().after(5).oracle.stream_is_heard_of(0);
            s.after(LIVENESS - 1).is_told(Err(CallError::MaybeExecuted(Cause::PeerDead)));
        },
        "stream 0 fails after 9999999999 ns",
    ),
    (
        DEADLY,
        |s| {
            s.is_told(Err(CallError::NotExecuted(Cause::Connect(ConnectError::Timeout))));
        },
        "because it does not open, and was open",
    ),
    (
        CALM,
        |s| {
            s.starts().is_told(Err(CallError::MaybeExecuted(Cause::DeadlineExceeded)));
        },
        "fails as if it were too late: None",
    ),
    (
        CALM,
        |s| {
            s.is_due_in(10).after(9).oracle.stream_is_late(1);
        },
        "ends as if it were too late",
    ),
    (
        CALM,
        |s| {
            s.is_told(Err(CallError::Rejected(RejectReason::QueueFull)));
        },
        "stream 0 ends with the session's queue is full",
    ),
    (
        CALM,
        |s| {
            s.starts().is_told(Err(CallError::ResponseLost(Cause::NoMemory)));
        },
        "nothing happened to the session",
    ),
    // States at the end of a stream.
    (
        CALM,
        |s| {
            s.starts().leaves(Down).is_over();
        },
        "is over, and its handler runs",
    ),
    (
        CALM,
        |s| {
            s.leaves(Down).is_over().is_over();
        },
        "is over, and was Over",
    ),
    (
        CALM,
        |s| {
            s.starts().leaves(Down).spoils();
        },
        "has spoilt its session, to which nothing happened",
    ),
    (
        CALM,
        |s| {
            s.goes_well().is_over().has_ended();
        },
        "has ended, and was Over; told: false",
    ),
    (
        CALM,
        |s| {
            s.goes_well().is_told(Ok(())).has_ended();
        },
        "has ended, and was Running",
    ),
    // Deadlines in packets.
    (
        CALM,
        |s| s.is_due_in(1_001).oracle.stream_sent_deadline(1, StreamOp::Pull.op(false), 1),
        "stream 1 has 2 us left and says 1",
    ),
    (
        CALM,
        |s| s.is_due_in(1_001).oracle.stream_sent_deadline(1, StreamOp::Close.op(false), 2),
        "stream 1 has 0 us left and says 2",
    ),
];

/// Features, and a correct sequence.
const TRUE: &[(&[Feature], Steps)] = &[
    (CALM, |s| {
        s.goes_well().is_over().is_told(Ok(())).has_ended();
    }),
    (CALM, |s| {
        s.starts().sends(Down, 2).handler_ends(Err(failed())).is_refused().reads(Down, [0, 1]);
        s.is_told(Err(CallError::Status(failed()))).is_over().has_ended();
    }),
    // A sender that is as far ahead as allowed.
    (CALM, |s| {
        let batch = BATCH.min(s.oracle.largest_message);
        (0..MOST_UP).for_each(|_| s.oracle.item_sent(s.id, Up, batch - ITEM_HEAD));
        (0..MOST_DOWN).for_each(|_| s.oracle.item_sent(s.id, Down, batch - ITEM_HEAD));
    }),
    // The client leaves. The handler may have been stopped, have ended, or never have begun.
    (CALM, |s| {
        s.starts().leaves(Down).stops().is_over().has_ended();
    }),
    (CALM, |s| {
        s.starts().leaves(Down).handler_ends(Err(failed())).is_over().has_ended();
    }),
    (CALM, |s| {
        s.leaves(Down).is_over().has_ended();
    }),
    // The handler stops reading, and its client learns it.
    (CALM, |s| {
        s.starts().sends(Up, 2).reads(Up, [0]).leaves(Up).is_refused().passes(Down);
        s.handler_ends(Ok(())).is_told(Ok(())).is_over().has_ended();
    }),
    // The deadline passes, at either end.
    (CALM, |s| {
        s.is_due_in(1_001).oracle.stream_sent_deadline(1, StreamOp::Push.op(true), 2);
        s.oracle.stream_sent_deadline(1, StreamOp::Close.op(false), 0);
        s.starts().after(1_001).stops();
        s.is_told(Err(CallError::MaybeExecuted(Cause::DeadlineExceeded))).is_over().has_ended();
    }),
    (CALM, |s| {
        let late = Status::deadline_exceeded("late");
        s.is_due_in(10).starts().after(10).handler_ends(Err(late.clone()));
        s.is_told(Err(CallError::Status(late))).is_over().has_ended();
    }),
    (CALM, |s| {
        s.is_due_in(10).after(10);
        s.is_told(Err(CallError::Status(Status::deadline_exceeded("to begin"))));
    }),
    (&[Feature::ClockLeap], |s| {
        s.is_due_in(10).starts().handler_ends(Err(Status::deadline_exceeded("late")));
    }),
    // Sessions die.
    (DEADLY, |s| {
        s.starts().after(LIVENESS).is_told(Err(CallError::MaybeExecuted(Cause::PeerDead)));
        s.spoils().has_ended();
    }),
    (DEADLY, |s| {
        s.after(LIVENESS).is_told(Err(CallError::MaybeExecuted(Cause::PeerDead)));
        s.spoils().has_ended().starts();
    }),
    (DEADLY, |s| {
        s.starts().oracle.handler_is_lost(0);
        s.is_told(Err(CallError::ResponseLost(Cause::PeerReset))).spoils().has_ended();
    }),
    (DEADLY, |s| {
        s.starts().oracle.stream_is_abandoned(0);
        s.stops();
    }),
    // Memory is short.
    (&[Feature::Memory], |s| {
        s.starts().is_told(Err(CallError::Status(Status::resource_exhausted("none")))).stops();
        s.is_over().has_ended();
    }),
    (&[Feature::Memory], |s| {
        s.starts().is_told(Err(CallError::ResponseLost(Cause::NoMemory))).spoils();
    }),
];

#[test]
fn the_oracle_reports_every_wrong_sequence() {
    for (at, (features, tell, words)) in WRONG.iter().enumerate() {
        let mut fixture = Fixture::new(features);
        tell(&mut fixture);
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
        assert_eq!(fixture.oracle.violation(), None, "case {at}");
    }
}

#[test]
fn a_stream_is_under_way_until_its_client_is_done() {
    let mut fixture = Fixture::new(CALM);
    assert_eq!(fixture.oracle.streams_under_way(), 1);
    let (bytes, items, pauses) = fixture.oracle.stream_backlog();
    assert!(bytes >= 6 * 16 && items >= 6 && pauses == 0, "{bytes} {items} {pauses}");
    fixture.goes_well().is_over().is_told(Ok(()));
    assert_eq!(fixture.oracle.streams_under_way(), 1);
    fixture.has_ended();
    assert_eq!(
        (fixture.oracle.streams_under_way(), fixture.oracle.stream_backlog()),
        (0, (0, 0, 0))
    );
    let counts = fixture.oracle.stream_counts();
    assert_eq!((counts.begun, counts.items, counts.finished), (1, 6, 1));
}
