//! What nodes that run Omni-Paxos send each other, in a layout of our own.
//!
//! ```text
//!   kind 1 | term 8 | fields of the kind
//! ```
//!
//! Numbers are little-endian. A ballot travels as a term: its number in the upper 48 bits, the number of
//! its node in the lower 16. The last field of [`Promise`] and [`AcceptSync`] is a log. A log that is long
//! or has a snapshot is the message's bulk, and travels in pieces.

use bytes::Bytes;
use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::messages::ballot_leader_election::{HeartbeatMsg, HeartbeatReply, HeartbeatRequest};
use omnipaxos::messages::sequence_paxos::{
    AcceptDecide, AcceptSync, Accepted, Decide, NotAccepted, PaxosMsg, Prepare, PrepareReq, Promise,
};
use omnipaxos::storage::SnapshotType;
use omnipaxos::util::{LogSync, SequenceNumber};

use super::log::Suffix;
use crate::consensus::{Entry, NodeId, Position, Snapshot};
use crate::wire::{self, Reader};

/// The members do not change, so there is one configuration.
pub(super) const CONFIGURATION: u32 = 1;
/// A log with more bytes of entries is bulk.
const INLINE: usize = 256 << 10;
/// The library adds to the numbers of ballots, and does not expect that they overflow.
const MAX_ROUND: u64 = 1 << 31;
/// Of a term that belongs to a node's number.
const NODE_BITS: u32 = 16;

/// A message between nodes.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "most messages are of the log")]
pub enum Message {
    /// Of the library's log.
    Log {
        /// What it says.
        message: PaxosMsg<Entry>,
        /// Of a [`Prepare`]: the ballot of a leader that has asked for it. A node that has confirmed this
        /// leader need not wait.
        agreed: Option<Ballot>,
    },
    /// Of the library's election.
    Heartbeat(HeartbeatMsg),
    /// The leader with this ballot asks whether it still leads.
    Confirm(Ballot, u64),
    /// Nothing with a higher ballot was promised before this answer.
    Confirmed(Ballot, u64),
    /// The leader with this ballot asks a node to lead.
    TakeOver(Ballot),
    /// Messages of the leader with this ballot were lost. The node must ask for what it has missed.
    Lost(Ballot),
}

/// The library numbers nodes from 1. Ours may have any numbers; their order is what counts.
#[derive(Clone, Debug)]
pub(super) struct Numbering {
    nodes: Vec<NodeId>,
}

