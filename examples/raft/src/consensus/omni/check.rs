//! Which messages the library gets.
//!
//! The library trusts its messages, and its connections to keep their order. It appends what it is sent
//! and cuts its log where it is told to. Ours come from a network: they may be old, and a node may send
//! anything.

use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::messages::sequence_paxos::{
    AcceptDecide, AcceptSync, Accepted, PaxosMsg, Prepare, Promise,
};
use omnipaxos::storage::SnapshotType;
use omnipaxos::util::LogSync;

use super::message::{Numbering, term_of};
use crate::consensus::{Entry, EntryKind, Members};

/// What a node knows when a message arrives.
pub(super) struct View<'c> {
    pub(super) numbering: &'c Numbering,
    pub(super) members: &'c Members,
    pub(super) promise: Ballot,
    /// It follows the leader of `promise`, or leads, and has its log.
    pub(super) is_in_step: bool,
    /// The round in which the log was accepted.
    pub(super) accepted: Ballot,
    pub(super) decided: u64,
    pub(super) last: u64,
    /// The last [`AcceptSync`] that was passed on: its ballot and its number.
    pub(super) synced: (Ballot, u64),
    pub(super) me: u64,
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The library gets it.
    Pass,
    /// It is old.
    Ignore,
    /// Messages before it were lost. The node must ask for them.
    Gap,
}

/// No log reaches this index.
const MAX_INDEX: usize = 1 << 62;

type Checked = Result<Fate, &'static str>;

