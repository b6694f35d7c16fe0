//! Which packets the kernel gets as one message.

use super::MAX_DATAGRAM;
use super::route::{Name, UdpRoute};
use crate::mutants::mutant;
use crate::transport::{ChargeModel, MIN_DATAGRAM};
use crate::wire::MAX_PADDING;

/// Most zeros that a packet may add to a run, in bytes: those behind it, and those behind earlier
/// packets if it is longer. On one host, zeros cost 0.25 ns per byte at both ends together, and a
/// message of the kernel costs about a microsecond.
const MAX_ZEROS: usize = 4_096;

/// Packets that the kernel gets as one message: packets to one member of one peer, all of one
/// length except the last, which may be shorter.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) route: UdpRoute,
    pub(super) name: Name,
    /// The member that the packets name, if the peer is a group.
    pub(super) member: Option<u8>,
    /// Bytes of each packet except the last. If packets are padded: of the longest.
    pub(super) segment: u32,
    /// Bytes of all packets, at first without padding.
    pub(super) bytes: u32,
    pub(super) packets: u32,
    /// Number of pieces, and index of the first of them after [`sort`](super::pieces::Pieces::sort).
    pub(super) pieces: u32,
    pub(super) first: u32,
    padding: Padding,
}

/// Whether the packets of a run are padded to one length.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Padding {
    /// They are not, and must not be.
    Forbidden,
    /// They are not, but a second packet may change that. A third one cannot: equal packets side by
    /// side share a piece, so there is no place for padding between them.
    Allowed,
    /// Each packet has a piece of padding, which may be empty. The shortest packet has `shortest`
    /// bytes.
    Padded { shortest: u32 },
}

/// What decides which run a packet may join.
#[derive(Clone, Copy)]
pub(super) struct PacketShape {
    /// The member that the packet names, if the peer is a group.
    pub(super) member: Option<u8>,
    pub(super) len: usize,
    /// Whether it may be sent before packets that were staged earlier.
    pub(super) may_overtake: bool,
    /// Whether it may end a run of longer packets, which no packet can join then.
    pub(super) may_end_run: bool,
    /// Whether padding may follow it.
    pub(super) may_be_padded: bool,
}

impl PacketShape {
    /// The shape of a packet that must keep its place and its length.
    pub(super) const fn in_order(member: Option<u8>, len: usize) -> Self {
        Self { member, len, may_overtake: false, may_end_run: true, may_be_padded: false }
    }
}

/// The shortest and the longest packet of a run.
#[derive(Clone, Copy)]
pub(super) struct Lengths {
    shortest: u32,
    longest: u32,
}

impl Run {
    /// A run without packets, which a packet of this shape begins.
    pub(super) fn of(route: UdpRoute, name: Name, shape: PacketShape) -> Self {
        Self {
            route,
            name,
            member: shape.member,
            segment: shape.len as u32,
            bytes: 0,
            packets: 0,
            pieces: 0,
            first: 0,
            padding: if shape.may_be_padded { Padding::Allowed } else { Padding::Forbidden },
        }
    }

    /// Whether one more packet can join without padding. The last packet of a longer message, and a
    /// bundle, may be shorter than the others and end the run. Other messages are not worth that: the
    /// next one may have the length of the run again.
    #[inline]
    pub(super) fn admits(&self, shape: PacketShape, most: usize) -> bool {
        let (len, segment, bytes) = (shape.len, self.segment as usize, self.bytes as usize);
        let is_open = bytes == segment * self.packets as usize || mutant!(RunGoesOn);
        let fits = len == segment || shape.may_end_run && len < segment;
        is_open
            && fits
            && len > 0
            && !self.is_padded()
            && (self.packets as usize) < most
            && bytes + len <= MAX_DATAGRAM
    }

    /// Whether its packets are padded.
    #[inline]
    pub(super) fn is_padded(&self) -> bool {
        matches!(self.padding, Padding::Padded { .. })
    }

    /// The lengths of the run with one more packet, if all can be padded to one length.
    ///
    /// Padding does not change what the receiver's kernel may count for a packet: all lengths have
    /// the same charge. So senders that stay within a window also do so with padding.
    pub(super) fn padded_with(&self, shape: PacketShape, most: usize) -> Option<Lengths> {
        let (len, packets, segment) = (shape.len, self.packets as usize, self.segment as usize);
        let shortest = match self.padding {
            Padding::Padded { shortest } => shortest as usize,
            Padding::Allowed if packets == 1 => segment,
            _ => return None,
        };
        let (shortest, longest) = (len.min(shortest), len.max(segment));
        let charge = |len| ChargeModel::LinuxUdp.charge(len);
        let fits = shape.may_be_padded
            && packets < most
            && longest - shortest <= MAX_PADDING
            && (longest - segment) * packets + (longest - len) <= MAX_ZEROS
            && (charge(longest) == charge(shortest) || mutant!(PaddingChangesCharge))
            // Every path carries this length. A path that drops longer packets carries all packets
            // that it carries without padding.
            && (longest <= MIN_DATAGRAM || shortest > MIN_DATAGRAM)
            && longest * (packets + 1) <= MAX_DATAGRAM;
        fits.then_some(Lengths { shortest: shortest as u32, longest: longest as u32 })
    }

    /// Pads the packets of the run to one length.
    pub(super) fn pad(&mut self, lengths: Lengths) {
        // The first packet gets padding now, too.
        self.pieces += u32::from(!self.is_padded());
        self.padding = Padding::Padded { shortest: lengths.shortest };
        self.segment = lengths.longest;
    }

    /// Bytes of all packets, with padding.
    #[inline]
    pub(super) fn len(&self) -> usize {
        (if self.is_padded() { self.segment * self.packets } else { self.bytes }) as usize
    }
}
