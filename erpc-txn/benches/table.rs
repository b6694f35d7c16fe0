//! How many operations per second one core makes on the table: 1 million keys of 8 bytes with
//! values of 40 bytes, chosen uniformly.
//!
//! `cargo bench -p erpc-txn --bench table [-- ENTRIES]`. The thread is pinned to the last processor
//! that it may use. Times are CPU time of the thread. Each line is the median of rounds that are
//! interleaved with those of the other lines, so that other load falls on all. Lines are compared
//! with the first: reads of one random cache line each from memory as large as the table.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Duration;

use erpc_txn::table::{Config, Owner, Table, Write};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 7;
const BURST: usize = 16;
/// Accesses of a round.
const ACCESSES: usize = 1 << 20;
const VALUE: usize = 40;

type Value = [u8; VALUE];

fn main() {
    let entries = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(1_000_000);
    pin();
    let table = Config::new(entries).inline(VALUE).seed(0x5eed).build().expect("a table");
    let mut map = HashMap::new();
    for i in 0..entries as u64 {
        table.load(scramble(i), &value(i)).expect("room");
        map.insert(scramble(i), value(i));
    }
    let mut random = 1;
    let chosen: Vec<u64> = (0..ACCESSES).map(|_| next(&mut random) % entries as u64).collect();
    let keys: Vec<u64> = chosen.iter().map(|&i| scramble(i)).collect();
    let lines = vec![[1u64; 8]; table.footprint() / 64];
    let line_of: Vec<usize> = keys.iter().map(|&key| key as usize % lines.len()).collect();

    let (mut owner, mut second_owner) = (0, 1 << 32);
    let mut runs: Vec<Run<'_>> = vec![
        Run::new("Vec: one random line", || {
            line_of.iter().map(|&line| black_box(lines[line][3])).sum()
        }),
        Run::new("std HashMap get", || keys.iter().map(|key| word(&map[key])).sum()),
        Run::new("table get", || keys.iter().map(|&key| get(&table, key)).sum()),
        Run::new("table get, bursts of 16", || {
            bursts(&table, &keys).flat_map(|burst| burst.iter().map(|&key| get(&table, key))).sum()
        }),
        Run::new("table absent get, bursts of 16", || {
            let absent = |key: &u64| table.get(key ^ 1 << 63, None).unwrap().version.get();
            bursts(&table, &keys).flat_map(|burst| burst.iter().map(absent)).sum()
        }),
        Run::new("table put", || keys.iter().map(|&key| put(&table, key)).sum()),
        Run::new("table put, bursts of 16", || {
            let put = |&key: &u64| put(&table, key);
            bursts(&table, &keys).flat_map(|burst| burst.iter().map(put)).sum()
        }),
        Run::new("table lock, then commit", || {
            owner += 1;
            let me = Owner::new(owner).expect("not 0");
            keys.chunks(1).map(|key| update(&table, key, me)).sum()
        }),
        Run::new("table lock, then commit, bursts of 16", || {
            second_owner += 1;
            let me = Owner::new(second_owner).expect("not 0");
            lock_bursts(&table, &keys).map(|burst| update(&table, burst, me)).sum()
        }),
    ];
    for _ in 0..ROUNDS {
        runs.iter_mut().for_each(Run::round);
    }
    println!("{entries} entries, {} MB, {:?}", table.footprint() / 1_000_000, table.usage());
    let base = runs[0].median();
    for run in &mut runs {
        let ns = run.median();
        println!(
            "{:38} {:6.1} M/s {:6.1} ns  {:5.2} of a line's reads",
            run.name,
            1e3 / ns,
            ns,
            base / ns
        );
    }
    drop(runs);

    // Of a HashMap that changes, because the runs above share it.
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            time(|| {
                for &key in &keys {
                    *map.get_mut(&key).expect("loaded") = value(key);
                }
                1
            })
        })
        .collect();
    let ns = middle(&mut times);
    println!("{:38} {:6.1} M/s {:6.1} ns", "std HashMap put", 1e3 / ns, ns);
}

/// The bursts of keys, each prefetched.
fn bursts<'a>(table: &'a Table, keys: &'a [u64]) -> impl Iterator<Item = &'a [u64]> {
    keys.chunks(BURST).inspect(|burst| {
        burst.iter().for_each(|&key| table.prefetch(key));
        burst.iter().for_each(|&key| table.prefetch_value(key));
    })
}

/// The same, to lock.
fn lock_bursts<'a>(table: &'a Table, keys: &'a [u64]) -> impl Iterator<Item = &'a [u64]> {
    keys.chunks(BURST).inspect(|burst| {
        burst.iter().for_each(|&key| table.prefetch_lock(key));
        burst.iter().for_each(|&key| table.prefetch_value(key));
    })
}

fn get(table: &Table, key: u64) -> u64 {
    let value = table.get(key, None).expect("nobody locks").value.expect("loaded");
    word(value.as_bytes().try_into().expect("the value's length"))
}

fn put(table: &Table, key: u64) -> u64 {
    table.load(key, &value(key)).expect("nobody locks").get()
}

/// Locks and reads all keys of a burst, then commits them.
fn update(table: &Table, keys: &[u64], me: Owner) -> u64 {
    let mut sum = 0;
    for &key in keys {
        let read = table.lock_for_update(key, me).expect("nobody else locks");
        sum += word(read.value.expect("loaded").as_bytes().try_into().expect("the value's length"));
    }
    for &key in keys {
        // Two keys of a burst may share a bucket, which the first commit unlocks.
        let committed = table.commit(table.bucket(key), me, &[Write::put(key, &value(key))]);
        sum += u64::from(committed.is_ok());
    }
    sum
}

struct Run<'a> {
    name: &'static str,
    body: Box<dyn FnMut() -> u64 + 'a>,
    times: Vec<f64>,
}

impl<'a> Run<'a> {
    fn new(name: &'static str, body: impl FnMut() -> u64 + 'a) -> Self {
        Self { name, body: Box::new(body), times: Vec::new() }
    }

    fn round(&mut self) {
        self.times.push(time(&mut self.body));
    }

    /// Nanoseconds per access.
    fn median(&mut self) -> f64 {
        middle(&mut self.times)
    }
}

fn middle(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Nanoseconds per access.
fn time(body: impl FnOnce() -> u64) -> f64 {
    let start = cpu_time();
    black_box(body());
    (cpu_time() - start).as_nanos() as f64 / ACCESSES as f64
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn pin() {
    let allowed = sched_getaffinity(None).expect("this thread's processors");
    let last = (0..CpuSet::MAX_CPU).rev().find(|&cpu| allowed.is_set(cpu)).expect("a processor");
    let mut one = CpuSet::new();
    one.set(last);
    sched_setaffinity(None, &one).expect("a processor that the thread may use");
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

fn value(i: u64) -> Value {
    let mut value = [7; VALUE];
    value[16..24].copy_from_slice(&i.to_ne_bytes());
    value
}

fn word(value: &Value) -> u64 {
    u64::from_ne_bytes(value[16..24].try_into().expect("8 bytes"))
}
