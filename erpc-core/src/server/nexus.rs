//! The address that a server listens on, and the endpoints behind it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use super::listen::Listen;
use crate::endpoint::open::Endpoint;
use crate::protocol::{Acceptor, ConfigError, EndpointConfig, ListenGroup};
use crate::random::secret;
use crate::transport::udp::{UdpConfig, UdpError, UdpRoute, UdpTransport};
use crate::transport::{Route, Transport};

/// The conventional port of servers, the same as eRPC's. No function uses it as a default.
pub const DEFAULT_PORT: u16 = 31_850;

/// Owns a listening address and spreads the sessions of clients over several endpoints. For each
/// new session, a hash of the client's id selects two endpoints, and the one with fewer sessions
/// gets the session.
///
/// A process may have several nexuses. A nexus is split into [`Seat`]s, one per thread:
///
/// ```
/// use erpc_core::protocol::EndpointConfig;
/// use erpc_core::server::Nexus;
/// use erpc_core::transport::udp::UdpConfig;
///
/// let nexus = Nexus::bind("127.0.0.1:0".parse()?, 2, UdpConfig::new())?;
/// println!("listening on {}", nexus.local_addr());
/// for seat in nexus.into_seats() {
///     std::thread::spawn(move || {
///         let endpoint = seat.open(EndpointConfig::new()).expect("the settings are in bounds");
///         // endpoint.serve(..); endpoint.run_until(..);
///     });
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`Server`](crate::server::Server) does all of this.
#[must_use = "dropping it releases the address"]
pub struct Nexus<T: Listen = UdpTransport> {
    route: T::Route,
    seats: Vec<Seat<T>>,
}

impl Nexus {
    /// Binds UDP sockets at `address` for `endpoints` endpoints, 1 to 256. With port 0 the system
    /// chooses the port. The address in `udp` is ignored.
    ///
    /// # Errors
    /// [`UdpError`] if `endpoints` is out of range, a setting is out of bounds, or the system
    /// refuses the sockets. In the last case the error names the address and, for the usual causes,
    /// a remedy.
    pub fn bind(address: SocketAddr, endpoints: usize, udp: UdpConfig) -> Result<Self, UdpError> {
        Self::listen(address.into(), endpoints, &udp)
    }
}

impl<T: Listen> Nexus<T> {
    /// Listens at `address` of any transport, with `endpoints` endpoints.
    ///
    /// # Errors
    /// As [`Listen::listen`].
    pub fn listen(
        address: T::Route,
        endpoints: usize,
        settings: &T::Settings,
    ) -> Result<Self, T::Error> {
        let transports = T::listen(settings, address, endpoints)?;
        let routes: Vec<T::Route> = transports.iter().map(Transport::local_route).collect();
        let group = Arc::new(ListenGroup::new(secret(), routes.iter().map(Route::port).collect()));
        let seats = transports.into_iter().map(|transport| {
            let acceptor = Acceptor::new(Arc::clone(&group), transport.capabilities().steer);
            Seat { transport, acceptor }
        });
        Ok(Self { route: routes.first().copied().unwrap_or(address), seats: seats.collect() })
    }

    /// The address that clients connect to, as the transport writes it.
    #[must_use]
    pub fn local_route(&self) -> T::Route {
        self.route
    }

    /// The address that clients connect to.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr
    where
        T: Transport<Route = UdpRoute>,
    {
        self.route.socket_addr()
    }

    /// The seats of the endpoints. Open all of them: clients are sent to every seat.
    #[must_use]
    pub fn into_seats(self) -> Vec<Seat<T>> {
        self.seats
    }
}

impl<T: Listen> fmt::Debug for Nexus<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nexus")
            .field("address", &self.route)
            .field("seats", &self.seats.len())
            .finish()
    }
}

/// An endpoint's place at a [`Nexus`]. Move it to the endpoint's thread and open it there.
#[must_use = "clients are sent to every seat, so open all of them"]
pub struct Seat<T: Listen = UdpTransport> {
    transport: T,
    acceptor: Acceptor,
}

impl<T: Listen> Seat<T> {
    /// Opens the endpoint, which listens from then on.
    ///
    /// # Errors
    /// [`ConfigError`] if a setting is out of bounds.
    pub fn open(self, config: EndpointConfig) -> Result<Endpoint<T>, ConfigError> {
        let endpoint = Endpoint::new(self.transport, config)?;
        endpoint.listen_in(self.acceptor);
        Ok(endpoint)
    }
}

impl<T: Listen> fmt::Debug for Seat<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat")
            .field("address", &self.transport.local_route())
            .finish_non_exhaustive()
    }
}
