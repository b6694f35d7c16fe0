use proptest::prelude::*;

use super::*;
use crate::time::Instant;

const LEN: usize = 100;

fn injector(seed: u64, faults: &Faults) -> Injector {
    Injector::new(seed, faults.clone(), Instant::ZERO)
}

fn judge(injector: &mut Injector) -> Vec<PacketCopy> {
    injector.judge(Instant::ZERO, LEN).copies().collect()
}

/// The fates of `packets` packets.
fn history(seed: u64, faults: &Faults, packets: usize) -> Vec<Vec<PacketCopy>> {
    let mut injector = injector(seed, faults);
    (0..packets).map(|_| judge(&mut injector)).collect()
}

fn counts(seed: u64, faults: &Faults, packets: usize) -> FaultCounts {
    let mut injector = injector(seed, faults);
    for _ in 0..packets {
        injector.judge(Instant::ZERO, LEN);
    }
    injector.counts()
}

/// Asserts that `hits` of `packets` are plausible for `chance`: within 5 standard deviations, which
/// one seed in two million exceeds. The seeds are fixed, so a passing test keeps passing.
#[track_caller]
fn assert_chance(hits: u64, packets: usize, chance: f64) {
    let packets = packets as f64;
    let deviation = (packets * chance * (1.0 - chance)).sqrt();
    let off = (hits as f64 - packets * chance).abs();
    assert!(off <= 5.0 * deviation, "{hits} of {packets} for a chance of {chance}");
}

const LATE: Duration = millis(3);

