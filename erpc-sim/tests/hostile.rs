//! Attacks on a server with honest clients: the server's memory, its packets, and the effect on the
//! clients.
//!
//! Each attack is compared with the same run without it. The bench models the server's processor,
//! its receive queue and the cables (see [`Bench`]), so an attack that costs too much of one of
//! them fails the test. [`effects`] has the limits for every attack. Other tests check that attacks
//! can exceed each of these limits.

use std::rc::Rc;

use bytes::BufMut;
use erpc_core::buf::MsgBuf;
use erpc_core::event_loop::{App, Context, Rpc};
use erpc_core::protocol::{CallError, DropReason, EndpointConfig, NewCall, Reply};
use erpc_core::time::Instant;
use erpc_core::transport::MAX_BURST;
use erpc_core::wire::ConnectionId;
use erpc_core::wire::control::Control;
use erpc_sim::SimRoute;
use erpc_sim::hostile::{
    AttackReport, Attacker, Bench, ClientAttack, Forged, MaliciousClient, MaliciousServer,
    PACKET_NANOS, Pace, Spoof, Spoofer, TURN_NANOS, VICTIM, craft,
};
use erpc_sim::net::Packet;
use erpc_sim::transport::{Nic, Port, Sent, SimTransport};

const MILLION: u64 = 1_000_000;
/// The most packets that a turn receives.
const BURST: u64 = MAX_BURST as u64;
/// Floor of the retransmission timeout of the server's interface, in nanoseconds.
const MIN_RTO: u64 = 5_000_000;
/// Slots of a session.
const SLOTS: usize = 8;
/// The first msgbuf of an incoming message, with headers and bookkeeping: four times its first
/// packet, in bytes.
const FIRST_BUFFER: usize = 4 * (1_472 + 128);
/// A message of 40 packets, as overruns and pull storms use, in bytes.
const FORTY_PACKETS: usize = 40 * (1_472 + 256);

/// Attacks begin when calls are under way, and last 37 ms: until the end of a run of the default
/// length.
fn pace(per_second: u64) -> Pace {
    Pace::new(Instant::from_nanos(3_000_000), 37_000_000, per_second)
}

fn attackers_address(bench: &Bench) -> SimRoute {
    SimRoute::new(bench.attackers_host(), 9)
}

/// The reports of a run without the attack and of a run with it.
fn compare(bench: &Bench, attacker: &mut dyn Attacker) -> (AttackReport, AttackReport) {
    let calm = bench.run(None);
    assert!(calm.calls > 10_000 && calm.failed == 0 && calm.overflowed == 0, "{calm:?}");
    let attacked = bench.run(Some(attacker));
    assert!(attacked.attack_packets > 0, "the attacker sends packets");
    (calm, attacked)
}

/// What an attack may cost the server, compared with the run without it.
#[derive(Clone, Copy)]
struct Allowed {
    /// Bytes of msgbufs that an admitted client may use.
    memory: usize,
    /// Packets that the server may send for each packet of the attacker.
    answers: u64,
}

/// For attackers that are not admitted, or whose packets are not answered.
const NOTHING: Allowed = Allowed { memory: 0, answers: 0 };
/// For attackers that may get one packet for each packet that they send.
const ANSWERS: Allowed = Allowed { memory: 0, answers: 1 };

/// Returns the limits that an attack has exceeded, with the values.
fn effects(
    (calm, attacked): &(AttackReport, AttackReport),
    allowed: Allowed,
) -> Vec<(&'static str, u64)> {
    let fifth_more = |nanos: u64| nanos * 12 / 10;
    // Some calls may be under way when the run ends.
    let few = 20;
    // Time per packet of the attacker: a turn, the packet itself, and its answers.
    let a_packet = TURN_NANOS + PACKET_NANOS * (1 + allowed.answers);
    let sent = |report: &AttackReport| report.stats.transport.tx_packets;
    // During an attack, a turn receives more packets, so more responses to honest clients are under
    // way.
    let memory = calm.most_pool_bytes * 5 / 4 + allowed.memory;
    // A server sends one credit return per burst, and an attack divides the packets of honest clients
    // among more bursts.
    let credit_returns = sent(calm) / 200;
    let answers = sent(calm) + allowed.answers * attacked.attack_packets + few + credit_returns;
    let limits = [
        ("failed calls", attacked.failed, 0),
        ("calls without an answer", calm.calls.saturating_sub(attacked.calls), few),
        ("a full receive queue", attacked.overflowed, 0),
        ("a slower median", attacked.p50_nanos, fifth_more(calm.p50_nanos)),
        ("a slower p99", attacked.p99_nanos, fifth_more(calm.p99_nanos)),
        ("a slower p99 of large calls", attacked.large_p99_nanos, fifth_more(calm.large_p99_nanos)),
        ("memory", attacked.most_pool_bytes as u64, memory as u64),
        ("answers", sent(attacked), answers),
        ("processor", attacked.busy_nanos, calm.busy_nanos + a_packet * attacked.attack_packets),
        ("a long turn", attacked.most_sent_in_a_turn, calm.most_sent_in_a_turn + BURST),
    ];
    limits.into_iter().filter(|(_, is, most)| is > most).map(|(what, is, _)| (what, is)).collect()
}

