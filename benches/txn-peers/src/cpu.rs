//! CPU time of processes, from /proc.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// User and system time of this process.
pub(crate) fn own() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// User and system time of these processes and of their children, those included that have ended.
/// Exact to a tick of the kernel, 10 ms as a rule. Processes that do not exist count nothing.
pub(crate) fn of(pids: &[u32]) -> Duration {
    let mut ticks = 0;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat"));
        let Some(stat) = stat.ok().as_deref().and_then(parse) else { continue };
        if pids.contains(&pid) {
            ticks += stat.own + stat.ended_children;
        } else if pids.contains(&stat.parent) {
            ticks += stat.own;
        }
    }
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Ticks of user and system time.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    own: u64,
    ended_children: u64,
}

fn parse(stat: &str) -> Option<Stat> {
    // The name, in parentheses, may contain anything. After it, the fields from number 3.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Stat {
        parent: u32::try_from(field(4)?).ok()?,
        own: field(14)? + field(15)?,
        ended_children: field(16)? + field(17)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_name() {
        let line = "7 (a) b) S 1 7 7 0 -1 4194560 0 0 0 0 100 20 3 4 20 0 1 0 99";
        let expected = Stat { parent: 1, own: 120, ended_children: 7 };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse("7 (a) S 1"), None);
    }
}