impl Numbering {
    pub(super) fn new(mut nodes: Vec<NodeId>) -> Self {
        nodes.sort_unstable();
        Self { nodes }
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The library's number of a node.
    pub(super) fn pid(&self, node: NodeId) -> Option<u64> {
        self.nodes.binary_search(&node).ok().map(|place| place as u64 + 1)
    }

    /// The node with this number; 0 if there is none.
    pub(super) fn node(&self, pid: u64) -> NodeId {
        pid.checked_sub(1).and_then(|place| self.nodes.get(place as usize)).copied().unwrap_or(0)
    }

    /// The ballot of a term that is of a member.
    pub(super) fn ballot(&self, term: u64) -> Option<Ballot> {
        let ballot = ballot_of(term)?;
        (1..=self.nodes.len() as u64).contains(&ballot.pid).then_some(ballot)
    }
}

/// The term of a ballot.
pub(super) fn term_of(ballot: &Ballot) -> u64 {
    u64::from(ballot.n) << NODE_BITS | ballot.pid
}

/// Whether a term is that of the first snapshot, which is older than all ballots.
pub(super) fn is_of_no_round(term: u64) -> bool {
    term >> NODE_BITS == 0
}

fn ballot_of(term: u64) -> Option<Ballot> {
    if term == 0 {
        return Some(Ballot::default());
    }
    let round = term >> NODE_BITS;
    let pid = term & ((1 << NODE_BITS) - 1);
    (round <= MAX_ROUND && pid > 0).then(|| Ballot::with(CONFIGURATION, round as u32, 0, pid))
}

const PREPARE_REQ: u8 = 1;
const PREPARE: u8 = 2;
const PREPARE_HANDOVER: u8 = 3;
const PROMISE: u8 = 4;
const ACCEPT_SYNC: u8 = 5;
const ACCEPT_DECIDE: u8 = 6;
const ACCEPTED: u8 = 7;
const NOT_ACCEPTED: u8 = 8;
const DECIDE: u8 = 9;
const HEARTBEAT: u8 = 10;
const HEARTBEAT_REPLY: u8 = 11;
const CONFIRM: u8 = 12;
const CONFIRMED: u8 = 13;
const TAKE_OVER: u8 = 14;
const LOST: u8 = 15;

/// What follows where a log may be.
const NO_LOG: u8 = 0;
const LOG: u8 = 1;
const BULK: u8 = 2;

/// The log of a message that has one.
pub(super) fn log_of(message: &Message) -> Option<&LogSync<Entry>> {
    match message {
        Message::Log { message: PaxosMsg::Promise(promise), .. } => promise.log_sync.as_ref(),
        Message::Log { message: PaxosMsg::AcceptSync(sync), .. } => Some(&sync.log_sync),
        _ => None,
    }
}

/// The snapshot of the state that a log has.
pub(super) fn snapshot_of(log: &LogSync<Entry>) -> Option<&Snapshot> {
    match &log.decided_snapshot {
        Some(SnapshotType::Complete(suffix)) => Some(&suffix.base),
        _ => None,
    }
}

pub(super) fn has_bulk(message: &Message) -> bool {
    log_of(message).is_some_and(is_bulk)
}

/// The bulk of a message that has one.
pub(super) fn bulk_of(message: &Message) -> Option<Bytes> {
    let log = log_of(message).filter(|log| is_bulk(log))?;
    let mut out = Vec::new();
    put_log(&mut out, log);
    Some(out.into())
}

fn is_bulk(log: &LogSync<Entry>) -> bool {
    let decided = match &log.decided_snapshot {
        Some(SnapshotType::Complete(_)) => return true,
        Some(SnapshotType::Delta(suffix)) => &suffix.entries[..],
        None => &[],
    };
    let entries = decided.iter().chain(&log.suffix);
    entries.map(|entry| entry.data.len() + 32).sum::<usize>() > INLINE
}

fn put_log(out: &mut Vec<u8>, log: &LogSync<Entry>) {
    put(out, &[log.sync_idx as u64]);
    match &log.decided_snapshot {
        None => out.push(0),
        Some(SnapshotType::Delta(suffix)) => {
            out.push(1);
            put_entries(out, &suffix.entries);
        }
        Some(SnapshotType::Complete(suffix)) => {
            out.push(2);
            put(out, &[suffix.base.at.term, suffix.base.at.index]);
            wire::put_members(out, &suffix.base.members);
            put(out, &[suffix.base.data.len() as u64]);
            out.extend_from_slice(&suffix.base.data);
            put_entries(out, &suffix.entries);
        }
    }
    put_entries(out, &log.suffix);
}

fn log(reader: &mut Reader<'_>, whole: &Bytes) -> Option<LogSync<Entry>> {
    let sync_idx = reader.u64()? as usize;
    let decided_snapshot = match reader.u8()? {
        0 => None,
        1 => {
            let entries = entries(reader, whole)?;
            Some(SnapshotType::Delta(Suffix { base: Snapshot::default(), entries }))
        }
        2 => {
            let at = Position { term: reader.u64()?, index: reader.u64()? };
            let members = wire::members(reader)?;
            let len = usize::try_from(reader.u64()?).ok()?;
            let data = whole.slice_ref(reader.take(len)?);
            let base = Snapshot { at, members, data };
            Some(SnapshotType::Complete(Suffix { base, entries: entries(reader, whole)? }))
        }
        _ => return None,
    };
    let suffix = entries(reader, whole)?;
    Some(LogSync { decided_snapshot, suffix, sync_idx, stopsign: None })
}

fn put(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
}

fn put_entries(out: &mut Vec<u8>, entries: &[Entry]) {
    out.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    entries.iter().for_each(|entry| wire::put_entry(out, entry));
}

fn entries(reader: &mut Reader<'_>, whole: &Bytes) -> Option<Vec<Entry>> {
    let count = reader.u32()?;
    (0..count).map(|_| wire::entry(reader, whole)).collect()
}

pub(super) fn encode(message: &Message, out: &mut Vec<u8>) {
    let (kind, ballot, number) = match message {
        Message::Log { message, agreed } => return encode_log(message, agreed.as_ref(), out),
        Message::Heartbeat(HeartbeatMsg::Request(request)) => {
            (HEARTBEAT, Ballot::default(), u64::from(request.round))
        }
        Message::Heartbeat(HeartbeatMsg::Reply(reply)) => {
            out.push(HEARTBEAT_REPLY);
            let HeartbeatReply { round, ballot, leader, happy } = reply;
            put(out, &[term_of(ballot), term_of(leader), u64::from(*round)]);
            out.push(u8::from(*happy));
            return;
        }
        Message::Confirm(ballot, round) => (CONFIRM, *ballot, *round),
        Message::Confirmed(ballot, round) => (CONFIRMED, *ballot, *round),
        Message::TakeOver(ballot) => (TAKE_OVER, *ballot, 0),
        Message::Lost(ballot) => (LOST, *ballot, 0),
    };
    out.push(kind);
    put(out, &[term_of(&ballot), number]);
}

fn encode_log(message: &PaxosMsg<Entry>, agreed: Option<&Ballot>, out: &mut Vec<u8>) {
    match message {
        PaxosMsg::PrepareReq(PrepareReq { n }) => {
            out.push(PREPARE_REQ);
            put(out, &[term_of(n)]);
        }
        PaxosMsg::Prepare(Prepare { n, decided_idx, n_accepted, accepted_idx }) => {
            out.push(if agreed.is_some() { PREPARE_HANDOVER } else { PREPARE });
            let numbers =
                [term_of(n), *decided_idx as u64, term_of(n_accepted), *accepted_idx as u64];
            put(out, &numbers);
            put(out, agreed.map(term_of).as_slice());
        }
        PaxosMsg::Promise(Promise { n, n_accepted, decided_idx, accepted_idx, log_sync }) => {
            out.push(PROMISE);
            let numbers =
                [term_of(n), term_of(n_accepted), *decided_idx as u64, *accepted_idx as u64];
            put(out, &numbers);
            put_inline(out, log_sync.as_ref());
        }
        PaxosMsg::AcceptSync(AcceptSync { n, seq_num, decided_idx, log_sync }) => {
            out.push(ACCEPT_SYNC);
            put(out, &[term_of(n), seq_num.session, seq_num.counter, *decided_idx as u64]);
            put_inline(out, Some(log_sync));
        }
        PaxosMsg::AcceptDecide(AcceptDecide { n, seq_num, decided_idx, entries }) => {
            out.push(ACCEPT_DECIDE);
            put(out, &[term_of(n), seq_num.session, seq_num.counter, *decided_idx as u64]);
            put_entries(out, entries);
        }
        PaxosMsg::Accepted(Accepted { n, accepted_idx }) => {
            out.push(ACCEPTED);
            put(out, &[term_of(n), *accepted_idx as u64]);
        }
        PaxosMsg::NotAccepted(NotAccepted { n }) => {
            out.push(NOT_ACCEPTED);
            put(out, &[term_of(n)]);
        }
        PaxosMsg::Decide(Decide { n, seq_num, decided_idx }) => {
            out.push(DECIDE);
            put(out, &[term_of(n), seq_num.session, seq_num.counter, *decided_idx as u64]);
        }
        PaxosMsg::ProposalForward(_)
        | PaxosMsg::Compaction(_)
        | PaxosMsg::AcceptStopSign(_)
        | PaxosMsg::ForwardStopSign(_) => {
            unreachable!("the core proposes at the leader only, and compacts at each node alone")
        }
    }
}

fn put_inline(out: &mut Vec<u8>, log: Option<&LogSync<Entry>>) {
    match log {
        None => out.push(NO_LOG),
        Some(log) if is_bulk(log) => out.push(BULK),
        Some(log) => {
            out.push(LOG);
            put_log(out, log);
        }
    }
}

/// The message with these bytes, and with this bulk if it has one.
pub(super) fn decode(bytes: &Bytes, bulk: Option<&Bytes>) -> Option<Message> {
    let mut reader = Reader::new(bytes);
    let kind = reader.u8()?;
    let n = ballot_of(reader.u64()?)?;
    let mut has_bulk = false;
    let mut inline = |reader: &mut Reader<'_>| {
        Some(match reader.u8()? {
            NO_LOG => None,
            LOG => Some(log(reader, bytes).filter(|log| !is_bulk(log))?),
            BULK => {
                has_bulk = true;
                let mut all = Reader::new(bulk?);
                let log = log(&mut all, bulk?).filter(is_bulk)?;
                all.is_empty().then_some(Some(log))?
            }
            _ => return None,
        })
    };
    let number = |reader: &mut Reader<'_>| reader.u64().map(|number| number as usize);
    let order = |reader: &mut Reader<'_>| {
        let (session, counter) = (reader.u64()?, reader.u64()?);
        // The library adds one.
        (session.max(counter) < u64::MAX).then_some(SequenceNumber { session, counter })
    };
    let paxos = |message| Message::Log { message, agreed: None };
    let message = match kind {
        PREPARE_REQ => paxos(PaxosMsg::PrepareReq(PrepareReq { n })),
        PREPARE | PREPARE_HANDOVER => {
            let decided_idx = number(&mut reader)?;
            let n_accepted = ballot_of(reader.u64()?)?;
            let accepted_idx = number(&mut reader)?;
            let message = PaxosMsg::Prepare(Prepare { n, decided_idx, n_accepted, accepted_idx });
            let agreed = match kind {
                PREPARE => None,
                _ => Some(ballot_of(reader.u64()?)?),
            };
            Message::Log { message, agreed }
        }
        PROMISE => {
            let n_accepted = ballot_of(reader.u64()?)?;
            let (decided_idx, accepted_idx) = (number(&mut reader)?, number(&mut reader)?);
            let log_sync = inline(&mut reader)?;
            let promise = Promise { n, n_accepted, decided_idx, accepted_idx, log_sync };
            paxos(PaxosMsg::Promise(promise))
        }
        ACCEPT_SYNC => {
            let (seq_num, decided_idx) = (order(&mut reader)?, number(&mut reader)?);
            let log_sync = inline(&mut reader)??;
            paxos(PaxosMsg::AcceptSync(AcceptSync { n, seq_num, decided_idx, log_sync }))
        }
        ACCEPT_DECIDE => {
            let (seq_num, decided_idx) = (order(&mut reader)?, number(&mut reader)?);
            let entries = entries(&mut reader, bytes)?;
            paxos(PaxosMsg::AcceptDecide(AcceptDecide { n, seq_num, decided_idx, entries }))
        }
        ACCEPTED => paxos(PaxosMsg::Accepted(Accepted { n, accepted_idx: number(&mut reader)? })),
        NOT_ACCEPTED => paxos(PaxosMsg::NotAccepted(NotAccepted { n })),
        DECIDE => {
            let (seq_num, decided_idx) = (order(&mut reader)?, number(&mut reader)?);
            paxos(PaxosMsg::Decide(Decide { n, seq_num, decided_idx }))
        }
        HEARTBEAT if n == Ballot::default() => {
            let round = u32::try_from(reader.u64()?).ok()?;
            Message::Heartbeat(HeartbeatMsg::Request(HeartbeatRequest { round }))
        }
        HEARTBEAT_REPLY => {
            let leader = ballot_of(reader.u64()?)?;
            let round = u32::try_from(reader.u64()?).ok()?;
            let happy = match reader.u8()? {
                0 => false,
                1 => true,
                _ => return None,
            };
            let reply = HeartbeatReply { round, ballot: n, leader, happy };
            Message::Heartbeat(HeartbeatMsg::Reply(reply))
        }
        CONFIRM => Message::Confirm(n, reader.u64()?),
        CONFIRMED => Message::Confirmed(n, reader.u64()?),
        TAKE_OVER if reader.u64()? == 0 => Message::TakeOver(n),
        LOST if reader.u64()? == 0 => Message::Lost(n),
        _ => return None,
    };
    (reader.is_empty() && has_bulk == bulk.is_some()).then_some(message)
}
