//! What a port of DPDK offers, as only DPDK itself knows it: the port is opened and closed.

use clap::Args;

use crate::failure::Failure;

#[derive(Args)]
pub(super) struct PortArgs {
    /// Also opens a port of DPDK: device, own address and settings, as `--port` of `client`. Needs a
    /// build with the feature `dpdk`
    #[arg(long)]
    port: Option<String>,
    /// Arguments of DPDK's EAL, separated by spaces
    #[arg(long, default_value = "", allow_hyphen_values = true, requires = "port")]
    eal: String,
    /// Endpoints of the port
    #[arg(long, default_value_t = 2, requires = "port", value_parser = clap::value_parser!(u16).range(1..=64))]
    endpoints: u16,
}

/// An opened port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Port {
    /// Its settings, as the user has written them.
    pub(super) port: String,
    pub(super) endpoints: u16,
    /// How datagrams reach the endpoints: `single`, `rules`, `hash` or `software`.
    pub(super) steering: String,
    /// The device reads long packets in the messages.
    pub(super) zero_copy: bool,
    pub(super) link_up: bool,
    /// Largest datagram, in bytes.
    pub(super) datagram: u64,
}

impl PortArgs {
    /// Opens the port that the user has named, if any.
    #[cfg(feature = "dpdk")]
    pub(super) fn open(&self) -> Result<Option<Port>, Failure> {
        use erpc::Transport;
        use erpc::transport::dpdk::{DpdkConfig, DpdkTransport, init};
        let Some(port) = &self.port else { return Ok(None) };
        let arguments: Vec<&str> = self.eal.split_whitespace().collect();
        init(&arguments).map_err(Failure::of("no DPDK"))?;
        let config: DpdkConfig = port.parse().map_err(Failure::of("`--port`"))?;
        let group = DpdkTransport::open_group(&config, self.endpoints.into());
        let group = group.map_err(Failure::of("no port"))?;
        Ok(group.first().map(|transport| Port {
            port: port.clone(),
            endpoints: self.endpoints,
            steering: format!("{:?}", transport.steering()).to_lowercase(),
            zero_copy: transport.is_zero_copy(),
            link_up: transport.is_link_up(),
            datagram: transport.capabilities().max_datagram as u64,
        }))
    }

    /// This build has no DPDK.
    #[cfg(not(feature = "dpdk"))]
    pub(super) fn open(&self) -> Result<Option<Port>, Failure> {
        let Some(port) = &self.port else { return Ok(None) };
        Err(Failure::new(format!(
            "this build has no DPDK for {} endpoints on `--port \"{port}\" --eal \"{}\"`; build \
             erpc-bench with `--features dpdk`",
            self.endpoints, self.eal
        )))
    }
}
