//! A peer that does not receive.

use super::*;

/// Sends to a peer that does not receive until `limit` datagrams are lost; returns how many the
/// port took.
fn fill(from: &mut DpdkTransport, to: &mut DpdkTransport, limit: u64) -> u64 {
    let route = to.local_route();
    // The two learn each other's MAC addresses.
    while from.stats().tx_packets == 0 {
        from.split().1.push_bytes(&route, &[1; 32]);
        from.split().1.doorbell();
        to.split().0.burst();
        from.split().0.burst();
    }
    let begun = Instant::now();
    while from.stats().tx_dropped < limit {
        assert!(begun.elapsed() < PATIENCE, "no datagram is lost: {:?}", from.stats());
        from.split().1.push_bytes(&route, &[1; 32]);
        // A flush is bounded, also at a port that takes nothing.
        from.split().1.flush();
    }
    from.stats().tx_packets
}

fn drain(to: &mut DpdkTransport, from: &mut DpdkTransport) {
    let begun = Instant::now();
    loop {
        from.split().1.flush();
        let got = to.split().0.burst();
        if got == 0 && to.stats().rx_packets == from.stats().tx_packets {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "lost: {:?} {:?}", from.stats(), to.stats());
    }
}

#[test]
fn a_peer_that_does_not_receive_costs_counted_datagrams_only() {
    // The ring has 2,047 entries. With few descriptors, the mempool is dry before it is full.
    for (descriptors, what) in [(2_048, "a full ring"), (128, "a dry mempool")] {
        let pair = pair(1);
        let [a, b] = pair.names();
        let config = |device, last| port(device, last).mtu(1_500).descriptors(descriptors);
        let mut server = DpdkTransport::open(&config(&a, 1)).expect("a port");
        let mut client = DpdkTransport::open(&config(&b, 2)).expect("a port");
        for round in 0..3 {
            let sent = fill(&mut client, &mut server, 500 * (round + 1));
            assert!(sent > 500, "{what}: {sent} datagrams");
            drain(&mut server, &mut client);
        }
        let [server, client] = [server, client].map(endpoint);
        serve(&server);
        let session: Session<DpdkTransport> = client.open(server.local_route().expect("outside"));
        call(&client, &session, 100_000, &[&server, &client]);
    }
}
