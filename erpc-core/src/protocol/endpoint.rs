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

/// The properties of the transport that the protocol needs.
#[derive(Clone, Copy, Debug)]
pub struct Local {
    pub(super) max_datagram: u32,
    pub(super) charge: ChargeModel,
    pub(super) capacity: u32,
    pub(super) min_rto: Duration,
    pub(super) rtt_noise: Duration,
    pub(super) steer: u8,
    pub(super) integrity: bool,
    pub(super) bundles: bool,
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
            bundles: capabilities.bundles,
        }
    }
}

/// The state that client and server role share.
pub(super) struct EndpointState {
    pub(super) config: EndpointConfig,
    pub(super) local: Local,
    pub(super) pool: Pool,
    pub(super) stats: ProtocolStats,
    pub(super) timers: Timers,
    /// Every packet that arrived before this time, from any peer, has been received. A server's
    /// answers may prove a later time for its packets: `Probing::read_until`.
    pub(super) read_until: Instant,
    pub(super) ids: IdSource,
    pub(super) notices: VecDeque<Notice>,
    pub(super) forced_flushes: ForcedFlushes,
    pub(super) proofs: Proofs,
}

/// The largest datagram in an Ethernet frame, in bytes. Lack of room in a receive queue never makes
/// a session use smaller datagrams than this.
const COMMON_DATAGRAM: usize = 1_472;

/// The largest datagram in a jumbo frame, in bytes. Few links except loopback carry longer ones.
const JUMBO_DATAGRAM: u32 = 8_972;

/// Number of eager responses that the room for replies should hold.
const EAGER_RESPONSES: u32 = 256;

impl EndpointState {
    /// After an answer to a repeated request, a server ignores further copies for this time, in
    /// nanoseconds. It is a quarter of the minimum time after which a client of this transport
    /// sends a copy.
    pub(super) fn repeat_pause(&self) -> u64 {
        self.min_rto().min(self.local.min_rto).as_nanos() as u64 / 4
    }

    /// The configured or the transport's minimum margin of the RTO above the round trip.
    pub(super) fn min_rto(&self) -> Duration {
        self.config.min_rto.unwrap_or(self.local.min_rto)
    }

    /// Whether this endpoint wants its sessions' packets to carry a trailer.
    pub(super) fn wants_trailer(&self) -> bool {
        self.config.integrity == Integrity::Always || !self.local.integrity
    }

    /// Reserves room for a datagram that proves the size of a path to this endpoint. Returns the
    /// length of the proof in bytes: `datagram`, capped at [`JUMBO_DATAGRAM`], or 0 if there is no
    /// room.
    pub(super) fn proof(&mut self, now: Instant, datagram: u32) -> u32 {
        let datagram = datagram.min(JUMBO_DATAGRAM);
        let units = self.local.charge.charge(datagram as usize);
        if self.proofs.admits(now, units, self.local.capacity) { datagram } else { 0 }
    }

    /// The largest payload of a first response packet that a server may send unasked, in bytes,
    /// given the units of room for replies. A configured value replaces the computed one. The
    /// client does not know yet whether packets will have a trailer, so the computed value leaves
    /// room for one.
    pub(super) fn eager(&self, room: u32) -> u32 {
        if let Some(eager) = self.config.eager {
            return eager;
        }
        let overhead = HEADER_LEN + TRAILER_LEN;
        let longest = overhead + self.local.max_datagram as usize;
        let datagram = self.local.charge.largest(room / EAGER_RESPONSES, longest);
        datagram.saturating_sub(overhead).max(crate::buf::MIN_PAYLOAD) as u32
    }

    /// The largest datagram for a session that may use `room` units of the receive queue, in bytes.
    /// The datagram takes at most half of the room, so that one packet can be in flight while
    /// another is handled. For lack of room alone, it is not smaller than [`COMMON_DATAGRAM`].
    pub(super) fn fitting_datagram(&self, room: u32) -> u32 {
        let least = self.local.charge.charge(COMMON_DATAGRAM);
        let units = (room / 2).max(least);
        self.local.charge.largest(units, self.local.max_datagram as usize) as u32
    }

    /// The parameters that this endpoint sends in the handshake.
    pub(super) fn parameters(&self, max_datagram: u32, eager: u32, window: u32) -> Parameters {
        Parameters {
            max_datagram,
            max_message: self.config.max_message,
            eager,
            window,
            credits: self.config.max_credits,
            charge_model: self.local.charge.to_u8(),
            integrity: self.wants_trailer(),
            bundles: self.local.bundles,
            slots: self.config.slots,
        }
    }
}
