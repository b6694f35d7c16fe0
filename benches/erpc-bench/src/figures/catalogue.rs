//! The pictures: where the data is, and what is drawn of it.

use std::path::Path;

use super::bars::{BARE, ERPC, from_zero, push_bar};
use super::chart::{Axis, Bar, Chart, Group, Panel, Plot, Scale, Series};
use super::data::{self, Row, distinct, median_of};
use super::transactions::{txn_growth, txn_load, txn_mem, txn_peers};
use crate::failure::Failure;

/// A picture, and how to draw it.
pub(super) struct Figure {
    pub(super) name: &'static str,
    /// Name of the file with the results.
    pub(super) data: &'static str,
    draw: fn(&[Row]) -> Chart,
}

pub(super) const FIGURES: [Figure; 19] = [
    Figure { name: "calls", data: "calls.jsonl", draw: calls },
    Figure { name: "latency", data: "calls.jsonl", draw: latency },
    Figure { name: "sessions", data: "sessions.jsonl", draw: sessions },
    Figure { name: "typed", data: "typed.jsonl", draw: typed },
    Figure { name: "loss", data: "loss.jsonl", draw: loss },
    Figure { name: "recovery", data: "recovery.jsonl", draw: recovery },
    Figure { name: "incast-rtt", data: "incast.jsonl", draw: incast_rtt },
    Figure { name: "incast-throughput", data: "incast.jsonl", draw: incast_throughput },
    Figure { name: "incast-queue", data: "incast-trace.jsonl", draw: incast_queue },
    Figure { name: "paths-throughput", data: "paths.jsonl", draw: paths_throughput },
    Figure { name: "paths-queue", data: "paths.jsonl", draw: paths_queue },
    Figure { name: "paths-fairness", data: "paths.jsonl", draw: paths_fairness },
    Figure { name: "paths-one-client", data: "paths.jsonl", draw: paths_one_client },
    Figure { name: "scale", data: "scale.jsonl", draw: scale },
    Figure { name: "queue", data: "queue.jsonl", draw: queue },
    Figure { name: "txn-mem", data: "txn-mem.jsonl", draw: txn_mem },
    Figure { name: "txn-load", data: "txn-load.jsonl", draw: txn_load },
    Figure { name: "txn-growth", data: "txn-growth.jsonl", draw: txn_growth },
    Figure { name: "txn-peers", data: "txn-peers.jsonl", draw: txn_peers },
];

impl Figure {
    /// Draws the picture from the data in `folder`.
    pub(super) fn svg(&self, folder: &Path) -> Result<String, Failure> {
        let path = folder.join(self.data);
        let chart = (self.draw)(&data::read(&path)?);
        let is_empty = match &chart.plot {
            Plot::Lines { panels, .. } => {
                panels.iter().flat_map(|panel| &panel.series).all(|series| series.points.is_empty())
            }
            Plot::Bars { groups, .. } => groups.iter().all(|group| group.bars.is_empty()),
            Plot::Columns(columns) => {
                columns.iter().flat_map(|(_, groups)| groups).all(|group| group.bars.is_empty())
            }
        };
        if is_empty {
            let why = format!("{} has no lines for the picture {}", path.display(), self.name);
            return Err(Failure::new(why));
        }
        Ok(chart.svg(self.name))
    }
}

/// Congestion control: its name in the data, its name in pictures, its style.
const CONTROLS: [(&str, &str, usize); 5] = [
    ("none", "no control", 4),
    ("swift", "Swift", 0),
    ("timely", "Timely", 1),
    ("dcqcn", "DCQCN", 2),
    ("thesis", "Timely (thesis)", 5),
];

