//! Reply info, which every reply of a server carries: the server's processing time, its receive
//! window, and whether a switch on the path to the server is congested.

/// The `aux` word of replies: the server's time in the upper 15 bits, then 1 bit that echoes
/// congestion marks, then the receive window in the lower 16 bits.
///
/// All of it is soft state and sent with every reply, so a lost packet costs only one update.
///
/// * The server's time, in ns: a 15-bit float with 10 bits of mantissa and 5 of exponent. It is
///   exact to one part in 512 and at most about 2,200 s. The client subtracts it from its RTT
///   samples.
/// * Mark: since the server's last reply, the server has received a packet of the session that a
///   congested switch had marked (CE, RFC 3168).
/// * Window: what the server can hold from this client endpoint in total, in units of 1,024 charge
///   units (see `ChargeModel`), at most 65,535. 0 means "no change".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplyInfo(u32);

/// Charge units in one step of the window field.
const WINDOW_GRAIN: u32 = 1024;

impl ReplyInfo {
    /// Packs the server's time in ns and a window in charge units. The time is rounded down. The
    /// window is rounded down to a multiple of 1,024; the result is at least 1,024 and at most
    /// 65,535 x 1,024.
    #[must_use]
    #[inline]
    pub const fn new(processing_nanos: u64, window: u32) -> Self {
        let grains = window / WINDOW_GRAIN;
        let grains = if grains == 0 {
            1
        } else if grains > 0xFFFF {
            0xFFFF
        } else {
            grains
        };
        Self(grains).after(processing_nanos)
    }

    /// The same window and mark with another server time, in ns.
    #[must_use]
    #[inline]
    pub const fn after(self, processing_nanos: u64) -> Self {
        Self((encode_nanos(processing_nanos) as u32) << 17 | self.0 & 0x1_FFFF)
    }

    /// The same word; sets the echo of a congestion mark if `marked`.
    #[must_use]
    #[inline]
    pub const fn with_mark(self, marked: bool) -> Self {
        Self(self.0 | (marked as u32) << 16)
    }

    /// Whether the server echoes a congestion mark.
    #[must_use]
    #[inline]
    pub const fn is_marked(self) -> bool {
        self.0 & 1 << 16 != 0
    }

    /// The word in wire form.
    #[must_use]
    #[inline]
    pub const fn to_u32(self) -> u32 {
        self.0
    }

    /// The word read from a packet; every value is valid.
    #[must_use]
    #[inline]
    pub const fn from_u32(raw: u32) -> Self {
        Self(raw)
    }

    /// Nanoseconds from the arrival of the answered packet to this reply, as measured by the
    /// server.
    #[must_use]
    #[inline]
    pub const fn processing_nanos(self) -> u64 {
        let (mantissa, exponent) = ((self.0 >> 17 & 0x3FF) as u64, self.0 >> 27);
        mantissa << exponent
    }

    /// Whether the server took longer than in `other`, without unpacking either word. The result
    /// may be wrong for words that [`Self::new`] did not pack.
    #[must_use]
    #[inline]
    pub const fn took_longer_than(self, other: Self) -> bool {
        self.0 >> 17 > other.0 >> 17
    }

    /// The receive window in charge units; `None` for no change.
    #[must_use]
    #[inline]
    pub const fn window(self) -> Option<u32> {
        match self.0 & 0xFFFF {
            0 => None,
            grains => Some(grains * WINDOW_GRAIN),
        }
    }
}

#[inline]
const fn encode_nanos(nanos: u64) -> u16 {
    let bits = 64 - nanos.leading_zeros();
    if bits <= 10 {
        return nanos as u16;
    }
    let exponent = bits - 10;
    if exponent > 31 {
        return 0x7FFF;
    }
    (exponent as u16) << 10 | (nanos >> exponent) as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn times_are_exact_to_one_part_in_512(nanos in 0u64..2_000_000_000_000, marked in any::<bool>()) {
            let info = ReplyInfo::new(nanos, 5_000).with_mark(marked);
            let back = info.processing_nanos();
            prop_assert!(back <= nanos && nanos - back <= nanos >> 9, "{nanos} became {back}");
            prop_assert_eq!((info.is_marked(), info.window()), (marked, Some(4_096)));
        }
    }

    #[test]
    fn windows_round_down_but_never_to_zero() {
        assert_eq!(ReplyInfo::new(0, 5_000).window(), Some(4_096));
        assert_eq!(ReplyInfo::new(0, 3).window(), Some(1_024));
        assert_eq!(ReplyInfo::new(0, u32::MAX).window(), Some(65_535 * 1_024));
        assert_eq!(ReplyInfo::from_u32(0).window(), None);
    }
}
