//! How many operations per second ordered maps make: 1 million random keys of 8 bytes with values of
//! 8 bytes, chosen uniformly, on one thread and on two.
//!
//! `cargo run --release [-- KEYS [WORK]]`, with a part of the name of the works to measure. Each thread is pinned to a processor of its own. Times are CPU
//! times of the threads. Each figure is the median of rounds, in which the maps take turns, so that
//! other load falls on all. Every round's result is checked.

mod maps;

use std::collections::BTreeMap;
use std::sync::{Barrier, OnceLock, RwLock};
use std::time::Duration;

use concurrent_map::ConcurrentMap;
use crossbeam_skiplist::SkipMap;
use erpc_masstree::Masstree;
use maps::Map;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 7;
/// Reads of a thread in a round.
const READS: usize = 1 << 20;
/// Scans of a thread in a round.
const SCANS: usize = 1 << 14;
/// Keys of a scan.
const LENGTH: usize = 128;
/// Keys that are read together.
const BURST: usize = 16;

#[derive(Clone, Copy)]
enum Work {
    Get,
    GetBursts,
    Scan,
    /// Half reads, half replacements.
    Mix,
}

fn main() {
    let mut args = std::env::args().skip(1);
    let keys = args.next().map_or(1_000_000, |arg| arg.parse().expect("the number of keys"));
    let wanted = args.next().unwrap_or_default();
    let mut sorted: Vec<u64> = (0..keys).map(scramble).collect();
    sorted.sort_unstable();

    let tree = Masstree::new();
    let concurrent = ConcurrentMap::default();
    let skip = SkipMap::new();
    let locked = RwLock::new(BTreeMap::new());
    let mut maps: Vec<(&str, Box<dyn Map + '_>)> = vec![
        ("erpc-masstree", Box::new(&tree)),
        ("concurrent-map", Box::new(concurrent)),
        ("crossbeam-skiplist", Box::new(&skip)),
        ("RwLock<BTreeMap>", Box::new(&locked)),
    ];
    println!("{keys} keys; million operations per second of CPU time, of all threads together");
    for (name, map) in &mut maps {
        pin_to(0);
        let time = cpu_time();
        (0..keys).for_each(|number| map.put(scramble(number), number));
        println!(
            "{name:20} insert, one thread      {:8.2}",
            keys as f64 / micros(cpu_time() - time)
        );
    }
    for threads in [1, 2] {
        for (what, work) in [
            ("get", Work::Get),
            ("get, bursts of 16", Work::GetBursts),
            ("scan of 128", Work::Scan),
            ("half get, half put", Work::Mix),
        ] {
            if !what.contains(&wanted) {
                continue;
            }
            let mut rates = vec![Vec::new(); maps.len()];
            for round in 0..ROUNDS {
                for (rates, (_, map)) in rates.iter_mut().zip(&maps) {
                    rates.push(measure(map.as_ref(), work, threads, &sorted, round as u64));
                }
            }
            for (rates, (name, _)) in rates.iter_mut().zip(&maps) {
                rates.sort_by(f64::total_cmp);
                let (low, middle, high) = (rates[0], rates[ROUNDS / 2], rates[ROUNDS - 1]);
                println!("{name:20} {what:18} x{threads}    {middle:8.2}  ({low:.2} to {high:.2})");
            }
        }
    }
}

/// Million operations per second of one round.
fn measure(map: &dyn Map, work: Work, threads: usize, sorted: &[u64], seed: u64) -> f64 {
    let barrier = Barrier::new(threads);
    std::thread::scope(|scope| {
        let rounds: Vec<_> = (0..threads)
            .map(|thread| {
                let (mut map, barrier) = (map.handle(), &barrier);
                scope.spawn(move || {
                    pin_to(thread);
                    barrier.wait();
                    round(map.as_mut(), work, sorted, seed << 8 | thread as u64)
                })
            })
            .collect();
        rounds.into_iter().map(|round| round.join().expect("no panic")).sum()
    })
}

fn round(map: &mut dyn Map, work: Work, sorted: &[u64], seed: u64) -> f64 {
    let mut random = scramble(seed + 1) | 1;
    let operations = if matches!(work, Work::Scan) { SCANS } else { READS };
    let places: Vec<usize> =
        (0..operations).map(|_| next(&mut random) as usize % sorted.len()).collect();
    let keys: Vec<u64> = places.iter().map(|&place| sorted[place]).collect();
    let time = cpu_time();
    match work {
        Work::Get => {
            let found = keys.iter().filter(|&&key| map.get(key).is_some()).count();
            assert_eq!(found, keys.len(), "keys found");
        }
        Work::GetBursts => {
            for burst in keys.chunks(BURST) {
                std::hint::black_box(map.get_all(burst));
            }
        }
        Work::Scan => {
            for (&key, &place) in keys.iter().zip(&places) {
                let (found, sum) = map.scan(key, LENGTH);
                assert_eq!(found, LENGTH.min(sorted.len() - place), "keys of a scan");
                std::hint::black_box(sum);
            }
        }
        Work::Mix => {
            for pair in keys.chunks(2) {
                map.put(pair[0], pair[0]);
                std::hint::black_box(map.get(pair[1]));
            }
        }
    }
    keys.len() as f64 / micros(cpu_time() - time)
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Pins the thread to the processor with this number among those that the program may use. With
/// fewer processors, does nothing.
fn pin_to(number: usize) {
    static USABLE: OnceLock<Vec<usize>> = OnceLock::new();
    let usable = USABLE.get_or_init(|| {
        let allowed = sched_getaffinity(None).expect("this thread's processors");
        (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect()
    });
    let Some(&cpu) = usable.get(number) else { return };
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).expect("a processor that the program may use");
}

/// A permutation of the numbers of 64 bits.
fn scramble(i: u64) -> u64 {
    let x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Xorshift.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}
