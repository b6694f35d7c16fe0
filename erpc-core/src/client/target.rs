//! Targets: server names and addresses that resolve to routes.

use std::io;
use std::net::ToSocketAddrs;

use crate::transport::mem::MemRoute;
use crate::transport::udp::UdpRoute;

/// The argument of [`Endpoint::connect`](crate::endpoint::Endpoint::connect): anything that
/// resolves to routes of the endpoint's transport. For UDP, every type that implements
/// [`ToSocketAddrs`]: `"10.0.0.7:31850"`, `("node7", 31850)`, a `SocketAddr`.
pub trait Target<R> {
    /// The routes to try, in order.
    ///
    /// # Errors
    /// If a name cannot be resolved.
    fn routes(&self) -> io::Result<Vec<R>>;
}

impl<A: ToSocketAddrs + ?Sized> Target<UdpRoute> for A {
    fn routes(&self) -> io::Result<Vec<UdpRoute>> {
        Ok(self.to_socket_addrs()?.map(UdpRoute::from).collect())
    }
}

impl Target<Self> for MemRoute {
    fn routes(&self) -> io::Result<Vec<Self>> {
        Ok(vec![*self])
    }
}
