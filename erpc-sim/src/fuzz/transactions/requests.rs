//! Requests of any bytes to a participant.

use std::sync::Arc;

use erpc_core::service::{Borrowed, Codec, Prost, Request, Response};
use erpc_core::status::Status;
use erpc_txn::cluster::{NodeId, Placement, Ring};
use erpc_txn::lists::{Item as _, Outcomes};
use erpc_txn::log::{Coordinator, Record};
use erpc_txn::participant::{Access, Introduction, Participant, Settings};
use erpc_txn::proto::{
    self, AppendRequest, CommitRequest, ExecuteRequest, FinishRequest, Participant as _,
    UnlockRequest, ValidateRequest, Verdict,
};
use erpc_txn::service::Member;
use erpc_txn::table::{Bucket, Config, Conflict, Owner, Snapshot};

use super::super::input::Input;
use super::repair;

pub(super) const EPOCH: u32 = 5;
pub(super) const TABLE: u16 = 7;
pub(super) const INCARNATION: u32 = 70;
/// The coordinator of the transactions in the seeds.
pub(super) const COORDINATOR: Coordinator = Coordinator { node: 0, thread: 0 };
/// The participant is node 0 of three. It is the primary of partition 0 and the backup of partition 2.
pub(super) const PRIMARY_OF: u16 = 0;
pub(super) const BACKUP_OF: u16 = 2;
/// The transaction that holds a lock from the beginning.
pub(super) const OTHER: u64 = 99;
/// How many keys of each partition are loaded.
pub(super) const LOADED: usize = 4;

/// The kinds of requests, by the number in the input.
pub(super) const EXECUTE: u8 = 0;
pub(super) const VALIDATE: u8 = 1;
pub(super) const APPEND: u8 = 2;
pub(super) const COMMIT_BACKUP: u8 = 3;
pub(super) const COMMIT_PRIMARY: u8 = 4;
pub(super) const UNLOCK: u8 = 5;
pub(super) const FINISH: u8 = 6;
pub(super) const MEET: u8 = 7;
/// Whether the record in the request gets a correct length and checksum.
pub(super) const REPAIRED: u8 = 0x80;

/// At most this many requests of an input are made.
const REQUESTS: usize = 64;

/// Fuzzes the participant's service. `data` is a list of requests: a byte with the method and whether
/// to repair its record, the length in two bytes, and the message.
///
/// # Panics
/// Panics if a request that was refused has changed something, or one that was done does something
/// else the second time.
pub fn txn_requests(data: &[u8]) {
    let (_, participant) = participant();
    let member = Member::new(participant.clone());
    let mut input = Input::new(data);
    for _ in 0..REQUESTS {
        if input.is_empty() {
            return;
        }
        let method = input.u8();
        let len = usize::from(input.u8()) | usize::from(input.u8()) << 8;
        let mut body = input.take(len).to_vec();
        if method & REPAIRED != 0 {
            repair_record(method & !REPAIRED, &mut body);
        }
        request(&participant, &member, method & !REPAIRED, &body);
    }
}

/// A participant with some entries and a lock.
pub(super) fn participant() -> (Arc<Ring>, Arc<Participant>) {
    let ring = Arc::new(Ring::new(EPOCH, (0..3).map(NodeId), 1).expect("three nodes"));
    let settings = Settings {
        tables: [(TABLE, Config::new(50).max_value(100))].into(),
        threads: 1,
        log_bytes: 1_000,
        log_records: 4,
    };
    let participant = Participant::new(NodeId(0), INCARNATION, ring.clone(), settings);
    let participant = participant.expect("node 0 is a member, and the table is small");
    for node in [1, 2].map(NodeId) {
        let other = Introduction { node, incarnation: 7, ..participant.introduction() };
        participant.accepted(other).expect("a member with the same configuration");
    }
    for partition in [PRIMARY_OF, BACKUP_OF] {
        let table = participant.replica(TABLE, partition).expect("node 0 holds it");
        for key in keys(&ring, partition).take(LOADED) {
            table.load(key, &key.to_le_bytes()).expect("the table has room");
        }
    }
    let table = participant.replica(TABLE, PRIMARY_OF).expect("node 0 holds it");
    let locked = keys(&ring, PRIMARY_OF).next().expect("a partition has keys");
    table.lock_for_update(locked, owner(OTHER)).expect("no other has locked it");
    (ring, Arc::new(participant))
}

