//! When a turn of the loop sends what it has staged: at its end, unless more packets wait, and
//! sometimes also in the middle.

use crate::time::Instant;

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
/// A turn rings if it began this many ns or more after the first turn without a doorbell. Handlers
/// that take a microsecond each would otherwise hold packets for a large part of a millisecond.
const LONGEST_HELD: u64 = 20_000;

/// Counts the turns that end without a doorbell. If packets are left that were received already, the
/// next turn costs no system call to receive, and its packets can leave together with those of this
/// turn. So the answers to a few runs of packets become runs of the same length, not shorter ones.
#[derive(Debug, Default)]
pub(super) struct Doorbell {
    held: u32,
    /// When the first of these turns began.
    held_since: Instant,
}

impl Doorbell {
    /// Called at the end of a turn that began at `now`; returns whether to ring. `has_more`: packets
    /// are left that were received already. `is_slow`: handlers were slow lately, so packets should
    /// not wait for them.
    #[inline]
    pub(super) fn rings(&mut self, now: Instant, has_more: bool, is_slow: bool) -> bool {
        if !has_more {
            self.held = 0;
            return true;
        }
        if self.held == 0 {
            self.held_since = now;
        }
        let is_long = now.nanos_since(self.held_since) >= LONGEST_HELD;
        let holds = !is_slow && !is_long && self.held < MOST_HELD;
        self.held = if holds { self.held + 1 } else { 0 };
        !holds
    }

    /// Whether the last turn has ended without a doorbell.
    pub(super) fn holds(&self) -> bool {
        self.held > 0
    }

    /// The staged packets were sent between two turns.
    pub(super) fn rang(&mut self) {
        self.held = 0;
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

    const START: Instant = Instant::from_nanos(1_000_000_000);

    #[test]
    fn packets_wait_for_at_most_three_more_turns_and_never_for_slow_handlers() {
        let mut doorbell = Doorbell::default();
        let mut rings = |has_more, is_slow| doorbell.rings(START, has_more, is_slow);
        assert!(rings(false, false));
        for _ in 0..3 {
            assert_eq!([(); 4].map(|()| rings(true, false)), [false, false, false, true]);
        }
        assert!(!rings(true, false));
        assert!(rings(true, true));
        assert!(!rings(true, false));
        assert!(rings(false, false), "no packets are left");
    }

    #[test]
    fn packets_wait_for_one_more_turn_if_a_turn_is_long() {
        let mut doorbell = Doorbell::default();
        let mut rings = |nanos| doorbell.rings(START.plus_nanos(nanos), true, false);
        let times = [0, 19_999, 20_000, 60_000, 70_000, 80_000, 90_000];
        assert_eq!(times.map(&mut rings), [false, false, true, false, false, true, false]);
    }

    #[test]
    fn packets_are_held_from_a_turn_without_a_doorbell_to_the_next_doorbell() {
        let mut doorbell = Doorbell::default();
        assert!(!doorbell.holds());
        for between in [true, false] {
            assert!(!doorbell.rings(START, true, false) && doorbell.holds());
            if between {
                doorbell.rang();
            } else {
                assert!(doorbell.rings(START, false, false));
            }
            assert!(!doorbell.holds());
        }
    }
}
