//! The log and the promises of Omni-Paxos, as its library sees them, and what of them must be written.
//!
//! The library's storage is synchronous. This one keeps everything in memory, and notes what a disk
//! must learn ([`Log::take_write`]). [`super::OmniCore`] holds back each message that promises something
//! until the disk has it.
//!
//! The library counts entries from 0, so its index is the number of entries before. The entry with the
//! index `i` of the store is the library's entry `i - 1`, and the library's "decided index" is the index
//! of the last decided entry.
//!
//! A snapshot for the library is the last snapshot of the store and the entries after it ([`Suffix`]).
//! So a node never has to encode its state because another one is behind, and a node that is a little
//! behind gets entries only.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::storage::{self, StopSign, Storage, StorageOp, StorageResult};

use super::message::{Numbering, is_of_no_round, term_of};
use crate::consensus::{Entry, HardState, Position, Snapshot, Start, Write};
use crate::mutants::mutant;

/// A snapshot, and entries that follow it. Without the snapshot (its index is 0), entries only.
#[derive(Clone, Debug, Default)]
pub struct Suffix {
    pub(super) base: Snapshot,
    pub(super) entries: Vec<Entry>,
}

impl Suffix {
    /// The index of the last entry that it contains; 0 if it is empty.
    pub(super) fn last(&self) -> u64 {
        self.entries.last().map_or(self.base.at.index, |entry| entry.at.index)
    }
}

impl storage::Entry for Entry {
    type Snapshot = Suffix;
}

impl storage::Snapshot<Entry> for Suffix {
    fn create(entries: &[Entry]) -> Self {
        Self { base: Snapshot::default(), entries: entries.to_vec() }
    }

    /// Appends what follows. Where the two overlap, the later one is right: the library merges what another
    /// node has decided into what this one has up to the same index, decided or not.
    fn merge(&mut self, later: Self) {
        let Some(first) = later.entries.first().map(|first| first.at.index) else { return };
        if !mutant!(OwnEntriesKept) {
            self.entries.retain(|entry| entry.at.index < first);
        }
        let last = self.last();
        self.entries.extend(later.entries.into_iter().filter(|entry| entry.at.index > last));
    }

    fn use_snapshots() -> bool {
        true
    }
}

/// Clones are the same log.
#[derive(Clone)]
pub(super) struct Log {
    inner: Rc<RefCell<Inner>>,
}

struct Inner {
    promise: Option<Ballot>,
    accepted: Ballot,
    decided: u64,
    /// What the library believes to be no longer in the log. More may be here.
    compacted: u64,
    /// The place before the first entry.
    before: Position,
    entries: VecDeque<Entry>,
    base: Snapshot,
    /// Since the last [`Log::take_write`].
    write: Write,
    /// What is written, or on its way.
    hard: HardState,
    /// A promise or an acceptance must be written, even if there is no entry.
    is_urgent: bool,
    install: Option<Snapshot>,
    /// Writes on their way, each with the last index that is on disk then.
    flights: VecDeque<(u64, u64)>,
    /// The log is on disk up to this index, with the round in which it was accepted.
    durable: u64,
}

impl Log {
    pub(super) fn new(start: &Start, numbering: &Numbering) -> Result<Self, String> {
        let ballot = |term| {
            let ballot = numbering.ballot(term);
            ballot.ok_or_else(|| format!("the term {term} is of no member"))
        };
        let at = start.snapshot.at;
        let last = at.index + start.entries.len() as u64;
        let hard = start.hard;
        let promise = if is_of_no_round(hard.term) { None } else { Some(ballot(hard.term)?) };
        // A crash may have left a snapshot of another node without the hard state that came with it. A
        // leader of the snapshot's term has had what it contains.
        let accepted = hard.vote.max(if is_of_no_round(at.term) { 0 } else { at.term });
        let inner = Inner {
            promise,
            accepted: if accepted == 0 { Ballot::default() } else { ballot(accepted)? },
            decided: hard.commit.max(at.index).min(last),
            compacted: at.index,
            before: at,
            entries: start.entries.iter().cloned().collect(),
            base: start.snapshot.clone(),
            write: Write::default(),
            hard,
            is_urgent: false,
            install: None,
            flights: VecDeque::new(),
            durable: last,
        };
        Ok(Self { inner: Rc::new(RefCell::new(inner)) })
    }

    /// What must be written since the last call; none if nothing must.
    pub(super) fn take_write(&self, ticket: u64) -> Option<Write> {
        let mut inner = self.inner.borrow_mut();
        if inner.write.is_empty() && !inner.is_urgent {
            return None;
        }
        let hard = inner.hard_state();
        let mut write = std::mem::take(&mut inner.write);
        write.ticket = ticket;
        // The decided index alone is not worth a write: a majority knows the entries.
        if hard != inner.hard {
            write.hard = Some(hard);
            inner.hard = hard;
        }
        inner.is_urgent = false;
        let last = inner.last();
        inner.flights.push_back((ticket, last));
        Some(write)
    }

