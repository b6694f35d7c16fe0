//! The link goes down and up again while calls run.

use std::time::Instant;

use erpc_test_tools::events::EventLog;
use erpc_test_tools::limit::millis;
use tracing::Level;

use super::*;

/// How long a call waits while the link is down.
const DEADLINE: Duration = millis(700);

/// Processor time of this process.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").expect("the process has a state");
    // After the name, which ends with the last parenthesis: user and system time are the 12th and
    // 13th value, in hundredths of a second.
    let values = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = values.skip(11).take(2).map(|ticks| ticks.parse().unwrap_or(0)).sum();
    millis(ticks * 10)
}

fn open(driver: Driver, end: End) -> DpdkTransport {
    DpdkTransport::open(&config(driver, end, 1_500)).expect("a port")
}

/// The second end, which calls the first one and looks at the link.
fn client(driver: Driver) {
    let log = EventLog::install();
    start_dpdk();
    let endpoint = serve(open(driver, End::Second));
    let session: Session<DpdkTransport> = endpoint.open(End::Second.peer().into());
    let link = || {
        let transport = endpoint.stats().expect("outside of a turn").transport;
        (transport.link_downs, transport.link_ups)
    };
    let request = vec![7; 20_000];
    for round in 0..2 {
        call(&endpoint, &session, request.len());
        say("CALLED");
        // Calls run until the link is down. Those that the cut hits end by their deadline.
        let end = Instant::now() + PATIENCE;
        while link() != (round + 1, round + 1) {
            assert!(Instant::now() < end, "the link is not seen to go down: {:?}", link());
            let call = endpoint.timeout(millis(100), session.call(&ECHO, &request));
            let _answer_or_elapsed = endpoint.block_on(call);
        }
        let (begun, processor) = (Instant::now(), processor_time());
        let call = endpoint.timeout(DEADLINE, session.call(&ECHO, &request));
        assert!(endpoint.block_on(call).is_err(), "no call passes while the link is down");
        let (waited, worked) = (begun.elapsed(), processor_time() - processor);
        assert!((DEADLINE..DEADLINE + secs(1)).contains(&waited), "{waited:?}");
        assert!(worked < waited / 2, "a loop that waits works for {worked:?} of {waited:?}");
        // This call begins while the link is down, and goes on when it is up.
        let waiting = endpoint.spawn(session.call(&ECHO, &request));
        say("WAITS");
        let answer = endpoint.block_on(endpoint.timeout(PATIENCE, waiting));
        assert!(answer.expect("in time").expect("an answer") == request);
        let end = Instant::now() + PATIENCE;
        endpoint.run_until(|| link() == (round + 1, round + 2) || Instant::now() > end);
        assert_eq!(link(), (round + 1, round + 2), "seen to go up");
    }
    // The log is at most a second behind.
    let events = |message: &str| log.all(|event| event.message == message);
    let end = Instant::now() + PATIENCE;
    endpoint.run_until(|| {
        Instant::now() > end || events("link down").len() + events("link up").len() >= 5
    });
    for (message, level, count) in [("link down", Level::WARN, 2), ("link up", Level::INFO, 3)] {
        let events = events(message);
        assert_eq!(events.len(), count, "{events:?}");
        for event in &events {
            assert_eq!((event.target, event.level), ("erpc::network", level));
            assert_eq!(event.number("count"), 1);
            assert_eq!(event.field("endpoint"), "10.9.0.2:31850");
        }
    }
    say("DONE");
}

fn end(driver: Driver, end: End) {
    if end == End::Second {
        return client(driver);
    }
    start_dpdk();
    let endpoint = serve(open(driver, end));
    say("LISTENS");
    endpoint.run_until(|| false);
}

/// The peer's interface goes down and up, then the client's own one.
fn down_and_up(net: &Net, test: &str, driver: Driver) {
    let device = format!("{},iface={INTERFACE}", driver.device());
    let server = net.start(End::First, test, &device);
    server.expect("LISTENS");
    let client = net.start(End::Second, test, &device);
    for end in [End::First, End::Second] {
        let set = |state: &str| {
            let set = net.of(end).ip(&format!("link set {INTERFACE} {state}"));
            set.expect("the interface's state changes");
        };
        client.expect("CALLED");
        set("down");
        client.expect("WAITS");
        set("up");
    }
    client.expect("DONE");
}

#[test]
fn down_and_up_over_af_packet() {
    let (driver, name) = (Driver::Packet, "link::down_and_up_over_af_packet");
    play(
        name,
        driver,
        1_500,
        |role| end(Driver::Packet, role),
        |net| {
            down_and_up(net, name, driver);
        },
    );
}

#[test]
fn down_and_up_over_af_xdp() {
    let (driver, name) = (Driver::Xdp, "link::down_and_up_over_af_xdp");
    play(
        name,
        driver,
        1_500,
        |role| end(Driver::Xdp, role),
        |net| {
            down_and_up(net, name, driver);
        },
    );
}
