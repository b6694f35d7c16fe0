//! A write that another leader's entries overtake: it waits at a leader that is cut off, and entries of
//! a new leader take its place in the log. Its caller must not hear that it was made.

use std::time::Duration;

use erpc_raft::client::Patience;
use erpc_test_tools::random::Random;

use crate::cluster::{Algorithm, Cluster, Options};

const MS: Duration = Duration::from_millis(1);

/// Runs a seed. An error says that a write was acknowledged and not made.
pub(crate) fn run(algorithm: Algorithm, seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let options = Options { algorithm, lease: false, snapshot_every: u64::MAX, keep: 0 };
    let cluster = Cluster::start(random.word(), 3, 0, options)?;
    cluster.driver.run_for(500 * MS);
    let old = cluster.leader().ok_or("nobody leads after half a second")?;
    let others: Vec<_> = cluster.hosts.iter().filter(|host| host.id != old.id).collect();
    let ids: Vec<_> = others.iter().map(|host| host.id).collect();
    let patience = Patience { attempt: 5_000 * MS, ..Patience::default() };
    let (first, at_old) = cluster.clients_of(&[old.id], patience);
    let (second, at_others) = cluster.clients_of(&ids, Patience::default());
    let failed = |error: erpc_raft::client::ClientError| error.to_string();
    let waits = first.block_on(at_old.open()).map_err(failed)?;
    let overtakes = second.block_on(at_others.open()).map_err(failed)?;

    for other in &others {
        cluster.network.cut_link(old.server.route(), other.server.route());
    }
    let written = first.spawn(async move { waits.put(b"key", b"new").await });
    first.run_for(random.within(1, 5) as u32 * MS);
    for _ in 0..random.within(1, 4) {
        second.block_on(overtakes.put(b"other key", b"value")).map_err(failed)?;
    }
    cluster.network.mend_links();
    let written = first.block_on(written);
    let value = second.block_on(at_others.get(b"key")).map_err(failed)?;
    if written.is_ok() && value.as_deref() != Some(b"new".as_slice()) {
        return Err("a write was acknowledged, but another entry has its place".into());
    }
    cluster.failure().map_or(Ok(()), Err)
}

#[test]
fn an_overtaken_write_is_not_acknowledged() {
    for algorithm in [Algorithm::Raft, Algorithm::OmniPaxos] {
        for seed in 0..20 {
            run(algorithm, seed)
                .unwrap_or_else(|error| panic!("{algorithm:?}, seed {seed}: {error}"));
        }
    }
}
