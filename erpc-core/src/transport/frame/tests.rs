use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::time::Instant;
use crate::transport::udp::UdpRoute;

fn host(last: u8, vlan: Option<u16>) -> Interface {
    Interface {
        mac: Mac([2, 0, 0, 0, 0, last]),
        vlan,
        networks: vec![
            Network { address: Ipv4Addr::new(10, 0, 0, last).into(), prefix: 24 },
            Network { address: v6(last), prefix: 64 },
        ],
        gateways: vec![Ipv4Addr::new(10, 0, 0, 254).into()],
        checksums: true,
    }
}

fn v6(last: u8) -> IpAddr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()).into()
}

fn frame(from: &Interface, to: &Interface, family: usize, datagram: &[u8], ecn: bool) -> Vec<u8> {
    let peer = to.networks[family].address;
    let header = Header::new(from, peer, to.mac, ecn).unwrap();
    let mut frame = vec![0; header.len()];
    frame.extend_from_slice(datagram);
    header.write(&mut frame, 7, 31_850);
    frame
}

fn datagram<'a>(frame: &'a [u8], at: &Interface) -> Datagram<'a> {
    match parse(frame, at, false) {
        Ok(Packet::Datagram(datagram)) => datagram,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(
        bytes in prop::collection::vec(any::<u8>(), 0..2_000),
        family in 0usize..2,
        vlan in prop::option::of(1u16..4_095),
        padding in 0usize..40,
    ) {
        let (a, b) = (host(1, vlan), host(2, vlan));
        let mut frame = frame(&a, &b, family, &bytes, false);
        frame.resize(frame.len() + padding, 0xAA);
        let got = datagram(&frame, &b);
        prop_assert_eq!((got.payload, got.port, got.marked), (&bytes[..], 31_850, false));
        let source: UdpRoute = SocketAddr::new(a.networks[family].address, 7).into();
        prop_assert_eq!(got.source, source);
    }

    #[test]
    fn a_flipped_bit_or_a_cut_never_changes_the_payload(
        bytes in prop::collection::vec(any::<u8>(), 1..200),
        family in 0usize..2,
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let (a, b) = (host(1, None), host(2, None));
        let good = frame(&a, &b, family, &bytes, false);
        let mut bad = good.clone();
        bad[at.index(good.len())] ^= 1 << bit;
        if let Ok(Packet::Datagram(got)) = parse(&bad, &b, false) {
            // Only fields that no checksum covers can differ: Ethernet's addresses, hop limit and
            // flow label.
            prop_assert_eq!((got.payload, got.port), (&bytes[..], 31_850));
        }
        let cut = &good[..at.index(good.len())];
        prop_assert!(parse(cut, &b, false).is_err());
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        kind in prop::sample::select(vec![[8u8, 0], [0x86, 0xdd], [8, 6], [0x81, 0]]),
        first in any::<u8>(),
        verified in any::<bool>(),
    ) {
        let own = host(2, None);
        let mut bytes = bytes;
        if bytes.len() > 14 {
            bytes[..6].copy_from_slice(&own.mac.0);
            bytes[12..14].copy_from_slice(&kind);
            bytes[14] = if first < 128 { 0x45 } else { 0x60 };
        }
        if let Ok(Packet::Echo(echo)) = parse(&bytes, &own, verified) {
            control::echo_reply(&own, &echo).unwrap();
        }
    }
}

#[test]
fn drops_have_their_reasons() {
    let (a, b) = (host(1, None), host(2, None));
    let good = frame(&a, &b, 0, b"hello", false);
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = good.clone();
        change(&mut frame);
        // The IPv4 checksum is right again, so that the drop has another reason.
        frame[24..26].fill(0);
        let sum = checksum::finish(checksum::add(0, &frame[14..34]));
        frame[24..26].copy_from_slice(&sum);
        parse(&frame, &b, false).unwrap_err()
    };
    assert_eq!(parse(&good[..13], &b, false), Err(FrameDrop::Truncated));
    assert_eq!(with(&|frame| frame[20] = 0x20), FrameDrop::Fragment);
    assert_eq!(with(&|frame| frame[21] = 1), FrameDrop::Fragment);
    assert_eq!(with(&|frame| frame[14] = 0x46), FrameDrop::Options);
    assert_eq!(with(&|frame| frame[23] = 6), FrameDrop::Protocol);
    assert_eq!(with(&|frame| frame[33] = 9), FrameDrop::NotOurs);
    assert_eq!(with(&|frame| frame[26] = 224), FrameDrop::Source);
    assert_eq!(with(&|frame| frame[46] ^= 1), FrameDrop::Checksum);
    assert_eq!(with(&|frame| frame[17] = 255), FrameDrop::Truncated);
    assert_eq!(with(&|frame| frame[12] = 0x88), FrameDrop::Protocol);
    assert_eq!(with(&|frame| frame[5] = 9), FrameDrop::NotOurs);
    assert_eq!(parse(&good, &host(2, Some(5)), false), Err(FrameDrop::NotOurs));
}

