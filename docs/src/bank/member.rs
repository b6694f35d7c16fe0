//! A member of the bank's cluster, in a program of your own.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use erpc::service::Routes;
use erpc::{Channel, Endpoint, Seat, Service, Udp};
use erpc_txn::TypedTable;
use erpc_txn::cluster::{NodeId, Placement, Ring};
use erpc_txn::coordinator::{Node, endpoint_config};
use erpc_txn::gateway::Gateway;
use erpc_txn::participant::{Participant, Settings};
use erpc_txn::service::Member;
use erpc_txn::table::Config;

use super::{ACCOUNTS, TRANSFERS};

/// The tables and the logs, the same at all members.
#[must_use]
pub fn settings() -> Settings {
    fn table<K, V>(table: TypedTable<K, V>, inline: usize) -> (u16, Config) {
        (table.id(), Config::new(100_000).inline(inline))
    }
    Settings {
        tables: [table(ACCOUNTS, 8), table(TRANSFERS, 1)].into(),
        threads: 1,
        log_bytes: 16 << 20,
        log_records: 1024,
    }
}

/// Opens a member with one thread: an endpoint that serves, and a node that runs transactions.
///
/// # Errors
///
/// If the memory or the sockets are refused, or `addresses` has no ring of members.
pub fn open(
    me: NodeId,
    incarnation: u32,
    addresses: &BTreeMap<NodeId, SocketAddr>,
    seat: Seat,
) -> Result<(Endpoint, Node), Box<dyn Error>> {
    let ring = Arc::new(Ring::new(1, addresses.keys().copied(), 2)?);
    let participant = Arc::new(Participant::new(me, incarnation, ring.clone(), settings())?);

    let mut routes = Routes::new();
    Arc::new(Member::new(participant.clone())).register(&mut routes)?;
    Arc::new(Gateway::<Udp>::new()).register(&mut routes)?;
    // With it, a dead member is noticed within a second.
    let endpoint = seat.open(endpoint_config())?;
    endpoint.serve(Arc::new(routes), None);

    let others = ring.nodes().iter().filter(|&&node| node != me);
    let channels =
        others.map(|node| (*node, Channel::to(&endpoint, vec![addresses[node].into()]).build()));
    let node = Node::open(&endpoint, participant, 0, channels)?;
    Ok((endpoint, node))
}
