//! The options that select the network of `client` and `server`.

use clap::{Args, ValueEnum};

use crate::failure::Failure;

/// What carries the packets.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Network {
    /// Sockets of the kernel
    Udp,
    /// A port that DPDK drives. Needs a build with the feature `dpdk`
    Dpdk,
}

#[derive(Args)]
pub(crate) struct NetworkArgs {
    /// What carries the packets
    #[arg(long, value_enum, default_value_t = Network::Udp)]
    transport: Network,
    /// The port that DPDK drives: device, own address and settings, such as "net_memif0 10.9.0.1/24
    /// mtu=9000"
    #[arg(long, default_value = "", required_if_eq("transport", "dpdk"))]
    port: String,
    /// Arguments of DPDK's EAL, separated by spaces
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    eal: String,
}

impl NetworkArgs {
    pub(crate) fn network(&self) -> Network {
        self.transport
    }

    /// Starts DPDK, and opens the port for `endpoints` endpoints, from this UDP port on; 0 selects
    /// one.
    #[cfg(feature = "dpdk")]
    pub(crate) fn open_dpdk(
        &self,
        udp_port: u16,
        endpoints: usize,
    ) -> Result<Vec<erpc::transport::dpdk::DpdkTransport>, Failure> {
        use erpc::transport::dpdk::{DpdkConfig, DpdkTransport, init};
        let arguments: Vec<&str> = self.eal.split_whitespace().collect();
        init(&arguments).map_err(Failure::of("no DPDK"))?;
        let config: DpdkConfig = self.port.parse().map_err(Failure::of("`--port`"))?;
        DpdkTransport::open_group(&config.udp_port(udp_port), endpoints)
            .map_err(Failure::of("no port"))
    }

    /// This build has no DPDK.
    #[cfg(not(feature = "dpdk"))]
    pub(crate) fn open_dpdk(
        &self,
        _udp_port: u16,
        _endpoints: usize,
    ) -> Result<Vec<erpc::Udp>, Failure> {
        Err(Failure::new(format!(
            "this build has no DPDK for `--port \"{}\" --eal \"{}\"`; build erpc-bench with \
             `--features dpdk`",
            self.port, self.eal
        )))
    }
}
