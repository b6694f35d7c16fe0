//! The end-to-end suite over verbs devices in memory ([`SoftFabric`]). Everything above the device,
//! and the exchange of addresses over UDP, is the same as over a network card.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use erpc::transport::udp::UdpRoute;
use erpc::transport::verbs::{SoftDevice, SoftFabric, VerbsConfig, VerbsTransport};
use erpc::{Listen, ServeError, ServerBuilder, ServerHandle};
use erpc_tests::suite::Network;

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));

/// Two hosts of a fabric.
struct Fabric(SoftFabric);

fn config(host: IpAddr) -> VerbsConfig {
    VerbsConfig::new("soft0").interface(host)
}

impl Network for Fabric {
    type Transport = VerbsTransport<SoftDevice>;

    fn new() -> Self {
        Self(SoftFabric::default())
    }

    fn settings(&self) -> (SoftFabric, VerbsConfig) {
        (self.0.clone(), config(SERVER))
    }

    fn address(&self) -> UdpRoute {
        SocketAddr::new(SERVER, 0).into()
    }

    fn spawn(
        &self,
        builder: ServerBuilder<Self::Transport>,
    ) -> Result<ServerHandle<Self::Transport>, ServeError> {
        builder.spawn(self.address())
    }

    fn clients(&self, count: usize) -> Vec<Self::Transport> {
        let settings = (self.0.clone(), config(CLIENT));
        let opened = Listen::listen(&settings, SocketAddr::new(CLIENT, 0).into(), count);
        opened.expect("the clients' devices open")
    }
}

erpc_tests::suite!(Fabric);