/// Checks that honest clients are not affected, and that the server has not spent more than it may.
#[track_caller]
fn assert_unaffected(reports: &(AttackReport, AttackReport), allowed: Allowed) {
    assert_unaffected_but_for_pings(reports, allowed, 0);
}

/// As [`assert_unaffected`], if `pings` clients may learn in one turn that their windows have
/// shrunk.
#[track_caller]
fn assert_unaffected_but_for_pings(
    reports: &(AttackReport, AttackReport),
    allowed: Allowed,
    pings: u64,
) {
    let mut effects = effects(reports, allowed);
    let most = reports.0.most_sent_in_a_turn + BURST + pings;
    effects.retain(|(what, is)| *what != "a long turn" || *is > most);
    // The server sends each client a ping each time the number of clients doubles.
    let sent = |report: &AttackReport| report.stats.transport.tx_packets;
    let answers = sent(&reports.0) + allowed.answers * reports.1.attack_packets + 2 * pings;
    effects.retain(|(what, is)| *what != "answers" || *is > answers);
    assert!(effects.is_empty(), "{effects:?}: without {:?} with {:?}", reports.0, reports.1);
}

/// Checks that the server keeps no state for unvalidated addresses, and sends no more bytes to such
/// an address than it received from there.
#[track_caller]
fn assert_no_state((calm, attacked): &(AttackReport, AttackReport)) {
    assert_eq!(attacked.most_sessions, calm.most_sessions);
    assert_eq!(
        attacked.stats.protocol.requests, calm.stats.protocol.requests,
        "no request of the attacker is executed"
    );
    assert_eq!(attacked.worst_excess, 0, "no reply is larger than its cause");
    let (received, sent) = attacked.strangers_bytes;
    assert!(sent <= received, "{sent} bytes for {received}");
}

#[test]
fn a_server_withstands_a_million_hellos_per_second_from_forged_addresses() {
    let bench = Bench::default();
    let reports = compare(&bench, &mut Spoofer::new(VICTIM, Spoof::Hellos, pace(MILLION), 5));
    assert_no_state(&reports);
    assert_unaffected(&reports, ANSWERS);
    let (received, sent) = reports.1.strangers_bytes;
    assert!(sent > received / 2, "the `Hello`s are answered, otherwise this test checks nothing");
}

#[test]
fn a_server_withstands_a_million_opens_per_second_with_forged_cookies() {
    let bench = Bench::default();
    let reports = compare(&bench, &mut Spoofer::new(VICTIM, Spoof::ForgedOpens, pace(MILLION), 5));
    assert_no_state(&reports);
    assert_unaffected(&reports, NOTHING);
    assert_eq!(reports.1.strangers_bytes.1, 0, "a bad cookie is not answered");
}

#[test]
fn a_server_does_not_amplify_a_million_reflected_pings_per_second() {
    let bench = Bench::default();
    let reports = compare(&bench, &mut Spoofer::new(VICTIM, Spoof::Reflections, pace(MILLION), 5));
    assert_no_state(&reports);
    assert_unaffected(&reports, ANSWERS);
}

#[test]
fn a_server_withstands_a_million_guesses_per_second_at_connection_ids() {
    let bench = Bench::default();
    let guesses = Spoof::Guesses { pretend: bench.client(0) };
    let reports = compare(&bench, &mut Spoofer::new(VICTIM, guesses, pace(MILLION), 5));
    assert_no_state(&reports);
    assert_unaffected(&reports, NOTHING);
    let dropped = reports.1.stats.protocol.dropped_in_all();
    assert!(dropped + 20 >= reports.1.attack_packets, "every guess is dropped");
}

