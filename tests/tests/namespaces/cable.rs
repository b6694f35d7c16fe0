//! Properties of the cable, and marks of packets on it, as the transport reports them.

use std::env;
use std::fs;
use std::net::UdpSocket;
use std::time::Instant;

use erpc::Transport;
use erpc::Udp;
use erpc::UdpConfig;
use erpc::transport::{Link, RxQueue};
use erpc_test_tools::limit::{secs, within};
use erpc_test_tools::netns::skip;
use erpc_test_tools::process::end_with_input;
use erpc_tests::lab::loopback;
use rustix::net::sockopt::set_ip_tos;

use crate::net::{CABLE, CLIENT, CLIENT_TOO, Net, ROLE, SERVER, say};

/// Runs `server` and `client`, each in its own namespace, and asserts that both end without a
/// panic.
fn play(test: &str, server: fn(), client: fn()) {
    let role = |play: fn()| {
        end_with_input();
        within(secs(20), play);
        say("DONE");
    };
    match env::var(ROLE).as_deref() {
        Ok("server") => role(server),
        Ok("client") => role(client),
        Ok(role) => panic!("unknown role: {role}"),
        Err(_) => match Net::new() {
            Err(reason) => skip(test, &reason),
            Ok(net) => {
                let server = Net::start(&net.server, "server", test);
                while server.line() != "LISTENING" {}
                let client = Net::start(&net.client, "client", test);
                for process in [client, server] {
                    while process.line() != "DONE" {}
                    process.finish();
                }
            }
        },
    }
}

fn bind(config: UdpConfig) -> Udp {
    Udp::bind(&config).expect("the socket opens")
}

#[test]
fn a_path_knows_the_speed_of_its_interface() {
    let client = || {
        let speed = fs::read_to_string(format!("/sys/class/net/{CABLE}/speed"));
        let speed = speed.expect("the interface has a speed");
        let megabits: u64 = speed.trim().parse().expect("the speed is a number");
        // Whether or not the socket is bound to an address, the route selects the interface.
        for mut socket in [bind(loopback().address(CLIENT)), bind(UdpConfig::new())] {
            let path = socket.path(&SERVER.into());
            assert_eq!(path.link, Link::Rate(megabits * 125_000));
            assert_eq!(path.datagram, 1_472, "the datagram of an Ethernet frame");
            for own in [CLIENT, CLIENT_TOO] {
                let path = socket.path(&own.into());
                assert_eq!(
                    path.link,
                    Link::Local,
                    "{own} is this host, so the path does not include the cable"
                );
            }
            assert_eq!(socket.path(&SERVER.into()), path);
        }
    };
    play("cable::a_path_knows_the_speed_of_its_interface", || say("LISTENING"), client);
}

/// Number of packets sent together: few enough for any receive buffer.
const PACKETS: usize = 200;

/// Whether packet `number` is sent with the mark of ECN, as if a switch had set it.
fn is_marked(number: usize) -> bool {
    (number / 7).is_multiple_of(2)
}

#[test]
fn marks_cross_the_cable() {
    let server = || {
        let mut socket = bind(loopback().address(SERVER));
        assert_eq!(socket.enable_ecn(), Ok(()));
        say("LISTENING");
        let (mut arrived, start) = (0, Instant::now());
        while arrived < PACKETS {
            assert!(start.elapsed() < secs(10), "{arrived} packets arrived");
            let (rx, _) = socket.split();
            for at in 0..rx.burst() {
                let packet = rx.packet(at);
                let bytes: &[u8; 4] = packet.bytes.first_chunk().expect("the packet has a number");
                let number = u32::from_le_bytes(*bytes);
                assert_eq!(packet.marked, is_marked(number as usize), "packet {number}");
                arrived += 1;
            }
        }
    };
    let client = || {
        let socket = UdpSocket::bind(CLIENT).expect("the socket opens");
        for number in 0..PACKETS {
            let class = if is_marked(number) { 0b11 } else { 0b10 };
            set_ip_tos(&socket, class).expect("the socket sets the traffic class");
            let bytes = (number as u32).to_le_bytes();
            socket.send_to(&bytes, SERVER).expect("the packet is sent");
        }
    };
    play("cable::marks_cross_the_cable", server, client);
}
