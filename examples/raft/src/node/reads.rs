//! Reads that wait until they may read.
//!
//! A leader must not read before it knows that no other leader has committed anything since the read
//! began (Raft's thesis, section 6.4). It asks a majority whether it still leads, once for all reads that
//! wait; with a lease it asks only when the lease is over.

use std::mem;
use std::time::Duration;

use super::inbox::Read;
use crate::mutants::mutant;
use crate::proto::{GetReply, Leader, Outcome};

/// All reads that wait.
#[derive(Default)]
pub(super) struct Reads {
    /// For the next round.
    next: Vec<Read>,
    round: Option<Round>,
    /// The number of the last round.
    rounds: u64,
    /// Confirmed; they wait until this index is applied.
    confirmed: Vec<(u64, Vec<Read>)>,
}

/// A question to all nodes, whether this one still leads.
struct Round {
    number: u64,
    begun: Duration,
    /// When it was last sent.
    asked: Duration,
    reads: Vec<Read>,
}

/// The time in which no other node can become leader.
///
/// Each node of a majority has heard from this leader after the beginning of a round. For the election
/// time after that, none of them gives its vote to another one, unless the leader itself asks for it.
#[derive(Debug, Default)]
pub(super) struct Lease {
    term: u64,
    until: Duration,
    /// In this term there is no lease any more: another node may be told to become leader.
    given_up: u64,
    /// Changes of the members up to this index must be applied first.
    after: u64,
}

impl Reads {
    pub(super) fn push(&mut self, reads: &mut Vec<Read>) {
        self.next.append(reads);
    }

    /// The round to ask for now, if one is needed: a new one for all reads that wait, or the last one
    /// again if its messages seem to be lost after `patience`.
    pub(super) fn ask(&mut self, now: Duration, patience: Duration) -> Option<u64> {
        if let Some(round) = &mut self.round {
            let is_late = now.saturating_sub(round.asked) >= patience;
            return is_late.then(|| {
                round.asked = now;
                round.number
            });
        }
        if self.next.is_empty() {
            return None;
        }
        self.rounds += 1;
        let (number, reads) = (self.rounds, mem::take(&mut self.next));
        self.round = Some(Round { number, begun: now, asked: now, reads });
        Some(number)
    }

    /// A majority has answered a round. Its reads may read when `index` is applied. Returns when the
    /// round had begun.
    pub(super) fn confirm(&mut self, number: u64, index: u64) -> Option<Duration> {
        let round = self.round.take_if(|round| round.number == number)?;
        self.confirmed.push((index, round.reads));
        Some(round.begun)
    }

    /// The reads that wait may read when `index` is applied.
    pub(super) fn confirm_all(&mut self, index: u64) {
        if !self.next.is_empty() {
            self.confirmed.push((index, mem::take(&mut self.next)));
        }
    }

    /// The reads that may read.
    pub(super) fn take(&mut self, applied: u64) -> Vec<Read> {
        let mut ready = Vec::new();
        self.confirmed.retain_mut(|(index, reads)| {
            let is_ready = *index <= applied;
            if is_ready {
                ready.append(reads);
            }
            !is_ready
        });
        ready
    }

    /// Whether no read waits for a round.
    pub(super) fn is_empty(&self) -> bool {
        self.next.is_empty() && self.round.is_none()
    }

    /// The node does not lead. Reads that were confirmed may still read.
    pub(super) fn refuse(&mut self, leader: &Leader) {
        let round = self.round.take().map(|round| round.reads);
        for read in mem::take(&mut self.next).into_iter().chain(round.into_iter().flatten()) {
            let outcome = Outcome::NotLeader.into();
            let leader = Some(leader.clone());
            read.responder.send(&GetReply { outcome, leader, ..GetReply::default() });
        }
    }
}

impl Lease {
    /// A majority has heard from this leader of `term` since `begun`. `len` is the time for which
    /// they wait with an election. `applied` is the index that is applied.
    pub(super) fn extend(&mut self, term: u64, begun: Duration, len: Duration, applied: u64) {
        if self.given_up >= term || applied < self.after {
            return;
        }
        let len = if mutant!(LeaseTooLong) { 4 * len } else { len };
        let until = begun + len;
        self.until = if self.term == term { self.until.max(until) } else { until };
        self.term = term;
    }

    /// Whether no other node can be leader now.
    pub(super) fn lasts(&self, term: u64, now: Duration) -> bool {
        self.term == term && now < self.until
    }

    /// Another node may be told to become leader, now or later: the message may be late.
    pub(super) fn give_up(&mut self, term: u64) {
        if !mutant!(LeaseAfterTransfer) {
            self.given_up = term;
            self.until = Duration::ZERO;
        }
    }

    /// The entry at `index` changes the members. A lease of the old ones is worth nothing.
    pub(super) fn wait_for(&mut self, index: u64) {
        self.after = index;
        self.until = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Lease;

    #[test]
    fn a_lease_is_of_one_term_and_ends() {
        let ms = Duration::from_millis;
        let mut lease = Lease::default();
        lease.extend(3, ms(10), ms(50), 7);
        assert!(lease.lasts(3, ms(59)) && !lease.lasts(3, ms(60)) && !lease.lasts(4, ms(20)));
        lease.wait_for(9);
        assert!(!lease.lasts(3, ms(20)));
        lease.extend(3, ms(30), ms(50), 8);
        assert!(!lease.lasts(3, ms(40)), "the change is not applied");
        lease.extend(3, ms(30), ms(50), 9);
        assert!(lease.lasts(3, ms(40)));
        lease.give_up(3);
        lease.extend(3, ms(40), ms(50), 9);
        assert!(!lease.lasts(3, ms(41)));
        lease.extend(4, ms(40), ms(50), 9);
        assert!(lease.lasts(4, ms(41)));
    }
}
