//! The log in memory, as the crate `raft` reads it.
//!
//! It has all entries after the last snapshot, and some before it for nodes that are a little behind.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem;
use std::rc::Rc;

use raft::eraftpb::{self, ConfState};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};

use super::{conf_state, entry_out, snapshot_out};
use crate::consensus::{Position, Snapshot, Start};

/// Entries for which the library's reads make room at once.
const MANY: usize = 64;

/// Clones are the same log.
#[derive(Clone)]
pub(super) struct Window {
    inner: Rc<RefCell<Inner>>,
}

struct Inner {
    hard: eraftpb::HardState,
    conf: ConfState,
    snapshot: Snapshot,
    /// The place before the first entry.
    before: Position,
    entries: VecDeque<eraftpb::Entry>,
    /// A node needs a newer snapshot.
    wants_snapshot: bool,
}

impl Window {
    pub(super) fn new(start: &Start) -> Self {
        let mut hard = eraftpb::HardState::default();
        hard.term = start.hard.term;
        hard.vote = start.hard.vote;
        hard.commit = start.hard.commit.max(start.snapshot.at.index);
        let inner = Inner {
            hard,
            conf: conf_state(&start.snapshot.members),
            before: start.snapshot.at,
            snapshot: start.snapshot.clone(),
            entries: start.entries.iter().map(entry_out).collect(),
            wants_snapshot: false,
        };
        Self { inner: Rc::new(RefCell::new(inner)) }
    }

    /// Whether a node needs a newer snapshot than the last one. Forgets it.
    pub(super) fn wants_snapshot(&self) -> bool {
        mem::take(&mut self.inner.borrow_mut().wants_snapshot)
    }

    /// Appends entries. They replace those at their indices and after.
    pub(super) fn append(&self, entries: &[eraftpb::Entry]) {
        let mut inner = self.inner.borrow_mut();
        let Some(first) = entries.first() else { return };
        let kept = first.index.saturating_sub(inner.before.index + 1);
        inner.entries.truncate(kept as usize);
        inner.entries.extend(entries.iter().cloned());
    }

    /// A snapshot of another node replaces the log.
    pub(super) fn install(&self, snapshot: Snapshot) {
        let mut inner = self.inner.borrow_mut();
        inner.entries.clear();
        inner.before = snapshot.at;
        inner.conf = conf_state(&snapshot.members);
        inner.snapshot = snapshot;
    }

    /// There is a snapshot of this node's own state; `keep` entries before it are kept.
    pub(super) fn compact(&self, snapshot: Snapshot, keep: u64) {
        let mut inner = self.inner.borrow_mut();
        let first_kept = snapshot.at.index.saturating_sub(keep);
        while inner.before.index < first_kept {
            let Some(entry) = inner.entries.pop_front() else { break };
            inner.before = Position { term: entry.term, index: entry.index };
        }
        inner.snapshot = snapshot;
    }
}

impl Inner {
    fn last(&self) -> u64 {
        self.before.index + self.entries.len() as u64
    }
}

impl Storage for Window {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let inner = self.inner.borrow();
        Ok(RaftState::new(inner.hard.clone(), inner.conf.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<eraftpb::Entry>> {
        let inner = self.inner.borrow();
        if low <= inner.before.index {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        if high > inner.last() + 1 {
            return Err(raft::Error::Store(StorageError::Unavailable));
        }
        let mut room = max_size.into().unwrap_or(u64::MAX);
        let from = (low - inner.before.index - 1) as usize;
        let mut found = Vec::with_capacity(((high - low) as usize).min(MANY));
        // At least one, whatever its size. The library's own measure of an entry walks through its
        // protobuf encoding; the bytes alone are close enough.
        for entry in inner.entries.range(from..from + (high - low) as usize) {
            let size = (entry.data.len() + entry.context.len()) as u64 + 24;
            if !found.is_empty() && size > room {
                break;
            }
            room = room.saturating_sub(size);
            found.push(entry.clone());
        }
        Ok(found)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        let inner = self.inner.borrow();
        if index == inner.before.index {
            return Ok(inner.before.term);
        }
        if index == inner.snapshot.at.index {
            return Ok(inner.snapshot.at.term);
        }
        if index < inner.before.index {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        let entry = inner.entries.get((index - inner.before.index - 1) as usize);
        entry.map(|entry| entry.term).ok_or(raft::Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.inner.borrow().before.index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.inner.borrow().last())
    }

    /// A node ignores a snapshot in which it is no member. So one that was added later needs a newer
    /// one. The library asks again.
    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<eraftpb::Snapshot> {
        let mut inner = self.inner.borrow_mut();
        let knows = inner.snapshot.members.all().contains(&to);
        if !knows || inner.snapshot.at.index < request_index {
            inner.wants_snapshot = true;
            return Err(raft::Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        }
        Ok(snapshot_out(&inner.snapshot))
    }
}
