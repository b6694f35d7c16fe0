//! The quality of congestion control and loss recovery, with real endpoints in the simulated
//! network. `erpc-bench` measures the same for longer, and with other seeds.

use std::time::Duration;

use erpc_core::protocol::{CongestionControl, DcqcnConfig, SwiftConfig, TimelyConfig};
use erpc_core::transport::MIN_DATAGRAM;
use erpc_core::wire::HEADER_LEN;
use erpc_sim::lab::incast::{Incast, IncastReport};
use erpc_sim::lab::loss::{Goodput, Loss};
use erpc_sim::lab::paths::Paths;
use erpc_sim::lab::scale::Scale;
use erpc_sim::lab::{Lab, Load, Samples, Setting, Spread, incast, loss, paths, scale};
use erpc_sim::{LoopPauses, SimRoute};

const NONE: CongestionControl = CongestionControl::None;
const TIMELY: CongestionControl = CongestionControl::Timely(TimelyConfig::new());
const SWIFT: CongestionControl = CongestionControl::Swift(SwiftConfig::new());
const DCQCN: CongestionControl = CongestionControl::Dcqcn(DcqcnConfig::new());

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn lossy(rate: f64, request: usize, outstanding: usize, seed: u64) -> Goodput {
    let (control, loop_pauses, time) = (SWIFT, None, millis(20));
    loss::run(&Loss { rate, request, outstanding, control, loop_pauses, time, seed })
}

#[test]
fn the_goodput_of_large_requests_stays_above_the_bars_under_loss() {
    let lossless = lossy(0.0, 8 << 20, 1, 7);
    assert!(lossless.gbps > 90.0, "{lossless:?}");
    assert_eq!((lossless.counts.lost, lossless.counts.retransmissions.packets()), (0, 0));
    for (rate, bar) in [(1e-5, 0.98), (1e-4, 0.92), (1e-3, 0.70), (1e-2, 0.25)] {
        let lossy = lossy(rate, 8 << 20, 1, 7);
        assert!(lossy.gbps >= bar * lossless.gbps, "at {rate}: {lossy:?}");
        let counts = lossy.counts;
        let expected = counts.packets as f64 * rate;
        assert!((counts.lost as f64 - expected).abs() < 4.0 * expected.sqrt() + 1.0, "{counts:?}");
        assert!(counts.lost == 0 || counts.retransmissions.packets() > 0, "{counts:?}");
    }
}

#[test]
fn the_rate_of_small_calls_stays_above_its_bar_under_loss() {
    let (lossless, lossy) = (lossy(0.0, 32, 64, 8), lossy(1e-3, 32, 64, 8));
    assert!(lossy.counts.lost > 100, "{lossy:?}");
    assert!(
        lossy.calls_per_second >= 0.9 * lossless.calls_per_second,
        "{lossy:?}, without loss {lossless:?}"
    );
}

#[test]
fn without_control_a_path_of_any_length_reaches_the_limit_of_link_and_memory() {
    for (flows, micros, gbps) in [(1, 10, 25), (1, 100, 25), (1, 1_000, 10), (4, 300, 10)] {
        let asked = Paths::new(flows, Duration::from_micros(micros), gbps * 1_000, NONE);
        let report = paths::run(&asked);
        let ratio = report.gbps / report.achievable_gbps;
        assert!((0.97..=1.001).contains(&ratio), "{asked:?}: {report:?}");
        assert!(report.jain > 0.97 && report.counts.drops == 0, "{asked:?}: {report:?}");
    }
}

/// A path of 50 ms at 1 Gb/s with 16 MiB of memory, and a path of 1 ms at 10 Gb/s with 8 MiB. With
/// at most 32 credits, these paths would carry 5 and 260 Mb/s.
#[test]
fn credits_grow_with_the_path_up_to_the_receivers_memory() {
    for (micros, gbps, mebibytes, at_least) in [(50_000, 1, 16, 0.8), (1_000, 10, 8, 5.0)] {
        let path = Paths::new(1, Duration::from_micros(micros), gbps * 1_000, SWIFT);
        let report = paths::run(&Paths { memory: mebibytes << 20, knows_rate: false, ..path });
        assert!(report.gbps >= at_least, "{report:?}");
        assert_eq!(report.counts.drops + report.counts.host_drops, 0, "{report:?}");
    }
}

/// On these paths Timely falls to a hundredth of the link rate without any queue.
#[test]
fn swift_fills_the_link_on_paths_a_little_longer_than_timely_expects() {
    for (micros, gbps) in [(25, 25), (40, 25), (60, 25), (120, 25), (300, 10), (1_000, 10)] {
        for knows_rate in [true, false] {
            let path = Paths::new(1, Duration::from_micros(micros), gbps * 1_000, SWIFT);
            let report = paths::run(&Paths { knows_rate, ..path.clone() });
            assert!(report.gbps >= 0.95 * report.achievable_gbps, "{path:?}: {report:?}");
        }
    }
}

