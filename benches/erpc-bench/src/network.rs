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
    /// A verbs device. Needs a build with the feature `ibverbs`
    Verbs,
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
    /// The verbs device, and settings: "mlx5_0", "mlx5_0 port=2 sessions=500"
    #[arg(long, default_value = "", required_if_eq("transport", "verbs"))]
    device: String,
    /// Index of the GID of the verbs device [default: the first of RoCE v2 over IPv4]
    #[arg(long)]
    gid: Option<u8>,
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

    /// Opens the verbs device for `endpoints` endpoints, which peers reach at this address; without
    /// one, at any port.
    #[cfg(feature = "ibverbs")]
    pub(crate) fn open_verbs(
        &self,
        address: Option<std::net::SocketAddr>,
        endpoints: usize,
    ) -> Result<
        Vec<erpc::transport::verbs::VerbsTransport<erpc::transport::verbs::IbvDevice>>,
        Failure,
    > {
        use erpc::transport::verbs::{Ibverbs, VerbsConfig, VerbsTransport};
        let mut config: VerbsConfig = self.device.parse().map_err(Failure::of("`--device`"))?;
        if let Some(index) = self.gid {
            config = config.gid_index(index);
        }
        if let Some(address) = address {
            config = config.exchange(address);
        }
        VerbsTransport::open_group(&Ibverbs, &config, endpoints).map_err(Failure::of("no device"))
    }

    /// This build has no verbs.
    #[cfg(not(feature = "ibverbs"))]
    pub(crate) fn open_verbs(
        &self,
        _address: Option<std::net::SocketAddr>,
        _endpoints: usize,
    ) -> Result<Vec<erpc::Udp>, Failure> {
        Err(Failure::new(format!(
            "this build has no verbs for `--device \"{}\"` and GID {:?}; build erpc-bench with \
             `--features ibverbs`",
            self.device, self.gid
        )))
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