/// A fault's name, a plan with only this fault, and how often it has acted.
type Alone = (&'static str, Faults, fn(&FaultCounts) -> u64);

fn each_alone(chance: f64) -> [Alone; 7] {
    let none = Faults::none;
    [
        ("drop", none().drop(chance), |c| c.dropped),
        ("duplicate", none().duplicate(chance, 1, LATE), |c| c.duplicated),
        ("reorder", none().reorder(chance, LATE), |c| c.reordered),
        ("spike", none().spike(chance, LATE), |c| c.spiked),
        ("corrupt", none().corrupt(chance), |c| c.corrupted),
        ("truncate", none().truncate(chance), |c| c.truncated),
        ("extend", none().extend(chance), |c| c.extended),
    ]
}

#[test]
fn every_fault_acts_with_its_chance_and_alone() {
    const PACKETS: usize = 20_000;
    for chance in [0.0001, 0.01, 0.3, 0.9] {
        for (seed, (name, faults, acted)) in (0..).zip(each_alone(chance)) {
            let counts = counts(seed, &faults, PACKETS);
            println!("{name} at {chance}: {}", acted(&counts));
            assert_chance(acted(&counts), PACKETS, chance);
            let FaultCounts { dropped, burst_dropped, outage_dropped, duplicated, .. } = counts;
            let FaultCounts { reordered, spiked, corrupted, truncated, extended, .. } = counts;
            let lost = dropped + burst_dropped + outage_dropped;
            let all = lost + duplicated + reordered + spiked + corrupted + truncated + extended;
            assert_eq!(all, acted(&counts), "another fault than {name} acted");
        }
    }
}

/// Faults are independent: of two faults that each hit half of the packets, both hit a quarter. The
/// lengths of delays are independent, too.
#[test]
fn any_two_faults_are_independent() {
    const PACKETS: usize = 20_000;
    let mut all: Vec<(&str, Vec<bool>)> = Vec::new();
    for (name, faults, acted) in each_alone(0.5) {
        let mut injector = injector(11, &faults);
        let mut so_far = 0;
        let mut acts = || {
            judge(&mut injector);
            let before = std::mem::replace(&mut so_far, acted(&injector.counts()));
            so_far > before
        };
        all.push((name, (0..PACKETS).map(|_| acts()).collect()));
    }
    for (name, faults) in [
        ("delay by reordering", Faults::none().reorder(1.0, LATE)),
        ("delay by a spike", Faults::none().spike(1.0, LATE)),
        ("delay of a copy", Faults::none().duplicate(1.0, 1, LATE)),
    ] {
        let is_long = |fate: &Vec<PacketCopy>| fate.iter().any(|copy| copy.delay > LATE / 2);
        all.push((name, history(11, &faults, PACKETS).iter().map(is_long).collect()));
    }
    for (at, (one, a)) in all.iter().enumerate() {
        for (other, b) in &all[..at] {
            let both = a.iter().zip(b).filter(|(a, b)| **a && **b).count();
            println!("{one} and {other}: {both}");
            assert_chance(both as u64, PACKETS, 0.25);
        }
    }
}

#[test]
fn chance_0_never_acts_and_chance_1_always_acts() {
    for (name, faults, acted) in each_alone(1.0) {
        assert_eq!(acted(&counts(1, &faults, 1_000)), 1_000, "{name}");
    }
    // A value out of range, or NaN, counts as the nearest chance.
    for (chance, expected) in [(0.0, 0), (-1.0, 0), (f64::NAN, 0), (2.0, 1_000)] {
        for (name, faults, acted) in each_alone(chance) {
            assert_eq!(acted(&counts(1, &faults, 1_000)), expected, "{name} at {chance}");
        }
    }
}

#[test]
fn an_injector_without_faults_is_idle() {
    assert!(injector(1, &Faults::none()).is_idle());
    assert!(injector(1, &Faults::none().bursts(0.0, 5.0, 1.0).spike(0.0, LATE)).is_idle());
    for (name, faults, _) in each_alone(1e-9) {
        assert!(!injector(1, &faults).is_idle(), "{name}");
    }
    assert!(!injector(1, &Faults::none().bursts(1e-9, 1.0, 0.0)).is_idle());
    let outage = Outage { from: millis(1), until: millis(2), over: 0 };
    assert!(!injector(1, &Faults::none().outage(outage)).is_idle());
}

/// Lengths of the runs of packets that are lost.
fn runs(history: &[Vec<PacketCopy>]) -> Vec<usize> {
    let runs = history.chunk_by(|a, b| a.is_empty() == b.is_empty());
    runs.filter(|run| run[0].is_empty()).map(<[_]>::len).collect()
}

#[test]
fn bursts_have_the_configured_mean_length_and_frequency() {
    for mean in [1.0, 4.0, 25.0] {
        const PACKETS: usize = 400_000;
        const ENTER: f64 = 0.002;
        let faults = Faults::none().bursts(ENTER, mean, 1.0);
        let runs = runs(&history(3, &faults, PACKETS));
        let lost: usize = runs.iter().sum();
        // A burst can begin only before packets outside of bursts. Two adjacent bursts make one
        // run; that happens to a share of ENTER of the bursts.
        assert_chance(runs.len() as u64, PACKETS - lost, ENTER);
        let measured = lost as f64 / runs.len() as f64;
        let deviation = mean / (runs.len() as f64).sqrt();
        assert!((measured - mean).abs() < 5.0 * deviation + mean * 0.01, "{measured} for {mean}");
        // The lengths are geometrically distributed: the longest of hundreds is several times the
        // mean.
        assert!(mean == 1.0 || runs.iter().max() > Some(&(3 * mean as usize)));
        assert!(mean > 1.0 || runs.iter().filter(|&&run| run > 1).count() <= runs.len() / 100);
    }
}

#[test]
fn a_packet_inside_of_a_burst_may_pass() {
    const PACKETS: usize = 200_000;
    let all = counts(4, &Faults::none().bursts(0.01, 10.0, 1.0), PACKETS).burst_dropped;
    let some = counts(4, &Faults::none().bursts(0.01, 10.0, 0.25), PACKETS).burst_dropped;
    assert_chance(some, all as usize, 0.25);
    // Expected share: 10 / (10 + 1 / 0.01). The deviation is about four times larger than with
    // independent losses.
    let share = all as f64 / PACKETS as f64;
    assert!((0.083..0.1).contains(&share), "{share}");
}

#[test]
fn outages_are_exact_at_their_edges() {
    let (from, until) = (millis(20), millis(50));
    let start = Instant::from_nanos(7_000_000_000);
    let faults = Faults::none().outage(Outage { from, until, over: 1_400 });
    let mut injector = Injector::new(1, faults, start);
    let nano = Duration::from_nanos(1);
    let mut passes = |after: Duration, len| injector.judge(start + after, len).is_intact();
    for (after, lost) in [
        (Duration::ZERO, false),
        (from - nano, false),
        (from, true),
        (until - nano, true),
        (until, false),
        (Duration::from_secs(3_600), false),
    ] {
        assert_eq!(passes(after, 1_401), !lost, "{after:?}");
        assert!(passes(after, 1_400), "{after:?}");
        assert!(passes(after, 0));
    }
    assert_eq!(injector.counts(), FaultCounts { outage_dropped: 2, ..FaultCounts::default() });
    // Before the start of the plan there is no outage.
    assert!(injector.judge(Instant::ZERO, 1_500).is_intact());
}

#[test]
fn several_outages_may_overlap() {
    let outage = |from, until, over| Outage { from: millis(from), until: millis(until), over };
    let faults = Faults::none()
        .outage(outage(100, 110, 0))
        .outage(outage(10, 30, 1_000))
        .outage(outage(20, 25, 0));
    let mut injector = injector(1, &faults);
    let mut lost = |at, len| injector.judge(Instant::ZERO + millis(at), len).copies().len() == 0;
    let lost: Vec<_> = [0, 10, 20, 25, 30, 99, 100, 109, 110]
        .map(|at| (at, lost(at, 500), lost(at, 1_001)))
        .into_iter()
        .collect();
    let (o, x) = (false, true);
    assert_eq!(
        lost,
        [
            (0, o, o),
            (10, o, x),
            (20, x, x),
            (25, o, x),
            (30, o, o),
            (99, o, o),
            (100, x, x),
            (109, x, x),
            (110, o, o)
        ]
    );
}

#[test]
fn copies_and_delays_reach_but_never_exceed_their_bounds() {
    const PACKETS: usize = 20_000;
    let (dup_late, reorder_late, spike_max) = (millis(7), millis(2), millis(900));
    for most in 1..=5 {
        let faults = Faults::none().duplicate(0.5, most, dup_late).reorder(0.5, reorder_late);
        let history = history(u64::from(most), &faults, PACKETS);
        let mut by_copies = [0_u64; Fate::MAX_COPIES + 1];
        for fate in &history {
            by_copies[fate.len()] += 1;
            assert!(fate[0].delay <= reorder_late);
            assert!(fate[1..].iter().all(|copy| copy.delay <= dup_late));
        }
        assert_eq!(by_copies[0], 0);
        assert!(by_copies[usize::from(most) + 2..].iter().all(|&n| n == 0), "{by_copies:?}");
        for &times in &by_copies[2..usize::from(most) + 2] {
            assert_chance(times, PACKETS, 0.5 / f64::from(most));
        }
        let latest = |which: fn(&Vec<PacketCopy>) -> &[PacketCopy]| {
            history.iter().flat_map(which).map(|copy| copy.delay).max().unwrap()
        };
        assert!(latest(|fate| &fate[1..]) > dup_late * 99 / 100);
        assert!(latest(|fate| &fate[..1]) > reorder_late * 99 / 100);
    }
    let both = Faults::none().reorder(0.5, reorder_late).spike(0.01, spike_max);
    let delays: Vec<_> = history(9, &both, PACKETS).iter().map(|fate| fate[0].delay).collect();
    assert!(delays.iter().all(|&delay| delay <= reorder_late + spike_max));
    assert_chance(delays.iter().filter(|&&d| d > spike_max / 2).count() as u64, PACKETS, 0.005);
}

#[test]
fn the_bounds_of_a_delay_are_inclusive() {
    let nano = Duration::from_nanos(1);
    let delays = history(1, &Faults::none().reorder(1.0, nano), 20_000);
    let late = delays.iter().filter(|fate| fate[0].delay == nano).count();
    assert_chance(late as u64, 20_000, 0.5);
    assert!(delays.iter().all(|fate| fate[0].delay <= nano));
}

#[test]
fn damage_is_drawn_separately_for_every_copy() {
    const PACKETS: usize = 20_000;
    let faults = Faults::none().duplicate(1.0, 1, LATE).corrupt(0.5).extend(0.1);
    let history = history(2, &faults, PACKETS);
    let of =
        |wanted: fn(&[PacketCopy]) -> bool| history.iter().filter(|f| wanted(f)).count() as u64;
    assert_chance(of(|fate| fate[0].damage.is_some()), PACKETS, 0.55);
    assert_chance(of(|fate| fate[1].damage.is_some()), PACKETS, 0.55);
    let both = of(|fate| fate.iter().all(|copy| copy.damage.is_some()));
    assert_chance(both, PACKETS, 0.55 * 0.55);
    assert_eq!(of(|fate| fate[0].damage.is_some() && fate[0].damage == fate[1].damage), 0);
}

#[test]
fn settings_out_of_range_are_clamped() {
    let year = Duration::from_secs(365 * 86_400);
    let nearest = |copies| Faults::none().duplicate(0.5, copies, Faults::MAX_DELAY);
    assert_eq!(Faults::none().duplicate(0.5, 0, year), nearest(1));
    assert_eq!(Faults::none().duplicate(0.5, 200, year), nearest(5));
    let delayed = |late| Faults::none().reorder(0.1, late).spike(0.1, late);
    assert_eq!(delayed(year), delayed(Duration::from_secs(10)));
    // A burst is never shorter than one packet, whatever the mean is set to.
    for mean in [0.0, -3.0, f64::NAN] {
        let runs = |mean| runs(&history(5, &Faults::none().bursts(0.1, mean, 1.0), 5_000));
        assert_eq!(runs(mean), runs(1.0));
    }
}

#[test]
fn an_empty_packet_is_neither_cut_nor_flipped() {
    let faults = Faults::none().corrupt(1.0).truncate(1.0);
    let mut injector = injector(6, &faults);
    assert!(injector.judge(Instant::ZERO, 0).is_intact());
    assert_eq!(injector.counts(), FaultCounts::default());
}

#[test]
fn equal_seeds_give_equal_histories() {
    let faults = Faults::none().drop(0.1).duplicate(0.1, 3, LATE).reorder(0.1, LATE).corrupt(0.1);
    assert_eq!(history(6, &faults, 500), history(6, &faults, 500));
    assert_ne!(history(6, &faults, 500), history(7, &faults, 500));
}

#[test]
fn directions_are_decided_independently() {
    let plan = FaultPlan::new(8).both(Faults::none().drop(0.5));
    let [mut rx, mut tx] = [plan.rx_injector(Instant::ZERO), plan.tx_injector(Instant::ZERO)];
    let both = (0..20_000).filter(|_| judge(&mut rx).is_empty() & judge(&mut tx).is_empty());
    assert_chance(both.count() as u64, 20_000, 0.25);
}

fn chance() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), 0.0..0.5, Just(1.0)]
}