#[test]
fn sessions_survive_a_million_off_path_resets_per_second() {
    let bench = Bench::default();
    let resets = Spoof::Resets { client: bench.client(0) };
    // Half of the packets go to the client. The report panics if the client lost its session.
    let reports = compare(&bench, &mut Spoofer::new(VICTIM, resets, pace(MILLION), 5));
    assert_no_state(&reports);
    assert_unaffected(&reports, ANSWERS);
}

/// A malicious client with one session.
fn attack(attack: ClientAttack, per_second: u64) -> (AttackReport, AttackReport) {
    let bench = Bench::default();
    let mut attacker =
        MaliciousClient::new(attackers_address(&bench), VICTIM, attack, pace(per_second), 1, false);
    let reports = compare(&bench, &mut attacker);
    assert_eq!(attacker.open_sessions(), 1, "the attacker's session is open");
    assert_eq!(reports.1.most_sessions, reports.0.most_sessions + 1);
    reports
}

#[test]
fn a_server_withstands_more_packets_than_credits() {
    let reports = attack(ClientAttack::Overrun { packets: 40 }, MILLION / 3);
    // One incoming message per slot, and its response.
    let memory = SLOTS * 2 * FORTY_PACKETS;
    assert_unaffected(&reports, Allowed { memory, answers: 1 });
}

#[test]
fn a_server_withstands_small_requests_without_waiting_for_answers() {
    let reports = attack(ClientAttack::Overrun { packets: 1 }, MILLION / 3);
    // The last response of each slot.
    let memory = SLOTS * 1_600;
    assert_unaffected(&reports, Allowed { memory, answers: 1 });
}

#[test]
fn a_server_withstands_endless_gaps() {
    let reports = attack(ClientAttack::Gaps, MILLION / 3);
    assert_unaffected(&reports, Allowed { memory: SLOTS * FIRST_BUFFER, answers: 1 });
}

#[test]
fn leaps_of_request_numbers_execute_few_requests() {
    let reports = attack(ClientAttack::Leaps, MILLION);
    assert_unaffected(&reports, ANSWERS);
    let executed = reports.1.stats.protocol.requests - reports.0.stats.protocol.requests;
    // Each slot has eight numbers to leap to, and thousands of packets leap.
    assert!(executed > 0 && executed <= 8 * SLOTS as u64, "{executed} leaps were executed");
}

#[test]
fn declared_sizes_allocate_nothing() {
    let reports = attack(ClientAttack::DeclaredSizes { allowed: 1 << 20 }, MILLION / 3);
    assert_unaffected(&reports, Allowed { memory: SLOTS * FIRST_BUFFER, answers: 1 });
}

#[test]
fn declared_sizes_in_many_sessions_cost_one_first_buffer_per_slot() {
    let bench = Bench::default();
    let attack = ClientAttack::DeclaredSizes { allowed: 1 << 20 };
    let mut attacker = MaliciousClient::new(
        attackers_address(&bench),
        VICTIM,
        attack,
        pace(MILLION / 3),
        64,
        false,
    );
    let reports = compare(&bench, &mut attacker);
    assert_eq!(attacker.open_sessions(), 64);
    assert_unaffected(&reports, Allowed { memory: 64 * SLOTS * FIRST_BUFFER, answers: 1 });
}

#[test]
fn a_server_withstands_endless_cancelled_requests() {
    let reports = attack(ClientAttack::Cancels, MILLION / 3);
    // The incoming message and the last answer of each slot.
    assert_unaffected(&reports, Allowed { memory: SLOTS * (FIRST_BUFFER + 1_600), answers: 1 });
}

#[test]
fn a_server_drops_packets_that_only_servers_may_send() {
    let reports = attack(ClientAttack::ServersWords, MILLION);
    assert_unaffected(&reports, NOTHING);
    let stats = reports.1.stats.protocol;
    assert!(stats.dropped_in_all() + 20 >= reports.1.attack_packets, "all are dropped");
}

