//! Idle streams next to calls, over UDP on an untuned system.

use std::time::Instant;

use erpc::{Session, join_all};
use erpc_test_tools::limit::{millis, secs, within};
use erpc_test_tools::statistics::Samples;
use erpc_tests::lab::loopback;
use erpc_tests::suite::Loopback;
use erpc_tests::suite::streams::{ECHO, IDLE, Server, connect};

/// Each stream has a session of its own, and an idle stream holds no part of the window or the
/// room. So idle streams take nothing away from calls. Rounds with and without idle streams
/// alternate, so that other load of the machine affects both.
#[test]
fn a_hundred_idle_streams_delay_no_call() {
    const STREAMS: u64 = 100;
    within(secs(120), || {
        let network = Loopback(loopback());
        let server = Server::start(&network);
        let (endpoint, session) = connect(&network, &server);
        let [mut with, mut without, mut many_with, mut many_without] =
            std::array::from_fn(|_| Samples::default());
        for _ in 0..5 {
            endpoint.run_until(|| server.idle() == 0);
            endpoint.run_for(millis(50));
            endpoint.block_on(measure(&session, &mut without, &mut many_without));
            let streams: Vec<_> =
                (0..STREAMS).map(|_| session.server_streaming(&IDLE, &0)).collect();
            endpoint.run_until(|| server.idle() == STREAMS);
            // Each stream releases its credits and its part of the window when the client learns
            // that the stream's call is executing.
            endpoint.run_for(millis(100));
            endpoint.block_on(measure(&session, &mut with, &mut many_with));
            drop(streams);
        }
        for (name, with, without) in [
            ("in sequence", &mut with, &mut without),
            ("64 in flight", &mut many_with, &mut many_without),
        ] {
            let [p50, p99] = [0.5, 0.99].map(|fraction| {
                let micros = |samples: &mut Samples| samples.micros(fraction).expect("calls ended");
                (micros(with), micros(without))
            });
            println!(
                "{name}: p50 {} us with {STREAMS} idle streams, {} without; p99 {} us, {}",
                p50.0, p50.1, p99.0, p99.1
            );
            // Generous limits, because the machine may be busy. If idle streams took the room of
            // calls, calls would wait for seconds.
            assert!(p50.0 < p50.1 * 2.0 + 1e3, "{name}: p50 {p50:?}");
            assert!(p99.0 < p99.1 * 4.0 + 20e3, "{name}: p99 {p99:?}");
        }
    });
}

async fn measure(session: &Session, times: &mut Samples, many: &mut Samples) {
    let request = vec![7; 32];
    let large = vec![7; 3_000];
    for _ in 0..1_000 {
        let start = Instant::now();
        session.call(&ECHO, &request).await.expect("the call succeeds");
        times.add(start.elapsed().as_nanos() as u64);
    }
    for _ in 0..100 {
        let start = Instant::now();
        let calls =
            (0..64).map(|n| session.call(&ECHO, if n % 8 == 0 { &large } else { &request }));
        for answer in join_all(calls).await {
            answer.expect("the call succeeds");
        }
        many.add(start.elapsed().as_nanos() as u64);
    }
}
