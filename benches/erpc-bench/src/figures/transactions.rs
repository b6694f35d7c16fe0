//! Pictures of the transaction store's results.

use super::bars::{BARE, ERPC, from_zero, push_bar};
use super::chart::{Axis, Bar, Chart, Group, Panel, Plot, Scale, Series};
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
        for (is_large, size) in [(false, ""), (true, ", 1,000,000 rows per node")] {
            let label = format!("{label}{size}");
            push_bar(&mut bars, (&label, ERPC), (rows, "mtps", None), |row| {
                let rows = row.has("rows_per_thread", 1e6);
                row.is("workload", workload) && row.has("nodes", 3.0) && rows == is_large
            });
        }
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

/// A column with the commits per second, and one with the CPU time of a commit.
pub(super) fn txn_peers(rows: &[Row]) -> Chart {
    // The rows of `benches/compare-txn`, what they promise, and their style.
    let stores = [
        ("Redis", "memory of one process", BARE),
        ("PostgreSQL, fsync", "disk of one server", BARE),
        ("PostgreSQL, synchronous_commit off", "disk, later", BARE),
        ("erpc-txn, outside, f = 2", "memory of three nodes", ERPC),
        ("erpc-txn, outside, f = 0", "memory of one node", ERPC),
        ("erpc-txn, members, f = 2", "memory of three nodes", ERPC),
        ("erpc-txn, members, f = 0", "memory of one node", ERPC),
    ];
    let workloads = [("smallbank", "SmallBank"), ("tatp-reads", "TATP, what only reads")];
    // `median` is that of a store's rows, for a workload.
    let groups = |median: &dyn Fn(&str, &str) -> Option<f64>| {
        let group = |(workload, title): (&str, &str)| {
            let bars = stores.iter().filter_map(|&(store, promise, style)| {
                let label = format!("{store}: {promise}");
                Some(Bar { label, style, value: median(store, workload)?, upper: None })
            });
            Group { title: title.to_owned(), bars: bars.collect() }
        };
        let groups = workloads.into_iter().map(group);
        groups.filter(|group| !group.bars.is_empty()).collect::<Vec<_>>()
    };
    let of = |store: &str, workload: &str, field: &str| {
        let wanted = |row: &Row| row.is("store", store) && row.is("workload", workload);
        median_of(rows, field, wanted)
    };
    // A client prints commits per second, `erpc-txn bench` millions of them.
    let commits = groups(&|store, workload| {
        let of_client = of(store, workload, "commits_per_s").map(|rate| rate / 1e3);
        of_client.or_else(|| of(store, workload, "mtps").map(|rate| rate * 1e3))
    });
    let cpu = groups(&|store, workload| of(store, workload, "cpu_us_per_txn"));
    Chart {
        title: "Transactions of Redis, PostgreSQL and erpc-txn on two cores",
        subtitle: "Behind each store: where a commit is when it is answered. More commits and less CPU time are better.",
        plot: Plot::Columns(vec![
            (from_zero("thousand commits per second", &commits), commits),
            (from_zero("CPU time per commit, us", &cpu), cpu),
        ]),
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

    #[test]
    fn populations_of_two_sizes_have_a_bar_each() {
        let text = "{\"workload\":\"tatp\",\"nodes\":3,\"mtps\":0.3}\n\
            {\"workload\":\"tatp\",\"nodes\":3,\"rows_per_thread\":100000,\"mtps\":0.3}\n\
            {\"workload\":\"tatp\",\"nodes\":3,\"rows_per_thread\":1000000,\"mtps\":0.2}\n";
        let rows = data::rows(text).expect("the test's data is valid");
        let Plot::Bars { groups, .. } = txn_mem(&rows).plot else { panic!("not a chart of bars") };
        let shown = groups[0].bars.iter().map(|bar| (bar.label.as_str(), bar.value));
        let expected = [("TATP", 0.3), ("TATP, 1,000,000 rows per node", 0.2)];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn stores_have_a_bar_for_commits_and_one_for_cpu_time() {
        let text = "{\"store\":\"Redis\",\"workload\":\"smallbank\",\"commits_per_s\":23035,\
            \"cpu_us_per_txn\":38.4}\n{\"store\":\"erpc-txn, members, f = 2\",\
            \"workload\":\"smallbank\",\"mtps\":0.01729,\"cpu_us_per_txn\":38.7}\n";
        let rows = data::rows(text).expect("the test's data is valid");
        let Plot::Columns(columns) = txn_peers(&rows).plot else { panic!("not columns of bars") };
        let shown = columns.iter().map(|(_, groups)| {
            assert_eq!(groups.len(), 1, "nothing was measured for TATP");
            groups[0].bars.iter().map(|bar| (bar.label.as_str(), (bar.value * 100.0).round()))
        });
        let (redis, members) =
            ("Redis: memory of one process", "erpc-txn, members, f = 2: memory of three nodes");
        let expected =
            [vec![(redis, 2304.0), (members, 1729.0)], vec![(redis, 3840.0), (members, 3870.0)]];
        assert_eq!(shown.map(Iterator::collect::<Vec<_>>).collect::<Vec<_>>(), expected);
    }
}
