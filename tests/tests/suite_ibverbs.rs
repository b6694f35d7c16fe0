//! The end-to-end suite over two devices of libibverbs: a server on the one, clients on the other.
//! `.ci/verbs` runs it in a virtual machine with devices in software (`erpc-core/tests/verbs-vm`).
//!
//! `ERPC_VERBS_DEVICES` has the names and addresses, for instance `rxe0 10.77.0.1 rxe1 10.77.0.2`.

use std::env;
use std::net::{IpAddr, SocketAddr};

use erpc::transport::udp::UdpRoute;
use erpc::transport::verbs::{IbvDevice, Ibverbs, VerbsConfig, VerbsTransport};
use erpc::{Listen, ServeError, ServerBuilder, ServerHandle};
use erpc_tests::suite::Network;

/// A device, and its host's address.
#[derive(Clone)]
struct Side {
    device: String,
    address: IpAddr,
}

impl Side {
    fn config(&self) -> VerbsConfig {
        VerbsConfig::new(&*self.device).interface(self.address)
    }

    fn any_port(&self) -> UdpRoute {
        SocketAddr::new(self.address, 0).into()
    }
}

/// The two devices.
struct Devices {
    server: Side,
    client: Side,
}

impl Network for Devices {
    type Transport = VerbsTransport<IbvDevice>;

    fn new() -> Self {
        let devices = env::var("ERPC_VERBS_DEVICES").expect("ERPC_VERBS_DEVICES names two devices");
        let words: Vec<_> = devices.split_whitespace().collect();
        let side = |device: &str, address: &str| Side {
            device: device.to_owned(),
            address: address.parse().expect("an address"),
        };
        let [first, first_address, second, second_address] = words[..] else {
            panic!("`{devices}` is not DEVICE ADDRESS DEVICE ADDRESS");
        };
        Self { server: side(first, first_address), client: side(second, second_address) }
    }

    fn settings(&self) -> (Ibverbs, VerbsConfig) {
        (Ibverbs, self.server.config())
    }

    fn address(&self) -> UdpRoute {
        self.server.any_port()
    }

    fn spawn(
        &self,
        builder: ServerBuilder<Self::Transport>,
    ) -> Result<ServerHandle<Self::Transport>, ServeError> {
        builder.spawn(self.address())
    }

    fn clients(&self, count: usize) -> Vec<Self::Transport> {
        let settings = (Ibverbs, self.client.config());
        let opened = Listen::listen(&settings, self.client.any_port(), count);
        opened.expect("the clients' device opens")
    }
}

erpc_tests::suite!(
    #[ignore = "needs two verbs devices; .ci/verbs runs it in a virtual machine"]
    Devices
);
