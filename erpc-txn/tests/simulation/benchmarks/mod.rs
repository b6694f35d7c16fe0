//! The benchmarks of transaction stores, in a virtual network.

mod costs;
mod meaning;
mod rates;

use std::rc::Rc;

use erpc_txn::coordinator::Limits;
use erpc_txn::participant::Settings;
use erpc_txn::workloads::{Outcome, Random, Workload, attempt, load};

use crate::cluster::Cluster;

/// A cluster with the population of a workload.
pub(crate) struct Loaded<W> {
    pub(crate) cluster: Cluster,
    pub(crate) workload: Rc<W>,
}

impl<W: Workload> Loaded<W> {
    pub(crate) fn start(nodes: u16, f: usize, workload: W) -> Self {
        let tables = workload.tables(nodes);
        let settings = Settings { tables, threads: 1, log_bytes: 1 << 20, log_records: 64 };
        let cluster = Cluster::start(1, nodes, f, &settings);
        for host in &cluster.hosts {
            load(&workload, &host.participant).expect("the tables have room");
        }
        Self { cluster, workload: Rc::new(workload) }
    }

    /// Runs transactions at node 0, one after the other, with one attempt each.
    pub(crate) fn run(&self, choices: Vec<W::Choice>) -> Vec<Outcome> {
        let workload = Rc::clone(&self.workload);
        self.cluster.run(&self.cluster.hosts[0], |node| async move {
            let mut outcomes = Vec::new();
            for choice in &choices {
                let limits = Limits::new().attempts(1);
                outcomes.push(attempt(&node, &*workload, choice, limits).await);
            }
            outcomes
        })
    }

    /// Runs one transaction at node 0.
    pub(crate) fn one(&self, choice: W::Choice) -> Outcome {
        self.run(vec![choice]).remove(0)
    }

    /// Transactions of the mix.
    pub(crate) fn mix(&self, count: usize) -> Vec<W::Choice> {
        let mut random = Random::new(5);
        (0..count).map(|_| self.workload.choose(&*self.cluster.ring, &mut random)).collect()
    }

    /// The value of a key at all its replicas, which are equal.
    pub(crate) fn stored(&self, table: u16, key: u64) -> Option<Vec<u8>> {
        let mut values = self.cluster.hosts.iter().filter_map(|host| {
            let partition = host.participant.placement().partition_of(key);
            let replica = host.participant.replica(table, partition)?;
            Some(replica.get(key, None).expect("nobody locks").value.map(|value| value.to_vec()))
        });
        let first = values.next().expect("there is a replica");
        assert!(values.all(|other| other == first), "the replicas of key {key} differ");
        first
    }
}
