//! Chance, repeatably.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::lock;
use super::plan::{Counters, Faults, Shared, count};

/// Decides what happens to the packets of one direction.
pub(super) struct Dice {
    shared: Arc<Shared>,
    version: u64,
    receiving: bool,
    faults: Faults,
    state: u64,
}

/// What happens to a packet that is not dropped.
#[derive(Default)]
pub(super) struct Verdict {
    pub(super) duplicate: bool,
    /// How many later packets overtake it.
    pub(super) overtaken_by: Option<u32>,
    pub(super) damage: Option<Damage>,
}

pub(super) enum Damage {
    /// The bit with this number, modulo the packet's.
    Flip(u64),
    /// To this length, modulo the packet's.
    Cut(u64),
}

impl Damage {
    pub(super) fn inflict(&self, bytes: &mut Vec<u8>, counters: &Counters) {
        if bytes.is_empty() {
            return;
        }
        match self {
            Self::Flip(bit) => {
                let bit = (bit % (bytes.len() as u64 * 8)) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
                count(&counters.corrupted);
            }
            Self::Cut(len) => {
                bytes.truncate((len % bytes.len() as u64) as usize);
                count(&counters.truncated);
            }
        }
    }
}

impl Dice {
    pub(super) fn new(shared: &Arc<Shared>, receiving: bool) -> Self {
        let mut dice = Self {
            shared: Arc::clone(shared),
            version: 0,
            receiving,
            faults: Faults::none(),
            state: 0,
        };
        dice.read_plan();
        dice
    }

    fn read_plan(&mut self) {
        self.version = self.shared.version.load(Ordering::Acquire);
        let plan = *lock(&self.shared.plan);
        // Directions differ in their seeds, or both would drop the same numbers.
        (self.faults, self.state) =
            if self.receiving { (plan.rx, plan.seed) } else { (plan.tx, !plan.seed) };
    }

    /// The fate of the next packet; `None` if it is dropped. Every chance is drawn for every packet, so
    /// that one fault's decisions stay the same when another is switched on.
    pub(super) fn roll(&mut self) -> Option<Verdict> {
        if self.shared.version.load(Ordering::Acquire) != self.version {
            self.read_plan();
        }
        let faults = self.faults;
        let [dropped, duplicate, reorder, corrupt, truncate] =
            [faults.drop, faults.duplicate, faults.reorder, faults.corrupt, faults.truncate]
                .map(|chance| self.chance(chance));
        let (overtakers, place) = (self.next() % u64::from(faults.span.max(1)) + 1, self.next());
        if dropped {
            count(&self.counters().dropped);
            return None;
        }
        Some(Verdict {
            duplicate,
            overtaken_by: reorder.then_some(overtakers as u32),
            damage: match (corrupt, truncate) {
                (_, true) => Some(Damage::Cut(place)),
                (true, false) => Some(Damage::Flip(place)),
                (false, false) => None,
            },
        })
    }

    pub(super) fn counters(&self) -> &Counters {
        if self.receiving { &self.shared.rx } else { &self.shared.tx }
    }

    fn chance(&mut self, chance: f64) -> bool {
        // 53 bits: as many as a float in [0, 1) tells apart.
        ((self.next() >> 11) as f64) / ((1_u64 << 53) as f64) < chance
    }

    /// SplitMix64 (Steele, Lea, Flood 2014).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}
