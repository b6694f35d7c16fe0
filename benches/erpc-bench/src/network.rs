//! The options that select the network of `client` and `server`.

use std::net::IpAddr;
use std::str::FromStr;

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

/// An address with the length of its network's prefix.
#[derive(Clone, Copy)]
pub(crate) struct HostAddress {
    ip: IpAddr,
    prefix: u8,
}

impl FromStr for HostAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(ip, prefix)| {
            let (ip, prefix): (IpAddr, u8) = (ip.parse().ok()?, prefix.parse().ok()?);
            (prefix <= if ip.is_ipv4() { 32 } else { 128 }).then_some(Self { ip, prefix })
        });
        parsed.ok_or_else(|| "write an address and its prefix, as 10.9.0.1/24".to_owned())
    }
}

#[derive(Args)]
pub(crate) struct NetworkArgs {
    /// What carries the packets
    #[arg(long, value_enum, default_value_t = Network::Udp)]
    transport: Network,
    /// Arguments of DPDK's EAL, separated by spaces
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    eal: String,
    /// DPDK's name of the device
    #[arg(long, default_value = "net_memif0")]
    device: String,
    /// Address of this host at the DPDK port, with the prefix of its network
    #[arg(long, default_value = "10.9.0.2/24")]
    host: HostAddress,
    /// Largest IP packet of the DPDK port, in bytes
    #[arg(long, default_value_t = 1_500)]
    mtu: u16,
    /// Send datagrams without UDP checksums over DPDK, for links that damage nothing
    #[arg(long)]
    no_checksums: bool,
}

impl NetworkArgs {
    pub(crate) fn network(&self) -> Network {
        self.transport
    }

    /// Starts DPDK, and opens the port with this UDP port; 0 selects one.
    #[cfg(feature = "dpdk")]
    pub(crate) fn open_dpdk(
        &self,
        udp_port: u16,
    ) -> Result<erpc::transport::dpdk::DpdkTransport, Failure> {
        use erpc::transport::dpdk::{DpdkConfig, DpdkTransport, init};
        let arguments: Vec<&str> = self.eal.split_whitespace().collect();
        init(&arguments).map_err(Failure::of("no DPDK"))?;
        let config = DpdkConfig::new(&*self.device, self.host.ip, self.host.prefix)
            .udp_port(udp_port)
            .mtu(self.mtu)
            .checksums(!self.no_checksums);
        DpdkTransport::open(&config).map_err(Failure::of("no port"))
    }

    /// This build has no DPDK.
    #[cfg(not(feature = "dpdk"))]
    pub(crate) fn open_dpdk(&self, _udp_port: u16) -> Result<erpc::Udp, Failure> {
        let Self { device, host: HostAddress { ip, prefix }, .. } = self;
        let Self { eal: _, mtu: _, no_checksums: _, .. } = self;
        Err(Failure::new(format!(
            "this build has no DPDK for `{device}` at {ip}/{prefix}; build erpc-bench with \
             `--features dpdk`"
        )))
    }
}
