//! The guarantee behind credits: a sender within the receiver's window loses nothing to overflow.

use super::*;

/// The default socket buffer size and `net.core.rmem_max` on an untuned system, in bytes.
const UNTUNED: usize = 212_992;

/// A receiver with a buffer of the default size.
fn receiver(address: &str) -> UdpTransport {
    receiver_asking_for(address, UNTUNED / 2)
}

fn receiver_asking_for(address: &str, bytes: usize) -> UdpTransport {
    UdpTransport::bind(&config(address).recv_buffer(bytes)).unwrap()
}

/// Number of datagrams of `len` bytes that a sender may have in flight.
fn window(transport: &UdpTransport, len: usize) -> usize {
    let capabilities = transport.capabilities();
    (capabilities.rx_capacity / capabilities.charge.charge(len)) as usize
}

fn stage(transport: &mut UdpTransport, to: &UdpRoute, message: &MsgBuf, count: usize) {
    let (head, data) = message.as_slice().split_at(HEADER_LEN.min(message.len()));
    let (_, tx) = transport.split();
    for _ in 0..count {
        if data.is_empty() {
            tx.push_bytes(to, head);
        } else {
            tx.push(to, TxPacket::new(message, head, data));
        }
    }
}

/// Sizes in bytes around every step of the charge, and common ones.
fn sizes() -> Vec<usize> {
    let mut sizes = vec![0, 1, 24, 1_472, 4_120, 8_972, 16_408, 30_000, 40_000, 65_488, 65_507];
    for step in [64, 197, 576, 645, 1_600, 1_669, 3_648, 3_717, 7_744, 7_813, 15_936, 16_004] {
        sizes.extend([step - 13, step - 1, step, step + 1]);
    }
    sizes
}

#[test]
fn the_effective_size_is_read_back() {
    for asked in [UNTUNED / 2, UNTUNED] {
        let transport = receiver_asking_for(V4, asked);
        assert_eq!(transport.recv_buffer(), 2 * asked);
        assert_eq!(transport.capabilities().rx_capacity as usize, asked * 3 / 2);
    }
    let greedy = receiver_asking_for(V4, 1 << 30);
    assert!(
        greedy.recv_buffer() >= 2 * UNTUNED,
        "a request above the limit gives less than the limit"
    );
}

#[test]
fn a_full_window_fits_for_every_size_and_shape() {
    for (address, offload) in [(V4, true), (V4, false), (V6, true), (V6, false)] {
        let mut sender = UdpTransport::bind(&config(address).offload(offload)).unwrap();
        for (at, len) in sizes().into_iter().enumerate() {
            let mut receiver = receiver_asking_for(address, [UNTUNED / 2, UNTUNED][at % 2]);
            let to = receiver.local_route();
            if len > sender.path(&to).datagram {
                continue;
            }
            let (window, message) = (window(&receiver, len), message(len));
            assert!(window > 0);
            stage(&mut sender, &to, &message, window);
            sender.split().1.flush();
            assert_eq!(
                receive(&mut receiver, window).len(),
                window,
                "{window} of {len} bytes to {address}"
            );
            assert_eq!(receiver.stats().rx_overflow, 0);
        }
        assert_eq!(sender.stats().tx_dropped, 0);
    }
}

#[test]
fn a_window_kept_full_while_the_receiver_reads_loses_nothing() {
    let mut sender = UdpTransport::bind(&config(V4).offload(false)).unwrap();
    for len in sizes() {
        let mut receiver = receiver(V4);
        let to = receiver.local_route();
        let (window, message) = (window(&receiver, len), message(len));
        stage(&mut sender, &to, &message, window);
        sender.split().1.flush();
        // Each packet read is a credit to send one more, although the kernel frees the memory of
        // the read packet later.
        let (mut read, total) = (0, 3 * window);
        let mut credit = 0;
        while read < total {
            let burst = receiver.split().0.burst();
            assert!(burst > 0, "only {read} of {total} packets of {len} bytes arrived");
            read += burst;
            credit += burst;
            let more = credit.min(total + window - read);
            stage(&mut sender, &to, &message, more);
            sender.split().1.flush();
            credit -= more;
        }
        assert_eq!(receiver.stats().rx_overflow, 0, "{len} bytes");
    }
}

