//! When a turn of the loop sends what it has staged: at its end, unless more packets wait, and
//! sometimes also in the middle.

/// Fewest packets of half a burst that is worth a doorbell in the middle.
const HALF: usize = 16;

/// The index of the packet before which a turn with a burst of `received` packets rings the
/// doorbell; `received` if it does not. `outstanding`: number of this endpoint's calls before the
/// burst.
///
/// If the burst has the answers to all calls, the servers have no work left. They then begin with
/// the calls that follow from the first half while this endpoint works on the second half. From then
/// on two halves are on their way, and both sides work at the same time.
#[inline]
pub(super) fn middle(received: usize, outstanding: u64) -> usize {
    let is_all = outstanding > 0 && outstanding <= received as u64;
    if is_all && received >= 2 * HALF { received / 2 } else { received }
}

/// Most turns in succession that end without a doorbell.
const MOST_HELD: u32 = 3;

/// Counts the turns that end without a doorbell. If packets are left that were received already, the
/// next turn costs no system call to receive, and its packets can leave together with those of this
/// turn. So the answers to a few runs of packets become runs of the same length, not shorter ones.
#[derive(Debug, Default)]
pub(super) struct Doorbell {
    held: u32,
}

impl Doorbell {
    /// Called at the end of a turn; returns whether to ring. `has_more`: packets are left that were
    /// received already. `is_slow`: handlers were slow lately, so packets should not wait for them.
    #[inline]
    pub(super) fn rings(&mut self, has_more: bool, is_slow: bool) -> bool {
        let holds = has_more && !is_slow && self.held < MOST_HELD;
        self.held = if holds { self.held + 1 } else { 0 };
        !holds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_burst_is_halved_if_no_other_call_is_outstanding() {
        assert_eq!(middle(64, 64), 32);
        assert_eq!(middle(33, 32), 16);
        assert_eq!(middle(64, 65), 64, "a server still has work");
        assert_eq!(middle(31, 31), 31, "too short");
        assert_eq!(middle(64, 0), 64, "the packets are requests");
        assert_eq!(middle(0, 0), 0);
    }

    #[test]
    fn packets_wait_for_at_most_three_more_turns_and_never_for_slow_handlers() {
        let mut doorbell = Doorbell::default();
        assert!(doorbell.rings(false, false));
        for _ in 0..3 {
            let rings: Vec<_> = (0..4).map(|_| doorbell.rings(true, false)).collect();
            assert_eq!(rings, [false, false, false, true]);
        }
        assert!(!doorbell.rings(true, false));
        assert!(doorbell.rings(true, true));
        assert!(!doorbell.rings(true, false));
        assert!(doorbell.rings(false, false), "no packets are left");
    }
}
