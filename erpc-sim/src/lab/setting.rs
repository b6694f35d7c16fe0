//! What a lab is like.

use std::time::Duration;

use erpc_core::protocol::{CongestionControl, EndpointConfig};
use erpc_core::transport::{Link as KnownLink, MIN_DATAGRAM};
use erpc_core::wire::HEADER_LEN;

use crate::LoopPauses;
use crate::net::{Link, SwitchConfig, Topology, WIRE_OVERHEAD_BYTES};
use crate::transport::Nic;

/// Bytes of a datagram: the smallest that sessions take, which has 1,028 bytes of a message. The thesis' packets have
/// 1,024.
const DATAGRAM: usize = MIN_DATAGRAM;
/// Packets that a receive queue holds: what all clients of an incast may have on their way.
const RX_PACKETS: u32 = 1 << 13;
/// As hardware whose endpoints spin: nobody is away for longer unless stopped.
const MIN_RTO: Duration = Duration::from_micros(50);
/// A turn of a loop takes some time, or a loop might turn for ever at one point in time.
const TURN_NANOS: u64 = 20;

/// The network, the endpoints' interfaces and settings, and chance.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Who is connected to whom.
    pub topology: Topology,
    /// Every endpoint's interface.
    pub nic: Nic,
    /// Every endpoint's settings.
    pub config: EndpointConfig,
    /// The part of the packets that is lost on arrival, each by its own chance, 0 to 1.
    pub loss: f64,
    /// What a turn of a loop takes, and what a packet adds, in nanoseconds. 20 and 0 by default, so that it is the network that is
    /// measured.
    pub turn_nanos: (u64, u64),
    /// How late a sleeping loop finds that a packet has come: at most so many nanoseconds, once in fifty times, and otherwise a
    /// tenth of that at most. 0 by default, as for loops that spin.
    pub wake_nanos: u64,
    /// How every endpoint's loop is away; `None` if it never is.
    pub loop_pauses: Option<LoopPauses>,
    /// Whether there is a [`Meter`](super::Meter) at the cables, which remembers every session.
    pub meters: bool,
    /// Everything random comes from it.
    pub seed: u64,
}

impl Setting {
    /// Two hosts and a cable.
    #[must_use]
    pub fn pair(gbps: u64, base_rtt: Duration, seed: u64) -> Self {
        let link = |delay_nanos| Link { rate_mbps: gbps * 1_000, delay_nanos };
        let delay = delay_of(base_rtt, gbps * 1_000, DATAGRAM, 1);
        Self::new(Topology::pair(link(delay)), seed)
    }

    /// So many hosts around a switch with 12 MB of buffer, which marks above 100 kB.
    #[must_use]
    pub fn star(hosts: u32, gbps: u64, base_rtt: Duration, seed: u64) -> Self {
        let link = Link {
            rate_mbps: gbps * 1_000,
            delay_nanos: delay_of(base_rtt, gbps * 1_000, DATAGRAM, 2),
        };
        Self::new(Topology::star(hosts, link, SwitchConfig::default()), seed)
    }

    /// A host, the first one, and around the same switch others, to each of which a round trip takes so long. Datagrams have up
    /// to `datagram` bytes.
    #[must_use]
    pub fn star_of(base_rtts: &[Duration], mbps: u64, datagram: usize, seed: u64) -> Self {
        let shortest = base_rtts.iter().copied().min().unwrap_or_default();
        let first = delay_of(shortest, mbps, datagram, 2);
        // What is left of the way for the host's own cable.
        let delays = base_rtts.iter().map(|rtt| 2 * delay_of(*rtt, mbps, datagram, 2) - first);
        let links = std::iter::once(first).chain(delays);
        let links = links.map(|delay_nanos| Link { rate_mbps: mbps, delay_nanos });
        let mut setting = Self::new(Topology::star_of(links, SwitchConfig::default()), seed);
        setting.nic.max_datagram = datagram;
        setting.nic.inline = datagram;
        setting
    }

    /// Any network.
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

    /// With this controller at all endpoints.
    #[must_use]
    pub fn control(mut self, control: CongestionControl) -> Self {
        self.config = self.config.congestion(control);
        self
    }

    /// With so many credits per session.
    #[must_use]
    pub fn credits(mut self, packets: u16) -> Self {
        self.config = self.config.credits(packets);
        self
    }

    /// Bytes of a message in a packet.
    #[must_use]
    pub fn payload(&self) -> usize {
        self.nic.max_datagram - HEADER_LEN
    }

    /// What a packet of the largest size takes of a receive queue, in charge units.
    #[must_use]
    pub fn datagram_charge(&self) -> u32 {
        self.nic.charge.charge(self.nic.max_datagram)
    }

    /// The part of a cable that packets of the largest size leave for messages.
    #[must_use]
    pub fn payload_share(&self) -> f64 {
        let datagram = self.nic.max_datagram;
        (datagram - HEADER_LEN) as f64 / (datagram as u64 + WIRE_OVERHEAD_BYTES) as f64
    }
}

/// The length of each cable, in nanoseconds, for a packet of the largest size and its answer to take `base_rtt` over
/// `cables` of them and back.
fn delay_of(base_rtt: Duration, mbps: u64, datagram: usize, cables: u64) -> u64 {
    let bytes = (datagram + HEADER_LEN) as u64 + 2 * WIRE_OVERHEAD_BYTES;
    let sending = cables * bytes * 8_000 / mbps;
    (base_rtt.as_nanos() as u64).saturating_sub(sending) / (2 * cables)
}