#[test]
fn swift_shares_links_of_any_length_and_rate_among_twenty_clients() {
    for (micros, gbps) in [(6, 25), (40, 25), (100, 25), (40, 100), (200, 10), (600, 1)] {
        for knows_rate in [true, false] {
            let path = Paths::new(20, Duration::from_micros(micros), gbps * 1_000, SWIFT);
            let mut report = paths::run(&Paths { knows_rate, ..path.clone() });
            let queue = report.queue.micros(0.5).expect("the queue was sampled");
            assert!(report.gbps >= 0.9 * report.achievable_gbps, "{path:?}: {report:?}");
            assert!(report.jain >= 0.95, "{path:?}: {report:?}");
            assert!(queue <= (micros as f64 / 2.0).max(30.0), "{path:?}: {queue} us");
            assert_eq!(report.counts.drops + report.counts.host_drops, 0, "{path:?}");
        }
    }
}

/// With hosts that sleep, as over kernel UDP, and on slow links, whose queue holds a few packets,
/// clients share less evenly and the queue is longer.
#[test]
fn swift_shares_slow_links_and_the_links_of_sleeping_hosts_among_twenty_clients() {
    for (micros, gbps, host_micros, jain, queue) in
        [(6, 10, 200, 0.9, 60.0), (100, 1, 200, 0.9, 100.0), (40, 1, 5, 0.93, 45.0)]
    {
        let path = Paths::new(20, Duration::from_micros(micros), gbps * 1_000, SWIFT);
        let path = Paths { host_delay: Duration::from_micros(host_micros), ..path };
        let mut report = paths::run(&path);
        let median = report.queue.micros(0.5).expect("the queue was sampled");
        assert!(report.gbps >= 0.9 * report.achievable_gbps, "{path:?}: {report:?}");
        assert!(report.jain >= jain, "{path:?}: {report:?}");
        assert!(median <= queue, "{path:?}: {median} us");
        assert_eq!(report.counts.drops + report.counts.host_drops, 0, "{path:?}");
    }
}

#[test]
fn a_long_path_gets_at_least_a_quarter_and_not_all_of_a_short_paths_share() {
    for micros in [[25, 1_000], [25, 200], [100, 1_000]] {
        let rtts = micros.map(Duration::from_micros).to_vec();
        let path = Paths::new(2, Duration::ZERO, 25_000, SWIFT);
        let report = paths::run(&Paths { rtts, ..path });
        let ratio = report.shares[1] / report.shares[0];
        assert!((0.25..=8.0).contains(&ratio), "{micros:?} us: {:?}", report.shares);
        assert!(report.gbps >= 0.9 * report.achievable_gbps, "{micros:?} us: {report:?}");
    }
}

#[test]
fn a_joining_client_gets_half_its_share_within_fifty_round_trips() {
    for (others, micros, gbps, seed) in
        [(1, 6, 100, 2), (1, 100, 25, 3), (19, 6, 10, 4), (19, 25, 25, 5), (19, 60, 1, 6)]
    {
        for knows_rate in [true, false] {
            let path = Paths::new(others + 1, Duration::from_micros(micros), gbps * 1_000, SWIFT);
            let path = Paths { knows_rate, seed, ..path };
            let part = paths::join(&path);
            assert!(part >= 0.5, "{path:?}: {part} of its share");
        }
    }
}

#[test]
fn pauses_of_hosts_cost_swift_at_most_a_fifth_of_the_goodput() {
    for (flows, micros, absence) in [(1, 60, 5), (20, 60, 5), (20, 1_000, 5), (1, 1_000, 1)] {
        let path = Paths::new(flows, Duration::from_micros(micros), 25_000, SWIFT);
        let report = paths::run(&Paths { absence: Some(millis(absence)), ..path.clone() });
        let usual = paths::run(&path);
        assert!(report.gbps >= 0.8 * usual.gbps, "{path:?}: {report:?}, usually {usual:?}");
    }
}