#[test]
fn a_client_withstands_forged_credit_returns_of_a_server() {
    let bench = Bench::default();
    let server = attackers_address(&bench);
    let bench = Bench { victim_calls: Some(server), ..bench };
    let pace = Pace::new(Instant::ZERO, bench.nanos, MILLION / 10);
    let reports = compare(&bench, &mut MaliciousServer::new(server, pace, 5));
    // Four calls under way, with the headers of 14 packets each.
    let memory = 4 * (20_000 + 14 * 128);
    assert_unaffected(&reports, Allowed { memory, answers: 1 });
    let stats = reports.1.stats.protocol;
    assert!(stats.calls >= 4 && stats.dropped_in_all() > reports.1.attack_packets / 2, "{stats:?}");
    // Retransmissions are bounded by the number of requested packets: one per position of a
    // message.
    assert!(stats.retransmissions.packets() < reports.1.attack_packets / 10, "{stats:?}");
}

#[test]
fn a_server_withstands_endless_pulls_of_a_response() {
    let reports = attack(ClientAttack::PullStorm, MILLION / 10);
    // The request while its buffer grows, and its response.
    let memory = 2 * FORTY_PACKETS;
    assert_unaffected(&reports, Allowed { memory, answers: 1 });
}

#[test]
fn copies_of_answered_requests_bring_few_repeated_responses() {
    for packets in [1, 4] {
        let reports = attack(ClientAttack::Copies { packets }, MILLION / 3);
        let memory = SLOTS * 2 * packets as usize * (1_472 + 256);
        assert_unaffected(&reports, Allowed { memory, answers: 1 });
        let again = |report: &AttackReport| report.stats.protocol.repeated_responses;
        let again = again(&reports.1) - again(&reports.0);
        // Per slot, the server repeats a response at most once per quarter of the minimum timeout.
        // In addition, requests for response may bring packets again: some in total, and 8 with
        // each timeout.
        let (rounds, timeouts) = (37_000_000 / (MIN_RTO / 4) + 2, 37_000_000 / MIN_RTO + 1);
        let pulled = if packets > 1 { u64::from(packets) * 9 + 64 + 8 * timeouts } else { 0 };
        let most = SLOTS as u64 * (rounds + pulled);
        assert!((1..=most).contains(&again), "{again} for {} copies", reports.1.attack_packets);
    }
}

/// 248 sessions, each from a different socket. With the 9 honest clients, 247 of them make 256
/// sockets, and the last one makes 257.
fn crowd(bench: &Bench, attack: ClientAttack) -> MaliciousClient {
    one_socket(bench, attack).from_many_ports()
}

/// 248 sessions from one socket, each as if from a different endpoint.
fn one_socket(bench: &Bench, attack: ClientAttack) -> MaliciousClient {
    MaliciousClient::new(attackers_address(bench), VICTIM, attack, pace(MILLION / 10), 248, true)
}

#[test]
fn a_server_withstands_one_socket_with_sessions_of_248_endpoints() {
    let bench = Bench::default();
    for attack in [ClientAttack::Sessions, ClientAttack::Churn { keep: 247 }] {
        let reports = compare(&bench, &mut one_socket(&bench, attack));
        assert_unaffected_but_for_pings(&reports, ANSWERS, 248);
    }
    // The same number of sessions, while the socket sends requests in all of them.
    let attack = ClientAttack::Overrun { packets: 1 };
    let reports = compare(&bench, &mut one_socket(&bench, attack));
    let memory = 248 * SLOTS * 1_600;
    assert_unaffected_but_for_pings(&reports, Allowed { memory, answers: 1 }, 248);
}

#[test]
fn a_server_withstands_a_thousand_idle_sockets_of_one_host() {
    let bench = Bench { nanos: 80_000_000, ..Bench::default() };
    let attack = ClientAttack::Sessions;
    let me = attackers_address(&bench);
    let mut attacker = MaliciousClient::new(me, VICTIM, attack, pace(MILLION / 10), 1_000, false)
        .from_many_ports();
    let reports = compare(&bench, &mut attacker);
    assert_eq!(attacker.open_sessions(), 1_000);
    // While the shares are equal, a further client makes all shares smaller, and the server tells
    // all clients.
    assert_unaffected_but_for_pings(&reports, ANSWERS, 64);
}

/// A host opens all the sessions that it can. Meanwhile a new client connects.
fn all_sessions_and_a_stranger(config: EndpointConfig) -> (AttackReport, AttackReport) {
    let bench = Bench { config: config.max_sessions(1_024), ..Bench::default() };
    let bench = Bench { first_from: 12_000_000, ..bench };
    let attack = ClientAttack::Sessions;
    let me = attackers_address(&bench);
    let mut attacker = MaliciousClient::new(me, VICTIM, attack, pace(MILLION / 2), 2_000, false);
    compare(&bench, &mut attacker)
}

