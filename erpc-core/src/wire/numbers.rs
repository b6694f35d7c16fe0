//! The numbers of the header. Each has its own type, so that they cannot be confused.

/// Names one side's end of a session, in packets sent *to* that side.
///
/// ```text
///  63            32 31    30            8 7          0
/// +----------------+----+----------------+------------+
/// |   generation   |role|  table index   |   steer    |
/// +----------------+----+----------------+------------+
/// ```
///
/// * `steer`: the endpoint of a listening group that owns the session. The kernel's classic BPF
///   program (or a NIC's flow rule) selects the endpoint by this byte, the first of the datagram. A
///   new client's first packet is the exception: any endpoint may receive it.
/// * `table index`: index into the receiver's session table. 23 bits: at most 8,388,608 sessions of
///   each role per endpoint.
/// * `role`: 0 when the receiver is the client of the session, 1 when it is the server.
/// * `generation`: 32 random bits, drawn when the table entry is allocated. An id with a stale or
///   guessed generation matches no session.
///
/// An id whose upper 56 bits are zero names an endpoint. Only the handshake uses such ids.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ConnectionId(u64);

impl ConnectionId {
    /// Largest table index.
    pub const MAX_INDEX: u32 = (1 << 23) - 1;

    /// Makes an id from its parts. `index` is truncated to 23 bits.
    #[must_use]
    #[inline]
    pub const fn new(steer: u8, server_role: bool, index: u32, generation: u32) -> Self {
        Self(
            (generation as u64) << 32
                | (server_role as u64) << 31
                | ((index & Self::MAX_INDEX) as u64) << 8
                | steer as u64,
        )
    }

    /// The id of endpoint `steer` of a group, not of a session: for handshake packets.
    #[must_use]
    pub const fn endpoint(steer: u8) -> Self {
        Self(steer as u64)
    }

    /// Whether this names an endpoint rather than a session.
    #[must_use]
    #[inline]
    pub const fn is_endpoint(self) -> bool {
        self.0 <= u8::MAX as u64
    }

    /// The id in wire form.
    #[must_use]
    #[inline]
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// The id read from a packet. Every value is accepted; most match no session.
    #[must_use]
    #[inline]
    pub const fn from_u64(raw: u64) -> Self {
        Self(raw)
    }

    /// The endpoint of a listening group that the packet is for.
    #[must_use]
    #[inline]
    pub const fn steer(self) -> u8 {
        self.0 as u8
    }

    /// Whether the receiver is the server of the session.
    #[must_use]
    #[inline]
    pub const fn is_server_role(self) -> bool {
        self.0 & (1 << 31) != 0
    }

    /// Index into the receiver's session table.
    #[must_use]
    #[inline]
    pub const fn index(self) -> u32 {
        (self.0 >> 8) as u32 & Self::MAX_INDEX
    }

    /// The random half, which detects stale and guessed ids.
    #[must_use]
    #[inline]
    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// A request's number within its session. Numbers are compared serially (RFC 1982), so they may
/// wrap.
///
/// A request's slot is its number modulo the number of slots. Successive requests of a slot differ
/// by the number of slots.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RequestNumber(u32);

impl RequestNumber {
    /// The number in wire form.
    #[must_use]
    #[inline]
    pub const fn to_u32(self) -> u32 {
        self.0
    }

    /// The number read from a packet.
    #[must_use]
    #[inline]
    pub const fn from_u32(raw: u32) -> Self {
        Self(raw)
    }

    /// `self + n`, wrapping.
    #[must_use]
    #[inline]
    pub const fn plus(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }

    /// How far `self` is ahead of `other`; negative if it is behind.
    #[must_use]
    #[inline]
    pub const fn ahead_of(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }
}

/// A packet's number within its message, counted from 0; 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PacketNumber(u32);

impl PacketNumber {
    /// The largest number that fits the header.
    pub const MAX: u32 = (1 << 24) - 1;

    /// The number `raw`, truncated to 24 bits.
    #[must_use]
    #[inline]
    pub const fn new(raw: u32) -> Self {
        Self(raw & Self::MAX)
    }

    /// The number as an integer, at most [`Self::MAX`].
    #[must_use]
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_returns_the_parts_it_was_made_from() {
        for (steer, server, index, generation) in
            [(0, false, 0, 0), (5, true, 0x7F_FFFF, 1), (255, false, 1, u32::MAX), (1, true, 2, 3)]
        {
            let id = ConnectionId::new(steer, server, index, generation);
            let parts = (id.steer(), id.is_server_role(), id.index(), id.generation());
            assert_eq!(parts, (steer, server, index, generation));
            assert_eq!(ConnectionId::from_u64(id.to_u64()), id);
        }
    }

    #[test]
    fn request_numbers_and_packet_numbers_wrap() {
        let last = RequestNumber::from_u32(u32::MAX);
        assert_eq!(last.plus(8).to_u32(), 7);
        assert_eq!(last.plus(8).ahead_of(last), 8);
        assert_eq!(last.ahead_of(last.plus(8)), -8);
        assert_eq!(PacketNumber::new(PacketNumber::MAX).get(), 0xFF_FFFF);
        assert_eq!(PacketNumber::new(PacketNumber::MAX + 2).get(), 1);
    }
}
