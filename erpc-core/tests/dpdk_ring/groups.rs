//! Groups of endpoints that share a port.

use super::*;

#[test]
fn a_group_is_counted_and_closes_with_its_last_member() {
    let pair = pair(1);
    let [a, _] = pair.names();
    let first = port(&a, 1).udp_port(65_530);
    for count in [0, 7, 65] {
        assert!(DpdkTransport::open_group(&first, count).is_err(), "{count} endpoints");
    }
    let mut group = DpdkTransport::open_group(&first, 6).expect("UDP ports up to 65,535");
    assert!(group.iter().all(|member| member.steering() == Steering::Software));
    let last = group.pop();
    drop(group);
    assert!(DpdkTransport::open(&first).is_err(), "the last member uses the port");
    drop(last);
    // Mempools of the device are used again: there is memory for about ten.
    for _ in 0..40 {
        let single = DpdkTransport::open(&first).expect("the port is closed");
        assert_eq!(single.steering(), Steering::Single);
    }
}

#[test]
fn groups_call_groups_over_shared_and_own_queues() {
    for queues in [1, 2, 3] {
        let pair = pair(queues);
        let [a, b] = pair.names();
        let servers = group(&port(&a, 1).udp_port(SERVER.port()).mtu(1_500), 3);
        let clients = group(&port(&b, 2).mtu(1_500), 2);
        serve_as_group(&servers);
        let all: Vec<_> = servers.iter().chain(&clients).collect();
        // Servers get sessions at random, and each its share after some dozens.
        let stats =
            |endpoint: &Endpoint<DpdkTransport>| endpoint.stats().expect("outside").transport;
        let is_idle = |endpoint: &&Endpoint<DpdkTransport>| stats(endpoint).rx_packets <= 50;
        let mut rounds = 0;
        while rounds < 12 || all.iter().any(is_idle) {
            rounds += 1;
            assert!(rounds < 100, "{queues} queues: a member receives next to nothing");
            for client in &clients {
                let session: Session<DpdkTransport> = client.open(SERVER.into());
                call(client, &session, 32, &all);
                call(client, &session, 20_000, &all);
            }
        }
        let lost: u64 = all.iter().map(|endpoint| stats(endpoint).rx_overflow).sum();
        assert_eq!(lost, 0, "{queues} queues");
    }
}

#[test]
fn a_member_needs_no_other_member_to_run() {
    for queues in [1, 2] {
        let pair = pair(queues);
        let [a, b] = pair.names();
        let servers = group(&port(&a, 1).udp_port(SERVER.port()), 2);
        let client = Endpoint::dpdk(&port(&b, 2)).expect("a port");
        serve(&servers[1]);
        // The client sends into queue 0, and the first member, whose queue that is, stands still.
        let second = SocketAddr::new(SERVER.ip(), SERVER.port() + 1);
        let session: Session<DpdkTransport> = client.open(second.into());
        for len in [32, 100_000] {
            call(&client, &session, len, &[&servers[1], &client]);
        }
    }
}

#[test]
fn a_member_that_does_not_receive_loses_what_its_inbox_cannot_hold() {
    let pair = pair(1);
    let [a, b] = pair.names();
    let mut servers =
        DpdkTransport::open_group(&port(&a, 1).mtu(1_500).descriptors(128), 2).expect("a group");
    let mut client = DpdkTransport::open(&port(&b, 2).mtu(1_500)).expect("a port");
    let mut second = servers.pop().expect("two");
    let mut first = servers.pop().expect("two");
    let route = second.local_route();
    let end = Instant::now() + PATIENCE;
    while second.stats().rx_overflow < 100 {
        assert!(Instant::now() < end, "nothing is lost: {:?}", second.stats());
        client.split().1.push_bytes(&route, &[1; 32]);
        client.split().1.flush();
        first.split().0.burst();
        client.split().0.burst();
    }
    let mut received = 0;
    while received < 128 {
        assert!(Instant::now() < end, "{received} datagrams");
        received += second.split().0.burst();
    }
    let sent = client.stats().tx_packets;
    assert_eq!(second.stats().rx_overflow + received as u64, sent, "each is received or counted");
    let [second, client] = [second, client].map(endpoint);
    serve(&second);
    let session: Session<DpdkTransport> = client.open(route);
    call(&client, &session, 20_000, &[&second, &client]);
}
