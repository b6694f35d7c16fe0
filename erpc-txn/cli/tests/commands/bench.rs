//! `bench`.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process, test_kill_process};

use crate::program::{Program, fails, run};

/// Runs a benchmark, longer on a busy machine, until it has made at least `commits`. Returns its
/// figures.
fn figures(args: &str, commits: f64) -> impl Fn(&str) -> f64 {
    for secs in [0.3, 1.0, 4.0] {
        let figure = figures_of(args, secs);
        if figure("commits") >= commits {
            return figure;
        }
    }
    let figure = figures_of(args, 16.0);
    assert!(figure("commits") >= commits, "{args}: {} commits", figure("commits"));
    figure
}

/// Runs and checks a benchmark for a time, and returns the figures of its line of JSON.
fn figures_of(args: &str, secs: f64) -> impl Fn(&str) -> f64 + use<> {
    unchecked(&format!("{args} --check"), secs)
}

/// Runs a benchmark for a time, and returns the figures of its line of JSON.
fn unchecked(args: &str, secs: f64) -> impl Fn(&str) -> f64 + use<> {
    let all = format!("bench {args} --secs {secs} --rows 3000");
    let args: Vec<_> = all.split(' ').collect();
    let ended = run(&args, "");
    assert_eq!(ended.code, Some(0), "{all}: {ended:?}");
    let json = ended.output.last().expect("there is output").clone();
    assert!(json.starts_with('{') && json.ends_with('}'), "{json}");
    move |name| {
        let start = json.find(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{name}: {json}"));
        let rest = &json[start + name.len() + 3..];
        let value = rest.split([',', '}']).next().unwrap_or_default();
        value.parse().unwrap_or_else(|_| panic!("{name} is {value}: {json}"))
    }
}

#[test]
fn each_workload_runs_and_is_serializable() {
    // Requests per attempt and their bounds, which are wide: attempts that conflict make fewer, and
    // some are measured in part. The exact numbers are tested in a simulation.
    for (args, low, high) in [
        ("tatp", 2.1, 2.75),
        ("smallbank", 6.0, 8.5),
        ("objects --reads 1 --writes 0", 0.99, 1.01),
        ("objects --reads 4 --writes 0", 7.9, 8.1),
        ("objects --reads 4 --writes 2", 10.0, 14.2),
        ("ycsb --mix a", 2.0, 3.6),
        ("ycsb --mix D --attempts 5", 1.0, 1.4),
    ] {
        let figure = figures(args, 1000.0);
        assert!(figure("attempts") >= figure("commits"));
        assert_eq!(figure("anomalies"), 0.0);
        let requests = figure("requests_per_attempt");
        assert!((low..=high).contains(&requests), "{args}: {requests} requests");
        assert!(figure("messages_per_attempt") <= requests);
        assert!((0.2..0.45).contains(&figure("local_share")), "{args}");
        assert!(figure("mtps") > 0.0 && figure("cpu_us_per_txn") > 0.0);
        assert!(figure("p50_us") > 0.0 && figure("p99_us") >= figure("p50_us"));
        assert!((0.0..0.9).contains(&figure("abort_rate")), "{args}");
    }
}

#[test]
fn a_benchmark_runs_over_udp_with_several_threads() {
    let figure =
        figures("smallbank --transport udp --threads 2 --nodes 2 --replicas 2 --tasks 4", 20.0);
    assert_eq!(figure("anomalies"), 0.0);
}

#[test]
fn each_node_may_have_a_process() {
    let args = "tatp --transport udp --processes --threads 2 --tasks 4";
    let run = |secs| {
        let figure = unchecked(args, secs);
        (figure("commits") >= 50.0).then_some(figure)
    };
    let figure = [0.3, 4.0, 16.0].into_iter().find_map(run).expect("some transactions commit");
    assert!((2.0..2.8).contains(&figure("requests_per_attempt")));
    assert!((0.2..0.45).contains(&figure("local_share")), "all three nodes make transactions");
    assert!(figure("p50_us") > 0.0 && figure("p99_us") >= figure("p50_us"));
    assert!(figure("cpu_us_per_txn") > 0.0 && figure("mtps") > 0.0);
}

#[test]
fn the_end_of_one_process_ends_a_run() {
    let args = "bench tatp --transport udp --processes --rows 1000 --secs 300";
    let bench = Program::start(&args.split(' ').collect::<Vec<_>>(), "");
    let began = Instant::now();
    let members = loop {
        assert!(began.elapsed() < Duration::from_secs(60), "there are no three processes");
        let members = bench.children();
        if members.len() == 3 {
            break members;
        }
        thread::yield_now();
    };
    kill_process(members[1], Signal::KILL).expect("it runs");
    let ended = bench.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let said = ended.errors.iter().any(|line| line.starts_with("erpc-txn: the process of node 1"));
    assert!(said, "{ended:?}");
    for member in members {
        assert!(test_kill_process(member).is_err(), "a process outlives the benchmark");
    }
}

#[test]
fn a_run_stays_flat() {
    let args = "bench smallbank --transport udp --tasks 2 --rows 2000 --secs 20 --interval 1";
    let ended = run(&args.split(' ').collect::<Vec<_>>(), "");
    let intervals = ended.output.iter().filter(|line| line.starts_with("{\"at_s\":"));
    assert_eq!(intervals.count(), 20, "{ended:?}");
    let verdict = ended.output.iter().find(|line| line.starts_with("{\"memory_flat\":"));
    let verdict = verdict.unwrap_or_else(|| panic!("no verdict: {ended:?}"));
    assert!(verdict.starts_with("{\"memory_flat\":true"), "{verdict}");
    assert!(verdict.contains("\"logs_flat\":true"), "{verdict}");
    // Other load on the machine makes latencies grow. Then this must be said.
    let is_flat = !verdict.contains("_flat\":false");
    assert_eq!(ended.code, Some(if is_flat { 0 } else { 1 }), "{ended:?}");
    let is_named = ended.errors.iter().any(|line| line.contains("the run is not flat: p"));
    assert_eq!(is_named, !is_flat, "{ended:?}");
}

#[test]
fn the_last_interval_has_a_line_too() {
    let args = "bench smallbank --rows 2000 --secs 0.9 --interval 0.3";
    let ended = run(&args.split(' ').collect::<Vec<_>>(), "");
    let begins = |start: &str| ended.output.iter().filter(|line| line.starts_with(start)).count();
    assert_eq!(begins("{\"at_s\":"), 3, "{ended:?}");
    // Three intervals are enough for a verdict.
    assert_eq!(begins("{\"memory_flat\":"), 1, "{ended:?}");
    assert!(!ended.output.concat().contains("NaN"), "{ended:?}");
}

#[test]
fn all_local_transactions_end() {
    let figure = figures("objects --nodes 1 --replicas 1", 1000.0);
    assert_eq!((figure("messages_per_attempt"), figure("local_share")), (0.0, 1.0));
}

#[test]
fn people_get_tables() {
    let ended = run(&["bench", "tatp", "--secs", "0.2", "--rows", "1000"], "");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for start in ["tatp: 3 nodes, 3 replicas", "GET_ACCESS_DATA", "all ", "latency of commits"] {
        assert!(ended.output.iter().any(|line| line.starts_with(start)), "{start}: {ended:?}");
    }
    let json = ended.output.last().expect("there is output");
    assert!(json.contains("\"anomalies\":null"), "it was not checked: {json}");
}

#[test]
fn a_run_without_room_for_its_inserts_ends_and_says_so() {
    let args = "bench ycsb --mix d --rows 1000 --inserts 100 --secs 300";
    let ended = run(&args.split(' ').collect::<Vec<_>>(), "");
    let why = "erpc-txn: the room for 300 new records is used up; raise --inserts or lower --secs";
    assert_eq!((ended.code, ended.errors.last().map(String::as_str)), (Some(1), Some(why)));
    // Without its end, the run would have taken longer than a program may.
    assert!(ended.output.iter().any(|line| line.starts_with("INSERT")), "{ended:?}");
}

#[test]
fn impossible_settings_are_refused() {
    let bench = |args: &str, why: &str| {
        let args = format!("bench {args}");
        fails(&args.split(' ').collect::<Vec<_>>(), why);
    };
    bench("tatp --nodes 2", "--replicas 3 needs as many nodes");
    bench("tatp --threads 2", "use --transport udp for --threads");
    bench("tatp --secs 3 --interval 2", "--interval 2 does not fit three times into --secs 3");
    bench("tatp --secs 3 --interval 1 --check", "leave out --check or --interval");
    bench("tatp --rows 4294967296", "lower --rows");
    bench("tatp --processes", "--processes needs --transport udp");
    let processes = "tatp --transport udp --processes";
    bench(&format!("{processes} --check"), "--check and --interval look into all nodes");
    bench(&format!("ycsb --mix d {}", &processes[5..]), "--mix d counts records in one process");
    bench("ycsb --mix b --inserts 7", "only --mix d inserts");
    bench("objects --reads 2 --writes 3", "--writes 3 of --reads 2 keys");
    let ended = run(&["bench", "tatp", "--rows", "10", "--core", "9999"], "");
    let last = ended.errors.last().map(String::as_str);
    assert_eq!((ended.code, last), (Some(1), Some("erpc-txn: there is no core 9999")));
    for args in [
        "bench",
        "bench tpcc",
        "bench tatp --secs 0",
        "bench ycsb --mix e",
        "bench tatp --replicas 4",
    ] {
        let ended = run(&args.split(' ').collect::<Vec<_>>(), "");
        assert_eq!(ended.code, Some(2), "{args}: {ended:?}");
    }
}