#[test]
fn a_new_client_connects_while_one_host_opens_all_the_sessions_it_can() {
    let reports = all_sessions_and_a_stranger(Bench::default().config);
    assert_unaffected(&reports, ANSWERS);
    // The last quarter of the sessions is reserved.
    assert_eq!(reports.1.most_sessions, 768 + 1);
    assert!(reports.1.stats.protocol.refused > 1_000, "the attacker's other sessions are refused");
}

#[test]
#[should_panic(expected = "an honest client lost its session")]
fn without_reserved_sessions_a_new_client_is_refused() {
    let _ = all_sessions_and_a_stranger(Bench::default().config.reserved_sessions(0, 0));
}

#[test]
fn a_server_limits_the_rate_of_opens_per_host() {
    let bench = Bench::default();
    let me = attackers_address(&bench);
    let attack = ClientAttack::Churn { keep: 0 };
    let mut attacker = MaliciousClient::new(me, VICTIM, attack, pace(MILLION), 64, false);
    let reports = compare(&bench, &mut attacker);
    assert_unaffected(&reports, ANSWERS);
    let dropped = reports.1.stats.protocol.dropped(DropReason::OpenRate);
    assert!(
        dropped > 1_000,
        "{dropped} of {} packets were opens above the limit",
        reports.1.attack_packets
    );
}

#[test]
fn a_server_limits_the_sockets_of_a_host() {
    let bench = Bench::default();
    let bench = Bench { config: bench.config.max_sockets_per_host(32), ..bench };
    let reports = compare(&bench, &mut crowd(&bench, ClientAttack::Sessions));
    assert_eq!(reports.1.most_sessions, reports.0.most_sessions + 32);
    assert_unaffected(&reports, ANSWERS);
}

#[test]
fn a_server_withstands_churn_at_the_number_of_clients_where_windows_halve() {
    let bench = Bench::default();
    let reports = compare(&bench, &mut crowd(&bench, ClientAttack::Churn { keep: 247 }));
    assert_unaffected_but_for_pings(&reports, ANSWERS, 64);
}

#[test]
fn a_server_withstands_a_host_that_takes_all_sessions_and_stays_idle() {
    // The defaults, except for the rate of opens. The run is long enough that the server pings all
    // sessions.
    let config = EndpointConfig::new().opens_per_host(1_000_000);
    let bench = Bench { config, calls_per_second: 2_000, ..Bench::default() };
    let bench = Bench { nanos: 5_000_000_000, ..bench };
    let sessions = 65_536 - bench.clients;
    let pace = Pace::new(Instant::from_nanos(3_000_000), 200_000_000, MILLION / 2);
    let mut attacker = MaliciousClient::new(
        attackers_address(&bench),
        VICTIM,
        ClientAttack::Sessions,
        pace,
        sessions,
        false,
    );
    let reports = compare(&bench, &mut attacker);
    // The last quarter of the sessions is reserved.
    assert_eq!(reports.1.most_sessions, 49_152);
    assert_unaffected(&reports, ANSWERS);
}

/// A caller that overwrites its request as soon as it gets it back.
#[derive(Default)]
struct Caller {
    failed: u32,
}

impl App<SimTransport> for Caller {
    fn on_reply(
        &mut self,
        _: &mut Context<'_, SimTransport>,
        _: u64,
        reply: Result<Reply<'_>, CallError>,
        mut request: MsgBuf,
    ) {
        self.failed += u32::from(reply.is_err());
        request.as_mut_slice().fill(0);
    }
}

