//! Attacks on a server with honest clients: what the server keeps, what it sends, what the clients notice.
//!
//! Each attack is compared with the same run without it. The server's processor, its receive queue and the
//! cables are modelled (see [`Bench`]), so an attack that costs too much of one of them fails the test.

use std::rc::Rc;
use std::time::Duration;

use bytes::BufMut;
use erpc_core::buf::MsgBuf;
use erpc_core::protocol::{Body, CallError, EndpointConfig, Request};
use erpc_core::runtime::{App, Context, Rpc};
use erpc_core::time::Instant;
use erpc_core::transport::ChargeModel;
use erpc_core::wire::ConnectionId;
use erpc_core::wire::control::Control;
use erpc_sim::SimRoute;
use erpc_sim::hostile::{
    Attacker, Bench, Forged, Liar, Lie, LyingServer, PACKET_NANOS, Pace, Report, Strange, Stranger,
    VICTIM, craft,
};
use erpc_sim::net::Packet;
use erpc_sim::transport::{Nic, Port, Sent, SimTransport};

const MILLION: u64 = 1_000_000;
/// A msgbuf of 16 KiB, the first of a message under way, with its headers and bookkeeping.
const FIRST_BUFFER: usize = 21_000;

/// Attacks begin when calls are under way, and last until the end.
fn pace(per_second: u64) -> Pace {
    Pace::new(Instant::from_nanos(3_000_000), 37_000_000, per_second)
}

fn liars_address(bench: &Bench) -> SimRoute {
    SimRoute::new(bench.attackers_host(), 9)
}

/// The run without the attack and the one with it.
fn compare(bench: &Bench, attacker: &mut dyn Attacker) -> (Report, Report) {
    let calm = bench.run(None);
    let attacked = bench.run(Some(attacker));
    assert!(calm.calls > 10_000 && calm.failed == 0 && calm.overflowed == 0, "{calm:?}");
    assert!(attacked.attack_packets > 0, "the attack took place");
    (calm, attacked)
}

/// Honest clients have not noticed: every call was answered, 99 in 100 of the small ones as fast as
/// before but for a fifth.
#[track_caller]
fn assert_unaffected((calm, attacked): &(Report, Report)) {
    assert_eq!(attacked.failed, 0, "no honest call fails");
    assert_eq!(attacked.overflowed, 0, "no packet finds the receive queue full");
    // The last calls may be under way when the run ends.
    assert!(attacked.calls + 20 >= calm.calls, "{} calls of {}", attacked.calls, calm.calls);
    let (before, now) = (calm.p99_nanos, attacked.p99_nanos);
    assert!(now * 10 <= before * 12, "p99 of {now} ns, {before} ns without the attack");
}

/// Nothing is kept for strangers, and none of them was sent more than had come in its name.
#[track_caller]
fn assert_no_state((calm, attacked): &(Report, Report)) {
    assert_eq!(attacked.most_sessions, calm.most_sessions);
    assert_eq!(
        attacked.stats.protocol.requests, calm.stats.protocol.requests,
        "nothing was executed"
    );
    // A turn that takes in more packets may have more responses of honest clients under way.
    assert!(
        attacked.most_pool_bytes <= calm.most_pool_bytes * 3 / 2,
        "{}",
        attacked.most_pool_bytes
    );
    assert_eq!(attacked.worst_excess, 0, "no reply is larger than what asked for it");
    let (received, sent) = attacked.strangers_bytes;
    assert!(sent <= received, "{sent} bytes for {received}");
    let per_turn = calm.most_sent_in_a_turn + 32;
    assert!(attacked.most_sent_in_a_turn <= per_turn, "work per turn is bounded by the burst");
}

#[test]
fn a_million_hellos_per_second_from_forged_addresses() {
    let bench = Bench::default();
    let reports = compare(&bench, &mut Stranger::new(VICTIM, Strange::Hellos, pace(MILLION), 5));
    assert_no_state(&reports);
    assert_unaffected(&reports);
    let (received, sent) = reports.1.strangers_bytes;
    assert!(sent > received / 2, "they are answered, or this test is about nothing");
}

#[test]
fn a_million_opens_per_second_with_forged_cookies() {
    let bench = Bench::default();
    let reports =
        compare(&bench, &mut Stranger::new(VICTIM, Strange::ForgedOpens, pace(MILLION), 5));
    assert_no_state(&reports);
    assert_unaffected(&reports);
    assert_eq!(reports.1.strangers_bytes.1, 0, "a bad cookie is not answered");
}

#[test]
fn a_million_pings_per_second_to_be_reflected() {
    let bench = Bench::default();
    let reports =
        compare(&bench, &mut Stranger::new(VICTIM, Strange::Reflections, pace(MILLION), 5));
    assert_no_state(&reports);
    assert_unaffected(&reports);
}