    /// All writes up to this ticket are on disk.
    pub(super) fn persisted(&self, ticket: u64) {
        let mut inner = self.inner.borrow_mut();
        while let Some(&(_, last)) = inner.flights.front().filter(|(flight, _)| *flight <= ticket) {
            inner.durable = last;
            inner.flights.pop_front();
        }
    }

    /// The log is on disk up to this index, with the round in which it was accepted.
    pub(super) fn durable(&self) -> u64 {
        self.inner.borrow().durable
    }

    /// The last index of the log.
    pub(super) fn last(&self) -> u64 {
        self.inner.borrow().last()
    }

    /// The term of the last promise; before the first one, that of the first snapshot.
    pub(super) fn term(&self) -> u64 {
        self.inner.borrow().hard_state().term
    }

    /// The round in which the log was accepted.
    pub(super) fn accepted(&self) -> Ballot {
        self.inner.borrow().accepted
    }

    /// A snapshot of another node that has replaced the log, once.
    pub(super) fn take_install(&self) -> Option<Snapshot> {
        self.inner.borrow_mut().install.take()
    }

    /// Entries after `index` up to `to`, of about `room` bytes, but at least one.
    pub(super) fn read(&self, index: u64, to: u64, mut room: usize) -> Vec<Entry> {
        let inner = self.inner.borrow();
        let entries = inner.range(index, to);
        let fits = |entry: &&Entry| {
            let has_room = room > 0;
            room = room.saturating_sub(entry.data.len() + 32);
            has_room
        };
        entries.take_while(fits).cloned().collect()
    }

    /// There is a snapshot. Forgets entries up to `index`, which the library must have forgotten.
    pub(super) fn compact(&self, snapshot: Snapshot, index: u64) {
        let mut inner = self.inner.borrow_mut();
        let first_kept = index.min(inner.compacted).min(snapshot.at.index);
        while inner.before.index < first_kept {
            let Some(entry) = inner.entries.pop_front() else { break };
            inner.before = entry.at;
        }
        inner.base = snapshot;
    }
}

impl Inner {
    fn last(&self) -> u64 {
        self.before.index + self.entries.len() as u64
    }

    fn hard_state(&self) -> HardState {
        HardState {
            term: self.promise.map_or(self.hard.term, |promise| term_of(&promise)),
            vote: term_of(&self.accepted),
            commit: self.decided.min(self.last()),
        }
    }

    /// The entries after `from` up to `to`, as far as they are here.
    fn range(&self, from: u64, to: u64) -> impl Iterator<Item = &Entry> {
        let position = |index: u64| (index.max(self.before.index) - self.before.index) as usize;
        let end = position(to.min(self.last()));
        self.entries.range(position(from).min(end)..end)
    }

    fn append(&mut self, entries: Vec<Entry>) {
        self.entries.extend(entries.iter().cloned());
        self.write.entries.extend(entries);
    }

    /// The log ends with this index.
    fn cut(&mut self, index: u64) {
        if index >= self.last() {
            return;
        }
        self.entries.truncate(index.saturating_sub(self.before.index) as usize);
        self.write.entries.retain(|entry| entry.at.index <= index);
        self.write.end = Some(self.write.end.map_or(index, |end| end.min(index)));
        self.durable_until(index);
    }

    /// What the disk has after this index does not count, until it is written again.
    fn durable_until(&mut self, index: u64) {
        self.durable = self.durable.min(index);
        for (_, last) in &mut self.flights {
            *last = index.min(*last);
        }
    }

    /// Another node has sent what is decided, because this one knew it only up to `known`.
    fn adopt(&mut self, suffix: Suffix, known: u64) {
        let Suffix { base, entries } = suffix;
        let from = known.max(base.at.index);
        if base.at.index > known {
            self.cut(known);
            self.entries.clear();
            self.before = base.at;
            self.write.entries.clear();
            self.write.end = Some(base.at.index);
            self.write.snapshot = Some(base.clone());
            self.install = Some(base.clone());
            self.base = base;
        } else {
            self.cut(known);
        }
        self.append(entries.into_iter().filter(|entry| entry.at.index > from).collect());
    }
}

