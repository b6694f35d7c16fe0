//! One thread of a member, over UDP.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use erpc::service::Routes;
use erpc::transport::udp::UdpRoute;
use erpc::{Channel, Endpoint, EndpointConfig, Seat, Service, Transport, Udp};
use erpc_txn::cluster::NodeId;
use erpc_txn::coordinator::Node;
use erpc_txn::gateway::Gateway;
use erpc_txn::participant::Participant;
use erpc_txn::service;

use crate::failure::Failure;

/// The addresses of all members.
pub(crate) type Addresses = BTreeMap<NodeId, SocketAddr>;

/// A random number for a start of a member.
pub(crate) fn incarnation() -> Result<u32, Failure> {
    getrandom::u32().map_err(Failure::of("the system has no random numbers"))
}

/// What a member serves: to the others, and to programs outside of the cluster.
pub(crate) fn routes<T: Transport>(participant: &Arc<Participant>) -> Result<Arc<Routes>, Failure> {
    let collide = Failure::of("the services collide");
    let mut routes = Routes::new();
    let member = Arc::new(service::Member::new(Arc::clone(participant)));
    member.register(&mut routes).map_err(&collide)?;
    Arc::new(Gateway::<T>::new()).register(&mut routes).map_err(&collide)?;
    Ok(Arc::new(routes))
}

/// Opens a seat as a thread of a member, which serves and coordinates.
pub(crate) fn open(
    seat: Seat,
    config: EndpointConfig,
    participant: &Arc<Participant>,
    thread: u16,
    addresses: &Addresses,
) -> Result<(Endpoint, Node<Udp>), Failure> {
    let endpoint = seat.open(config).map_err(Failure::of("no endpoint"))?;
    endpoint.serve(routes::<Udp>(participant)?, None);
    let others = addresses.iter().filter(|&(&node, _)| node != participant.node());
    let channels = others.map(|(&node, &address)| {
        (node, Channel::to(&endpoint, vec![UdpRoute::from(address)]).build())
    });
    let node = Node::open(&endpoint, Arc::clone(participant), thread, channels);
    Ok((endpoint, node.map_err(Failure::of("no coordinator"))?))
}