#[test]
fn a_million_guesses_per_second_at_connection_ids() {
    let bench = Bench::default();
    let guesses = Strange::Guesses { pretend: bench.client(0) };
    let reports = compare(&bench, &mut Stranger::new(VICTIM, guesses, pace(MILLION), 5));
    assert_no_state(&reports);
    assert_unaffected(&reports);
    let dropped = reports.1.stats.protocol.dropped_in_all();
    assert!(dropped + 20 >= reports.1.attack_packets, "every guess was wrong");
}

#[test]
fn a_million_resets_per_second_from_off_path() {
    let bench = Bench::default();
    let resets = Strange::Resets { client: bench.client(0) };
    // Half go to the client; the report says if it lost its session.
    let reports = compare(&bench, &mut Stranger::new(VICTIM, resets, pace(MILLION), 5));
    assert_no_state(&reports);
    assert_unaffected(&reports);
}

/// A liar with one session.
fn lie(lie: Lie, per_second: u64) -> (Report, Report) {
    let bench = Bench::default();
    let mut liar = Liar::new(liars_address(&bench), VICTIM, lie, pace(per_second), 1, false);
    let reports = compare(&bench, &mut liar);
    assert_eq!(liar.open_sessions(), 1, "the liar was let in");
    assert_eq!(reports.1.most_sessions, reports.0.most_sessions + 1);
    reports
}

#[test]
fn more_packets_than_credits() {
    let reports = lie(Lie::Overrun { packets: 40 }, MILLION / 3);
    assert_unaffected(&reports);
    // One message at a time in each slot, and its response.
    let most = reports.0.most_pool_bytes + 8 * 2 * 100_000;
    assert!(reports.1.most_pool_bytes <= most, "{}", reports.1.most_pool_bytes);
}

#[test]
fn small_requests_without_waiting_for_answers() {
    let reports = lie(Lie::Overrun { packets: 1 }, MILLION / 3);
    assert_unaffected(&reports);
}

#[test]
fn gaps_without_end() {
    let reports = lie(Lie::Gaps, MILLION / 3);
    assert_unaffected(&reports);
    assert!(reports.1.most_pool_bytes <= reports.0.most_pool_bytes * 3 / 2 + 8 * FIRST_BUFFER);
}

#[test]
fn request_number_leaps() {
    let reports = lie(Lie::Leaps, MILLION);
    assert_unaffected(&reports);
    let executed = reports.1.stats.protocol.requests - reports.0.stats.protocol.requests;
    // Honest ones among the leaps: eight ahead of the current one.
    assert!(executed < reports.1.attack_packets / 10, "{executed} leaps were believed");
}

#[test]
fn declared_sizes_allocate_nothing() {
    let reports = lie(Lie::DeclaredSizes { allowed: 1 << 20 }, MILLION / 3);
    assert_unaffected(&reports);
    let most = reports.0.most_pool_bytes * 3 / 2 + 8 * FIRST_BUFFER;
    assert!(reports.1.most_pool_bytes <= most, "{}", reports.1.most_pool_bytes);
}

#[test]
fn declared_sizes_in_many_sessions_cost_a_first_buffer_each() {
    let bench = Bench::default();
    let lie = Lie::DeclaredSizes { allowed: 1 << 20 };
    let mut liar = Liar::new(liars_address(&bench), VICTIM, lie, pace(MILLION / 3), 64, false);
    let reports = compare(&bench, &mut liar);
    assert_eq!(liar.open_sessions(), 64);
    assert_unaffected(&reports);
    let most = reports.0.most_pool_bytes * 3 / 2 + 64 * 8 * FIRST_BUFFER;
    assert!(reports.1.most_pool_bytes <= most, "{}", reports.1.most_pool_bytes);
}

#[test]
fn words_that_only_servers_say() {
    let reports = lie(Lie::ServersWords, MILLION);
    assert_unaffected(&reports);
    let stats = reports.1.stats.protocol;
    assert!(stats.dropped_in_all() + 20 >= reports.1.attack_packets, "all are dropped");
}

#[test]
fn forged_credit_returns_from_a_lying_server() {
    let bench = Bench::default();
    let server = liars_address(&bench);
    let bench = Bench { victim_calls: Some(server), ..bench };
    let pace = Pace::new(Instant::ZERO, bench.nanos, MILLION / 10);
    let reports = compare(&bench, &mut LyingServer::new(server, pace, 5));
    assert_unaffected(&reports);
    let stats = reports.1.stats.protocol;
    assert!(stats.calls >= 4 && stats.dropped_in_all() > reports.1.attack_packets / 2, "{stats:?}");
    // What is sent again is bounded by what was asked for: once per position of a message.
    assert!(stats.retransmissions < reports.1.attack_packets / 10, "{stats:?}");
}

#[test]
fn pulling_a_response_over_and_over() {
    let reports = lie(Lie::PullStorm, MILLION / 10);
    assert_unaffected(&reports);
}

#[test]
fn coming_and_going_where_the_window_halves() {
    let bench = Bench::default();
    // With 9 honest clients and 247 sessions that stay, every one that comes makes 257 endpoints.
    let churn = Lie::Churn { keep: 247 };
    let mut liar = Liar::new(liars_address(&bench), VICTIM, churn, pace(MILLION / 10), 248, true);
    let reports = compare(&bench, &mut liar);
    assert_unaffected(&reports);
}