fn delay() -> impl Strategy<Value = Duration> {
    (0..12_000_u64).prop_map(millis)
}

/// One plan for each kind of fault. Each kind may be disabled.
#[derive(Clone, Debug)]
struct Parts(Vec<Faults>);

prop_compose! {
    fn parts()(
        drop in chance(),
        bursts in (chance(), 0.0..20.0, chance()),
        duplicate in (chance(), 1..=5_u8, delay()),
        reorder in (chance(), delay()),
        spike in (chance(), delay()),
        [corrupt, truncate, extend] in [chance(), chance(), chance()],
        outage in (delay(), delay(), 0..200_usize),
    ) -> Parts {
        let none = Faults::none;
        let outage = Outage { from: outage.0, until: outage.1, over: outage.2 };
        Parts(vec![
            none().drop(drop),
            none().bursts(bursts.0, bursts.1, bursts.2),
            none().outage(outage),
            none().duplicate(duplicate.0, duplicate.1, duplicate.2),
            none().reorder(reorder.0, reorder.1),
            none().spike(spike.0, spike.1),
            none().corrupt(corrupt),
            none().truncate(truncate),
            none().extend(extend),
        ])
    }
}

impl Parts {
    fn all(&self) -> Faults {
        let [drop, bursts, outage, duplicate, reorder, spike, corrupt, truncate, extend] =
            &self.0[..]
        else {
            unreachable!("there are nine kinds")
        };
        Faults {
            drop: drop.drop,
            bursts: bursts.bursts,
            duplicate: duplicate.duplicate,
            reorder: reorder.reorder,
            spike: spike.spike,
            corrupt: corrupt.corrupt,
            truncate: truncate.truncate,
            extend: extend.extend,
            outages: outage.outages.clone(),
        }
    }
}

