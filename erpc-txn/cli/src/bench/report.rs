//! The results for people, then the line of JSON.

use std::fmt::{self, Write};

use hdrhistogram::Histogram;
use indicatif::HumanCount;

use super::audit::Audit;
use super::figures::Figures;
use super::lane::Ran;
use super::tally::Kind;
use super::{SettingsArgs, Transport};
use crate::output::count;

/// Width of the longest bar of the histogram.
const BAR: f64 = 40.0;

pub(super) fn text(
    name: &str,
    kinds: &[&str],
    args: &SettingsArgs,
    lanes: &[Ran],
    figures: &Figures,
    audit: Option<&Audit>,
) -> Result<String, fmt::Error> {
    let mut out = String::new();
    let SettingsArgs { nodes, replicas, tasks, threads, .. } = args;
    let (over, per) = match args.transport {
        Transport::Mem => ("memory, one thread for all nodes", "second of CPU time"),
        Transport::Udp if args.processes => ("UDP on loopback, one process per node", "second"),
        Transport::Udp => ("UDP on loopback", "second"),
    };
    let (nodes, replicas) =
        (count(usize::from(*nodes), "node"), count((*replicas).into(), "replica"));
    let (tasks, threads) =
        (count(*tasks as usize, "transaction"), count(threads.get().into(), "thread"));
    writeln!(out, "{name}: {nodes}, {replicas}, over {over}")?;
    write!(out, "{tasks} in flight per thread, {threads} per node")?;
    match args.burst() {
        1 => writeln!(out, "\n")?,
        burst => writeln!(out, ", keys of {burst} transactions prefetched at once\n")?,
    }
    table(&mut out, kinds, lanes)?;
    histogram(&mut out, &figures.latencies)?;
    let rows = [
        (&*format!("commits per {per}"), HumanCount((figures.mtps * 1e6) as u64).to_string()),
        ("CPU time per commit", format!("{:.2} us", figures.cpu_us_per_txn)),
        ("latency of commits, median", format!("{:.1} us", figures.quantile(0.5))),
        ("latency of commits, 99 %", format!("{:.1} us", figures.quantile(0.99))),
        ("attempts aborted by conflicts", format!("{:.2} %", figures.abort_rate * 100.0)),
        ("requests per attempt", format!("{:.2}", figures.requests_per_attempt)),
        ("messages per attempt", format!("{:.2}", figures.messages_per_attempt)),
        ("keys at the coordinator's node", format!("{:.1} %", figures.local_share * 100.0)),
    ];
    for (what, value) in rows {
        writeln!(out, "{what:<34}{value:>12}")?;
    }
    if let Some(Audit { attempts, wrong }) = audit {
        let verdict = match wrong.len() {
            0 => "strictly serializable, and all replicas are equal",
            _ => "WRONG",
        };
        writeln!(out, "\n{} attempts checked: {verdict}", HumanCount(*attempts as u64))?;
        writeln!(out, "The figures include the recording of all transactions.")?;
        wrong.iter().try_for_each(|wrong| writeln!(out, "  {wrong}"))?;
    }
    write!(out, "\n{}", figures.json(name, args))?;
    Ok(out)
}

/// Transactions by kind.
fn table(out: &mut String, kinds: &[&str], lanes: &[Ran]) -> fmt::Result {
    writeln!(
        out,
        "{:<24}{:>12}{:>8}{:>11}{:>11}{:>11}",
        "", "attempted", "share", "committed", "failed", "conflicts"
    )?;
    let mut rows: Vec<Kind> = vec![Kind::default(); kinds.len()];
    let mut all = Kind::default();
    for lane in lanes {
        for (row, kind) in rows.iter_mut().zip(&lane.tally.kinds) {
            for sum in [row, &mut all] {
                sum.succeeded += kind.succeeded;
                sum.failed += kind.failed;
                sum.conflicted += kind.conflicted;
                sum.unknown += kind.unknown;
            }
        }
    }
    let percent = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
    for (name, kind) in kinds.iter().zip(&rows).chain([(&"all", &all)]) {
        let of = kind.all();
        writeln!(
            out,
            "{name:<24}{:>12}{:>6.1} %{:>9.1} %{:>9.1} %{:>9.1} %",
            HumanCount(of).to_string(),
            percent(of, all.all()),
            percent(kind.succeeded, of),
            percent(kind.failed, of),
            percent(kind.conflicted, of),
        )?;
    }
    if all.unknown > 0 {
        writeln!(out, "{} transactions have an unknown outcome", HumanCount(all.unknown))?;
    }
    writeln!(out)
}

/// Latencies of commits, in steps of a factor of two, from the first step with a commit to the last.
fn histogram(out: &mut String, all: &Histogram<u64>) -> fmt::Result {
    if all.is_empty() {
        return Ok(());
    }
    writeln!(out, "latency of commits")?;
    let steps: Vec<_> = all.iter_log(1000, 2.0).collect();
    let most = steps.iter().map(|step| step.count_since_last_iteration()).max().unwrap_or(1);
    for step in steps.iter().skip_while(|step| step.count_since_last_iteration() == 0) {
        let count = step.count_since_last_iteration();
        let share = 100.0 * count as f64 / all.len() as f64;
        let upper = step.value_iterated_to() as f64 / 1e3;
        let bar = "#".repeat((BAR * count as f64 / most as f64).ceil() as usize);
        writeln!(out, "{:>10} us {share:>6.2} % {bar}", format!("< {upper:.0}"))?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tally::latencies;

    #[test]
    fn a_histogram_has_no_holes() {
        let mut all = latencies();
        all.record_n(3_000, 1_000_000).expect("it is in range");
        all.saturating_record(5_000);
        all.saturating_record(20_000);
        let mut out = String::new();
        histogram(&mut out, &all).expect("a string grows");
        let rows: Vec<_> = out.lines().skip(1).filter(|line| !line.is_empty()).collect();
        let starts =
            ["< 4 us 100.00 % ##", "< 8 us   0.00 % #", "< 16 us   0.00 %", "< 32 us   0.00 % #"];
        assert_eq!(rows.len(), starts.len(), "{out}");
        for (row, start) in rows.iter().zip(starts) {
            assert!(row.trim().starts_with(start), "{row}");
        }
    }
}
