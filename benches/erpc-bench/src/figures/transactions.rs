//! Pictures of the transaction store's results.

use super::bars::{ERPC, from_zero, push_bar};
use super::chart::{Axis, Chart, Group, Panel, Plot, Scale, Series};
use super::data::{Row, distinct, median_of};

/// Workloads of the transaction store: their name in the data and in pictures, and their style.
const TRANSACTIONS: [(&str, &str, usize); 2] = [("tatp", "TATP", 0), ("smallbank", "SmallBank", 1)];

pub(super) fn txn_mem(rows: &[Row]) -> Chart {
    let workloads = [
        ("tatp", "TATP"),
        ("smallbank", "SmallBank"),
        ("objects(1,0)", "O(1,0)"),
        ("objects(4,0)", "O(4,0)"),
        ("objects(4,2)", "O(4,2)"),
    ];
    let mut bars = Vec::new();
    for (workload, label) in workloads {
        push_bar(&mut bars, (label, ERPC), (rows, "mtps", None), |row| {
            row.is("workload", workload) && row.has("nodes", 3.0)
        });
    }
    let groups = vec![Group { title: String::new(), bars }];
    Chart {
        title: "Transactions per second of CPU time, over memory",
        subtitle: "Three nodes with all data each (f = 2), on one thread. Higher is better.",
        plot: Plot::Bars {
            x: from_zero("million commits per second of CPU time", &groups),
            groups,
        },
    }
}

/// A panel per workload, with the latencies by the commits per second.
pub(super) fn txn_load(rows: &[Row]) -> Chart {
    let quantiles = [("median", "p50_us", 0), ("99th percentile", "p99_us", 1)];
    let panel = |(workload, title, _): (&str, &str, usize)| {
        let series = quantiles.map(|(name, field, style)| {
            let point = |tasks: f64| {
                let of = |row: &Row| row.is("workload", workload) && row.has("tasks", tasks);
                Some((median_of(rows, "mtps", of)? * 1e3, median_of(rows, field, of)?))
            };
            let points = distinct(rows, "tasks").into_iter().filter_map(point).collect();
            Series { name, style, dashed: false, points }
        });
        Panel { title: title.to_owned(), series: series.into() }
    };
    let most = rows.iter().filter_map(|row| row.number("mtps")).fold(0.001, f64::max) * 1e3;
    let label = "thousand commits per second";
    let x = Axis { label, scale: Scale::Linear, range: (0.0, most) };
    let y = Axis { label: "latency, us", scale: Scale::Log, range: (10.0, 100_000.0) };
    Chart {
        title: "Latency of transactions by load, UDP over loopback",
        subtitle: "Three nodes, f = 2; 1 to 64 transactions in flight at each. The vertical axis is logarithmic.",
        plot: Plot::Lines { x, y, panels: TRANSACTIONS.map(panel).into() },
    }
}

pub(super) fn txn_growth(rows: &[Row]) -> Chart {
    let series = TRANSACTIONS.map(|(workload, name, style)| {
        let point = |nodes: f64| {
            let of = |row: &Row| row.is("workload", workload) && row.has("nodes", nodes);
            Some((nodes, median_of(rows, "mtps", of)? * 1e3))
        };
        let points = distinct(rows, "nodes").into_iter().filter_map(point).collect();
        Series { name, style, dashed: false, points }
    });
    let most = rows.iter().filter_map(|row| row.number("mtps")).fold(0.001, f64::max) * 1e3;
    let label = "1,000 commits per CPU second";
    let x = Axis { label: "nodes", scale: Scale::Log, range: (2.0, 32.0) };
    let y = Axis { label, scale: Scale::Linear, range: (0.0, most) };
    Chart {
        title: "Transactions per second of CPU time by the number of nodes, over memory",
        subtitle: "All nodes on one thread, f = 2. The horizontal axis is logarithmic. Higher is better.",
        plot: Plot::Lines {
            x,
            y,
            panels: vec![Panel { title: String::new(), series: series.into() }],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::data;
    use super::*;

    #[test]
    fn transactions_have_a_panel_per_workload_and_points_by_load() {
        let line = |workload, tasks, mtps, p50| {
            format!(
                "{{\"workload\":\"{workload}\",\"tasks\":{tasks},\"mtps\":{mtps},\"p50_us\":{p50}}}\n"
            )
        };
        let text =
            [line("tatp", 8, 0.2, 60), line("tatp", 1, 0.1, 50), line("smallbank", 1, 0.05, 90)];
        let Plot::Lines { panels, .. } =
            txn_load(&data::rows(&text.concat()).expect("the test's data is valid")).plot
        else {
            panic!("not a chart of lines")
        };
        let shown =
            panels.iter().map(|panel| (panel.title.as_str(), panel.series[0].points.clone()));
        let expected =
            [("TATP", vec![(100.0, 50.0), (200.0, 60.0)]), ("SmallBank", vec![(50.0, 90.0)])];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
    }
}