#[test]
fn an_ipv6_packet_cannot_come_from_an_ipv4_address() {
    let (a, b) = (host(1, None), host(2, None));
    let mut mapped = frame(&a, &b, 1, b"hello", false);
    mapped[22..38].copy_from_slice(&Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().octets());
    assert_eq!(parse(&mapped, &b, true), Err(FrameDrop::Source));
}

#[test]
fn no_neighbour_has_this_hosts_address_or_none() {
    let (a, mut own) = (host(1, None), host(2, None));
    // As `own`, but with another MAC address.
    let asks = control::ask(&Interface { mac: a.mac, ..own.clone() }, v6(2)).unwrap();
    assert_eq!(parse(&asks, &own, false), Err(FrameDrop::Source));
    own.networks[1].address = Ipv6Addr::UNSPECIFIED.into();
    let tells = control::tell(&own, v6(1), a.mac).unwrap();
    assert_eq!(parse(&tells, &a, false), Err(FrameDrop::Source));
}

#[test]
fn marks_of_switches_are_read() {
    let (a, b) = (host(1, None), host(2, None));
    for family in [0, 1] {
        let mut frame = frame(&a, &b, family, b"x", true);
        assert!(!datagram(&frame, &b).marked);
        if family == 0 {
            frame[15] |= 1;
            frame[24..26].fill(0);
            let sum = checksum::finish(checksum::add(0, &frame[14..34]));
            frame[24..26].copy_from_slice(&sum);
        } else {
            frame[15] |= 1 << 4;
        }
        assert!(datagram(&frame, &b).marked);
    }
}

#[test]
fn neighbours_ask_and_answer_each_other() {
    let (a, b) = (host(1, Some(7)), host(2, Some(7)));
    for family in [0, 1] {
        let (own, peer) = (a.networks[family].address, b.networks[family].address);
        let question = control::ask(&a, peer).unwrap();
        let asks = Packet::Resolve(Resolve::Asks { ip: own, mac: a.mac });
        assert_eq!(parse(&question, &b, false), Ok(asks));
        let answer = control::tell(&b, own, a.mac).unwrap();
        let tells = Packet::Resolve(Resolve::Tells { ip: peer, mac: b.mac });
        assert_eq!(parse(&answer, &a, false), Ok(tells));
        assert_eq!(parse(&question, &host(3, Some(7)), false), Err(FrameDrop::NotOurs));
    }
}

#[test]
fn an_announced_address_replaces_a_known_one_and_makes_no_entry() {
    let (a, moved) = (host(1, Some(7)), host(3, Some(7)));
    let moved = Interface { mac: moved.mac, ..host(2, Some(7)) };
    let frames: Vec<_> = control::announce(&moved).collect();
    assert_eq!(frames.len(), 2, "one frame for each family");
    for (frame, network) in frames.iter().zip(&moved.networks) {
        let tells = Resolve::Tells { ip: network.address, mac: moved.mac };
        assert_eq!(parse(frame, &a, false), Ok(Packet::Resolve(tells)));
    }
    let (ip, now) = (moved.networks[0].address, Instant::from_nanos(1));
    let mut table = Neighbours::new([]);
    table.learn(ip, moved.mac, false, now);
    assert_eq!(table.resolve(ip, now, Vec::new), Resolution::Ask, "no entry");
    table.learn(ip, Mac([2; 6]), false, now);
    let version = table.version();
    table.learn(ip, moved.mac, false, now);
    assert_eq!(table.resolve(ip, now, Vec::new), Resolution::Known(moved.mac));
    assert_ne!(table.version(), version, "a sender must look the address up again");
}

#[test]
fn frames_wait_for_an_answer_and_a_silent_neighbour_is_forgotten() {
    let (ip, mac) = (IpAddr::from([10, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 9]));
    let mut table = Neighbours::new([]);
    let mut now = Instant::from_nanos(1);
    assert_eq!(table.resolve(ip, now, || vec![1]), Resolution::Ask);
    for _ in 1..MAX_WAITING {
        assert_eq!(table.resolve(ip, now, || vec![2]), Resolution::Waiting);
    }
    assert_eq!(table.resolve(ip, now, || vec![3]), Resolution::Full);
    assert_eq!(table.learn(ip, mac, false, now).len(), MAX_WAITING);
    assert_eq!(table.resolve(ip, now, Vec::new), Resolution::Known(mac));
    let (version, mut questions) = (table.version(), 0);
    for _ in 0..10 {
        now = now + Duration::from_secs(40);
        questions += table.tick(now).0.len();
    }
    assert_eq!(questions, 5);
    assert_ne!(table.version(), version, "a sender must look the address up again");
    assert!(table.learn(ip, mac, false, now).is_empty(), "an answer to no question");
    assert_eq!(table.resolve(ip, now, Vec::new), Resolution::Ask);
}

