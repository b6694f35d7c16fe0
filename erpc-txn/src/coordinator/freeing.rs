//! Tells other nodes of transactions that have ended, if no further record does.

use std::rc::Rc;
use std::time::Duration;

use erpc::{Transport, join_all};

use super::Inner;
use super::peers::Peer;
use super::space::{Ended, Space};
use crate::proto::{self, Verdict};

/// Records tell a log which transactions have ended. After this time without a record, a message
/// tells it.
const SILENCE: Duration = Duration::from_millis(5);

impl<T: Transport> Inner<T> {
    /// Notes the end of a transaction whose record of this length is in all logs.
    pub(super) fn end_record(self: &Rc<Self>, sequence: u64, len: usize) {
        self.free_here(sequence, len);
        for node in &self.log_nodes {
            self.peers[node].space.end(sequence, len);
        }
        if !self.log_nodes.is_empty() {
            self.start_freeing();
        }
    }

    /// Starts the task that tells other nodes what has ended, unless it runs.
    pub(super) fn start_freeing(self: &Rc<Self>) {
        if !self.is_freeing.replace(true) {
            erpc::spawn(Rc::clone(self).free_in_time());
        }
    }

    async fn free_in_time(self: Rc<Self>) {
        loop {
            erpc::sleep(SILENCE).await;
            let has_news =
                |peer: &&Rc<Peer<T>>| peer.space.has_ended() || peer.buried.get().is_some();
            let waiting: Vec<_> = self.peers.values().filter(has_news).collect();
            if waiting.is_empty() {
                self.is_freeing.set(false);
                return;
            }
            let telling = waiting.into_iter().filter(|peer| {
                let is_buried = peer.buried.get().is_some_and(|of| of < self.sequences.floor());
                // While transactions run, their records tell the logs.
                let is_told = peer.was_told.replace(false) || peer.is_down();
                !is_told && (is_buried || peer.space.has_ended())
            });
            // At once: a node that does not answer must not delay the others.
            join_all(telling.map(|peer| Box::pin(self.free_at(peer))).collect::<Vec<_>>()).await;
        }
    }

    /// Tells one node. False if it has not heard: then it is told later.
    pub(super) async fn free_at(&self, peer: &Rc<Peer<T>>) -> bool {
        let Some(target) = peer.target(&self.participant) else { return false };
        let ended = Told { space: &peer.space, ended: peer.space.take_ended() };
        let floor = self.sequences.floor();
        self.counting.add(|counts| counts.freeing_messages += 1);
        let request = proto::FinishRequest {
            epoch: target.epoch,
            incarnation: target.incarnation,
            node: self.coordinator.node.into(),
            thread: self.coordinator.thread.into(),
            floor,
            ended: ended.ended.iter().map(|(sequence, _)| *sequence).collect(),
            bury: false,
        };
        match peer.client.finish(request).await {
            Ok(reply) => match reply.verdict() {
                Verdict::Done => {
                    ended.freed();
                    // The last one may be another by now.
                    if peer.buried.get().is_some_and(|buried| buried < floor) {
                        peer.buried.set(None);
                    }
                    return true;
                }
                Verdict::Restarted | Verdict::Epoch => peer.lose(),
                _ => {}
            },
            Err(error) => peer.failed(&self.participant, &error),
        }
        false
    }
}

/// Transactions of whose end a node is told. If it is not known that it has heard, also because the
/// task that tells it was dropped, it is told again.
struct Told<'a> {
    space: &'a Space,
    ended: Ended,
}

impl Told<'_> {
    fn freed(mut self) {
        self.space.give_back(&std::mem::take(&mut self.ended));
    }
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if !self.ended.is_empty() {
            self.space.put_back(std::mem::take(&mut self.ended));
        }
    }
}
