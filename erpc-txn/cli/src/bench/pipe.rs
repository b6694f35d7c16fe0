//! What a member's process says of its lanes, in lines of text:
//!
//! ```text
//! lane TIME CPU KEYS LOCAL_KEYS COUNTS..     times in ns
//! kind SUCCEEDED FAILED CONFLICTED UNKNOWN   for each kind of transaction
//! latency NS COUNT                           for each latency that occurred
//! broken WHY                                 if a transaction could not run
//! end                                        after the last lane
//! ```

use std::fmt::Write;
use std::time::Duration;

use erpc_txn::coordinator::Counts;

use super::lane::Ran;
use super::tally::{Kind, Tally};
use crate::failure::Failure;

/// The last line.
const END: &str = "end";

/// The lines of all lanes.
pub(super) fn text(lanes: &[Ran]) -> String {
    let mut out = String::new();
    for Ran { tally, counts, time, cpu, .. } in lanes {
        let numbers = [time.as_nanos() as u64, cpu.as_nanos() as u64, tally.keys, tally.local_keys];
        line(&mut out, "lane", numbers.into_iter().chain(list(*counts)));
        for kind in &tally.kinds {
            line(&mut out, "kind", [kind.succeeded, kind.failed, kind.conflicted, kind.unknown]);
        }
        for latency in tally.latencies.iter_recorded() {
            line(&mut out, "latency", [latency.value_iterated_to(), latency.count_at_value()]);
        }
        if let Some(why) = &tally.broken {
            out.push_str("broken ");
            out.extend(why.lines());
            out.push('\n');
        }
    }
    out + END
}

fn line(out: &mut String, name: &str, numbers: impl IntoIterator<Item = u64>) {
    out.push_str(name);
    for number in numbers {
        // Cannot fail: a string grows.
        write!(out, " {number}").unwrap_or_default();
    }
    out.push('\n');
}

/// Reads the lines of all lanes, with so many kinds of transactions.
pub(super) fn read(
    mut lines: impl FnMut() -> Result<String, Failure>,
    kinds: usize,
) -> Result<Vec<Ran>, Failure> {
    let mut lanes: Vec<Ran> = Vec::new();
    loop {
        let text = lines()?;
        if text == END {
            return Ok(lanes);
        }
        take(&text, kinds, &mut lanes)
            .ok_or_else(|| Failure::new(format!("a node's process said: {text}")))?;
    }
}

/// Takes over a line. None if it is malformed.
fn take(text: &str, kinds: usize, lanes: &mut Vec<Ran>) -> Option<()> {
    let (name, rest) = text.split_once(' ')?;
    if name == "broken" {
        lanes.last_mut()?.tally.broken = Some(rest.to_owned());
        return Some(());
    }
    let numbers: Result<Vec<u64>, _> = rest.split(' ').map(str::parse).collect();
    match (name, &*numbers.ok()?) {
        ("lane", &[time, cpu, keys, local_keys, ref counts @ ..]) => {
            let mut tally = Tally::new(0);
            (tally.keys, tally.local_keys) = (keys, local_keys);
            let (time, cpu) = (Duration::from_nanos(time), Duration::from_nanos(cpu));
            let counts = of_list(counts)?;
            lanes.push(Ran { tally, counts, time, cpu, recorded: Vec::new() });
        }
        ("kind", &[succeeded, failed, conflicted, unknown]) => {
            let all = &mut lanes.last_mut()?.tally.kinds;
            if all.len() == kinds {
                return None;
            }
            all.push(Kind { succeeded, failed, conflicted, unknown });
        }
        ("latency", &[ns, count]) => {
            lanes.last_mut()?.tally.latencies.record_n(ns, count).ok()?;
        }
        _ => return None,
    }
    Some(())
}

/// All counters, in the order in which they are written.
fn fields(counts: &mut Counts) -> [&mut u64; 7] {
    [
        &mut counts.attempts,
        &mut counts.commits,
        &mut counts.aborts,
        &mut counts.unknown,
        &mut counts.requests,
        &mut counts.messages,
        &mut counts.freeing_messages,
    ]
}

fn list(mut counts: Counts) -> [u64; 7] {
    fields(&mut counts).map(|count| *count)
}

fn of_list(list: &[u64]) -> Option<Counts> {
    let mut counts = Counts::default();
    let fields = fields(&mut counts);
    if fields.len() != list.len() {
        return None;
    }
    fields.into_iter().zip(list).for_each(|(field, count)| *field = *count);
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(number: u64, broken: Option<&str>) -> Ran {
        let mut tally = Tally::new(0);
        tally.keys = 10 * number;
        tally.local_keys = number;
        tally.kinds = vec![Kind { succeeded: number, failed: 1, conflicted: 2, unknown: 3 }; 2];
        for ns in [5, 1_000, 1_000, 77_777_777 * number] {
            tally.latencies.saturating_record(ns);
        }
        tally.broken = broken.map(Into::into);
        let counts = of_list(&[number, 2, 3, 4, 5, 6, 7]).expect("seven numbers");
        let (time, cpu) = (Duration::from_secs(number), Duration::from_nanos(number));
        Ran { tally, counts, time, cpu, recorded: Vec::new() }
    }

    fn parse(text: &str) -> Result<Vec<Ran>, Failure> {
        let mut lines = text.lines();
        read(|| lines.next().map(Into::into).ok_or_else(|| Failure::new("no end")), 2)
    }

    #[test]
    fn lanes_are_read_as_they_were_written() {
        let lanes = [lane(1, None), lane(2, Some("no such\ntable"))];
        let read = parse(&text(&lanes)).expect("it is well-formed");
        assert_eq!(read.len(), 2);
        assert_eq!(text(&read), text(&lanes));
        for (read, lane) in read.iter().zip(&lanes) {
            assert_eq!(read.tally.latencies, lane.tally.latencies);
            assert_eq!(
                (read.time, read.cpu, list(read.counts)),
                (lane.time, lane.cpu, list(lane.counts))
            );
        }
        assert_eq!(read[1].tally.broken.as_deref(), Some("no suchtable"));
    }

    #[test]
    fn malformed_lines_are_errors() {
        let valid = "lane 1 2 3 4 1 2 3 4 5 6 7";
        for wrong in [
            "kind 1 2 3 4",
            "lane 1 2 3 4 1 2 3 4 5 6",
            "lane 1 2 3 x 1 2 3 4 5 6 7",
            &format!("{valid}\nkind 1 2 3"),
            &format!("{valid}\nkind 1 2 3 4\nkind 1 2 3 4\nkind 1 2 3 4"),
            &format!("{valid}\nlatency 99999999999999999999 1"),
            &format!("{valid}\nnonsense 1"),
            &format!("{valid}\nnonsense"),
        ] {
            let error = parse(&format!("{wrong}\nend")).err().expect(wrong).to_string();
            assert!(error.starts_with("a node's process said: "), "{error}");
        }
        assert!(parse(valid).is_err(), "the end is missing");
        assert!(parse(&format!("{valid}\nend")).is_ok());
    }
}
