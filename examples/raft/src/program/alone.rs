//! The consensus of three nodes without calls: what a write costs when messages cost nothing.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;

use super::failure::Failure;
use crate::consensus::{Consensus, Effects, NodeId, Role};

/// More than an election takes.
const MAX_TICKS: u32 = 1000;

/// Nodes that hand their messages to each other by moving them. A write is on disk at once.
pub(super) struct Alone<C: Consensus> {
    cores: Vec<C>,
    effects: Effects<C::Message>,
    /// Sender, receiver, message.
    letters: VecDeque<(NodeId, NodeId, C::Message)>,
    /// Of each node: the last entry that is applied.
    applied: Vec<u64>,
}

impl<C: Consensus> Alone<C> {
    /// The nodes 1, 2, and so on. The first one is elected.
    pub(super) fn new(cores: Vec<C>) -> Result<Self, Failure> {
        let applied = vec![1; cores.len()];
        let mut nodes =
            Self { cores, effects: Effects::default(), letters: VecDeque::new(), applied };
        for _ in 0..MAX_TICKS {
            nodes.cores.iter_mut().for_each(C::tick);
            (1..=nodes.cores.len() as u64).for_each(|node| nodes.poll(node));
            nodes.deliver()?;
            if nodes.leader().is_some() {
                return Ok(nodes);
            }
        }
        Err(Failure::new("no node was elected"))
    }

    fn leader(&self) -> Option<NodeId> {
        let leads = |core: &C| core.status().role == Role::Leader && core.status().can_read;
        self.cores.iter().position(leads).map(|index| index as u64 + 1)
    }

    /// Does what a node asks for, except the work of a state machine.
    fn poll(&mut self, node: NodeId) {
        let index = node as usize - 1;
        let core = &mut self.cores[index];
        while core.poll(&mut self.effects) {
            let Effects { messages, write, after_write, committed, confirmed, .. } =
                &mut self.effects;
            let mut post = |(to, message)| self.letters.push_back((node, to, message));
            messages.drain(..).for_each(&mut post);
            if let Some(write) = write.take() {
                core.persisted(write.ticket);
            }
            after_write.drain(..).for_each(&mut post);
            if let Some(last) = committed.drain(..).last() {
                self.applied[index] = last.at.index;
            }
            core.applied(self.applied[index]);
            confirmed.clear();
        }
    }

    fn deliver(&mut self) -> Result<(), Failure> {
        while let Some((from, to, message)) = self.letters.pop_front() {
            let stepped = self.cores[to as usize - 1].step(from, message);
            stepped.map_err(|error| Failure::new(format!("node {to}: {error:?}")))?;
            self.poll(to);
        }
        Ok(())
    }

    /// The mean time of a write that the leader has applied, in microseconds. No message is left over.
    pub(super) fn micros_per_write(
        &mut self,
        command: &Bytes,
        writes: u64,
    ) -> Result<f64, Failure> {
        let leader = self.leader().ok_or_else(|| Failure::new("no node leads"))?;
        let mut begun = Instant::now();
        for number in 0..writes {
            if number == writes / 10 {
                begun = Instant::now();
            }
            let core = &mut self.cores[leader as usize - 1];
            let at = core.propose(vec![command.clone()]);
            let at = at.map_err(|error| Failure::new(format!("no write: {error:?}")))?;
            self.poll(leader);
            self.deliver()?;
            if self.applied[leader as usize - 1] != at.index {
                return Err(Failure::new(format!("the write at {} is not applied", at.index)));
            }
        }
        Ok(begun.elapsed().as_secs_f64() * 1e6 / (writes - writes / 10).max(1) as f64)
    }
}
