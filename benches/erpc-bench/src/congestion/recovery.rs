//! `recovery`: the latency of calls that lose a packet, in simulation and over UDP.
//!
//! Over UDP a relay between client and server forwards datagrams and drops the chosen ones. One
//! thread runs client, relay and server. If other processes use the thread's core, this shows in
//! the 99th percentile, and hardly in the median.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use clap::{Args, ValueEnum};
use erpc::raw::Rpc;
use erpc::{EndpointConfig, Transport, Udp, UdpConfig};
use erpc_core::wire::{HEADER_LEN, Header};
use erpc_sim::lab::Samples;
use erpc_sim::lab::recovery::{Lost, run as simulate};

use super::pair::{answerer, server};
use crate::failure::Failure;
use crate::load::Load;
use crate::machine;
use crate::report::Line;

/// Payload of a datagram over loopback, in bytes.
const PAYLOAD: u32 = 1_456;
/// Calls are made for this long with a loss, and then for this long without one.
const ROUND: Duration = Duration::from_millis(1);
/// At least this many packets of the chosen kind pass before one is dropped.
const PASSES: u64 = 3;
const WARMUP: Duration = Duration::from_millis(300);

/// Where packets are lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Network {
    /// Simulated: 100 Gb/s, round trip 5 us, RTO 50 us above the round trip
    Sim,
    /// The kernel's UDP over loopback, RTO 1 ms above the round trip
    Udp,
}

#[derive(Args)]
pub(crate) struct RecoveryArgs {
    /// Where packets are lost
    #[arg(long, value_enum, default_value = "sim")]
    net: Network,
    /// Rounds per printed line. In each round, the chosen packets are lost once
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds: u64,
    /// Core to run on
    #[arg(long, default_value_t = 0)]
    core: usize,
}

/// Runs the benchmark: one line per kind of loss and number of calls in progress.
pub(crate) fn recovery(args: &RecoveryArgs) -> Result<(), Failure> {
    machine::pin(args.core)?;
    let kinds = [
        ("request", Lost::Request),
        ("response", Lost::Response),
        ("last_of_request", Lost::LastOfRequest),
        ("last_of_response", Lost::LastOfResponse),
        ("30_requests", Lost::Requests(30)),
    ];
    for (name, lost) in kinds {
        for outstanding in [1, 8, 64] {
            if (outstanding as u32) < lost.count() {
                continue;
            }
            let mut samples = match args.net {
                Network::Sim => simulate(lost, outstanding, 0..args.rounds),
                Network::Udp => over_udp(lost, outstanding, args.rounds)?,
            };
            Line::new()
                .text("net", if args.net == Network::Sim { "sim" } else { "udp" })
                .text("lost", name)
                .int("outstanding", outstanding as u64)
                .int("rounds", samples.len() as u64)
                .number("p50_us", samples.micros(0.5))
                .number("p99_us", samples.micros(0.99))
                .print();
        }
    }
    Ok(())
}

fn over_udp(lost: Lost, outstanding: usize, rounds: u64) -> Result<Samples, Failure> {
    let bind = || {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let config = UdpConfig::new().address(address).max_datagram(PAYLOAD as usize + HEADER_LEN);
        Udp::bind(&config).map_err(Failure::of("no socket"))
    };
    let (client, serving) = (bind()?, bind()?);
    let mut relay =
        Relay::new(serving.local_route().socket_addr()).map_err(Failure::of("no relay"))?;
    let (mut answerer, mut server) = (answerer()?, server(serving, EndpointConfig::new())?);
    let mut rpc = Rpc::new(client, EndpointConfig::new()).map_err(Failure::of("no endpoint"))?;
    let (request, response) = lost.sizes(PAYLOAD);
    let mut load = Load::new(request as usize, response as usize)?;
    let mut others = |relay: &mut Relay| {
        relay.pump();
        server.run_once(&mut answerer);
        relay.pump();
    };
    let front = relay.front.into();
    load.connect(&mut rpc, front, outstanding.div_ceil(8), || others(&mut relay))?;
    load.run(&mut rpc, outstanding, WARMUP, || others(&mut relay))?;
    let mut samples = Samples::default();
    for round in 0..rounds {
        relay.lost = lost;
        (relay.pass, relay.lose) = (PASSES + round % 8, lost.count());
        load.measure_latencies();
        load.run(&mut rpc, outstanding, ROUND, || others(&mut relay))?;
        if relay.lose > 0 {
            return Err(Failure::new("too few packets were lost within a round"));
        }
        samples.add((load.take_latencies().micros(1.0).unwrap_or(0.0) * 1e3) as u64);
        load.run(&mut rpc, outstanding, ROUND, || others(&mut relay))?;
    }
    Ok(samples)
}

/// A relay between a client and a server, with the server's port on another address.
struct Relay {
    /// The address that the client sends to.
    front: SocketAddr,
    towards_client: UdpSocket,
    towards_server: UdpSocket,
    client: Option<SocketAddr>,
    /// The packets to drop: the next `pass` matching packets pass, then `lose` are dropped.
    lost: Lost,
    pass: u64,
    lose: u32,
}

impl Relay {
    fn new(server: SocketAddr) -> std::io::Result<Self> {
        // The relay has the server's port, at another address: in the handshake, the server names
        // the port to which the client sends from then on, but no address.
        let front = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), server.port()));
        let towards_client = UdpSocket::bind(front)?;
        let towards_server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        towards_server.connect(server)?;
        for socket in [&towards_client, &towards_server] {
            socket.set_nonblocking(true)?;
        }
        let client = None;
        Ok(Self {
            front,
            towards_client,
            towards_server,
            client,
            lost: Lost::Request,
            pass: 0,
            lose: 0,
        })
    }

    /// Forwards all waiting datagrams. A datagram that a socket does not accept is lost, as in any
    /// network.
    fn pump(&mut self) {
        let mut packet = [0; 2_048];
        while let Ok((len, from)) = self.towards_client.recv_from(&mut packet) {
            self.client = Some(from);
            if !self.loses(&packet[..len]) {
                let _ = self.towards_server.send(&packet[..len]);
            }
        }
        while let Ok(len) = self.towards_server.recv(&mut packet) {
            let Some(client) = self.client else { continue };
            if !self.loses(&packet[..len]) {
                let _ = self.towards_client.send_to(&packet[..len], client);
            }
        }
    }

    fn loses(&mut self, packet: &[u8]) -> bool {
        if self.lose == 0 || !Header::parse(packet).is_ok_and(|header| self.lost.matches(&header)) {
            return false;
        }
        if self.pass > 0 {
            self.pass -= 1;
            return false;
        }
        self.lose -= 1;
        true
    }
}
