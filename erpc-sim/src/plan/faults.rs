//! Faults of packets in one direction of one endpoint.

use std::time::Duration;

use erpc_core::transport::MIN_DATAGRAM;
use erpc_core::transport::fault::{Faults, Outage};

use super::times::Times;
use super::{MS, SECOND};
use crate::{Feature, Random};

/// Returns `faults`, the faults of one direction of one endpoint, with the fault that `feature`
/// means. Returns them unchanged if `feature` does not act on packets. `context`: the run's times,
/// and whether faults must not end sessions. `packet`: bytes of a message in a full packet.
pub(super) fn suffer(
    feature: Feature,
    faults: Faults,
    random: &mut Random,
    context: (Times, bool),
    packet: usize,
) -> Faults {
    let (times, spares) = context;
    let chance = |random: &mut Random, most: u64| random.below(most * 10 + 1) as f64 / 1_000.0;
    let nanos = Duration::from_nanos;
    match feature {
        // Both the sender's and the receiver's faults act on a packet. With the probabilities of
        // runs that spare sessions, up to half of all round trips are lost; with the larger ones
        // below, up to three quarters.
        Feature::Loss if spares => faults.drop(chance(random, 15)),
        Feature::Corruption if spares => faults.corrupt(chance(random, 10)),
        Feature::Truncation if spares => faults.truncate(chance(random, 10)),
        Feature::Extension if spares => faults.extend(chance(random, 10)),
        Feature::Loss => faults.drop(chance(random, 30)),
        Feature::Bursts => {
            let mean = random.within(2, 40) as f64;
            faults.bursts(chance(random, 5), mean, random.within(50, 100) as f64 / 100.0)
        }
        Feature::Duplicates => {
            // The longest delay of a copy: twice the shortest retransmission timeout, twice a
            // common one, or twice the longest one.
            let late = *random.pick(&[2 * times.rto, 40 * MS, SECOND]);
            faults.duplicate(chance(random, 30), random.within(1, 5) as u8, nanos(late))
        }
        Feature::Reorder => faults.reorder(chance(random, 50), nanos(random.below(200_000) + 1)),
        Feature::Spikes => {
            let longest = *random.pick(&[MS, 100 * MS, 10 * SECOND]);
            faults.spike(chance(random, 3), nanos(longest))
        }
        Feature::Corruption => faults.corrupt(chance(random, 20)),
        Feature::Truncation => faults.truncate(chance(random, 20)),
        Feature::Extension => faults.extend(chance(random, 20)),
        Feature::OneWay if random.percent(50) => faults.outage(outage(random, times, 0)),
        Feature::MtuShrink => {
            let least = MIN_DATAGRAM as u64;
            let over = random.within(least, least.max(packet as u64)) as usize;
            let always = Outage { from: Duration::ZERO, until: nanos(times.length), over };
            let is_always = random.percent(30);
            faults.outage(if is_always { always } else { outage(random, times, over) })
        }
        _ => faults,
    }
}

/// A period in which packets longer than `over` bytes are lost.
pub(super) fn outage(random: &mut Random, times: Times, over: usize) -> Outage {
    let from = random.below(times.length);
    // Some periods are shorter than the liveness timeout, others longer.
    let length = *random.pick(&[times.liveness / 4, times.liveness * 3 / 4, times.liveness * 2]);
    let until = (from + length).min(times.length);
    Outage { from: Duration::from_nanos(from), until: Duration::from_nanos(until), over }
}