#[test]
fn many_idle_sessions_are_asked_a_few_at_a_time() {
    let config = Bench::default().config;
    let config =
        config.ping_interval(Duration::from_millis(10)).liveness_timeout(Duration::from_millis(40));
    let bench = Bench { config, nanos: 60_000_000, ..Bench::default() };
    let mut liar =
        Liar::new(liars_address(&bench), VICTIM, Lie::Sessions, pace(2 * MILLION), 2_000, false);
    let (_, attacked) = compare(&bench, &mut liar);
    assert!(
        attacked.most_sent_in_a_turn <= 64 + 32,
        "{} packets in a turn",
        attacked.most_sent_in_a_turn
    );
}

/// A caller that uses its request again as soon as it comes back.
#[derive(Default)]
struct Caller {
    failed: u32,
}

impl App<SimTransport> for Caller {
    fn on_request(&mut self, _: &mut Context<'_, SimTransport>, _: Request<'_, SimRoute>) {
        unreachable!("it does not listen");
    }

    fn on_reply(
        &mut self,
        _: &mut Context<'_, SimTransport>,
        _: u64,
        reply: Result<Body<'_>, CallError>,
        mut request: MsgBuf,
    ) {
        self.failed += u32::from(reply.is_err());
        request.as_mut_slice().fill(0);
    }
}

#[test]
fn a_server_that_closes_a_session_at_once_does_not_hand_back_a_request_that_is_still_read() {
    let server = SimRoute::new(1, 1);
    let nic = Nic {
        max_datagram: 1_472,
        inline: 0,
        charge: ChargeModel::Ring,
        rx_capacity: 1 << 20,
        dma_nanos: 1_000_000,
        min_rto: Duration::from_millis(5),
        integrity: true,
    };
    let port = Port::new(port_route(), nic);
    let config = EndpointConfig::new().eager(1_024);
    let mut rpc = Rpc::new(SimTransport::new(Rc::clone(&port)), config).expect("valid");
    let (mut app, mut liar) = (Caller::default(), LyingServer::new(server, pace(1), 1));
    let mut now = Instant::from_nanos(1_000);
    let session = rpc.context_at(now).connect(server).expect("room for a session");
    let (mut sent, mut answers) = (Vec::new(), Vec::new());
    let mut client = ConnectionId::default();
    for _ in 0..3 {
        port.set_now(now);
        rpc.run_once_at(now, &mut app);
        port.take_sent(&mut sent);
        for Sent { to, bytes } in sent.drain(..) {
            let packet = Packet { from: port_route(), to, bytes, marked: false, forged: false };
            liar.receive(now, &packet, &mut answers);
        }
        for Forged { bytes, .. } in answers.drain(..) {
            client = craft::read(&bytes).expect("a packet").0.connection;
            port.deliver(server, bytes);
        }
        now = now.plus_nanos(1_000);
    }
    let mut cx = rpc.context_at(now);
    let mut request = cx.alloc(3_000).expect("memory");
    request.put_bytes(1, 3_000);
    assert!(cx.call(session, 7, request, 0).is_ok());
    rpc.run_once_at(now, &mut app);
    let close = Control::Close { sender: LyingServer::name(client) };
    port.deliver(server, craft::control(client, 0, close));
    now = now.plus_nanos(1_000);
    port.set_now(now);
    rpc.run_once_at(now, &mut app);
    assert_eq!(app.failed, 1);
}

/// Where the caller is.
fn port_route() -> SimRoute {
    SimRoute::new(0, 2)
}

#[test]
fn a_run_repeats_itself() {
    let bench = Bench { nanos: 10_000_000, ..Bench::default() };
    let run = |bench: &Bench| {
        let mut attacker = Stranger::new(VICTIM, Strange::Hellos, pace(MILLION), 5);
        format!("{:?}", bench.run(Some(&mut attacker)))
    };
    assert_eq!(run(&bench), run(&bench));
    let other = Bench { seed: 2, ..bench.clone() };
    assert_ne!(run(&bench), run(&other));
}

#[test]
fn the_bench_shows_an_attack_that_takes_the_processor() {
    let bench = Bench::default();
    let calm = bench.run(None);
    // A packet in and one out for each `Hello`, without a pause.
    let per_second = 1_000_000_000 / PACKET_NANOS / 2 * 9 / 10;
    let attacked =
        bench.run(Some(&mut Stranger::new(VICTIM, Strange::Hellos, pace(per_second), 5)));
    assert!(
        attacked.p99_nanos * 10 > calm.p99_nanos * 12,
        "{} and {}",
        calm.p99_nanos,
        attacked.p99_nanos
    );
    let small = Bench { rx_packets: 32, ..bench };
    let attacked =
        small.run(Some(&mut Stranger::new(VICTIM, Strange::Hellos, pace(per_second), 5)));
    assert!(attacked.overflowed > 0, "a small receive queue overflows");
}
