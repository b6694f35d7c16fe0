//! How much of its receiver's queue a datagram occupies.

/// How a receive queue counts the datagrams it holds. The model is part of the handshake, because the
/// sender must count in the receiver's units (the credits of thesis section 6.3.3.1, generalised).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChargeModel {
    /// A ring: every datagram takes one entry, whatever its length. One entry is 1,024 units.
    Ring,
    /// A Linux socket buffer: the units are bytes as the kernel charges them (`skb->truesize`):
    /// payload, headers and bookkeeping, rounded up to the allocator's size classes.
    ///
    /// A datagram arrives in one of two shapes, and the charge covers both. *Linear*: payload and
    /// headers are in one allocation. *In pages*: the payload lies in pages, because the datagram
    /// is one segment of a run that the kernel split. The charge grows in steps, within which packets
    /// can be padded. On loopback and between network namespaces,
    /// Linux 6.18 counts, in bytes:
    ///
    /// | payload | 0 | 64 | 200 | 640 | 1,472 | 4,096 | 8,972 | 16,000 | 65,507 |
    /// |---|---|---|---|---|---|---|---|---|---|
    /// | linear | 832 | 832 | 1,280 | 1,280 | 2,304 | 8,448 | 16,640 | 16,640 | - |
    /// | in pages | 832 | 896 | 1,032 | 1,472 | 2,304 | 4,928 | 9,804 | 16,832 | 66,339 |
    /// | charge | 832 | 896 | 1,280 | 2,304 | 2,304 | 8,448 | 16,640 | 16,832 | 66,339 |
    ///
    /// For a datagram from a network card, the kernel counts the buffers that the driver uses. Some
    /// drivers use half a page or a page for every datagram. Small ones then cost more than their
    /// charge, and a flood of them may overflow a buffer of the default size. The transport counts
    /// the lost datagrams ([`rx_overflow`](super::TransportStats::rx_overflow)).
    LinuxUdp,
}

/// The kernel's `struct sk_buff`, rounded up to its size class, in bytes.
const SKB: usize = 256;
/// A socket buffer whose linear part is of the smallest class, 576 bytes.
const SMALL_SKB: usize = SKB + 576;
/// Bytes that share the linear part with the payload: `struct skb_shared_info`, 320 bytes, and the
/// headers with the headroom before them: 59 bytes for IPv4, 79 for IPv6, more on overlay networks.
const HEADERS_AND_SHARED_INFO: usize = 320 + 128;
/// Largest linear part, in bytes. Longer payloads are in pages.
const LARGEST_LINEAR: usize = 16 * 1_024;

impl ChargeModel {
    /// Units of one ring entry.
    pub const RING_ENTRY: u32 = 1_024;

    /// The charge for a datagram of `len` bytes, in this model's units. The receiver counts at most
    /// this much, except with some drivers ([`ChargeModel::LinuxUdp`]). So a sender that stays
    /// within the receiver's window loses nothing to overflow.
    #[must_use]
    #[inline]
    pub const fn charge(self, len: usize) -> u32 {
        match self {
            Self::Ring => Self::RING_ENTRY,
            Self::LinuxUdp => {
                let paged = len + SMALL_SKB;
                let needed = len + HEADERS_AND_SHARED_INFO;
                if needed > LARGEST_LINEAR {
                    return paged as u32;
                }
                let class = if needed <= 512 { 512 } else { needed.next_power_of_two() };
                let linear = if class == 512 { SMALL_SKB } else { class + SKB };
                let longest = class - HEADERS_AND_SHARED_INFO;
                (if paged > linear { longest + SMALL_SKB } else { linear }) as u32
            }
        }
    }

    /// The largest datagram of at most `longest` bytes with a charge of at most `units`; 0 if there
    /// is none.
    #[must_use]
    pub fn largest(self, units: u32, longest: usize) -> usize {
        let (mut fits, mut most) = (0, longest);
        while fits < most {
            let middle = (fits + most).div_ceil(2);
            if self.charge(middle) <= units {
                fits = middle;
            } else {
                most = middle - 1;
            }
        }
        fits
    }

    /// The model's number in the handshake.
    #[must_use]
    pub(crate) const fn to_u8(self) -> u8 {
        match self {
            Self::Ring => 0,
            Self::LinuxUdp => 1,
        }
    }

    /// The model with the number `raw`, `None` if this version does not know it.
    #[must_use]
    pub(crate) const fn from_u8(raw: u8) -> Option<Self> {
        match raw {
            0 => Some(Self::Ring),
            1 => Some(Self::LinuxUdp),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::HEADER_LEN;
    use crate::wire::bundle::{self, MAX_BUNDLE};

    #[test]
    fn a_longer_datagram_is_never_charged_less() {
        for model in [ChargeModel::Ring, ChargeModel::LinuxUdp] {
            let charges: Vec<u32> = (0..=65_507).map(|len| model.charge(len)).collect();
            assert!(charges.is_sorted(), "{model:?}");
        }
    }

    #[test]
    fn a_bundle_is_not_charged_more_than_its_packets() {
        // By induction, this holds for more than two.
        let model = ChargeModel::LinuxUdp;
        for first in HEADER_LEN..MAX_BUNDLE {
            for second in HEADER_LEN..=MAX_BUNDLE.saturating_sub(bundle::next(first)) {
                let apart = model.charge(first) + model.charge(second);
                let together = model.charge(bundle::next(first) + second);
                assert!(together <= apart, "{first} and {second} bytes");
            }
        }
    }

    #[test]
    fn the_largest_datagram_fits_and_one_byte_more_does_not() {
        for model in [ChargeModel::Ring, ChargeModel::LinuxUdp] {
            for units in [0, 831, 832, 1_024, 2_304, 8_448, 20_000, 60_000, 66_339, u32::MAX] {
                let largest = model.largest(units, 65_507);
                assert!(largest == 0 || model.charge(largest) <= units, "{model:?} {units}");
                assert!(
                    largest == 65_507 || model.charge(largest + 1) > units,
                    "{model:?} {units}"
                );
            }
        }
    }

    #[test]
    fn models_keep_their_numbers() {
        for model in [ChargeModel::Ring, ChargeModel::LinuxUdp] {
            assert_eq!(ChargeModel::from_u8(model.to_u8()), Some(model));
        }
        assert_eq!(ChargeModel::from_u8(2), None);
    }
}
