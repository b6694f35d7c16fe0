//! The numbers of the header, each its own type so that they cannot be mixed.

/// Names one side's end of a session, in packets sent *to* that side.
///
/// ```text
///  63            32 31    30            8 7          0
/// +----------------+----+----------------+------------+
/// |   generation   |role|  table index   |   steer    |
/// +----------------+----+----------------+------------+
/// ```
///
/// * `steer`: which endpoint of a listening group owns the session; the kernel's classic BPF program
///   (or a NIC's flow rule) reads this one byte, the first of the datagram.
/// * `table index`: 23 bits, at most 8,388,608 sessions of each role per endpoint.
/// * `role`: 0 when the receiver is the client of the session, 1 when it is the server.
/// * `generation`: 32 random bits drawn when the table entry was taken. An id with a stale or guessed
///   generation names nothing.
///
/// The all-zero id names the endpoint itself and is used by the handshake only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ConnectionId(u64);

impl ConnectionId {
    /// Sessions of one role that an endpoint can number.
    pub const MAX_INDEX: u32 = (1 << 23) - 1;

    /// An id from its parts. `index` is cut to 23 bits.
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

    /// The id that names endpoint `steer` of a group rather than a session: for handshake packets.
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

    /// The id as it travels.
    #[must_use]
    #[inline]
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// The id read from a packet. Every value is an id; most name nothing.
    #[must_use]
    #[inline]
    pub const fn from_u64(raw: u64) -> Self {
        Self(raw)
    }

    /// Which endpoint of a listening group the packet is for.
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

    /// The random half.
    #[must_use]
    #[inline]
    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// A request's number within its session, compared serially (RFC 1982) so that it may wrap.
///
/// The slot of a request is its number modulo the window; numbers in one slot grow by the window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RequestNumber(u32);

impl RequestNumber {
    /// The number as it travels.
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

    /// How far `self` is ahead of `other`, negative when behind.
    #[must_use]
    #[inline]
    pub const fn ahead_of(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }
}

/// A packet's number within its message, from 0; 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PacketNumber(u32);

impl PacketNumber {
    /// The largest number that fits the header.
    pub const MAX: u32 = (1 << 24) - 1;

    /// The number `raw`, cut to 24 bits.
    #[must_use]
    #[inline]
    pub const fn new(raw: u32) -> Self {
        Self(raw & Self::MAX)
    }

    /// The number.
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
    fn an_id_gives_back_what_it_was_made_of() {
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
    fn numbers_wrap() {
        let last = RequestNumber::from_u32(u32::MAX);
        assert_eq!(last.plus(8).to_u32(), 7);
        assert_eq!(last.plus(8).ahead_of(last), 8);
        assert_eq!(last.ahead_of(last.plus(8)), -8);
        assert_eq!(PacketNumber::new(PacketNumber::MAX).get(), 0xFF_FFFF);
        assert_eq!(PacketNumber::new(PacketNumber::MAX + 2).get(), 1);
    }
}