impl View<'_> {
    /// What becomes of a message of the member `from`.
    pub(super) fn check(&self, from: u64, message: &mut PaxosMsg<Entry>) -> Checked {
        match message {
            PaxosMsg::PrepareReq(request) => self.ballot(&request.n).map(|()| Fate::Pass),
            PaxosMsg::NotAccepted(refused) => self.ballot(&refused.n).map(|()| Fate::Pass),
            PaxosMsg::Prepare(prepare) => self.prepare(from, prepare),
            PaxosMsg::Promise(promise) => self.promise(promise),
            PaxosMsg::AcceptSync(sync) => self.accept_sync(from, sync),
            PaxosMsg::AcceptDecide(accept) => self.accept_decide(from, accept),
            PaxosMsg::Accepted(accepted) => self.accepted(accepted),
            PaxosMsg::Decide(decide) => self.of_leader(from, &decide.n).map(|()| Fate::Pass),
            PaxosMsg::ProposalForward(_)
            | PaxosMsg::Compaction(_)
            | PaxosMsg::AcceptStopSign(_)
            | PaxosMsg::ForwardStopSign(_) => Err("no node sends such a message"),
        }
    }

    fn ballot(&self, ballot: &Ballot) -> Result<(), &'static str> {
        // The ballot of no round is that of a node that has promised nothing yet.
        let is_possible =
            *ballot == Ballot::default() || self.numbering.ballot(term_of(ballot)).is_some();
        is_possible.then_some(()).ok_or("a ballot of no member")
    }

    fn of_leader(&self, from: u64, ballot: &Ballot) -> Result<(), &'static str> {
        self.ballot(ballot)?;
        (ballot.pid == from && ballot.n > 0).then_some(()).ok_or("a leader sends its own ballot")
    }

    fn prepare(&self, from: u64, prepare: &Prepare) -> Checked {
        self.of_leader(from, &prepare.n)?;
        self.ballot(&prepare.n_accepted)?;
        let Prepare { n, decided_idx, n_accepted, accepted_idx } = prepare;
        if n_accepted > n || decided_idx > accepted_idx || *accepted_idx > MAX_INDEX {
            return Err("a log that no leader has");
        }
        Ok(Fate::Pass)
    }

    fn promise(&self, promise: &mut Promise<Entry>) -> Checked {
        let Promise { n, n_accepted, decided_idx, accepted_idx, log_sync } = promise;
        self.ballot(n)?;
        self.ballot(n_accepted)?;
        if *n != self.promise || n.pid != self.me {
            return Ok(Fate::Ignore);
        }
        let (decided, accepted) = (*decided_idx as u64, *accepted_idx as u64);
        if *n_accepted > *n || decided > accepted || *accepted_idx > MAX_INDEX {
            return Err("a log that no node has");
        }
        if self.is_in_step {
            // A majority has promised before, so the library does not use this log. It may be old.
            *log_sync = None;
        }
        match log_sync {
            Some(log) => {
                self.log(log, n, *decided_idx)?;
                if log.sync_idx + log.suffix.len() != *accepted_idx {
                    return Err("a promise with another log than it says");
                }
            }
            None if self.is_in_step => {}
            None if (*n_accepted, accepted) > (self.accepted, self.last) => {
                return Err("a promise without its log");
            }
            None if decided > self.last => return Err("entries are decided that no leader has"),
            None => {}
        }
        Ok(Fate::Pass)
    }

    fn accept_sync(&self, from: u64, sync: &AcceptSync<Entry>) -> Checked {
        self.of_leader(from, &sync.n)?;
        if sync.n != self.promise {
            // The library refuses it.
            return Ok(Fate::Pass);
        }
        // A later one may have been passed on, and entries after it acknowledged. They must stay.
        let (round, number) = self.synced;
        if round == sync.n && sync.seq_num.session <= number {
            return Ok(Fate::Ignore);
        }
        if self.is_in_step {
            // The leader numbers its messages anew after this one. The library would not accept it.
            return Ok(Fate::Gap);
        }
        if sync.seq_num.counter != 1 {
            return Err("a log that is not the first message of its leader");
        }
        let log = &sync.log_sync;
        self.log(log, &sync.n, sync.decided_idx)?;
        let end = log.sync_idx + log.suffix.len();
        if sync.decided_idx > end {
            return Err("a log ends before what is decided");
        }
        // The log of a leader only grows.
        if self.accepted == sync.n && (end as u64) < self.last {
            return Ok(Fate::Ignore);
        }
        Ok(Fate::Pass)
    }

    /// What is decided here stays, and there is no gap.
    fn log(
        &self,
        log: &LogSync<Entry>,
        round: &Ballot,
        decided: usize,
    ) -> Result<(), &'static str> {
        let sync = log.sync_idx as u64;
        if sync < self.decided {
            return Err("a log would replace what is decided");
        }
        if log.sync_idx > MAX_INDEX {
            return Err("an index that no log reaches");
        }
        if log.decided_snapshot.is_some() && log.sync_idx != decided {
            return Err("a snapshot of what is not decided");
        }
        let end = match &log.decided_snapshot {
            None => {
                if sync > self.last {
                    return Err("a log follows entries that are not here");
                }
                sync
            }
            Some(SnapshotType::Delta(entries)) => {
                let first = entries.entries.first().map_or(sync + 1, |first| first.at.index);
                if first == 0 || first > self.decided + 1 {
                    return Err("a log follows entries that are not here");
                }
                follow(first - 1, &entries.entries, round)?
            }
            Some(SnapshotType::Complete(suffix)) => {
                let base = &suffix.base;
                let is_of_round = (1..=term_of(round)).contains(&base.at.term);
                if base.at.index == 0 || !is_of_round || base.members != *self.members {
                    return Err("a snapshot without place, or of other members");
                }
                follow(base.at.index, &suffix.entries, round)?
            }
        };
        if end != sync {
            return Err("a snapshot does not reach its log");
        }
        follow(sync, &log.suffix, round).map(|_| ())
    }

    fn accept_decide(&self, from: u64, accept: &AcceptDecide<Entry>) -> Checked {
        self.of_leader(from, &accept.n)?;
        let Some(first) = accept.entries.first().map(|first| first.at.index) else {
            return Ok(Fate::Pass);
        };
        if accept.n != self.promise {
            // The library answers it.
            return Ok(Fate::Pass);
        }
        follow(first.wrapping_sub(1), &accept.entries, &accept.n)?;
        Ok(match first.cmp(&(self.last + 1)) {
            std::cmp::Ordering::Equal => Fate::Pass,
            std::cmp::Ordering::Greater if self.is_in_step => Fate::Gap,
            _ => Fate::Ignore,
        })
    }

    fn accepted(&self, accepted: &Accepted) -> Checked {
        self.ballot(&accepted.n)?;
        let leads = self.is_in_step && self.promise.pid == self.me;
        if !leads || accepted.n != self.promise {
            return Ok(Fate::Ignore);
        }
        if accepted.accepted_idx as u64 > self.last {
            return Err("a node acknowledges entries that were never sent");
        }
        Ok(Fate::Pass)
    }
}

/// The entries follow each other, the first follows `index`, and all are of this round or before.
/// Returns the index of the last.
fn follow(mut index: u64, entries: &[Entry], round: &Ballot) -> Result<u64, &'static str> {
    let mut term = 1;
    for entry in entries {
        let is_next = Some(entry.at.index) == index.checked_add(1);
        let is_of_round = (term..=term_of(round)).contains(&entry.at.term);
        if !is_next || !is_of_round || entry.kind != EntryKind::Command {
            return Err("entries do not follow each other");
        }
        (index, term) = (entry.at.index, entry.at.term);
    }
    Ok(index)
}