#[test]
fn peers_elsewhere_are_reached_through_the_gateway() {
    let own = host(1, None);
    let hop = |ip: [u8; 4]| own.next_hop(ip.into());
    assert_eq!(hop([10, 0, 0, 7]), Some([10, 0, 0, 7].into()));
    assert_eq!(hop([10, 0, 1, 7]), Some([10, 0, 0, 254].into()));
    assert_eq!(own.next_hop(Ipv6Addr::LOCALHOST.into()), None);
}

#[test]
fn a_doubted_neighbour_is_asked_again_and_a_fixed_one_is_not() {
    let (now, [fixed, learned]) = (Instant::ZERO, [1, 2].map(v6));
    let mut table = Neighbours::new([(fixed, Mac([2; 6]))]);
    table.learn(learned, Mac([4; 6]), true, now);
    assert!(table.tick(now).0.is_empty());
    table.doubt(now);
    assert_eq!(table.tick(now), (vec![learned], 0));
    assert_eq!(table.resolve(learned, now, Vec::new), Resolution::Known(Mac([4; 6])));
}

#[test]
fn a_device_completes_the_checksums_to_those_that_software_writes() {
    for (family, vlan) in [(0, None), (1, None), (0, Some(3)), (1, Some(3))] {
        let (a, b) = (host(1, vlan), host(2, vlan));
        let header = Header::new(&a, b.networks[family].address, b.mac, false).unwrap();
        for len in [0, 1, 100, 1_400] {
            let mut software = vec![7; header.len() + len];
            let mut device = software.clone();
            header.write(&mut software, 7, 31_850);
            header.write_for_device(&mut device, &[], 7, 31_850);
            let mut split = software.clone();
            let (front, rest) = split.split_at_mut(header.len() + len / 3 / 4 * 4);
            header.write_in_front_of(front, rest, 7, 31_850);
            assert_eq!(split, software, "in two pieces");
            assert!(parse(&device, &b, true).is_ok(), "right but for the checksums");
            assert!(parse(&device, &b, false).is_err(), "the device has work to do");
            // What a device does: it sums the UDP part, in which the pseudo-header's sum stands.
            let udp = header.len() - 8;
            let sum = checksum::finish(checksum::add(0, &device[udp..]));
            device[udp + 6..udp + 8].copy_from_slice(&sum);
            if family == 0 {
                let ip = udp - 20..udp;
                let sum = checksum::finish(checksum::add(0, &device[ip.clone()]));
                device[ip][10..12].copy_from_slice(&sum);
            }
            assert_eq!(device, software, "{len} bytes, family {family}, VLAN {vlan:?}");
        }
    }
}

#[test]
fn a_frame_from_a_group_is_dropped_and_its_sender_not_learned() {
    let (a, b) = (host(1, None), host(2, None));
    for family in [0, 1] {
        let mut asks = control::ask(&a, b.networks[family].address).unwrap();
        assert!(parse(&asks, &b, false).is_ok());
        asks[6] |= 1;
        assert_eq!(parse(&asks, &b, false), Err(FrameDrop::Source));
    }
}

#[test]
fn a_neighbour_message_with_a_broken_option_is_discarded() {
    let (a, b) = (host(1, None), host(2, None));
    let good = control::ask(&a, b.networks[1].address).unwrap();
    // The option is the last 8 bytes; its second byte is its length in units of 8 bytes.
    let (start, length) = (54, good.len() - 7);
    let with = |value: u8, at: usize| {
        let mut frame = good.clone();
        frame[at] = value;
        frame[start + 2..start + 4].fill(0);
        let message = &frame[start..];
        let sum = checksum::pseudo(&frame[22..54], 58, message.len() as u16);
        let sum = checksum::finish(checksum::add(sum, message));
        frame[start + 2..start + 4].copy_from_slice(&sum);
        parse(&frame, &b, false).err()
    };
    assert_eq!(with(1, length), None, "the checksum is right");
    assert_eq!(with(0, length), Some(FrameDrop::Truncated));
    assert_eq!(with(2, length), Some(FrameDrop::Truncated));
    assert_eq!(with(0x33, length + 1), Some(FrameDrop::Source), "a group");
}
