//! Many clients in one thread, each with a socket and one call in flight.

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use super::echo::{EchoClient, Sizes};
use super::link::{Single, SingleConnected, SingleSender};
use super::watch::Progress;
use crate::failure::Failure;
use crate::report::Latencies;

type Client<'s> = EchoClient<SingleConnected<'s>, SingleSender<'s>>;

/// The closed loops of all clients.
pub(super) struct PeersClient<'s> {
    clients: Vec<Client<'s>>,
    yields: bool,
}

impl<'s> PeersClient<'s> {
    /// If it `yields`, the thread gives its core to others after each round in which every client
    /// has looked for its answer.
    pub(super) fn new(sockets: &'s [UdpSocket], sizes: Sizes, yields: bool) -> Self {
        let client = |socket| {
            let (rx, tx) = (SingleConnected(Single::new(socket)), SingleSender(socket));
            EchoClient::new(rx, tx, sizes, 1, false)
        };
        Self { clients: sockets.iter().map(client).collect(), yields }
    }

    /// Keeps a call of each client in flight for `duration`, then waits for their ends. Returns
    /// the number of answered calls.
    pub(super) fn run(
        &mut self,
        duration: Duration,
        latencies: &mut Latencies,
    ) -> Result<u64, Failure> {
        let start = Instant::now();
        for client in &mut self.clients {
            client.begin(start)?;
        }
        let (end, mut progress) = (start + duration, Progress::new(start));
        let (mut waiting, mut done) = (self.clients.len(), 0);
        while waiting > 0 {
            let before = done;
            for client in &mut self.clients {
                let Some((count, now)) = client.turn(end, latencies)? else { continue };
                progress.note(now);
                done += count as u64;
                waiting -= if now < end { 0 } else { count };
            }
            if done == before {
                progress.check()?;
            }
            if self.yields {
                thread::yield_now();
            }
        }
        Ok(done)
    }
}
