//! A cluster, as programs outside of it reach it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use erpc::transport::udp::UdpRoute;
use erpc::{Channel, Endpoint, EndpointConfig, UdpConfig};
use erpc_txn::client::Cluster;
use erpc_txn::cluster::Membership;

use crate::config::{self, Tables};
use crate::failure::Failure;

/// Where the cluster is.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct WhereArgs {
    /// The file that describes the cluster
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Addresses of nodes, separated by commas
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    connect: Vec<SocketAddr>,
}

/// How long a node may take to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Addresses of nodes, and the names of tables.
pub(crate) struct Where {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) tables: Tables,
}

impl WhereArgs {
    pub(crate) fn read(&self) -> Result<Where, Failure> {
        let Some(file) = &self.config else {
            return Ok(Where { addresses: self.connect.clone(), tables: Tables::new() });
        };
        let cluster = config::Cluster::read(file)?;
        let placement = cluster.membership.placement();
        let address = |&node: &_| cluster.membership.address(node);
        let addresses = placement.nodes().iter().filter_map(address).collect();
        Ok(Where { addresses, tables: cluster.tables })
    }
}

/// An endpoint that notices soon that a node does not answer.
pub(crate) fn endpoint() -> Result<Endpoint, Failure> {
    let config = EndpointConfig::new()
        .connect_timeout(Duration::from_secs(1))
        .ping_interval(Duration::from_millis(500))
        .liveness_timeout(Duration::from_secs(2));
    Endpoint::udp_with(&UdpConfig::new(), config).map_err(Failure::of("no endpoint"))
}

/// Connects to some of these nodes.
pub(crate) async fn connect(on: &Endpoint, to: &[SocketAddr]) -> Result<Cluster, Failure> {
    let routes: Vec<_> = to.iter().copied().map(UdpRoute::from).collect();
    let channel = Channel::to(on, routes).build();
    let listed: Vec<_> = to.iter().map(SocketAddr::to_string).collect();
    let listed = listed.join(",");
    match on.timeout(PATIENCE, Cluster::connect(channel)).await {
        Ok(Ok(cluster)) => Ok(cluster),
        Ok(Err(error)) => Err(Failure::new(format!("no node of a cluster at {listed}: {error}"))),
        Err(_) => Err(Failure::new(format!("no node at {listed} answers"))),
    }
}
