//! `status`: the nodes of a cluster, their partitions and their load.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clap::Args;
use erpc::Endpoint;
use erpc_txn::client::Cluster;
use erpc_txn::proto::{Description, Replicas};

use crate::failure::Failure;
use crate::output::{self, count};
use crate::outside::{self, PATIENCE, WhereArgs};

#[derive(Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    at: WhereArgs,
}

/// Commits are counted for this time.
const SAMPLE: Duration = Duration::from_millis(500);

/// What a node says of itself.
struct Seen {
    /// The way to the thread that answers: counters are those of one thread.
    cluster: Cluster,
    of: Description,
    at: Instant,
    /// Commits per second; none if the node has not answered twice.
    rate: Option<f64>,
}

/// Prints the cluster, and one line per node. Fails if one of them does not serve.
pub(crate) fn status(args: &StatusArgs) -> Result<(), Failure> {
    let at = args.at.read()?;
    let endpoint = outside::endpoint()?;
    let found = endpoint.block_on(describe_all(&endpoint, &at.addresses));
    let first = found.iter().find_map(|(_, seen)| seen.as_ref().ok());
    if let Some(Seen { of, .. }) = first {
        let layout = layout(of);
        output::line(format_args!("{layout}; the load is that of one thread per node"))?;
    }
    output::line(format_args!(
        "{:<6}{:<22}{:<10}{:>6}{:>10}{:>9}{:>9}{:>11}{:>13}{:>13}",
        "node",
        "address",
        "state",
        "epoch",
        "primaries",
        "backups",
        "running",
        "commits/s",
        "attempts",
        "commits"
    ))?;
    let mut serving = 0;
    for (address, seen) in &found {
        let address = address.to_string();
        let Ok(Seen { of, rate, .. }) = seen else {
            output::line(format_args!("{:<6}{address:<22}{:<10}", "?", "down"))?;
            continue;
        };
        let (node, epoch) = of.member.map_or((0, 0), |member| (member.node, member.epoch));
        let (primaries, backups) = roles(of, node);
        let state = state(of);
        serving += usize::from(state == "serves");
        let rate = rate.map_or("?".into(), |rate| format!("{rate:.0}"));
        let Description { attempts, commits, running, .. } = of;
        output::line(format_args!(
            "{node:<6}{address:<22}{state:<10}{epoch:>6}{primaries:>10}{backups:>9}{running:>9}\
             {rate:>11}{attempts:>13}{commits:>13}"
        ))?;
    }
    for (address, seen) in &found {
        match seen {
            Ok(Seen { of, .. }) if !of.unreachable.is_empty() => {
                let nodes: Vec<_> = of.unreachable.iter().map(ToString::to_string).collect();
                output::line(format_args!(
                    "the node at {address} cannot reach nodes {}",
                    nodes.join(", ")
                ))?;
            }
            Ok(_) => {}
            Err(failure) => output::line(failure)?,
        }
    }
    if serving == found.len() {
        return Ok(());
    }
    Err(Failure::new(format!("{serving} of {} nodes serve", found.len())))
}

/// How a cluster is built: `3 nodes, 3 partitions with 2 replicas, 1 table`.
pub(crate) fn layout(of: &Description) -> String {
    let replicas = of.partitions.iter().map(|replicas| replicas.nodes.len()).max().unwrap_or(0);
    let (nodes, partitions) =
        (count(of.nodes.len(), "node"), count(of.partitions.len(), "partition"));
    let (replicas, tables) = (count(replicas, "replica"), count(of.tables.len(), "table"));
    format!("{nodes}, {partitions} with {replicas}, {tables}")
}

/// Of how many partitions a node is the primary, and of how many a backup.
fn roles(of: &Description, node: u32) -> (usize, usize) {
    let mut roles = (0, 0);
    for Replicas { nodes, .. } in &of.partitions {
        match nodes.iter().position(|&holder| holder == node) {
            Some(0) => roles.0 += 1,
            Some(_) => roles.1 += 1,
            None => {}
        }
    }
    roles
}

fn state(of: &Description) -> &'static str {
    match (of.active, of.unreachable.is_empty()) {
        (false, _) => "starting",
        (true, true) => "serves",
        (true, false) => "impaired",
    }
}

/// One node after the other, so that each answers for itself. Then all again, for their load.
async fn describe_all(
    endpoint: &Endpoint,
    addresses: &[SocketAddr],
) -> Vec<(SocketAddr, Result<Seen, Failure>)> {
    let mut found = Vec::new();
    for &address in addresses {
        let seen = async {
            let cluster = outside::connect(endpoint, &[address]).await?;
            let of = cluster.describe().await.map_err(Failure::of("it does not answer"))?;
            Ok(Seen { cluster, of, at: Instant::now(), rate: None })
        };
        found.push((address, seen.await));
    }
    if found.iter().any(|(_, seen)| seen.is_ok()) {
        endpoint.sleep(SAMPLE).await;
    }
    for (_, found) in &mut found {
        if let Ok(seen) = found
            && let Err(failure) = seen.measure(endpoint).await
        {
            *found = Err(failure);
        }
    }
    found
}

impl Seen {
    /// Asks once more.
    async fn measure(&mut self, endpoint: &Endpoint) -> Result<(), Failure> {
        let answer = endpoint.timeout(PATIENCE, self.cluster.describe()).await;
        let answer = answer.map_err(|_| Failure::new("a node has stopped answering"))?;
        let of = answer.map_err(Failure::of("a node has stopped answering"))?;
        // A node that has restarted counts from 0.
        if let Some(commits) = of.commits.checked_sub(self.of.commits) {
            self.rate = Some(commits as f64 / self.at.elapsed().as_secs_f64());
        }
        self.of = of;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use erpc_txn::proto::TableInfo;

    use super::*;

    #[test]
    fn replicas_are_counted_by_role() {
        let partition = |nodes: &[u32]| Replicas { nodes: nodes.to_vec() };
        let of = Description {
            nodes: vec![0, 1, 7],
            partitions: vec![partition(&[0, 7]), partition(&[7, 1]), partition(&[7, 0])],
            tables: vec![TableInfo::default()],
            ..Description::default()
        };
        assert_eq!([0, 1, 7].map(|node| roles(&of, node)), [(1, 1), (0, 1), (2, 1)]);
        assert_eq!(layout(&of), "3 nodes, 3 partitions with 2 replicas, 1 table");
    }
}