impl Storage<Entry> for Log {
    fn write_atomically(&mut self, ops: Vec<StorageOp<Entry>>) -> StorageResult<()> {
        let known = self.inner.borrow().decided;
        // Otherwise it is a compaction of this node's own log, whose snapshot is here already.
        let is_sync = ops.iter().any(|op| matches!(op, StorageOp::SetAcceptedRound(_)));
        for op in ops {
            match op {
                StorageOp::AppendEntry(entry) => self.append_entry(entry)?,
                StorageOp::AppendEntries(entries) => self.append_entries(entries)?,
                StorageOp::AppendOnPrefix(from, entries) => self.append_on_prefix(from, entries)?,
                StorageOp::SetPromise(ballot) => self.set_promise(ballot)?,
                StorageOp::SetDecidedIndex(index) => self.set_decided_idx(index)?,
                StorageOp::SetAcceptedRound(ballot) => self.set_accepted_round(ballot)?,
                StorageOp::SetCompactedIdx(index) => self.set_compacted_idx(index)?,
                StorageOp::Trim(index) => self.trim(index)?,
                StorageOp::SetStopsign(sign) => self.set_stopsign(sign)?,
                StorageOp::SetSnapshot(Some(suffix)) if is_sync => {
                    self.inner.borrow_mut().adopt(suffix, known);
                }
                StorageOp::SetSnapshot(_) => {}
            }
        }
        Ok(())
    }

    fn append_entry(&mut self, entry: Entry) -> StorageResult<()> {
        self.append_entries(vec![entry])
    }

    fn append_entries(&mut self, entries: Vec<Entry>) -> StorageResult<()> {
        self.inner.borrow_mut().append(entries);
        Ok(())
    }

    fn append_on_prefix(&mut self, from: usize, entries: Vec<Entry>) -> StorageResult<()> {
        let mut inner = self.inner.borrow_mut();
        inner.cut(from as u64);
        inner.append(entries);
        Ok(())
    }

    fn set_promise(&mut self, promise: Ballot) -> StorageResult<()> {
        let mut inner = self.inner.borrow_mut();
        // The library writes what it has read when it starts.
        if inner.promise.unwrap_or_default() != promise {
            inner.promise = Some(promise);
            inner.is_urgent = true;
        }
        Ok(())
    }

    fn set_decided_idx(&mut self, index: usize) -> StorageResult<()> {
        self.inner.borrow_mut().decided = index as u64;
        Ok(())
    }

    fn get_decided_idx(&self) -> StorageResult<usize> {
        Ok(self.inner.borrow().decided as usize)
    }

    fn set_accepted_round(&mut self, round: Ballot) -> StorageResult<()> {
        let mut inner = self.inner.borrow_mut();
        // Until the round is on disk, too, the node would not count as one that has accepted the log in
        // this round. What is decided needs no more acceptance.
        if inner.accepted != round {
            let decided = inner.decided;
            inner.durable_until(decided);
        }
        inner.accepted = round;
        inner.is_urgent = true;
        Ok(())
    }

    fn get_accepted_round(&self) -> StorageResult<Option<Ballot>> {
        Ok(Some(self.inner.borrow().accepted))
    }

    fn get_entries(&self, from: usize, to: usize) -> StorageResult<Vec<Entry>> {
        Ok(self.inner.borrow().range(from as u64, to as u64).cloned().collect())
    }

    fn get_log_len(&self) -> StorageResult<usize> {
        let inner = self.inner.borrow();
        Ok(inner.last().saturating_sub(inner.compacted) as usize)
    }

    fn get_suffix(&self, from: usize) -> StorageResult<Vec<Entry>> {
        Ok(self.inner.borrow().range(from as u64, u64::MAX).cloned().collect())
    }

    fn get_promise(&self) -> StorageResult<Option<Ballot>> {
        Ok(self.inner.borrow().promise)
    }

    /// The members do not change, so there is no stop sign.
    fn set_stopsign(&mut self, _: Option<StopSign>) -> StorageResult<()> {
        Ok(())
    }

    fn get_stopsign(&self) -> StorageResult<Option<StopSign>> {
        Ok(None)
    }

    /// Entries are kept until [`Log::compact`].
    fn trim(&mut self, _: usize) -> StorageResult<()> {
        Ok(())
    }

    fn set_compacted_idx(&mut self, index: usize) -> StorageResult<()> {
        self.inner.borrow_mut().compacted = index as u64;
        Ok(())
    }

    fn get_compacted_idx(&self) -> StorageResult<usize> {
        Ok(self.inner.borrow().compacted as usize)
    }

    fn set_snapshot(&mut self, _: Option<Suffix>) -> StorageResult<()> {
        Ok(())
    }

    /// All that the library has forgotten.
    fn get_snapshot(&self) -> StorageResult<Option<Suffix>> {
        let inner = self.inner.borrow();
        let entries = inner.range(inner.base.at.index, inner.compacted).cloned().collect();
        Ok(Some(Suffix { base: inner.base.clone(), entries }))
    }
}