/// The keys of a partition, ascending.
pub(super) fn keys(ring: &Ring, partition: u16) -> impl Iterator<Item = u64> {
    (0..).filter(move |key| ring.partition_of(*key) == partition)
}

/// A transaction of [`COORDINATOR`].
pub(super) fn owner(sequence: u64) -> Owner {
    COORDINATOR.transaction(sequence).expect("the number is in range")
}

/// The floor and the records of a log.
type Logged = (u64, Vec<Vec<u8>>);

/// All that a request may change.
#[derive(Debug, PartialEq)]
struct State {
    contents: Vec<Result<Snapshot, Conflict>>,
    locks: Vec<(u16, Bucket, Owner)>,
    logs: Vec<Logged>,
    buried: usize,
    met: Vec<(Option<u32>, bool)>,
}

impl State {
    fn of(participant: &Participant) -> Self {
        let (mut contents, mut locks) = (Vec::new(), Vec::new());
        for partition in [PRIMARY_OF, BACKUP_OF] {
            let table = participant.replica(TABLE, partition).expect("node 0 holds it");
            contents.extend(table.snapshots());
            locks.extend(table.locks().map(|(bucket, owner)| (partition, bucket, owner)));
        }
        let logs = (0..3).filter_map(|node| {
            let log = participant.log(Coordinator { node, thread: 0 })?;
            Some((log.floor(), log.encoded().map(<[u8]>::to_vec).collect()))
        });
        let logs = logs.collect();
        let met = |node| (participant.incarnation_of(node), participant.has_met(node));
        let met = (0..3).map(NodeId).map(met).collect();
        Self { contents, locks, logs, buried: participant.buried(), met }
    }

    /// Whether it is `before` without some records that were freed.
    fn has_only_freed(&self, before: &Self) -> bool {
        let is_freed = |(now, then): (&Logged, &Logged)| {
            now.0 >= then.0 && now.1.iter().all(|record| then.1.contains(record))
        };
        self.contents == before.contents
            && self.locks == before.locks
            && self.met == before.met
            && self.buried <= before.buried
            && self.logs.iter().zip(&before.logs).all(is_freed)
    }
}

/// Makes one request twice.
fn request(participant: &Participant, member: &Member, method: u8, body: &[u8]) {
    // A coordinator reads the outcomes of a member that may be faulty.
    let outcomes: Vec<_> = Outcomes::new(body.to_vec().into()).collect();
    assert!(outcomes.iter().rev().skip(1).all(Result::is_ok), "the first mistake is the end");
    let before = State::of(participant);
    let Some(verdict) = call(member, method, body) else {
        return assert_eq!(State::of(participant), before, "a request that was not decoded");
    };
    let after = State::of(participant);
    if verdict == Verdict::Done {
        let again = call(member, method, body);
        assert_eq!(again, Some(Verdict::Done), "what was done is done");
        assert_eq!(State::of(participant), after, "a request changes nothing the second time");
        return;
    }
    // Groups of a commit before the one that is refused are applied. A record that is not stored may
    // free others.
    let is_partial = match method {
        COMMIT_BACKUP | COMMIT_PRIMARY => groups(body) > 1,
        APPEND => after.has_only_freed(&before),
        _ => false,
    };
    assert!(is_partial || after == before, "{verdict:?}, but {before:?} became {after:?}");
}

