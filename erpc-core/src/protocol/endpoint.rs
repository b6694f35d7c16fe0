//! The state that both roles of an endpoint share.

use std::collections::VecDeque;
use std::time::Duration;

use super::Notice;
use super::config::{EndpointConfig, Integrity};
use super::flushes::ForcedFlushes;
use super::ids::IdSource;
use super::proofs::Proofs;
use super::stats::ProtocolStats;
use super::wheel::Timers;
use crate::buf::Pool;
use crate::time::Instant;
use crate::transport::{Capabilities, ChargeModel};
use crate::wire::HEADER_LEN;
use crate::wire::checksum::TRAILER_LEN;
use crate::wire::control::Parameters;

/// The properties of the transport below that the protocol needs.
#[derive(Clone, Copy, Debug)]
pub struct Local {
    pub(super) max_datagram: u32,
    pub(super) charge: ChargeModel,
    pub(super) capacity: u32,
    pub(super) min_rto: Duration,
    pub(super) rtt_noise: Duration,
    pub(super) steer: u8,
    pub(super) integrity: bool,
}

impl From<Capabilities> for Local {
    fn from(capabilities: Capabilities) -> Self {
        Self {
            max_datagram: capabilities.max_datagram.min(u32::MAX as usize) as u32,
            charge: capabilities.charge,
            capacity: capabilities.rx_capacity,
            min_rto: capabilities.min_rto,
            rtt_noise: capabilities.rtt_noise,
            steer: capabilities.steer,
            integrity: capabilities.integrity,
        }
    }
}

/// What both roles share.
pub(super) struct EndpointState {
    pub(super) config: EndpointConfig,
    pub(super) local: Local,
    pub(super) pool: Pool,
    pub(super) stats: ProtocolStats,
    pub(super) timers: Timers,
    /// What arrived before this has been received, from any peer. Its answers may show more of a server: `Probing::read_until`.
    pub(super) read_until: Instant,
    pub(super) ids: IdSource,
    pub(super) notices: VecDeque<Notice>,
    pub(super) forced_flushes: ForcedFlushes,
    pub(super) proofs: Proofs,
}

/// What fits an Ethernet frame, in bytes: however little room there is, datagrams are not made smaller.
const COMMON_DATAGRAM: usize = 1_472;

/// What fits a jumbo frame: longer datagrams travel on few links but loopback.
const JUMBO_DATAGRAM: u32 = 8_972;

/// How many eager responses the room for replies should hold.
const EAGER_RESPONSES: u32 = 256;

impl EndpointState {
    /// How long a server does not answer further copies of a request, in nanoseconds: a quarter of the least time after
    /// which a client of this transport sends one.
    pub(super) fn repeat_pause(&self) -> u64 {
        self.min_rto().min(self.local.min_rto).as_nanos() as u64 / 4
    }

    pub(super) fn min_rto(&self) -> Duration {
        self.config.min_rto.unwrap_or(self.local.min_rto)
    }

    /// Whether this endpoint wants its sessions' packets to carry a trailer.
    pub(super) fn wants_trailer(&self) -> bool {
        self.config.integrity == Integrity::Always || !self.local.integrity
    }

    /// Bytes of the datagram that may come here now to prove the size of a path; 0 if there is no room for one.
    pub(super) fn proof(&mut self, now: Instant, datagram: u32) -> u32 {
        let datagram = datagram.min(JUMBO_DATAGRAM);
        let units = self.local.charge.charge(datagram as usize);
        if self.proofs.admits(now, units, self.local.capacity) { datagram } else { 0 }
    }

    /// The largest first packet of a response that is taken unasked, given the room for replies. It is
    /// worked out before the server has said whether there is a trailer: there is room for one.
    pub(super) fn eager(&self, room: u32) -> u32 {
        if let Some(eager) = self.config.eager {
            return eager;
        }
        let overhead = HEADER_LEN + TRAILER_LEN;
        let longest = overhead + self.local.max_datagram as usize;
        let datagram = self.local.charge.largest(room / EAGER_RESPONSES, longest);
        datagram.saturating_sub(overhead).max(crate::buf::MIN_PAYLOAD) as u32
    }

    /// The largest datagram that a session should use whose packets may take `room` of the receive
    /// queue. One packet is always let through, so it should not be larger than its share; and of two,
    /// one is on its way while the other is handled.
    pub(super) fn fitting_datagram(&self, room: u32) -> u32 {
        let least = self.local.charge.charge(COMMON_DATAGRAM);
        let units = (room / 2).max(least);
        self.local.charge.largest(units, self.local.max_datagram as usize) as u32
    }

    /// What this endpoint says of itself when a session opens.
    pub(super) fn parameters(&self, max_datagram: u32, eager: u32, window: u32) -> Parameters {
        Parameters {
            max_datagram,
            max_message: self.config.max_message,
            eager,
            window,
            credits: self.config.max_credits,
            charge_model: self.local.charge.to_u8(),
            integrity: self.wants_trailer(),
        }
    }
}
