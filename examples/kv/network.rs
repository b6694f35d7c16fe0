//! The transport of server and client: kernel UDP, or a port that DPDK drives.

use clap::{Args, ValueEnum};
use erpc::{OpenError, Udp, UdpConfig};

use crate::failure::Failure;

/// What carries the packets.
#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// Sockets of the kernel
    Udp,
    /// A port that DPDK drives. Needs a build with the feature `dpdk`
    Dpdk,
}

#[derive(Args)]
pub(crate) struct NetworkArgs {
    /// What carries the packets.
    #[arg(long, value_enum, default_value_t = Kind::Udp)]
    transport: Kind,
    /// The port that DPDK drives: device, own address and settings, such as "net_memif0
    /// 10.9.0.1/24 mtu=9000".
    #[arg(long, value_name = "PORT", default_value = "", required_if_eq("transport", "dpdk"))]
    port: String,
    /// Arguments of DPDK's EAL, separated by spaces.
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    eal: String,
}

/// What carries the packets, ready to be opened.
pub(crate) enum Network {
    Udp,
    #[cfg(feature = "dpdk")]
    Dpdk(erpc::transport::dpdk::DpdkConfig),
}

impl NetworkArgs {
    /// The network. Starts DPDK if it needs DPDK.
    pub(crate) fn network(&self) -> Result<Network, Failure> {
        match self.transport {
            Kind::Udp => Ok(Network::Udp),
            Kind::Dpdk => self.dpdk(),
        }
    }

    #[cfg(feature = "dpdk")]
    fn dpdk(&self) -> Result<Network, Failure> {
        let port = self.port.parse();
        let port = port.map_err(|error| Failure::Usage(format!("--port: {error}")))?;
        let arguments: Vec<&str> = self.eal.split_whitespace().collect();
        let failed = |error| Failure::Open(OpenError::Dpdk(error));
        erpc::transport::dpdk::init(&arguments).map_err(failed)?;
        Ok(Network::Dpdk(port))
    }

    #[cfg(not(feature = "dpdk"))]
    fn dpdk(&self) -> Result<Network, Failure> {
        Err(Failure::Usage(format!(
            "this build has no DPDK for `--port \"{}\" --eal \"{}\"`: build with `--features dpdk`",
            self.port, self.eal
        )))
    }
}

/// Sockets for `count` endpoints of clients.
pub(crate) fn udp(count: usize) -> Result<Vec<Udp>, Failure> {
    let bind = |_| Udp::bind(&UdpConfig::new());
    (0..count)
        .map(bind)
        .collect::<Result<_, _>>()
        .map_err(|error| Failure::Open(OpenError::Udp(error)))
}

/// Queues of the port for `count` endpoints of clients.
#[cfg(feature = "dpdk")]
pub(crate) fn dpdk(
    port: &erpc::transport::dpdk::DpdkConfig,
    count: usize,
) -> Result<Vec<erpc::transport::dpdk::DpdkTransport>, Failure> {
    let opened = erpc::transport::dpdk::DpdkTransport::open_group(port, count);
    opened.map_err(|error| Failure::Open(OpenError::Dpdk(error)))
}
