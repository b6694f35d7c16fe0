//! Many clients in one thread, each with a socket of its own and one call in flight.

use std::thread;
use std::time::{Duration, Instant};

use erpc::raw::Rpc;
use erpc::{EndpointStats, Udp};

use crate::client::ClosedLoop;
use crate::failure::Failure;
use crate::idle::Idle;
use crate::load::Load;
use crate::report::Latencies;

/// Without an answer for this time, a call is lost.
const STALL_LIMIT: Duration = Duration::from_secs(15);

/// The closed loops of all clients.
pub(crate) struct PeersLoop {
    peers: Vec<(Rpc<Udp>, Load)>,
    idle: Idle,
}

impl PeersLoop {
    /// The clients take turns. With [`Idle::Yield`] the thread gives its core to others after each
    /// round of turns, so that a server on the same core finds the requests of all clients.
    /// Otherwise the thread spins.
    pub(crate) fn new(peers: Vec<(Rpc<Udp>, Load)>, idle: Idle) -> Self {
        Self { peers, idle }
    }

    fn done(&self) -> u64 {
        self.peers.iter().map(|(_, load)| load.done()).sum()
    }
}

impl ClosedLoop for PeersLoop {
    fn run(&mut self, duration: Duration) -> Result<(u64, Duration), Failure> {
        let (start, before) = (Instant::now(), self.done());
        for (rpc, load) in &mut self.peers {
            load.begin(rpc, 1)?;
        }
        let mut progress = (before, start);
        while self.peers.iter().any(|(_, load)| load.is_under_way()) {
            for (rpc, load) in &mut self.peers {
                rpc.run_once(load);
                load.check()?;
            }
            if self.idle == Idle::Yield {
                thread::yield_now();
            }
            let (now, done) = (Instant::now(), self.done());
            if now - start >= duration {
                self.peers.iter_mut().for_each(|(_, load)| load.end());
            }
            if done != progress.0 {
                progress = (done, now);
            } else if now - progress.1 > STALL_LIMIT {
                return Err(Failure::new("no call was answered for 15 s"));
            }
        }
        Ok((self.done() - before, start.elapsed()))
    }

    fn measure_latencies(&mut self) {
        self.peers.iter_mut().for_each(|(_, load)| load.measure_latencies());
    }

    fn take_latencies(&mut self) -> Latencies {
        let mut all = Latencies::new();
        self.peers.iter_mut().for_each(|(_, load)| all.merge(&load.take_latencies()));
        all
    }

    /// Only the retransmissions, of all clients.
    fn stats(&mut self) -> EndpointStats {
        let mut all = EndpointStats::default();
        for (rpc, _) in &mut self.peers {
            all.protocol.retransmissions += rpc.stats().protocol.retransmissions;
        }
        all
    }

    fn payload(&self) -> usize {
        self.peers.first().map_or(0, |(_, load)| load.payload())
    }
}
