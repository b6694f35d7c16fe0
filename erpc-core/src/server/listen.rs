//! Transports that servers can listen on.

use std::error::Error;

use super::error::ServeError;
use crate::transport::Transport;
#[cfg(feature = "dpdk")]
use crate::transport::dpdk::{DpdkConfig, DpdkError, DpdkTransport};
use crate::transport::fault::{FaultPlan, Faulty};
use crate::transport::mem::{MemConfig, MemHub, MemRoute, MemTransport, PortTaken};
use crate::transport::udp::{UdpConfig, UdpError, UdpRoute, UdpTransport};
use crate::transport::verbs::{Device, VerbsConfig, VerbsError, VerbsTransport};

/// A transport that a [`Server`](super::Server) or a [`Nexus`](super::Nexus) can listen on: several
/// endpoints receive at one address.
pub trait Listen: Transport + Send {
    /// Settings of each endpoint's transport.
    type Settings: Clone;
    /// Why an address cannot be bound. It says how to fix the problem.
    type Error: Error + Into<ServeError>;

    /// Opens a transport for each of `endpoints` endpoints at `address`. Transport `i` of the result
    /// has the steering byte `i` ([`Capabilities::steer`](crate::transport::Capabilities::steer)).
    /// It has the port of `address`, or a port of its own on the same host.
    ///
    /// # Errors
    /// If `endpoints` is out of the transport's range, a setting is out of bounds, or the address
    /// cannot be bound.
    fn listen(
        settings: &Self::Settings,
        address: Self::Route,
        endpoints: usize,
    ) -> Result<Vec<Self>, Self::Error>
    where
        Self: Sized;

    /// Frees the address now. A server calls this when it ends, because a handler may have leaked
    /// its endpoint. The transport is not used after that. Default: the address is free when the
    /// transport is dropped.
    fn close(&self) {}
}

impl Listen for UdpTransport {
    type Settings = UdpConfig;
    type Error = UdpError;

    fn listen(
        settings: &UdpConfig,
        address: UdpRoute,
        endpoints: usize,
    ) -> Result<Vec<Self>, UdpError> {
        Self::bind_group(&settings.clone().address(address.socket_addr()), endpoints)
    }

    fn close(&self) {
        self.close();
    }
}

impl From<UdpError> for ServeError {
    fn from(error: UdpError) -> Self {
        Self::Bind(error)
    }
}

#[cfg(feature = "dpdk")]
impl Listen for DpdkTransport {
    type Settings = DpdkConfig;
    type Error = DpdkError;

    fn listen(
        settings: &DpdkConfig,
        address: UdpRoute,
        endpoints: usize,
    ) -> Result<Vec<Self>, DpdkError> {
        settings.check_address(address.socket_addr().ip())?;
        let settings = settings.clone().udp_port(address.socket_addr().port());
        Self::open_group(&settings, endpoints)
    }
}

#[cfg(feature = "dpdk")]
impl From<DpdkError> for ServeError {
    fn from(error: DpdkError) -> Self {
        Self::Dpdk(error)
    }
}

/// Endpoint `i` has a queue pair of its own, and answers at the UDP port of `address` plus `i`.
impl<D: Device> Listen for VerbsTransport<D> {
    type Settings = (D::Provider, VerbsConfig);
    type Error = VerbsError;

    fn listen(
        (provider, settings): &(D::Provider, VerbsConfig),
        address: UdpRoute,
        endpoints: usize,
    ) -> Result<Vec<Self>, VerbsError> {
        let settings = settings.clone().exchange(address.socket_addr());
        Self::open_group(provider, &settings, endpoints)
    }
}

impl From<VerbsError> for ServeError {
    fn from(error: VerbsError) -> Self {
        Self::Verbs(error)
    }
}

/// Endpoint `i` has the port `address + i`; with the port 0, the hub chooses the ports.
impl Listen for MemTransport {
    type Settings = (MemHub, MemConfig);
    type Error = PortTaken;

    fn listen(
        (hub, config): &(MemHub, MemConfig),
        address: MemRoute,
        endpoints: usize,
    ) -> Result<Vec<Self>, PortTaken> {
        let members = u8::try_from(endpoints - 1).map_err(|_| PortTaken(address))?;
        let open = |member: u8| {
            let port = match address.number() {
                0 => hub.port(*config),
                first => hub.port_at(MemRoute::new(first + u32::from(member)), *config)?,
            };
            Ok(port.steered(member))
        };
        (0..=members).map(open).collect()
    }
}

impl From<PortTaken> for ServeError {
    fn from(error: PortTaken) -> Self {
        Self::Mem(error)
    }
}

/// Each endpoint injects the faults of the plan.
impl<T: Listen> Listen for Faulty<T> {
    type Settings = (T::Settings, FaultPlan);
    type Error = T::Error;

    fn listen(
        (settings, plan): &(T::Settings, FaultPlan),
        address: T::Route,
        endpoints: usize,
    ) -> Result<Vec<Self>, T::Error> {
        let transports = T::listen(settings, address, endpoints)?;
        Ok(transports.into_iter().map(|inner| Self::new(inner, plan.clone())).collect())
    }

    fn close(&self) {
        self.with_inner(Listen::close);
    }
}
