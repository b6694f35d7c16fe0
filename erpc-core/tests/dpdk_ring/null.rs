//! Ports of `net_null`: they take every frame, and each burst is full of frames that no host has
//! sent.

use super::*;

/// EAL's arguments for the devices. The frames of a device with `copy` are like the last sent one,
/// or zeros; those of other devices are whatever their mbufs contained before.
pub(super) const DEVICES: [&str; 5] = [
    "--vdev=net_null0",
    "--vdev=net_null1,size=9",
    "--vdev=net_null2,size=1400,copy=1",
    "--vdev=net_null3,no-rx=1",
    "--vdev=net_null4",
];

/// Frames in a burst.
const BURST: u64 = erpc_core::transport::MAX_BURST as u64;

fn null(device: &str) -> DpdkConfig {
    // Every station receives frames to all stations, also those that come back.
    port(device, 2).mtu(1_500).neighbour(SERVER.ip(), Mac::BROADCAST)
}

#[test]
fn everything_is_sent_and_no_odd_frame_is_a_datagram() {
    const SENT: u64 = 2_000;
    start();
    for device in ["net_null0", "net_null1", "net_null2"] {
        let mut transport = DpdkTransport::open(&null(device)).expect("a port");
        for sent in 0..SENT {
            transport.split().1.push_bytes(&SERVER.into(), &message(100));
            if sent % 10 == 0 {
                let (rx, tx) = transport.split();
                tx.flush();
                assert_eq!(rx.burst(), 0, "{device}");
                assert!(!rx.is_drained(), "{device}: there are always more frames");
            }
        }
        transport.split().1.flush();
        let (stats, drops) = (transport.stats(), transport.frame_drops());
        assert_eq!((stats.tx_packets, stats.tx_bytes), (SENT, SENT * 100), "{device}: {stats:?}");
        assert_eq!((stats.rx_packets, stats.tx_dropped, stats.rx_overflow), (0, 0, 0), "{device}");
        assert_eq!(drops.total(), SENT / 10 * BURST, "{device}: {drops:?}");
        // Runts; zeros; or sent frames that come back, such as the announcement of the own address.
        let expected = match device {
            "net_null1" => drops.of(FrameDrop::Truncated),
            _ => drops.of(FrameDrop::NotOurs) + drops.of(FrameDrop::Source),
        };
        assert_eq!(expected, drops.total(), "{device}: {drops:?}");
    }
}

#[test]
fn a_call_ends_at_its_deadline_although_frames_never_end() {
    start();
    for device in ["net_null3", "net_null4"] {
        let endpoint = Endpoint::dpdk(&null(device)).expect("a port");
        let session: Session<DpdkTransport> = endpoint.open(SERVER.into());
        let (deadline, begun) = (Duration::from_millis(200), Instant::now());
        let call = endpoint.timeout(deadline, session.call(&ECHO, &message(20_000)));
        assert!(endpoint.block_on(call).is_err(), "{device}: an answer from nobody");
        let took = begun.elapsed();
        assert!((deadline..10 * deadline).contains(&took), "{device}: {took:?}");
        let stats = endpoint.stats().expect("outside of a turn").transport;
        assert!(stats.tx_packets > 0, "{device}: {stats:?}");
        assert_eq!(stats.rx_packets, 0, "{device}: {stats:?}");
    }
}