/// A bar: its workload, its stack (program and system calls), its label and its style.
type Echo = (&'static str, &'static str, &'static str, usize);

fn echoes(
    rows: &[Row],
    field: &str,
    upper: Option<&str>,
    groups: &[(&str, &[Echo])],
) -> Vec<Group> {
    let group = |(title, echoes): &(&str, &[Echo])| {
        let mut bars = Vec::new();
        for (workload, stack, label, style) in *echoes {
            push_bar(&mut bars, (label, *style), (rows, field, upper), |row| {
                row.is("workload", workload) && row.is("stack", stack)
            });
        }
        Group { title: (*title).to_owned(), bars }
    };
    groups.iter().map(group).filter(|group| !group.bars.is_empty()).collect()
}

fn calls(rows: &[Row]) -> Chart {
    let groups: [(&str, &[Echo]); 4] = [
        ("32-byte echo, one datagram per system call", &[("w2", "raw", "bare sockets", BARE)]),
        (
            "32-byte echo, without offload",
            &[
                ("w2", "raw-mmsg", "bare sockets, sendmmsg", BARE),
                ("w2", "erpc-no-offload", "erpc, --no-offload", ERPC),
            ],
        ),
        (
            "32-byte echo, UDP_SEGMENT and UDP_GRO",
            &[("w2", "raw-gso", "bare sockets", BARE), ("w2", "erpc", "erpc, the default", ERPC)],
        ),
        ("Typed protobuf Get, the same system calls", &[("w4", "erpc", "erpc", ERPC)]),
    ];
    let mut groups = echoes(rows, "rps", None, &groups);
    for bar in groups.iter_mut().flat_map(|group| &mut group.bars) {
        bar.value /= 1e6;
    }
    Chart {
        title: "Calls per second between two cores, UDP over loopback",
        subtitle: "64 calls in flight, client and server on one core each. Higher is better.",
        plot: Plot::Bars { x: from_zero("million calls per second", &groups), groups },
    }
}

fn latency(rows: &[Row]) -> Chart {
    let echoes_of: [(&str, &[Echo]); 2] = [
        ("32-byte echo", &[("w1", "raw", "bare sockets", BARE), ("w1", "erpc", "erpc", ERPC)]),
        ("Typed protobuf Get", &[("w4", "erpc", "erpc", ERPC)]),
    ];
    let single: Vec<Row> = rows.iter().filter(|row| row.has("outstanding", 1.0)).cloned().collect();
    let groups = echoes(&single, "p50_us", Some("p99_us"), &echoes_of);
    Chart {
        title: "Latency of one call at a time, UDP over loopback",
        subtitle: "Median; where it was recorded, a line to the 99th percentile. Lower is better.",
        plot: Plot::Bars { x: from_zero("latency, us", &groups), groups },
    }
}

fn sessions(rows: &[Row]) -> Chart {
    let lines = [
        ("1 call in flight on each", 0, Some(1.0)),
        ("8 calls in flight on each", 1, Some(8.0)),
        ("64 calls in flight, each on a session chosen at random", 2, None),
    ];
    let series = |(name, style, window): (&'static str, usize, Option<f64>)| {
        let random = if window.is_none() { 1.0 } else { 0.0 };
        let point = |count: f64| {
            let calls = window.map_or(64.0, |window| window * count);
            let cost = median_of(rows, "cpu_ns_per_rpc", |row| {
                row.has("sessions", count)
                    && row.has("outstanding", calls)
                    && row.has("random", random)
            });
            cost.map(|cost| (count, cost))
        };
        let points = distinct(rows, "sessions").into_iter().filter_map(point).collect();
        Series { name, style, dashed: false, points }
    };
    let x = Axis { label: "sessions", scale: Scale::Log, range: (8.0, 32_768.0) };
    let y = Axis { label: "CPU time per call, ns", scale: Scale::Linear, range: (0.0, 400.0) };
    let panel = Panel { title: String::new(), series: lines.into_iter().map(series).collect() };
    Chart {
        title: "CPU time of a 32-byte call, client and server together, by the sessions in use",
        subtitle: "In memory, on one core. The horizontal axis is logarithmic. Lower is better.",
        plot: Plot::Lines { x, y, panels: vec![panel] },
    }
}

fn typed(rows: &[Row]) -> Chart {
    let bars = rows.iter().filter_map(|row| {
        let (form, value) = (row.text("typed")?, row.number("ns_over_raw")?);
        let style = if form.starts_with("fixed") { 2 } else { ERPC };
        (form != "raw").then(|| Bar { label: form.to_owned(), style, value, upper: None })
    });
    let groups = vec![Group { title: String::new(), bars: bars.collect() }];
    Chart {
        title: "What types and endpoints add to a call of the raw layer",
        subtitle: "CPU time of client and server on one thread, less that of the same call as bytes.",
        plot: Plot::Bars { x: from_zero("additional CPU time per call, ns", &groups), groups },
    }
}

fn loss(rows: &[Row]) -> Chart {
    let series = |name, net, style, large: bool, dashed| {
        let of = |row: &&Row| row.is("net", net) && (row.number("size") > Some(1e6)) == large;
        let points = rows.iter().filter(of);
        let mut points: Vec<(f64, f64)> =
            points.filter_map(|row| Some((row.number("rate")?, row.number("ratio")?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series { name, style, dashed, points }
    };
    let all = vec![
        series("simulated, 8 MiB requests", "sim", 0, true, false),
        series("in memory, 8 MiB requests", "mem", 2, true, false),
        series("simulated, 64 calls of 32 bytes", "sim", 3, false, true),
        series("in memory, 64 calls of 32 bytes", "mem", 4, false, true),
        series("thesis, 8 MiB requests", "thesis", 5, true, false),
    ];
    let panel = Panel {
        title: String::new(),
        series: all.into_iter().filter(|series| !series.points.is_empty()).collect(),
    };
    let x =
        Axis { label: "part of the packets that is lost", scale: Scale::Log, range: (5e-6, 2e-2) };
    let y = Axis { label: "part of the goodput", scale: Scale::Linear, range: (0.0, 1.05) };
    Chart {
        title: "Goodput under loss, relative to the same run without loss",
        subtitle: "Each packet is lost independently, in both directions, control packets included.",
        plot: Plot::Lines { x, y, panels: vec![panel] },
    }
}

fn recovery(rows: &[Row]) -> Chart {
    let kinds = [
        ("request", "The request, one packet"),
        ("response", "The response, one packet"),
        ("last_of_request", "The last of five packets of a request"),
        ("last_of_response", "The last of five packets of a response"),
        ("30_requests", "30 requests at once"),
    ];
    let mut groups = Vec::new();
    for (lost, title) in kinds {
        let mut bars = Vec::new();
        for outstanding in distinct(rows, "outstanding") {
            let label = format!("{outstanding} in flight");
            let fields = (rows, "p50_us", Some("p99_us"));
            push_bar(&mut bars, (&label, ERPC), fields, |row| {
                row.is("net", "sim") && row.is("lost", lost) && row.has("outstanding", outstanding)
            });
        }
        groups.push(Group { title: title.to_owned(), bars });
    }
    groups.retain(|group| !group.bars.is_empty());
    Chart {
        title: "Latency of a call that loses a packet, simulated: 100 Gb/s, round trip 5 us",
        subtitle: "Dot: median. End of the line: 99th percentile. The timeout is 50 us above the round trip.",
        plot: Plot::Bars { x: from_zero("latency of the call, us", &groups), groups },
    }
}

/// A group per number of clients, with a bar per congestion control.
fn by_ways(rows: &[Row], field: &str, upper: Option<&str>) -> Vec<Group> {
    let group = |ways: f64| {
        let mut bars = Vec::new();
        for (cc, label, style) in CONTROLS {
            push_bar(&mut bars, (label, style), (rows, field, upper), |row| {
                row.has("ways", ways) && row.is("cc", cc)
            });
        }
        Group { title: format!("{ways} clients"), bars }
    };
    distinct(rows, "ways").into_iter().map(group).collect()
}

fn incast_rtt(rows: &[Row]) -> Chart {
    let x = Axis { label: "round trip of a packet, us", scale: Scale::Log, range: (5.0, 2_000.0) };
    Chart {
        title: "Incast: round trips of the clients' packets, simulated: 25 Gb/s, 6 us without a queue",
        subtitle: "Dot: median. End of the line: 99th percentile. The axis is logarithmic. Lower is better.",
        plot: Plot::Bars { x, groups: by_ways(rows, "rtt_p50_us", Some("rtt_p99_us")) },
    }
}

fn incast_throughput(rows: &[Row]) -> Chart {
    let x = Axis { label: "goodput of the server, Gb/s", scale: Scale::Linear, range: (0.0, 25.0) };
    Chart {
        title: "Incast: goodput of the server, simulated: 25 Gb/s",
        subtitle: "23.4 Gb/s are achievable: the rest of the link carries headers. Higher is better.",
        plot: Plot::Bars { x, groups: by_ways(rows, "gbps", None) },
    }
}

fn incast_queue(rows: &[Row]) -> Chart {
    let panel = |ways: f64| {
        let series = |(cc, name, style): (&str, &'static str, usize)| {
            let of = |row: &&Row| row.has("ways", ways) && row.is("cc", cc);
            let point = |row: &Row| Some((row.number("at_ms")?, row.number("queue_bytes")? / 1e3));
            let points = rows.iter().filter(of).filter_map(point).collect();
            Series { name, style, dashed: false, points }
        };
        let series = CONTROLS.into_iter().map(series);
        Panel {
            title: format!("{ways} clients"),
            series: series.filter(|series| !series.points.is_empty()).collect(),
        }
    };
    let last = distinct(rows, "at_ms").pop().unwrap_or(1.0);
    let x = Axis { label: "time since the start, ms", scale: Scale::Linear, range: (0.0, last) };
    let y = Axis { label: "queue, kB", scale: Scale::Log, range: (1.0, 10_000.0) };
    Chart {
        title: "Incast: bytes that wait for the server's link, simulated: 25 Gb/s",
        subtitle: "Means of 0.5 ms. The vertical axis is logarithmic. Lower is better.",
        plot: Plot::Lines { x, y, panels: distinct(rows, "ways").into_iter().map(panel).collect() },
    }
}

/// A panel per rate of the link. Each has up to three lines: for Swift, for Swift if the endpoints
/// do not know the rate, and for Timely.
fn paths(rows: &[Row], flows: f64, field: &str) -> Vec<Panel> {
    let lines = [
        ("Swift", "swift", 0.0, 0),
        ("Swift, rate of the link unknown", "swift", 1.0, 3),
        ("Timely", "timely", 0.0, 1),
    ];
    let panel = |gbps: f64| {
        let series = lines.map(|(name, cc, unknown_rate, style)| {
            let of = |row: &&Row| {
                row.has("flows", flows)
                    && row.has("link_gbps", gbps)
                    && row.is("cc", cc)
                    && row.has("unknown_rate", unknown_rate)
            };
            let point = |row: &Row| Some((row.text("rtt_us")?.parse().ok()?, row.number(field)?));
            let mut points: Vec<(f64, f64)> = rows.iter().filter(of).filter_map(point).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Series { name, style, dashed: unknown_rate > 0.0, points }
        });
        let series = series.into_iter().filter(|series| !series.points.is_empty()).collect();
        Panel { title: format!("{gbps} Gb/s"), series }
    };
    distinct(rows, "link_gbps").into_iter().map(panel).collect()
}

fn trips() -> Axis {
    let label = "round trip through empty queues, us";
    Axis { label, scale: Scale::Log, range: (5.0, 60_000.0) }
}

fn paths_throughput(rows: &[Row]) -> Chart {
    let label = "part of the achievable";
    let y = Axis { label, scale: Scale::Linear, range: (0.0, 1.05) };
    Chart {
        title: "Paths: goodput of 20 clients, by round trip and rate of the links, simulated",
        subtitle: "1 is what the link, or the server's memory, allows. Higher is better.",
        plot: Plot::Lines { x: trips(), y, panels: paths(rows, 20.0, "ratio") },
    }
}

fn paths_queue(rows: &[Row]) -> Chart {
    let label = "queueing delay, us";
    let y = Axis { label, scale: Scale::Log, range: (1.0, 20_000.0) };
    Chart {
        title: "Paths: median queueing delay with 20 clients, by round trip and rate, simulated",
        subtitle: "The vertical axis is logarithmic; delays below 1 us are drawn at 1 us. Lower is better.",
        plot: Plot::Lines { x: trips(), y, panels: paths(rows, 20.0, "queue_p50_us") },
    }
}

fn paths_fairness(rows: &[Row]) -> Chart {
    let y = Axis { label: "Jain's index", scale: Scale::Linear, range: (0.0, 1.05) };
    Chart {
        title: "Paths: fairness among 20 clients, by round trip and rate of the links, simulated",
        subtitle: "Jain's index over 100 round trips: 1 if all clients get the same, 0.05 if one gets all.",
        plot: Plot::Lines { x: trips(), y, panels: paths(rows, 20.0, "jain") },
    }
}

fn paths_one_client(rows: &[Row]) -> Chart {
    let label = "part of the achievable";
    let y = Axis { label, scale: Scale::Linear, range: (0.0, 1.05) };
    Chart {
        title: "Paths: goodput of one client, by round trip and rate of the links, simulated",
        subtitle: "1 is what the link, or the server's memory, allows. Higher is better.",
        plot: Plot::Lines { x: trips(), y, panels: paths(rows, 1.0, "ratio") },
    }
}

fn scale(rows: &[Row]) -> Chart {
    let mut bars = Vec::new();
    for threads in distinct(rows, "threads") {
        let plural = if threads > 1.0 { "threads" } else { "thread" };
        let label = format!("{threads} {plural} per node");
        let fields = (rows, "p50_us", Some("p9999_us"));
        push_bar(&mut bars, (&label, ERPC), fields, |row| row.has("threads", threads));
    }
    let groups = vec![Group { title: String::new(), bars }];
    Chart {
        title: "100 nodes that call each other: latency of a call, simulated: 25 Gb/s",
        subtitle: "Dot: median. End of the line: 99.99th percentile. 60 calls of 32 bytes in flight per thread.",
        plot: Plot::Bars { x: from_zero("latency, us", &groups), groups },
    }
}

fn queue(rows: &[Row]) -> Chart {
    let mut groups = Vec::new();
    for (marking, port) in [(0.0, "tbf"), (1.0, "a router that marks")] {
        for gbps in distinct(rows, "link_gbps") {
            let mut bars = Vec::new();
            for (cc, label, style) in CONTROLS {
                let fields = (rows, "queue_delay_p50_us", Some("queue_delay_p99_us"));
                push_bar(&mut bars, (label, style), fields, |row| {
                    row.has("link_gbps", gbps) && row.has("marking", marking) && row.is("cc", cc)
                });
            }
            for bar in &mut bars {
                (bar.value, bar.upper) = (bar.value / 1e3, bar.upper.map(|upper| upper / 1e3));
            }
            groups.push(Group { title: format!("{:.0} Mb/s, {port}", gbps * 1e3), bars });
        }
    }
    groups.retain(|group| !group.bars.is_empty());
    let x = Axis { label: "queueing delay, ms", scale: Scale::Log, range: (0.1, 100.0) };
    Chart {
        title: "20 clients and one slow port, over the kernel's UDP: queueing delay",
        subtitle: "Dot: median. End of the line: 99th percentile. The axis is logarithmic. Lower is better.",
        plot: Plot::Bars { x, groups },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Vec<Row> {
        data::rows(text).expect("the test's data is valid")
    }

    #[test]
    fn names_are_unique() {
        let mut names = FIGURES.each_ref().map(|figure| figure.name);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn several_runs_give_the_median() {
        let rows = rows(
            "{\"workload\":\"w2\",\"stack\":\"erpc\",\"rps\":5000000}
             {\"workload\":\"w2\",\"stack\":\"erpc\",\"rps\":1000000}
             {\"workload\":\"w2\",\"stack\":\"erpc\",\"rps\":6000000}
             {\"workload\":\"w1\",\"stack\":\"erpc\",\"rps\":9000000}",
        );
        let Plot::Bars { groups, .. } = calls(&rows).plot else { panic!("not a bar chart") };
        assert_eq!(groups.len(), 1, "groups without results are left out");
        assert_eq!(groups[0].bars.len(), 1);
        assert_eq!(groups[0].bars[0].value, 5.0);
    }

    #[test]
    fn an_incast_has_a_group_per_number_of_clients() {
        let rows = rows(
            "{\"ways\":50,\"cc\":\"swift\",\"rtt_p50_us\":27,\"rtt_p99_us\":37}
             {\"ways\":20,\"cc\":\"swift\",\"rtt_p50_us\":25,\"rtt_p99_us\":null}
             {\"ways\":20,\"cc\":\"none\",\"rtt_p50_us\":225,\"rtt_p99_us\":226}",
        );
        let groups = by_ways(&rows, "rtt_p50_us", Some("rtt_p99_us"));
        let shown = groups.iter().map(|group| {
            let bars = group.bars.iter().map(|bar| (bar.label.as_str(), bar.value, bar.upper));
            (group.title.as_str(), bars.collect::<Vec<_>>())
        });
        let expected = [
            ("20 clients", vec![("no control", 225.0, Some(226.0)), ("Swift", 25.0, None)]),
            ("50 clients", vec![("Swift", 27.0, Some(37.0))]),
        ];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn paths_have_a_panel_per_rate_and_sorted_round_trips() {
        let line = |rtt, gbps, cc, unknown| {
            format!(
                "{{\"rtt_us\":\"{rtt}\",\"link_gbps\":{gbps},\"flows\":20,\"cc\":\"{cc}\",\
                 \"unknown_rate\":{unknown},\"ratio\":0.5}}\n"
            )
        };
        let text = [
            line(1_000, 1, "swift", 0),
            line(6, 1, "swift", 0),
            line(6, 1, "timely", 0),
            line(6, 25, "swift", 1),
        ];
        let panels = paths(&rows(&text.concat()), 20.0, "ratio");
        let shown = panels.iter().map(|panel| {
            let series = panel.series.iter().map(|series| (series.name, series.points.clone()));
            (panel.title.as_str(), series.collect::<Vec<_>>())
        });
        let expected = [
            (
                "1 Gb/s",
                vec![("Swift", vec![(6.0, 0.5), (1_000.0, 0.5)]), ("Timely", vec![(6.0, 0.5)])],
            ),
            ("25 Gb/s", vec![("Swift, rate of the link unknown", vec![(6.0, 0.5)])]),
        ];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_file_without_a_fitting_line_is_an_error_that_names_both() {
        let folder = std::env::temp_dir().join(format!("erpc-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        std::fs::write(folder.join("scale.jsonl"), "{\"ways\":1}\n").expect("it can be written");
        let figure = FIGURES.iter().find(|figure| figure.name == "scale").expect("it exists");
        let error = figure.svg(&folder).expect_err("nothing can be drawn").to_string();
        std::fs::remove_dir_all(&folder).expect("the folder can be removed");
        assert!(error.ends_with("scale.jsonl has no lines for the picture scale"), "{error}");
    }
}