#[test]
fn the_lab_gives_each_host_its_configured_rtt() {
    let rtts = [25, 1_000].map(Duration::from_micros);
    let hosts = || rtts.into_iter().enumerate();
    for (datagram, (at, rtt)) in [MIN_DATAGRAM, 1_472]
        .into_iter()
        .flat_map(|datagram| hosts().map(move |host| (datagram, host)))
    {
        let mut lab = Lab::new(Setting::star_of(&rtts, 1_000, datagram, 3));
        let nothing = Load {
            peers: Vec::new(),
            spread: Spread::Even,
            request: datagram - HEADER_LEN,
            response: 0,
            outstanding: 0,
            start: Duration::ZERO,
        };
        let server = SimRoute::new(0, 1);
        lab.add(server, nothing.clone());
        let load = Load { peers: vec![server], outstanding: 1, ..nothing };
        let client = lab.add(SimRoute::new(at as u32 + 1, 1), load);
        lab.run_for(100 * rtt);
        let measured = lab.latencies([client]).micros(0.5).expect("calls");
        let expected = rtt.as_nanos() as f64 / 1e3;
        assert!((measured - expected).abs() < 1.0, "{datagram} bytes: {measured} us of {expected}");
    }
}

/// The goodput in the 10 ms after a stall of 50 ms, as a fraction of the usual goodput.
fn after_a_stall(control: CongestionControl, request: usize, outstanding: usize) -> f64 {
    let setting = Setting::pair(100, Duration::from_nanos(2_500), 12).control(control);
    let mut lab = Lab::new(setting);
    let (server, client) = (SimRoute::new(0, 1), SimRoute::new(1, 1));
    let load = Load {
        peers: vec![server],
        spread: Spread::Even,
        request,
        response: 32,
        outstanding,
        start: Duration::ZERO,
    };
    let serving = lab.add(server, Load { peers: Vec::new(), outstanding: 0, ..load.clone() });
    let client = lab.add(client, load);
    let mut delivered = |before: Duration| {
        lab.run_for(before);
        lab.clear();
        lab.run_for(millis(10));
        let delivered = lab.meter().delivered(client);
        lab.stall(serving, millis(50));
        delivered
    };
    let usual = delivered(millis(10));
    delivered(millis(50)) as f64 / usual as f64
}

#[test]
fn the_goodput_recovers_within_10_ms_after_a_stall_of_50_ms() {
    // A stall delays answers as a long queue does. Congestion control must not keep a low rate
    // after the stall.
    for control in [NONE, TIMELY, DCQCN] {
        for (request, outstanding) in [(1_000_000, 1), (1_000_000, 8), (64_000, 8), (32, 8)] {
            let ratio = after_a_stall(control, request, outstanding);
            assert!(ratio >= 0.9, "{control:?}, {outstanding} x {request} bytes: {ratio}");
        }
    }
}

#[test]
fn pauses_of_a_loop_do_not_slow_timely_down() {
    // Pauses from two round trips to 800 round trips.
    for (one_in, longest_nanos) in [(50, 20_000), (500, 200_000), (2_000, 2_000_000)] {
        let run = |control| {
            let loop_pauses = Some(LoopPauses { one_in, longest_nanos });
            let (rate, request, outstanding, time) = (0.0, 8 << 20, 1, millis(100));
            loss::run(&Loss { rate, request, outstanding, control, loop_pauses, time, seed: 9 })
        };
        let (free, controlled) = (run(NONE), run(TIMELY));
        assert!(controlled.gbps >= 0.9 * free.gbps, "{controlled:?}, without control {free:?}");
    }
}

fn run_incast(
    ways: u32,
    control: CongestionControl,
    more: impl FnOnce(&mut Incast),
) -> IncastReport {
    let mut incast =
        Incast { request: 1 << 20, warm_up: millis(30), seed: 11, ..Incast::new(ways, control) };
    incast.time = millis(30);
    more(&mut incast);
    incast::run(&incast)
}

/// The median and the 99th percentile of the RTT, in us.
fn rtts(report: &mut IncastReport) -> (f64, f64) {
    let [median, p99] = [0.5, 0.99].map(|quantile| report.rtts.micros(quantile));
    (median.expect("packets were measured"), p99.expect("packets were measured"))
}

/// The incast consists of responses if `pulls`, else of requests.
fn timely_keeps_queues_short(pulls: bool) {
    for (ways, median, p99) in [(20, 4.0, 3.0), (50, 5.0, 3.0), (100, 3.0, 1.5)] {
        let mut without = run_incast(ways, NONE, |incast| {
            (incast.pulls, incast.warm_up, incast.time) = (pulls, millis(5), millis(10));
        });
        let mut timely = run_incast(ways, TIMELY, |incast| incast.pulls = pulls);
        let (long, longest) = rtts(&mut without);
        assert!(long > 200.0, "{ways} ways: all credits are in the queue, {long} us");
        let (usual, most) = rtts(&mut timely);
        assert!(usual <= long / median, "{ways} ways: {usual} of {long} us");
        assert!(most <= longest / p99, "{ways} ways: {most} of {longest} us");
        let IncastReport { gbps, achievable_gbps, jain, counts, .. } = timely;
        assert!(gbps >= 0.8 * achievable_gbps, "{ways} ways: {gbps} of {achievable_gbps} Gb/s");
        assert!(jain >= 0.9, "{ways} ways: {jain}");
        assert_eq!(counts.drops + counts.host_drops, 0, "{ways} ways");
    }
}