/// Calls a method. None if the body is not its message, or there is no such method.
fn call(member: &Member, method: u8, body: &[u8]) -> Option<Verdict> {
    fn decoded<M>(body: &[u8]) -> Option<Request<'static, M>>
    where
        Prost: Codec<M>,
    {
        Some(Request::new(<Prost as Codec<M>>::decode(body).ok()?))
    }
    fn message<M>(reply: Result<Response<M>, Status>) -> M {
        reply.expect("a verdict, not a status").into_message().expect("an answer at once")
    }
    let reply = match method {
        EXECUTE => {
            let view = <Borrowed as Codec<ExecuteRequest>>::view(body);
            let whole = <Prost as Codec<ExecuteRequest>>::decode(body);
            assert_eq!(
                view.as_ref().ok().map(|v| (v.epoch, v.incarnation, v.transaction, v.accesses)),
                whole.as_ref().ok().map(|w| (
                    w.epoch,
                    w.incarnation,
                    w.transaction,
                    &w.accesses[..]
                ))
            );
            let reply = message(member.execute(Request::new(view.ok()?)));
            let outcomes: Result<Vec<_>, _> = Outcomes::new(reply.outcomes.clone()).collect();
            let accesses = whole.map_or(0, |whole| whole.accesses.len() / Access::LEN);
            let expected = if reply.verdict() == Verdict::Done { accesses } else { 0 };
            assert_eq!(outcomes.map(|all| all.len()), Ok(expected), "one outcome per access");
            return Some(reply.verdict());
        }
        VALIDATE => {
            let view = <Borrowed as Codec<ValidateRequest>>::view(body);
            let whole = <Prost as Codec<ValidateRequest>>::decode(body);
            assert_eq!(
                view.as_ref().ok().map(|v| (v.epoch, v.incarnation, v.transaction, v.reads)),
                whole.as_ref().ok().map(|w| (w.epoch, w.incarnation, w.transaction, &w.reads[..]))
            );
            member.validate(Request::new(view.ok()?))
        }
        APPEND => {
            let view = <Borrowed as Codec<AppendRequest>>::view(body);
            let whole = <Prost as Codec<AppendRequest>>::decode(body);
            assert_eq!(
                view.as_ref().ok().map(|v| (v.incarnation, v.record, v.floor, v.ended)),
                whole.as_ref().ok().map(|w| (w.incarnation, &w.record[..], w.floor, &w.ended[..]))
            );
            member.append(Request::new(view.ok()?))
        }
        COMMIT_BACKUP | COMMIT_PRIMARY => {
            let view = <Borrowed as Codec<CommitRequest>>::view(body);
            let whole = <Prost as Codec<CommitRequest>>::decode(body);
            assert_eq!(
                view.as_ref().ok().map(|v| (v.incarnation, v.record)),
                whole.as_ref().ok().map(|w| (w.incarnation, &w.record[..]))
            );
            let request = Request::new(view.ok()?);
            match method {
                COMMIT_BACKUP => member.commit_backup(request),
                _ => member.commit_primary(request),
            }
        }
        UNLOCK => {
            let view = <Borrowed as Codec<UnlockRequest>>::view(body);
            let whole = <Prost as Codec<UnlockRequest>>::decode(body);
            assert_eq!(
                view.as_ref().ok().map(|v| (v.epoch, v.incarnation, v.transaction, v.keys, v.bury)),
                whole.as_ref().ok().map(|w| (
                    w.epoch,
                    w.incarnation,
                    w.transaction,
                    &w.keys[..],
                    w.bury
                ))
            );
            member.unlock(Request::new(view.ok()?))
        }
        FINISH => member.finish(decoded::<FinishRequest>(body)?),
        MEET => {
            let request = decoded::<proto::Introduction>(body)?;
            return Some(message(member.meet(request)).verdict());
        }
        _ => return None,
    };
    Some(message(reply).verdict())
}

/// The number of groups of a commit's record.
fn groups(body: &[u8]) -> usize {
    let request = <Prost as Codec<CommitRequest>>::decode(body);
    let record = request.map(|request| request.record).unwrap_or_default();
    Record::decode(&record).map_or(0, |(record, _)| record.groups.len())
}

/// Makes the record in a request correct.
fn repair_record(method: u8, body: &mut Vec<u8>) {
    let repaired = |record: &[u8]| {
        let mut record = record.to_vec();
        repair(&mut record);
        record.into()
    };
    match method {
        APPEND => {
            let Ok(mut request) = <Prost as Codec<AppendRequest>>::decode(body) else { return };
            request.record = repaired(&request.record);
            *body = encoded(&request);
        }
        COMMIT_BACKUP | COMMIT_PRIMARY => {
            let Ok(mut request) = <Prost as Codec<CommitRequest>>::decode(body) else { return };
            request.record = repaired(&request.record);
            *body = encoded(&request);
        }
        _ => {}
    }
}

pub(super) fn encoded<M>(message: &M) -> Vec<u8>
where
    Prost: Codec<M>,
{
    let mut bytes = Vec::new();
    <Prost as Codec<M>>::encode(message, &mut bytes);
    bytes
}
