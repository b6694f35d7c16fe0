//! Addresses in the simulated network.

use std::fmt;

use erpc_core::transport::Route;

/// A host and a port on it. Every host has one network cable, and every port has one endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SimRoute {
    /// The number of the host in the topology. Higher numbers are addresses without a host.
    pub host: u32,
    /// The port.
    pub port: u16,
}

impl SimRoute {
    /// The first port at which servers listen.
    pub const SERVICE: u16 = 1;

    /// `port` of `host`.
    #[must_use]
    pub const fn new(host: u32, port: u16) -> Self {
        Self { host, port }
    }
}

impl fmt::Display for SimRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Route for SimRoute {
    fn to_bytes(&self, out: &mut [u8; 32]) -> usize {
        out[..4].copy_from_slice(&self.host.to_le_bytes());
        out[4..6].copy_from_slice(&self.port.to_le_bytes());
        6
    }

    fn with_port(&self, port: u16) -> Self {
        Self { port, ..*self }
    }

    fn port(&self) -> u16 {
        self.port
    }

    fn host(&self) -> u64 {
        self.host.into()
    }
}
