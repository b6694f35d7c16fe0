//! The latency of calls that lose packets.

use std::ops::Range;
use std::time::Duration;

use erpc_core::wire::{ANNOUNCEMENT, Header, Kind};

use super::{Lab, Load, Samples, Setting, Spread};
use crate::SimRoute;

/// Packets per large message in this experiment.
pub const PACKETS: u32 = 5;
/// The clock advances in steps of this length until all calls are answered that were in progress
/// when a round's packets were lost.
const STEP: Duration = Duration::from_micros(10);
/// Time between two losses: from `REST` to almost twice as long. Meanwhile the client measures
/// round trips again. The time differs from round to round, so that losses do not synchronise with
/// timers.
const REST: Duration = Duration::from_micros(500);

/// Which packets are lost, once per round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// A request of one packet.
    Request,
    /// A response of one packet.
    Response,
    /// The last packet of a request of [`PACKETS`].
    LastOfRequest,
    /// The last packet of a response of [`PACKETS`].
    LastOfResponse,
    /// This number of consecutive requests of one packet each, as when a full queue drops them.
    Requests(u32),
}

impl Lost {
    /// Whether this packet is to be lost.
    #[must_use]
    pub fn matches(self, header: &Header) -> bool {
        let (kind, number) = (header.kind, header.packet.get());
        let is_response = matches!(kind, Kind::Response) && number != ANNOUNCEMENT;
        match self {
            Self::Request | Self::Requests(_) => kind == Kind::Request,
            Self::Response => is_response,
            Self::LastOfRequest => kind == Kind::Request && number + 1 == PACKETS,
            Self::LastOfResponse => is_response && number + 1 == PACKETS,
        }
    }

    /// The number of packets lost per round.
    #[must_use]
    pub fn count(self) -> u32 {
        if let Self::Requests(count) = self { count } else { 1 }
    }

    /// Bytes of a request and of a response, if a packet holds `payload` bytes.
    #[must_use]
    pub fn sizes(self, payload: u32) -> (u32, u32) {
        let large = payload * PACKETS - payload / 2;
        match self {
            Self::LastOfRequest => (large, 32),
            Self::LastOfResponse => (32, large),
            Self::Request | Self::Response | Self::Requests(_) => (32, 32),
        }
    }
}

/// Loses packets once per round, and waits until all calls have ended that were in progress at the
/// loss. The latency of the round's slowest call is one sample. The network is two hosts on a cable
/// of 100 Gb/s with a round trip of 5 us. The client keeps `outstanding` calls in flight.
///
/// # Panics
/// If a loss is not repaired within a second.
#[must_use]
pub fn run(lost: Lost, outstanding: usize, rounds: Range<u64>) -> Samples {
    let setting = Setting::pair(100, Duration::from_micros(5), rounds.start);
    let payload = setting.payload() as u32;
    // Turns take time, so that fewer calls without a loss are simulated.
    let mut lab = Lab::new(Setting { turn_nanos: (100, 200), meters: false, ..setting });
    let (server, client) = (SimRoute::new(0, 1), SimRoute::new(1, 1));
    let (request, response) = lost.sizes(payload);
    let load = Load {
        peers: vec![server; outstanding.div_ceil(erpc_core::protocol::DEFAULT_SLOTS)],
        spread: Spread::Even,
        request: request as usize,
        response,
        outstanding,
        start: Duration::ZERO,
    };
    lab.add(server, Load { peers: Vec::new(), outstanding: 0, ..load.clone() });
    let client = lab.add(client, load);
    lab.run_for(Duration::from_millis(100));
    let mut samples = Samples::default();
    for round in rounds {
        lab.run_for(REST + REST * (round % 8) as u32 / 8);
        lab.clear();
        let begun = lab.elapsed();
        lab.lose(lost.count(), move |header| lost.matches(header));
        let mut lost_by = None;
        while lost_by.is_none_or(|lost_by| lab.begun_first(client) <= lost_by) {
            lab.run_for(STEP);
            if lab.losses_to_come() == 0 {
                lost_by = lost_by.or(Some(lab.elapsed()));
            }
            assert!(lab.elapsed() < begun + Duration::from_secs(1), "{lost:?} is not repaired");
        }
        let slowest = lab.latencies([client]).micros(1.0).unwrap_or(0.0);
        samples.add((slowest * 1e3) as u64);
    }
    samples
}