/// Milliseconds between packets, and their lengths in bytes.
fn steps() -> impl Strategy<Value = Vec<(u64, usize)>> {
    prop::collection::vec((0..200_u64, 0..200_usize), 1..60)
}

proptest! {
    /// A plan with all faults equals the sum of plans with one fault each: enabling a fault changes
    /// no decision of another.
    #[test]
    fn faults_compose(seed: u64, parts in parts(), steps in steps()) {
        let mut alone: Vec<_> = parts.0.iter().map(|part| injector(seed, part)).collect();
        let mut together = injector(seed, &parts.all());
        let mut now = Instant::ZERO;
        for (step, len) in steps {
            now = now + millis(step);
            let fates: Vec<Vec<_>> =
                alone.iter_mut().map(|one| one.judge(now, len).copies().collect()).collect();
            let fate: Vec<_> = together.judge(now, len).copies().collect();
            if fates.iter().any(Vec::is_empty) {
                prop_assert!(fate.is_empty());
                continue;
            }
            let delay: Duration = fates.iter().map(|fate| fate[0].delay).sum();
            prop_assert_eq!(fate[0].delay, delay);
            let kinds = fates.iter().filter_map(|fate| fate[0].damage).map(|damage| damage.kinds());
            let kinds = kinds.fold(0, |all, kinds| all | kinds);
            prop_assert_eq!(fate[0].damage.map_or(0, |damage| damage.kinds()), kinds);
            let delays = |fate: &Vec<PacketCopy>| {
                fate[1..].iter().map(|copy| copy.delay).collect::<Vec<_>>()
            };
            let duplicated = &fates[3];
            prop_assert_eq!(delays(&fate), delays(duplicated));
        }
    }

    /// The counters equal what the fates show.
    #[test]
    fn the_counters_match_the_fates(seed: u64, parts in parts(), packets in 1..200_u64) {
        let mut injector = injector(seed, &parts.all());
        let (mut lost, mut more, mut kinds) = (0, 0, [0; 3]);
        for at in 0..packets {
            let fate = injector.judge(Instant::ZERO + millis(at * 50), LEN);
            let copies = fate.copies();
            lost += u64::from(copies.len() == 0);
            more += copies.len().saturating_sub(1) as u64;
            for damage in copies.filter_map(|copy| copy.damage) {
                for (bit, times) in kinds.iter_mut().enumerate() {
                    *times += damage.kinds() >> bit & 1;
                }
            }
        }
        let counts = injector.counts();
        prop_assert_eq!(counts.lost(), lost);
        prop_assert_eq!(counts.duplicated, more);
        prop_assert_eq!([counts.corrupted, counts.truncated, counts.extended], kinds);
        let mut twice = counts;
        twice += counts;
        prop_assert_eq!(twice.lost(), 2 * lost);
        prop_assert_eq!(twice.spiked, 2 * counts.spiked);
    }
}
