//! The settings of a lab.

use std::time::Duration;

use erpc_core::protocol::{CongestionControl, EndpointConfig};
use erpc_core::transport::{Link as KnownLink, MIN_DATAGRAM};
use erpc_core::wire::HEADER_LEN;

use crate::LoopPauses;
use crate::net::{Link, SwitchConfig, Topology, WIRE_OVERHEAD_BYTES};
use crate::transport::Nic;

/// Bytes of a datagram: the smallest size that sessions accept, with 1,028 bytes of payload. The
/// thesis' packets have 1,024 bytes.
const DATAGRAM: usize = MIN_DATAGRAM;
/// Capacity of a receive queue, in packets: enough for all packets that the clients of an incast
/// may have in flight.
const RX_PACKETS: u32 = 1 << 13;
/// Floor of the RTO: that of hardware whose endpoints spin. It is long enough, because no loop here
/// pauses for longer, unless an experiment stalls the loop.
const MIN_RTO: Duration = Duration::from_micros(50);
/// Time of a turn of a loop, in ns. Not 0, because a loop could otherwise turn forever at one point
/// in time.
const TURN_NANOS: u64 = 20;

/// Network, interfaces, endpoint settings and randomness of an experiment.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Hosts, switches and their cables.
    pub topology: Topology,
    /// Every endpoint's interface.
    pub nic: Nic,
    /// Every endpoint's settings.
    pub config: EndpointConfig,
    /// The fraction of packets that is lost on arrival, independently at random, 0 to 1.
    pub loss: f64,
    /// Time of a turn of a loop, and of each packet received in it, in ns. By default 20 and 0, so
    /// that the network dominates.
    pub turn_nanos: (u64, u64),
    /// The longest delay until a sleeping loop notices a packet, in ns. Once in fifty times the
    /// delay is up to this value, otherwise up to a tenth of it. By default 0, as for loops that
    /// spin.
    pub wake_nanos: u64,
    /// Pauses of every endpoint's loop; `None` for no pauses.
    pub loop_pauses: Option<LoopPauses>,
    /// Whether a [`Meter`](super::Meter) observes the cables. A meter keeps state for every
    /// session, so experiments with many sessions do without it.
    pub meters: bool,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Setting {
    /// Two hosts connected by a cable.
    #[must_use]
    pub fn pair(gbps: u64, base_rtt: Duration, seed: u64) -> Self {
        let link = |delay_nanos| Link { rate_mbps: gbps * 1_000, delay_nanos };
        let delay = delay_of(base_rtt, gbps * 1_000, DATAGRAM, 1);
        Self::new(Topology::pair(link(delay)), seed)
    }

    /// `hosts` hosts around a switch with 12 MB of buffer that marks packets above 100 kB of queue.
    #[must_use]
    pub fn star(hosts: u32, gbps: u64, base_rtt: Duration, seed: u64) -> Self {
        let link = Link {
            rate_mbps: gbps * 1_000,
            delay_nanos: delay_of(base_rtt, gbps * 1_000, DATAGRAM, 2),
        };
        Self::new(Topology::star(hosts, link, SwitchConfig::default()), seed)
    }

    /// A star with a first host, and one further host per element of `base_rtts`. The element is
    /// the round trip from the further host to the first host. Datagrams have up to `datagram`
    /// bytes.
    #[must_use]
    pub fn star_of(base_rtts: &[Duration], mbps: u64, datagram: usize, seed: u64) -> Self {
        let shortest = base_rtts.iter().copied().min().unwrap_or_default();
        let first = delay_of(shortest, mbps, datagram, 2);
        // A path has two cables. The first host's cable has the delay `first`, and the other host's
        // cable has the rest of the path's delay.
        let delays = base_rtts.iter().map(|rtt| 2 * delay_of(*rtt, mbps, datagram, 2) - first);
        let links = std::iter::once(first).chain(delays);
        let links = links.map(|delay_nanos| Link { rate_mbps: mbps, delay_nanos });
        let mut setting = Self::new(Topology::star_of(links, SwitchConfig::default()), seed);
        setting.nic.max_datagram = datagram;
        setting.nic.inline = datagram;
        setting
    }

    /// The default settings on any network.
    #[must_use]
    pub fn new(topology: Topology, seed: u64) -> Self {
        let nic = Nic {
            min_rto: MIN_RTO,
            link: KnownLink::Rate(topology.host_rate(0)),
            ..Nic::ring(DATAGRAM, RX_PACKETS)
        };
        let config = EndpointConfig::new().memory_limit(4 << 30);
        Self {
            topology,
            nic,
            config,
            loss: 0.0,
            turn_nanos: (TURN_NANOS, 0),
            wake_nanos: 0,
            loop_pauses: None,
            meters: true,
            seed,
        }
    }

    /// Sets the congestion control of all endpoints.
    #[must_use]
    pub fn control(mut self, control: CongestionControl) -> Self {
        self.config = self.config.congestion(control);
        self
    }

    /// Sets the credits per session, in packets.
    #[must_use]
    pub fn credits(mut self, packets: u16) -> Self {
        self.config = self.config.credits(packets);
        self
    }

    /// Payload of a packet of the largest size, in bytes.
    #[must_use]
    pub fn payload(&self) -> usize {
        self.nic.max_datagram - HEADER_LEN
    }

    /// What a packet of the largest size takes of a receive queue, in units of the queue.
    #[must_use]
    pub fn datagram_charge(&self) -> u32 {
        self.nic.charge.charge(self.nic.max_datagram)
    }

    /// The fraction of a cable's rate that is available for messages in packets of the largest
    /// size.
    #[must_use]
    pub fn payload_share(&self) -> f64 {
        let datagram = self.nic.max_datagram;
        (datagram - HEADER_LEN) as f64 / (datagram as u64 + WIRE_OVERHEAD_BYTES) as f64
    }
}

/// The delay of each cable, in ns, so that a packet of the largest size and its answer take
/// `base_rtt` over `cables` cables and back.
fn delay_of(base_rtt: Duration, mbps: u64, datagram: usize, cables: u64) -> u64 {
    let bytes = (datagram + HEADER_LEN) as u64 + 2 * WIRE_OVERHEAD_BYTES;
    let sending = cables * bytes * 8_000 / mbps;
    (base_rtt.as_nanos() as u64).saturating_sub(sending) / (2 * cables)
}
