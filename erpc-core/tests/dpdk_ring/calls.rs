//! Calls between two ports: on one thread and on two, with a server that is opened again, over all kinds
//! of addresses.

use super::*;

#[test]
fn a_name_is_used_once_and_is_checked() {
    let pair = pair(1);
    let [a, _] = pair.names();
    let a = a.strip_prefix("net_ring_").expect("the driver's prefix");
    assert!(dpdk::ring_pair(a, "other", 1).is_err(), "the name is in use");
    assert!(dpdk::ring_pair("same", "same", 1).is_err(), "two equal names");
    assert!(dpdk::ring_pair("none", "queues", 0).is_err(), "no queue");
    assert!(dpdk::ring_pair("", "empty", 1).is_err(), "an empty name");
    assert!(dpdk::ring_pair(&"x".repeat(23), "long", 1).is_err(), "a long name");
}

#[test]
fn client_and_server_on_two_threads() {
    let pair = pair(1);
    let [a, b] = pair.names();
    let stop = Arc::new(AtomicBool::new(false));
    let server = thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let endpoint = Endpoint::dpdk(&port(&a, 1).udp_port(31_850)).expect("a port");
            serve(&endpoint);
            let end = Instant::now() + PATIENCE;
            endpoint.run_until(|| stop.load(Ordering::Relaxed) || Instant::now() > end);
        }
    });
    let endpoint = Endpoint::dpdk(&port(&b, 2)).expect("a port");
    let session: Session<DpdkTransport> = endpoint.connect(SERVER).expect("an address");
    for len in [0, 32, 5_000, 1_000_000] {
        let request = message(len);
        let call = endpoint.timeout(PATIENCE, session.call(&ECHO, &request));
        let answer = endpoint.block_on(call).expect("in time").expect("an answer");
        assert!(answer == request, "{len} bytes");
    }
    stop.store(true, Ordering::Relaxed);
    server.join().expect("the server ends");
}

#[test]
fn client_and_server_on_one_thread_by_turns() {
    let pair = pair(1);
    let [a, b] = pair.names();
    let server = Endpoint::dpdk(&port(&a, 1).udp_port(31_850)).expect("a port");
    let client = Endpoint::dpdk(&port(&b, 2)).expect("a port");
    serve(&server);
    let session: Session<DpdkTransport> = client.open(SERVER.into());
    for len in [0, 32, 100_000] {
        call(&client, &session, len, &[&server, &client]);
    }
}

#[test]
fn a_server_that_is_opened_again_serves_again() {
    let pair = pair(1);
    let [a, b] = pair.names();
    let client = Endpoint::dpdk(&port(&b, 2)).expect("a port");
    for _ in 0..3 {
        let server = Endpoint::dpdk(&port(&a, 1).udp_port(SERVER.port())).expect("a port");
        serve(&server);
        let session: Session<DpdkTransport> = client.open(SERVER.into());
        call(&client, &session, 32, &[&server, &client]);
        call(&client, &session, 50_000, &[&server, &client]);
        // The next server finds the old one's calls in its ring.
        let request = message(50_000);
        let lost = client.spawn(session.call(&ECHO, &request));
        for _ in 0..10 {
            client.run_once();
        }
        drop((server, lost));
    }
}

#[test]
fn link_local_peers_may_have_a_scope() {
    let pair = pair(1);
    let [a, b] = pair.names();
    let config = |device: &str, last| {
        let address = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last);
        DpdkConfig::new(device, address.into(), 64).udp_port(SERVER.port())
    };
    let server = Endpoint::dpdk(&config(&a, 1)).expect("a port");
    let client = Endpoint::dpdk(&config(&b, 2)).expect("a port");
    serve(&server);
    let address =
        SocketAddrV6::new(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), SERVER.port(), 0, 7);
    let session: Session<DpdkTransport> = client.open(SocketAddr::V6(address).into());
    call(&client, &session, 32, &[&server, &client]);
    call(&client, &session, 20_000, &[&server, &client]);
}

/// Calls from one port to the other, each with settings of its own.
fn call_over(server: &DpdkConfig, client: &DpdkConfig) {
    let server = DpdkTransport::open(server).expect("a port");
    let address = server.local_route();
    let [server, client] = [server, DpdkTransport::open(client).expect("a port")].map(endpoint);
    serve(&server);
    let session: Session<DpdkTransport> = client.open(address);
    for len in [0, 32, 20_000] {
        call(&client, &session, len, &[&server, &client]);
    }
    let lost = [&server, &client].map(|endpoint| {
        let stats = endpoint.stats().expect("outside of a turn").transport;
        stats.tx_dropped + stats.rx_overflow
    });
    assert_eq!(lost, [0, 0]);
}

#[test]
fn calls_over_global_ipv6_addresses() {
    let pair = pair(1);
    let [a, b] = pair.names();
    for mtu in [1_500, 9_000] {
        let config = |device: &str, last| {
            let address = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
            DpdkConfig::new(device, address.into(), 64).mtu(mtu)
        };
        call_over(&config(&a, 1), &config(&b, 2));
    }
}

#[test]
fn calls_with_a_vlan_tag() {
    let pair = pair(1);
    let [a, b] = pair.names();
    call_over(&port(&a, 1).vlan(5), &port(&b, 2).vlan(5));
    let v6 = |device: &str, last| {
        let address = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last);
        DpdkConfig::new(device, address.into(), 64).vlan(4_094)
    };
    call_over(&v6(&a, 1), &v6(&b, 2));
}

#[test]
fn calls_through_gateways() {
    let pair = pair(1);
    let [a, b] = pair.names();
    // Every station receives frames to a group of stations, so no router is needed.
    let routers = [Mac([3, 0, 0, 0, 0, 1]), Mac([3, 0, 0, 0, 0, 2])];
    let config = |device: &str, network: usize| {
        let subnet = 8 + network as u8;
        let router = [10, subnet, 0, 254].into();
        DpdkConfig::new(device, [10, subnet, 0, 1].into(), 24)
            .gateway(router)
            .neighbour(router, routers[network])
    };
    {
        let _receives = DpdkTransport::open(&config(&a, 0)).expect("a port");
        let peer = |subnet| SocketAddr::new([10, subnet, 0, 1].into(), 99);
        let frame = sent_frame(&config(&b, 1), &a, peer(8), 100);
        assert_eq!(frame[..6], routers[1].0, "the next station is the router");
        assert_eq!(frame[30..34], [10, 8, 0, 1], "the packet is for the peer");
        let mut isolated =
            DpdkTransport::open(&DpdkConfig::new(&*b, [10, 9, 0, 1].into(), 24)).expect("a port");
        isolated.split().1.push_bytes(&peer(8).into(), &[1; 32]);
        assert_eq!(isolated.stats().tx_dropped, 1, "there is no way without a router");
    }
    call_over(&config(&a, 0), &config(&b, 1));
}

#[test]
fn calls_without_checksums() {
    let pair = pair(1);
    let [a, b] = pair.names();
    {
        let _receives = DpdkTransport::open(&port(&a, 1)).expect("a port");
        for on in [true, false] {
            let from = port(&b, 2).checksums(on).neighbour(SERVER.ip(), Mac::BROADCAST);
            let frame = sent_frame(&from, &a, SERVER, 100);
            assert_eq!(frame[40..42] != [0, 0], on, "a checksum: {on}");
        }
    }
    call_over(&port(&a, 1).checksums(false), &port(&b, 2).checksums(false));
}
