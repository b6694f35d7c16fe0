//! Ethernet frames with UDP datagrams, for transports that have no kernel below them. No input or
//! output, no clock, no unsafe code.
//!
//! ```text
//! +----------+--------+-------------+-----+-----------+
//! | Ethernet | 802.1Q | IPv4 / IPv6 | UDP | datagram  |
//! | 14 bytes |   4    |   20 / 40   |  8  |           |
//! +----------+--------+-------------+-----+-----------+
//! ```
//!
//! [`parse`] reads a received frame and never panics. [`Header`] is the part of a sent frame in
//! front of the datagram: all of it but lengths and checksums is constant per peer.
//! [`Neighbours`] maps addresses to MAC addresses. [`control`] makes the frames of ARP, NDP and
//! ICMP echo.

pub mod checksum;
pub mod control;
mod header;
mod interface;
mod neighbours;
mod parse;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

pub use header::{Header, MAX_HEADER};
pub use interface::{Interface, Network};
pub use neighbours::{MAX_NEIGHBOURS, MAX_WAITING, Neighbours, Resolution};
pub use parse::{Datagram, Echo, Packet, Resolve, parse};

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Every station.
    pub const BROADCAST: Self = Self([0xff; 6]);
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A text is no MAC address; write six bytes in hexadecimal, as `02:00:00:00:00:01`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAMac;

impl fmt::Display for NotAMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a MAC address is six bytes in hexadecimal, as 02:00:00:00:00:01")
    }
}

impl std::error::Error for NotAMac {}

impl FromStr for Mac {
    type Err = NotAMac;

    fn from_str(text: &str) -> Result<Self, NotAMac> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2).ok_or(NotAMac)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| NotAMac)?;
        }
        if parts.next().is_some() { Err(NotAMac) } else { Ok(Self(bytes)) }
    }
}

/// Why a received frame was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum FrameDrop {
    /// Shorter than its headers say, or its lengths contradict each other.
    Truncated,
    /// A wrong checksum of IP, UDP or ICMP.
    Checksum,
    /// A fragment. Endpoints send no datagram that is larger than the path's MTU.
    Fragment,
    /// More than one segment, or longer than the receive buffers.
    Oversized,
    /// A protocol that is not for this transport: other than ARP, NDP, ICMP echo and UDP.
    Protocol,
    /// An IPv4 header with options, or an IPv6 header with extensions.
    Options,
    /// For another host or another VLAN.
    NotOurs,
    /// For a UDP port that no endpoint of this port has.
    NoEndpoint,
    /// A source that no packet may have: a MAC address of a group, an IP address that is unspecified,
    /// multicast or IPv4-mapped, the receiver's own address in ARP and NDP, or port 0.
    Source,
}

impl FrameDrop {
    /// All reasons.
    pub const ALL: [Self; 9] = [
        Self::Truncated,
        Self::Checksum,
        Self::Fragment,
        Self::Oversized,
        Self::Protocol,
        Self::Options,
        Self::NotOurs,
        Self::NoEndpoint,
        Self::Source,
    ];
}

/// Dropped frames by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameDrops([u64; FrameDrop::ALL.len()]);

impl FrameDrops {
    /// Counts a frame.
    pub fn count(&mut self, reason: FrameDrop) {
        self.0[reason as usize] += 1;
    }

    /// The number of frames dropped for `reason`.
    #[must_use]
    pub fn of(&self, reason: FrameDrop) -> u64 {
        self.0[reason as usize]
    }

    /// The number of dropped frames.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}