#[test]
fn a_client_gets_its_request_back_only_after_the_device_has_read_it() {
    let server = SimRoute::new(1, 1);
    let nic = Nic { inline: 0, dma_nanos: 1_000_000, ..Nic::ring(1_472, 4_096) };
    let port = Port::new(port_route(), nic);
    let config = EndpointConfig::new().eager(1_024);
    let mut rpc = Rpc::new(SimTransport::new(Rc::clone(&port)), config).expect("valid");
    let (mut app, mut attacker) = (Caller::default(), MaliciousServer::new(server, pace(1), 1));
    let mut now = Instant::from_nanos(1_000);
    let session = rpc.context_at(now).connect(server).expect("room for a session");
    let (mut sent, mut answers) = (Vec::new(), Vec::new());
    let mut client = ConnectionId::default();
    for _ in 0..3 {
        port.set_now(now);
        rpc.run_once_at(now, &mut app);
        port.take_sent(&mut sent);
        for Sent { to, bytes } in sent.drain(..) {
            let packet = Packet::new(port_route(), to, bytes);
            attacker.receive(now, &packet, &mut answers);
        }
        for Forged { bytes, .. } in answers.drain(..) {
            client = craft::read(&bytes).expect("a packet").0.connection;
            port.deliver(server, bytes, false);
        }
        now = now.plus_nanos(1_000);
    }
    let mut cx = rpc.context_at(now);
    let mut request = cx.alloc(3_000).expect("memory");
    request.put_bytes(1, 3_000);
    assert!(cx.call(session, NewCall::new(7, request, 0)).is_ok());
    rpc.run_once_at(now, &mut app);
    let close = Control::Close { sender: MaliciousServer::name(client) };
    port.deliver(server, craft::control(client, 0, close), false);
    now = now.plus_nanos(1_000);
    port.set_now(now);
    rpc.run_once_at(now, &mut app);
    assert_eq!(app.failed, 1);
}

/// The address of the caller.
fn port_route() -> SimRoute {
    SimRoute::new(0, 2)
}

#[test]
fn equal_runs_of_the_bench_give_equal_reports() {
    let bench = Bench { nanos: 10_000_000, ..Bench::default() };
    let run = |bench: &Bench| {
        let mut attacker = Spoofer::new(VICTIM, Spoof::Hellos, pace(MILLION), 5);
        format!("{:?}", bench.run(Some(&mut attacker)))
    };
    assert_eq!(run(&bench), run(&bench));
    let other = Bench { seed: 2, ..bench.clone() };
    assert_ne!(run(&bench), run(&other));
}

/// Checks that the effects contain all of `expected`.
#[track_caller]
fn assert_shows(reports: &(AttackReport, AttackReport), allowed: Allowed, expected: &[&str]) {
    let effects = effects(reports, allowed);
    for name in expected {
        assert!(effects.iter().any(|(what, _)| what == name), "{name} is not in {effects:?}");
    }
}

#[test]
fn the_bench_detects_an_attack_on_the_processor() {
    // Each `Hello` costs a packet in and a packet out. At this rate, these packets alone take 90 %
    // of the processor's time.
    let per_second = 1_000_000_000 / PACKET_NANOS / 2 * 9 / 10;
    let flood = || Spoofer::new(VICTIM, Spoof::Hellos, pace(per_second), 5);
    let bench = Bench::default();
    let reports = compare(&bench, &mut flood());
    let slower = ["a slower median", "a slower p99", "a slower p99 of large calls"];
    assert_shows(&reports, ANSWERS, &slower);
    assert_shows(&reports, ANSWERS, &["calls without an answer"]);
    let small = Bench { rx_packets: 32, ..bench };
    let reports = (small.run(None), small.run(Some(&mut flood())));
    assert_shows(&reports, ANSWERS, &["a full receive queue"]);
}

#[test]
fn the_bench_detects_excess_answers_memory_and_long_turns() {
    let bench = Bench::default();
    let mut hellos = Spoofer::new(VICTIM, Spoof::Hellos, pace(MILLION), 5);
    assert_shows(&compare(&bench, &mut hellos), NOTHING, &["answers", "processor"]);
    let declared = ClientAttack::DeclaredSizes { allowed: 1 << 20 };
    assert_shows(&attack(declared, MILLION / 3), ANSWERS, &["memory"]);
    // No known attack makes a turn send more than a burst of answers, so the report is changed here.
    let mut reports = compare(&bench, &mut crowd(&bench, ClientAttack::Sessions));
    let longest = reports.0.most_sent_in_a_turn + BURST;
    reports.1.most_sent_in_a_turn = longest;
    assert!(effects(&reports, ANSWERS).iter().all(|(what, _)| *what != "a long turn"));
    reports.1.most_sent_in_a_turn = longest + 1;
    assert_shows(&reports, ANSWERS, &["a long turn"]);
    // Many clients use up all memory, too.
    let config = bench.config.clone().memory_limit(2 << 20);
    let bench = Bench { config, ..bench };
    let mut attacker = MaliciousClient::new(
        attackers_address(&bench),
        VICTIM,
        declared,
        pace(MILLION / 3),
        64,
        false,
    );
    assert_shows(&compare(&bench, &mut attacker), ANSWERS, &["failed calls"]);
}
