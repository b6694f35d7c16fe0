//! Properties of the machine that affect a measurement: cores, CPU time, the distance between
//! cores.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::failure::Failure;

/// Binds the calling thread, and the threads that it starts later, to a core.
pub(crate) fn pin(core: usize) -> Result<(), Failure> {
    if core >= CpuSet::MAX_CPU {
        return Err(Failure::new(format!("there is no core {core}")));
    }
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set)
        .map_err(|error| Failure::new(format!("cannot run on core {core}: {error}")))
}

/// User and system time of this process.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// User and system time of another process of this machine, in steps of a clock tick (10 ms).
pub(crate) fn cpu_time_of(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in parentheses, which may contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut times =
        rest.split_ascii_whitespace().skip(11).map_while(|field| field.parse::<u64>().ok());
    let ticks = times.next()? + times.next()?;
    Some(Duration::from_nanos(ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second())))
}

/// Identifies this boot of this machine. Two processes with the same value share the machine's
/// cores. 0 if the system does not provide the id.
pub(crate) fn boot_id() -> [u8; 16] {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or_default().to_be_bytes()
}

const BATCHES: u64 = 100;
const ROUNDS: u64 = 1_000;

/// Time limit of [`ping_pong`]. A round between distant cores takes less than a microsecond, longer
/// if a core is busy with other work.
pub(crate) const PING_PONG_TIME: Duration = Duration::from_millis(400);

/// Round trip of a cache line between two cores, in nanoseconds. Measures up to [`BATCHES`] batches
/// of [`ROUNDS`] round trips each, for at most [`PING_PONG_TIME`], and returns the mean of the
/// fastest batch. `None` if the cores are the same, if a thread cannot run on one of them, or if
/// the time limit passes before the first batch ends.
pub(crate) fn ping_pong(here: usize, there: usize) -> Option<f64> {
    #[repr(align(128))]
    struct SharedLine(AtomicU64);
    if here == there {
        return None;
    }
    let line = SharedLine(AtomicU64::new(0));
    let start = Instant::now();
    let is_over = || start.elapsed() > PING_PONG_TIME;
    // A side that gives up stores this value, which stops the other side.
    const OVER: u64 = u64::MAX;
    let await_number = |number: u64| -> bool {
        for spins in 1u64.. {
            match line.0.load(Ordering::Acquire) {
                OVER => return false,
                seen if seen == number => return true,
                _ if spins % 65_536 == 0 && is_over() => break,
                _ => {}
            }
        }
        line.0.store(OVER, Ordering::Release);
        false
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            if pin(there).is_err() {
                line.0.store(OVER, Ordering::Release);
                return;
            }
            let mut number = 1;
            while await_number(number) {
                line.0.store(number + 1, Ordering::Release);
                number += 2;
            }
        });
        let serve = || {
            pin(here).ok()?;
            let mut best: Option<f64> = None;
            let mut number = 0;
            for _ in 0..BATCHES {
                let start = Instant::now();
                for _ in 0..ROUNDS {
                    // Not a plain store, which would overwrite `OVER` of the other side.
                    let sent = line.0.compare_exchange(
                        number,
                        number + 1,
                        Ordering::AcqRel,
                        Ordering::Relaxed,
                    );
                    number += 2;
                    if sent.is_err() || !await_number(number) {
                        return best;
                    }
                }
                let nanos = start.elapsed().as_nanos() as f64 / ROUNDS as f64;
                best = Some(best.map_or(nanos, |best| best.min(nanos)));
            }
            best
        };
        // A separate thread, because `pin` would change the caller's affinity.
        let best = scope.spawn(serve).join().ok().flatten();
        line.0.store(OVER, Ordering::Release);
        best
    })
}

/// Parses a number of seconds for the command line: up to a day.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds, 0 to 86400, is wanted".into()),
    }
}
