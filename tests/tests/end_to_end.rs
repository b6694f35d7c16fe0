//! Addresses of UDP: families, all interfaces, an address that is in use.
//!
//! The tests need only a loopback interface: no privileges, no tuned system, no writable folder.
//! All sockets have the default receive buffer.

use std::net::SocketAddr;

use erpc::transport::udp::UdpError;
use erpc::{Endpoint, EndpointConfig, ServeError, Server, ServerHandle};
use erpc_test_tools::limit::{secs, within};
use erpc_tests::lab::{LabService, client, loopback};
use erpc_tests::proto::*;
use erpc_tests::suite::calls::use_store;

fn serve_with(address: &str, config: EndpointConfig) -> ServerHandle {
    let builder = Server::builder().add_service(LabService::default()).threads(2).workers(2);
    builder.udp(loopback()).config(config).spawn(address).expect("the server starts")
}

fn serve() -> ServerHandle {
    serve_with("127.0.0.1:0", EndpointConfig::new())
}

fn connect(server: &ServerHandle) -> (Endpoint, LocalLabClient) {
    let endpoint = client(EndpointConfig::new());
    let lab = LocalLabClient::connect(&endpoint, server.local_addr()).expect("the server answers");
    (endpoint, lab)
}

#[test]
fn a_store_is_used_over_ipv6() {
    if std::net::UdpSocket::bind("[::1]:0").is_err() {
        return eprintln!("this machine has no IPv6 loopback");
    }
    within(secs(60), || {
        let server = serve_with("[::1]:0", EndpointConfig::new());
        let any_port: SocketAddr = "[::1]:0".parse().expect("the address is valid");
        let endpoint = Endpoint::udp_with(&loopback().address(any_port), EndpointConfig::new());
        let endpoint = endpoint.expect("the endpoint opens on ::1");
        let lab =
            LocalLabClient::connect(&endpoint, server.local_addr()).expect("the server answers");
        use_store(&endpoint, &lab);
    });
}

#[test]
fn an_endpoint_on_all_interfaces_uses_ipv4_and_ipv6() {
    within(secs(60), || {
        let servers = [
            Some(serve()),
            std::net::UdpSocket::bind("[::1]:0")
                .is_ok()
                .then(|| serve_with("[::1]:0", EndpointConfig::new())),
        ];
        let endpoint = Endpoint::udp().expect("the endpoint opens on all interfaces");
        for server in servers.iter().flatten() {
            let lab = LocalLabClient::connect(&endpoint, server.local_addr())
                .expect("the server answers");
            assert_eq!(
                endpoint.block_on(lab.count(CountRequest { number: 5 })),
                Ok(CountReply { number: 5 })
            );
        }
    });
}

/// Another test of the same program must not start processes: until a new process runs its program,
/// it has copies of all sockets of this one, and their addresses stay in use.
#[test]
fn a_server_cannot_use_an_address_of_another_server() {
    within(secs(30), || {
        let first = serve();
        let taken = first.local_addr();
        for threads in [1, 2] {
            let again =
                Server::builder().add_service(LabService::default()).threads(threads).spawn(taken);
            let Err(error) = again else { panic!("two servers at {taken}") };
            assert!(
                matches!(error, ServeError::Bind(UdpError::AddressInUse { address }) if address == taken),
                "{error:?}"
            );
            assert!(error.to_string().contains(&taken.to_string()), "{error}");
        }
        let (endpoint, lab) = connect(&first);
        let count = CountReply { number: 1 };
        assert_eq!(endpoint.block_on(lab.count(CountRequest { number: 1 })), Ok(count));
        first.shutdown();
        assert_eq!(serve_with(&taken.to_string(), EndpointConfig::new()).local_addr(), taken);
    });
}