#[test]
fn the_window_is_not_much_smaller_than_the_buffer() {
    let mut sender = UdpTransport::bind(&config(V4).offload(false)).unwrap();
    // The charge changes to the next size class up to 69 bytes early, to leave room for headers of
    // unknown length.
    let common =
        [0, 24, 64, 200, 512, 576, 1_048, 1_472, 2_072, 4_120, 8_972, 16_408, 32_000, 65_507];
    let worst = [600, 645, 1_601, 1_669, 3_649, 3_717, 7_745, 7_813];
    for (sizes, most) in [(&common[..], 2.2), (&worst[..], 2.7)] {
        for &len in sizes {
            let mut receiver = receiver(V4);
            let to = receiver.local_route();
            let (window, message) = (window(&receiver, len), message(len));
            stage(&mut sender, &to, &message, 4 * window);
            sender.split().1.flush();
            let mut fit = 0;
            loop {
                match receiver.split().0.burst() {
                    0 => break,
                    burst => fit += burst,
                }
            }
            let stats = receiver.stats();
            assert_eq!(
                fit as u64 + stats.rx_overflow,
                4 * window as u64,
                "a datagram is neither received nor counted as overflow"
            );
            assert!(stats.rx_overflow > 0, "{len}");
            let capabilities = receiver.capabilities();
            let allowed =
                f64::from(capabilities.rx_capacity) / f64::from(capabilities.charge.charge(len));
            assert!(fit as f64 <= most * allowed, "{len} bytes: {fit} fit, {allowed} are allowed");
        }
    }
}

#[test]
fn overflow_is_counted_once() {
    let mut sender = UdpTransport::bind(&config(V4).offload(false)).unwrap();
    let mut receiver = receiver(V4);
    let to = receiver.local_route();
    for round in 1..=3 {
        stage(&mut sender, &to, &message(1_472), 1_000);
        sender.split().1.flush();
        let mut arrived = 0;
        loop {
            match receiver.split().0.burst() {
                0 => break,
                burst => arrived += burst as u64,
            }
        }
        let stats = receiver.stats();
        assert!(arrived < 1_000);
        assert_eq!(stats.rx_packets + stats.rx_overflow, 1_000 * round);
        assert_eq!(receiver.stats(), stats);
    }
    assert!(OVERFLOW_HINT.contains("net.core.rmem_max"));
}

/// The shortest and the longest packets that are padded to one length.
const PADDED: [(usize, usize); 8] = [
    (0, 40),
    (41, 424),
    (425, 552),
    (553, 1_028),
    (1_449, 1_576),
    (1_577, 2_377),
    (3_497, 3_624),
    (3_625, 4_425),
];

/// Sends runs of one long packet and many short ones, so that almost every packet is padded.
fn send_padded(
    sender: &mut UdpTransport,
    to: &UdpRoute,
    messages: (&MsgBuf, &MsgBuf),
    count: usize,
) {
    for at in 0..count {
        let message = if at % 32 == 0 { messages.1 } else { messages.0 };
        let packet = TxPacket::new(message, &[7; HEADER_LEN], message.as_slice());
        sender.split().1.push(to, packet);
        if at % 32 == 31 {
            sender.split().1.flush();
        }
    }
    sender.split().1.flush();
}

/// At first the receiver does not coalesce, so its kernel splits the runs.
#[test]
fn a_window_of_padded_packets_that_is_kept_full_loses_nothing() {
    for offload in [true, false] {
        for (short, long) in PADDED {
            let mut sender = open(V4);
            let config = config(V4).offload(offload).recv_buffer(UNTUNED / 2);
            let mut receiver = UdpTransport::bind(&config).unwrap();
            let to = receiver.local_route();
            let window = window(&receiver, HEADER_LEN + long);
            // Packets are sent in portions, so that there are runs.
            let portion = (window / 2).min(32);
            let messages = (&message(short), &message(long));
            send_padded(&mut sender, &to, messages, window);
            let (mut read, mut padded, mut credit, total) = (0, 0, 0, 3 * window);
            while read < total {
                let (rx, _) = receiver.split();
                let burst = rx.burst();
                assert!(burst > 0, "only {read} of {total} packets arrived: {short} and {long}");
                let is_padded = |at: &usize| rx.packet(*at).bytes.len() == HEADER_LEN + long;
                padded += (0..burst).filter(is_padded).count();
                read += burst;
                credit += burst;
                if credit >= portion {
                    let more = credit.min((total + window).saturating_sub(read));
                    send_padded(&mut sender, &to, messages, more);
                    credit -= more;
                }
            }
            assert!(padded > read / 2, "{padded} of {read} packets were padded");
            assert_eq!(receiver.stats().rx_overflow, 0);
        }
    }
}
