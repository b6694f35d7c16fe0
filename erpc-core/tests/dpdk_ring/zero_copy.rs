//! Messages that the device reads in place.

use super::*;

/// The header of a message of one packet.
fn single_packet() -> HeaderWords {
    let header = erpc_core::wire::Header {
        connection: ConnectionId::new(0, true, 0, 1),
        kind: Kind::Request,
        packet: PacketNumber::new(0),
        request: RequestNumber::from_u32(1),
        aux: 0,
        size: 8_000,
        flags: Flags::NONE,
    };
    header.to_words()
}

#[test]
fn the_device_reads_messages_in_place_and_they_are_not_written_meanwhile() {
    let pair = pair(1);
    let [a, b] = pair.names();
    let mut server = DpdkTransport::open(&port(&a, 1)).expect("a port");
    let mut client = DpdkTransport::open(&port(&b, 2).zero_copy(true)).expect("a port");
    assert!(client.is_zero_copy() && !server.is_zero_copy());
    let route = server.local_route();
    meet(&mut client, &mut server);
    let mut pool = Pool::in_arena(1 << 20, client.arena());
    let mut msgbuf = pool.alloc(8_000).expect("memory");
    msgbuf.put_slice(&message(8_000));
    let mut small = pool.alloc(1_000).expect("memory");
    small.put_slice(&message(1_000));
    let mut elsewhere = MsgBuf::detached(8_000).expect("memory");
    elsewhere.put_slice(&message(8_000));
    let (_, tx) = client.split();
    for message in [&mut small, &mut elsewhere, &mut msgbuf] {
        tx.push_single(&route, single_packet(), message, false);
    }
    tx.doorbell();
    let unread = Unread::take(&a);
    let outside = unread.outside();
    assert_eq!(outside[..2], [ptr::null(); 2], "a short message and one elsewhere are copied");
    assert_eq!(outside[2], msgbuf.as_slice().as_ptr(), "the pointer that was sent");
    // The peer has not freed the frame, as a driver that is slow to send.
    let begun = Instant::now();
    tx.flush();
    assert!(begun.elapsed() < Duration::from_secs(1), "a flush is bounded");
    assert_eq!(client.stuck_flushes(), 1);
    let write = AssertUnwindSafe(|| msgbuf.as_mut_slice()[0] = 0);
    assert!(catch_unwind(write).is_err(), "the device may still read");
    assert_eq!(msgbuf.as_slice(), message(8_000));
    // A retransmission before the device has read the first copy.
    client.split().1.push_single(&route, single_packet(), &mut msgbuf, false);
    client.split().1.doorbell();
    drop(unread);
    client.split().1.reclaim();
    let write = AssertUnwindSafe(|| msgbuf.as_mut_slice()[0] = 0);
    assert!(catch_unwind(write).is_err(), "the second copy is in the ring");
    assert_eq!(server.split().0.burst(), 1);
    assert_eq!(server.split().0.packet(0).bytes[24..], message(8_000), "unchanged");
    server.split().0.burst();
    client.split().1.flush();
    assert_eq!(client.stuck_flushes(), 1, "everything has been read");
    msgbuf.as_mut_slice()[0] = 0;
}

#[test]
fn calls_without_copies() {
    let pair = pair(1);
    let [a, b] = pair.names();
    let server = port(&a, 1).udp_port(SERVER.port()).zero_copy(true);
    let server = Endpoint::dpdk(&server).expect("a port");
    let client = Endpoint::dpdk(&port(&b, 2).zero_copy(true)).expect("a port");
    serve(&server);
    let session: Session<DpdkTransport> = client.open(SERVER.into());
    for len in [32, 3_000, 20_000, 2_000_000] {
        call(&client, &session, len, &[&server, &client]);
        call(&client, &session, len, &[&server, &client]);
    }
}
