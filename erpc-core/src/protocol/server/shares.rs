//! Divides a receive queue's capacity among the sockets that send to it.

/// The shares into which a receive queue's capacity is divided.
///
/// All sockets have equal shares if an equal share is at least [`AMPLE`], if there are few sockets,
/// or if the capacity is below twice [`AMPLE`]. Otherwise *quiet* sockets have a floor each and
/// *busy* ones divide the rest, because a share that a quiet socket does not use is lost to the
/// busy ones.
///
/// Except for the floor, a share is the capacity, or its part that is not reserved, divided by a
/// power of two, so that shares change rarely. They shrink immediately and grow with hysteresis:
/// only when the number of sockets has fallen to a quarter of the number for which the shares were
/// computed, or is small. So a client that joins and leaves over and over cannot make the server
/// ping all clients each time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Shares {
    capacity: u32,
    /// All sockets have the same share.
    equal: bool,
    /// An equal share is the capacity, halved this many times.
    equal_halvings: u32,
    /// A busy socket's share is the capacity that is not reserved, halved this many times.
    busy_halvings: u32,
    /// Eighths of the capacity that are reserved for quiet sockets.
    reserved: u32,
}

impl Shares {
    pub(super) fn new(capacity: u32) -> Self {
        Self { capacity, equal: true, ..Self::default() }
    }

    /// Whether all sockets have the same share.
    #[cfg(test)]
    pub(super) fn are_equal(&self) -> bool {
        self.equal
    }

    /// The share of a busy socket: what it may have in flight, in charge units.
    pub(super) fn busy(&self) -> u32 {
        if self.equal {
            return self.capacity >> self.equal_halvings;
        }
        (self.capacity - self.capacity / 8 * self.reserved) >> self.busy_halvings
    }

    /// The share of a quiet socket: what it may have in flight, in charge units.
    pub(super) fn quiet(&self) -> u32 {
        if self.equal { self.busy() } else { self.busy().min(FLOOR) }
    }

    /// The share of each of `sockets` sockets if all are busy, in charge units.
    pub(super) fn equal(&self, sockets: usize) -> u32 {
        self.capacity >> self.equal_halvings.max(halvings(sockets))
    }

    /// Divides the capacity among `sockets` sockets, of which `busy` are busy. Where shares are not
    /// equal, they grow only if `may_grow`.
    pub(super) fn divide(&mut self, sockets: usize, busy: usize, may_grow: bool) {
        let all = settle(self.equal_halvings, halvings(sockets), sockets <= FEW);
        let few = busy <= FEW;
        let floors = (sockets - busy) as u64 * u64::from(FLOOR);
        let eighth = u64::from(self.capacity / 8).max(1);
        let eighths = floors.div_ceil(eighth).min(MOST_RESERVED) as u32;
        let next = Self {
            capacity: self.capacity,
            equal: sockets <= FEWEST || self.capacity < 2 * AMPLE || self.capacity >> all >= AMPLE,
            equal_halvings: all,
            busy_halvings: settle(self.busy_halvings, halvings(busy), few),
            reserved: settle(self.reserved, eighths, few),
        };
        let is_settled = next.equal == self.equal && !next.equal;
        *self = match is_settled && !may_grow && next.busy() > self.busy() {
            true => Self { equal_halvings: all, ..*self },
            false => next,
        };
    }
}

/// The share of a quiet socket, in charge units: four small packets.
const FLOOR: u32 = 4 * 1_024;

/// A share that is large enough for a session's credits of small packets, in charge units.
const AMPLE: u32 = 32 * 1_024;

/// Up to this number of sockets, shares are always equal.
const FEWEST: usize = 4;

/// Up to this number of sockets, pings to all of them cost little, so their shares grow without
/// hysteresis.
const FEW: usize = 16;

/// Cap on the eighths of the capacity that are reserved for quiet sockets. If the floors add up to
/// more, the queue overflows when all quiet sockets send at the same time, which is unlikely.
const MOST_RESERVED: u64 = 4;

/// The number of halvings that divide a capacity into at least `sockets` parts.
pub(super) fn halvings(sockets: usize) -> u32 {
    sockets.next_power_of_two().trailing_zeros()
}

/// Hysteresis: the value rises immediately. It falls only by two or more, or if `few` sockets are
/// affected.
pub(super) fn settle(before: u32, needed: u32, few: bool) -> u32 {
    if needed > before || few || needed + 1 < before { needed } else { before }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The capacities of an untuned kernel's receive queue and of one of 8 MiB.
    const CAPACITIES: [u32; 2] = [239_616, 9_437_184];

    #[test]
    fn shares_add_up_to_no_more_than_the_capacity() {
        for capacity in CAPACITIES {
            let mut shares = Shares::new(capacity);
            for sockets in 1..=5_000 {
                for busy in [0, 1, 10, 500] {
                    let busy = busy.min(sockets);
                    shares.divide(sockets, busy, false);
                    let busy = if shares.are_equal() { sockets } else { busy };
                    let all = u64::from(shares.busy()) * busy as u64;
                    let floors = u64::from(shares.quiet()) * (sockets - busy) as u64;
                    let reserved = floors.min(u64::from(capacity / 2 + 8));
                    assert!(
                        all + reserved <= u64::from(capacity) + 8,
                        "{shares:?} {sockets} {busy}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_busy_socket_has_half_of_the_capacity_among_any_number_of_quiet_ones() {
        for capacity in CAPACITIES {
            for sockets in [257, 1_000, 60_000] {
                let mut shares = Shares::new(capacity);
                shares.divide(sockets, 1, true);
                assert!(shares.busy() >= capacity / 2, "{sockets}: {shares:?}");
            }
        }
    }

    #[test]
    fn sockets_have_equal_shares_if_they_are_few_or_the_shares_are_ample() {
        let mut shares = Shares::new(239_616);
        shares.divide(4, 1, true);
        assert_eq!((shares.busy(), shares.quiet()), (59_904, 59_904));
        shares.divide(5, 1, true);
        assert!(!shares.are_equal() && shares.quiet() == FLOOR);
        let mut shares = Shares::new(9_437_184);
        shares.divide(256, 1, true);
        assert_eq!((shares.busy(), shares.quiet()), (36_864, 36_864));
        shares.divide(257, 1, true);
        assert!(!shares.are_equal());
    }

    #[test]
    fn shares_do_not_grow_between_sweeps() {
        let mut shares = Shares::new(239_616);
        shares.divide(1_000, 64, true);
        let before = shares;
        shares.divide(1_000, 1, false);
        assert_eq!(shares, before);
        shares.divide(1_000, 1, true);
        assert_eq!(shares.busy(), 239_616 - 4 * 29_952);
    }
}