#[test]
fn timely_keeps_incast_queues_short_and_the_cable_busy_and_shares_fairly() {
    timely_keeps_queues_short(false);
}

#[test]
fn timely_paces_responses_as_well_as_requests() {
    timely_keeps_queues_short(true);
}

#[test]
fn swift_keeps_incast_queues_shorter_than_timely_at_a_small_cost_of_bandwidth() {
    for (ways, most) in [(20, 28.0), (50, 31.0), (100, 35.0)] {
        let mut report = run_incast(ways, SWIFT, |_| {});
        let (median, _) = rtts(&mut report);
        assert!(median <= most, "{ways} ways: {median} us");
        assert!(report.gbps >= 0.95 * report.achievable_gbps, "{ways} ways: {} Gb/s", report.gbps);
        assert!(report.jain >= 0.95, "{ways} ways: {}", report.jain);
        assert_eq!(report.counts.drops + report.counts.host_drops, 0, "{ways} ways");
    }
}

#[test]
fn dcqcn_keeps_incast_queues_near_the_marking_threshold() {
    for ways in [20, 50, 100] {
        let mut report = run_incast(ways, DCQCN, |_| {});
        // A queue of 100 kB, the marking threshold, takes 32 us. The path without a queue takes 6
        // us.
        let (median, _) = rtts(&mut report);
        assert!(median < 60.0, "{ways} ways: {median} us");
        assert!(report.counts.marks > 0);
        assert!(report.gbps >= 0.8 * report.achievable_gbps, "{ways} ways: {} Gb/s", report.gbps);
        assert!(report.jain >= 0.9, "{ways} ways: {}", report.jain);
    }
}

#[test]
fn background_calls_of_an_incast_have_a_low_latency() {
    let run = |control| {
        let mut report = run_incast(100, control, |incast| {
            (incast.background, incast.warm_up, incast.time) = (true, millis(10), millis(7));
        });
        assert!(report.background.len() > 5_000, "{}", report.background.len());
        assert!(report.beside.len() > 4, "{}", report.beside.len());
        let p99 = |samples: &mut Samples| samples.micros(0.99).expect("calls were measured");
        (p99(&mut report.background), p99(&mut report.beside))
    };
    let (without, timely) = (run(NONE), run(TIMELY));
    assert!(timely.0 <= 300.0, "{timely:?} us");
    // The queue is at the receiver's cable. Congestion control helps only calls that share this
    // cable.
    assert!(without.0 <= 300.0 && without.1 > 1_000.0, "{without:?} us");
    assert!(timely.1 <= 100.0, "{timely:?} us");
}

#[test]
fn with_credits_for_one_bandwidth_delay_product_no_queue_overflows_under_any_control() {
    for control in [NONE, TIMELY, SWIFT, DCQCN] {
        let report = run_incast(100, control, |incast| {
            (incast.credits, incast.warm_up, incast.time) = (16, millis(5), millis(5));
        });
        assert_eq!(report.counts.drops + report.counts.host_drops, 0, "{control:?}");
    }
}

#[test]
fn the_lab_counts_drops_of_a_buffer_that_is_too_small() {
    let report = run_incast(100, NONE, |incast| {
        (incast.credits, incast.warm_up, incast.time) = (64, millis(5), millis(5));
    });
    assert!(report.counts.drops > 0, "64 credits of 100 clients are more than half of 12 MB");
}

#[test]
fn a_hundred_nodes_call_each_other_without_a_loss() {
    let scale = Scale {
        warm_up: millis(1),
        time: Duration::from_micros(300),
        seed: 3,
        ..Scale::new(1, TIMELY)
    };
    let mut report = scale::run(&scale);
    assert_eq!(report.sessions, 99);
    assert!(report.latencies.len() > 50_000, "{}", report.latencies.len());
    let [median, p9999] = [0.5, 0.9999].map(|quantile| report.latencies.micros(quantile));
    assert!(median.is_some_and(|us| us < 20.0), "{median:?}");
    assert!(p9999.is_some_and(|us| us < 700.0), "{p9999:?}, the thesis measures at most 700 us");
    assert_eq!(report.counts.drops + report.counts.host_drops, 0);
}

#[test]
fn a_seed_reproduces_its_run() {
    let run = |seed| {
        let mut report = run_incast(20, TIMELY, |incast| {
            (incast.seed, incast.warm_up, incast.time) = (seed, millis(1), millis(2));
        });
        (rtts(&mut report), report.counts, report.jain)
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}
