//! What a lease must withstand: another node becomes leader, and the old leader does not know it.
//!
//! In each run, a value is replaced at the new leader while the old one cannot hear of it. After that,
//! the old leader must not read the old value.

use std::time::Duration;

use erpc_raft::client::Patience;

use crate::cluster::{Algorithm, Cluster, Host, Options};
use erpc_test_tools::random::Random;

const MS: Duration = Duration::from_millis(1);

/// How another node becomes leader.
#[derive(Clone, Copy, Debug)]
enum Usurpation {
    /// The old leader is cut off, and the others wait until they may elect another one.
    Election,
    /// A node that has promised the old leader not to vote restarts, and hears of a candidate.
    Restart,
    /// The old leader hands over, and is cut off before it hears of the election.
    Transfer,
}

/// Runs a seed. An error says that a read was stale.
pub(crate) fn run(algorithm: Algorithm, seed: u64) -> Result<(), String> {
    use Usurpation::{Election, Restart, Transfer};
    let usurpations = [Election, Restart, Transfer];
    usurpations.into_iter().try_for_each(|usurpation| usurp(algorithm, seed, usurpation))
}

fn usurp(algorithm: Algorithm, seed: u64, usurpation: Usurpation) -> Result<(), String> {
    let mut random = Random::new(seed);
    let options = Options { algorithm, lease: true, snapshot_every: u64::MAX, keep: 0 };
    let cluster = Cluster::start(random.word(), 3, 0, options)?;
    cluster.driver.run_for(500 * MS);
    let leader = cluster.leader().ok_or("nobody leads after half a second")?;
    let others: Vec<_> = cluster.hosts.iter().filter(|host| host.id != leader.id).collect();
    let (voter, candidate) = (others[0], others[1]);
    let short = Patience { attempt: 40 * MS, pause: MS, call: 40 * MS };
    let (reader, at_leader) = cluster.clients_of(&[leader.id], short);
    // The new leader may come soon or late.
    let within = if matches!(usurpation, Usurpation::Election) { 5_000 * MS } else { 70 * MS };
    let patience = Patience { attempt: 20 * MS, pause: MS, call: within };
    let (writer, at_others) = cluster.clients_of(&[candidate.id, voter.id], patience);
    let (first, known) = cluster.clients(Patience::default());
    let begun = first.block_on(async { known.open().await?.put(b"key", b"old").await });
    begun.map_err(|error| error.to_string())?;
    // The writer connects before anything is cut: what follows takes milliseconds.
    for host in &others {
        drop(writer.block_on(at_others.status(&host.id.to_string())));
    }

    let cut = |one: &Host, other: &Host| {
        cluster.network.cut_link(one.server.route(), other.server.route());
    };
    let read = || reader.block_on(at_leader.get(b"key"));
    if matches!(usurpation, Usurpation::Restart) {
        // The candidate hears nothing, and wants an election again and again.
        cut(candidate, leader);
        cut(candidate, voter);
        cluster.driver.run_for(random.within(100, 250) as u32 * MS);
    }
    read().map_err(|error| format!("{usurpation:?}: the lease does not begin: {error}"))?;
    match usurpation {
        Usurpation::Election => {}
        Usurpation::Restart => {
            cluster.crash(voter);
            cluster.restart(voter)?;
            cluster.network.mend_links();
        }
        Usurpation::Transfer => {
            let handed_over = reader.block_on(at_leader.transfer(candidate.id));
            handed_over.map_err(|error| format!("no transfer: {error}"))?;
        }
    }
    cut(leader, voter);
    cut(leader, candidate);
    if matches!(usurpation, Usurpation::Transfer) {
        // Until then, the candidate would send the writer to the old leader, which accepts nothing.
        let begun = cluster.network.elapsed();
        let leads = || writer.block_on(at_others.status(&candidate.id.to_string()));
        while cluster.network.elapsed() - begun < 40 * MS
            && leads().is_ok_and(|status| status.role != "leader")
        {
            writer.run_for(MS / 10);
        }
    }
    let written = writer.block_on(async {
        let session = at_others.open().await?;
        session.put(b"key", b"new").await
    });
    match (written, read()) {
        (Ok(()), Ok(Some(value))) if *value == *b"old" => {
            Err(format!("{usurpation:?}: the old leader reads the old value"))
        }
        // The write may not be made in time, and the old leader may not answer.
        _ => cluster.failure().map_or(Ok(()), Err),
    }
}

#[test]
fn an_old_leader_reads_nothing_stale() {
    for algorithm in [Algorithm::Raft, Algorithm::OmniPaxos] {
        for seed in 0..20 {
            run(algorithm, seed)
                .unwrap_or_else(|error| panic!("{algorithm:?}, seed {seed}: {error}"));
        }
    }
}
