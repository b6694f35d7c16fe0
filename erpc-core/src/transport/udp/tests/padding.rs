//! Runs of packets whose lengths differ.

use super::*;

const HEADER: [u8; HEADER_LEN] = [7; HEADER_LEN];

/// Stages whole messages of these lengths, without a trailer.
fn stage(transport: &mut UdpTransport, to: &UdpRoute, lengths: &[usize]) {
    let (_, tx) = transport.split();
    for &len in lengths {
        let message = message(len);
        tx.push(to, whole(&message));
    }
}

fn whole(message: &MsgBuf) -> TxPacket<'_> {
    TxPacket::new(message, &HEADER, message.as_slice())
}

/// The lengths of the datagrams' bodies. Checks that each body is the message of one of the lengths
/// `sent`, in this order, and zeros.
#[track_caller]
fn bodies(arrived: &[(UdpRoute, Vec<u8>)], sent: &[usize]) -> Vec<usize> {
    assert_eq!(arrived.len(), sent.len());
    for ((_, bytes), &len) in arrived.iter().zip(sent) {
        let (content, padding) = bytes[HEADER_LEN..].split_at(len);
        assert_eq!(bytes[..HEADER_LEN], HEADER);
        assert!(content == message(len).as_slice() && padding.iter().all(|byte| *byte == 0));
    }
    arrived.iter().map(|(_, bytes)| bytes.len() - HEADER_LEN).collect()
}

/// A client and a server that coalesces.
fn warm() -> (UdpTransport, UdpTransport, UdpRoute) {
    let (mut client, mut server) = (open(V4), open(V4));
    warm_up(&mut client, &mut server);
    let to = server.local_route();
    (client, server, to)
}

#[test]
fn messages_of_similar_lengths_leave_as_one_run_with_zeros_behind_the_shorter_ones() {
    let (mut client, mut server, to) = warm();
    let before = client.stats().tx_bytes;
    for (lengths, padded) in [
        (&[50, 60, 300, 50][..], &[300, 300, 300, 50][..]),
        (&[424, 60, 41], &[424, 424, 41]),
        (&[0, 1, 40], &[40, 40, 40]),
        (&[2_000, 2_100, 2_500], &[2_500, 2_500, 2_500]),
        (&[5_000, 4_200, 4_300], &[5_000, 5_000, 4_300]),
    ] {
        stage(&mut client, &to, lengths);
        client.split().1.flush();
        let arrived = receive(&mut server, lengths.len());
        assert_eq!(bodies(&arrived, lengths), padded);
        assert_eq!(server.split().0.datagrams(), 1, "{lengths:?}");
    }
    let bodies = 950 + 889 + 120 + 7_500 + 14_300;
    assert_eq!(client.stats().tx_bytes - before, (bodies + 16 * HEADER_LEN) as u64);
}

#[test]
fn messages_are_not_padded_if_the_receivers_kernel_may_count_more_for_them_then() {
    let (mut client, mut server, to) = warm();
    // Pairs on both sides of a step of the charge.
    for lengths in [
        [40, 41],
        [24, 300],
        [424, 425],
        [552, 553],
        [1_448, 1_449],
        [1_576, 1_577],
        [3_624, 3_625],
    ] {
        stage(&mut client, &to, &lengths);
        client.split().1.flush();
        assert_eq!(bodies(&receive(&mut server, 2), &lengths), lengths);
    }
}

#[test]
fn padding_is_bounded() {
    let (mut client, mut server, to) = warm();
    let (mut growing, mut padded) = (vec![60; 12], vec![60; 12]);
    (growing[0], growing[11], padded[11]) = (50, 50, 50);
    growing.push(410);
    padded.push(410);
    for (lengths, padded) in [
        // One byte more than every path carries.
        (&[1_028, 1_029][..], &[1_028, 1_029][..]),
        // One byte more than receivers accept.
        (&[4_000, 4_801], &[4_000, 4_801]),
        // The last one would pad eleven others with 350 bytes.
        (&growing, &padded),
    ] {
        stage(&mut client, &to, lengths);
        client.split().1.flush();
        assert_eq!(bodies(&receive(&mut server, lengths.len()), lengths), padded);
        assert_eq!(server.split().0.datagrams(), 2, "{lengths:?}");
    }
}

#[test]
fn a_queue_that_knows_of_a_slow_link_does_not_pad() {
    let (mut client, mut server, to) = warm();
    for (rate, padded) in [(1_250_000_000, [60, 60]), (1_249_999_999, [50, 60])] {
        client.split().1.learn(Link::Local);
        client.split().1.learn(Link::Unknown);
        client.split().1.learn(Link::Rate(rate));
        stage(&mut client, &to, &[50, 60]);
        client.split().1.flush();
        assert_eq!(bodies(&receive(&mut server, 2), &[50, 60]), padded);
    }
}

#[test]
fn runs_of_equal_messages_stay_without_padding() {
    let (mut client, mut server, to) = warm();
    stage(&mut client, &to, &[50, 50, 60, 60, 50]);
    client.split().1.flush();
    assert_eq!(bodies(&receive(&mut server, 5), &[50, 50, 50, 60, 60]), [50, 50, 50, 60, 60]);
    assert_eq!(server.split().0.datagrams(), 2);
}

#[test]
fn packets_with_a_trailer_and_packets_of_longer_messages_are_not_padded() {
    let (mut client, mut server, to) = warm();
    let [short, medium, other, last, long] = [50, 60, 65, 70, 150].map(message);
    let (_, tx) = client.split();
    tx.push(&to, whole(&short).sealed(true));
    tx.push(&to, TxPacket::new(&long, &HEADER, &long.as_slice()[..100]));
    tx.push(&to, TxPacket::new(&long, &HEADER, &long.as_slice()[100..]));
    tx.push(&to, whole(&medium));
    tx.push(&to, whole(&last).sealed(true));
    tx.push(&to, whole(&other));
    tx.flush();
    let lengths: Vec<_> =
        receive(&mut server, 6).iter().map(|(_, b)| b.len() - HEADER_LEN).collect();
    assert_eq!(lengths, [54, 100, 50, 65, 65, 74]);
}

#[test]
fn a_padded_run_is_sent_when_it_is_full() {
    let (mut client, mut server, to) = warm();
    // As many packets as a run may have, and as many bytes. Nothing rings the doorbell.
    for (lengths, full) in [([100, 110], 128), ([8_000, 8_100], 8)] {
        let lengths: Vec<_> = lengths.iter().copied().cycle().take(full).collect();
        stage(&mut client, &to, &lengths);
        let arrived = receive(&mut server, full);
        let bodies = bodies(&arrived, &lengths);
        assert!(bodies.iter().all(|len| *len == lengths[1]), "{bodies:?}");
    }
}

#[test]
fn a_padded_run_that_the_system_refuses_is_sent_one_by_one() {
    let (mut client, mut server) = (open(V4), open(V4));
    let to = server.local_route();
    for lengths in [[100, 120, 110], [3_000, 3_300, 3_200]] {
        stage(&mut client, &to, &lengths);
        client.split().1.send_all_apart();
        let most = lengths[1];
        assert_eq!(bodies(&receive(&mut server, 3), &lengths), [most, most, lengths[2]]);
    }
}
