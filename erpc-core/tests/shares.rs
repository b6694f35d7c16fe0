//! Neighbours over loopback UDP: a busy client beside 1,000 clients that are idle or call now and
//! then, and sessions that open and close.
//!
//! Needs an idle machine and `ulimit -n 8192`: `cargo test --release -p erpc-core --test shares --
//! --ignored --nocapture --test-threads 1`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::BufMut;
use erpc_core::buf::MsgBuf;
use erpc_core::event_loop::{App, Context, Rpc};
use erpc_core::protocol::{
    Acceptor, CallError, EndpointConfig, ListenGroup, NewCall, Reply, Request, SessionId,
};
use erpc_core::transport::Transport;
use erpc_core::transport::udp::{UdpConfig, UdpRoute, UdpTransport};

/// Endpoints besides the busy one.
const OTHERS: usize = 1_000;
/// Sessions of the busy client, and calls in flight on each of them.
const SESSIONS: usize = 8;
const OUTSTANDING: usize = 8;

type Cx<'a> = Context<'a, UdpTransport>;

struct Echo;

impl App<UdpTransport> for Echo {
    fn on_request(&mut self, cx: &mut Cx<'_>, request: Request<'_, UdpRoute>) {
        let Ok(mut response) = cx.response_buffer(request.buffer, 32) else { return };
        response.put_slice(&[0; 32]);
        cx.respond(request.handle, response, false);
    }
}

/// Counts replies. If `again` is set, makes a new call for every reply, on the session whose index
/// is the token.
#[derive(Default)]
struct Caller {
    sessions: Vec<SessionId>,
    again: bool,
    replies: u64,
    failed: u64,
}

impl App<UdpTransport> for Caller {
    fn on_reply(
        &mut self,
        cx: &mut Cx<'_>,
        token: u64,
        reply: Result<Reply<'_>, CallError>,
        request: MsgBuf,
    ) {
        self.replies += 1;
        self.failed += u64::from(reply.is_err());
        if self.again {
            let call = NewCall::new(7, request, token);
            assert!(cx.call(self.sessions[token as usize], call).is_ok());
        } else {
            cx.recycle(request);
        }
    }
}

fn call(rpc: &mut Rpc<UdpTransport>, session: SessionId, token: u64) {
    let mut cx = rpc.context();
    let mut request = cx.alloc(32).expect("memory");
    request.put_slice(&[0; 32]);
    assert!(cx.call(session, NewCall::new(7, request, token)).is_ok());
}

fn endpoint(config: &UdpConfig) -> Rpc<UdpTransport> {
    let transport = UdpTransport::bind(config).expect("a socket");
    Rpc::new(transport, EndpointConfig::new()).expect("valid")
}

/// The busy client's replies per second: the best of 20 periods of 100 ms.
fn rate(rpc: &mut Rpc<UdpTransport>, caller: &mut Caller) -> f64 {
    let stretch = |_| {
        let (begin, before) = (Instant::now(), caller.replies);
        while begin.elapsed() < Duration::from_millis(100) {
            rpc.run_once(caller);
        }
        (caller.replies - before) as f64 / begin.elapsed().as_secs_f64()
    };
    (0..20).map(stretch).fold(0.0, f64::max)
}

/// The busy client's window on its first session, in charge units.
fn window(rpc: &mut Rpc<UdpTransport>, caller: &Caller) -> u32 {
    rpc.context().session_stats(caller.sessions[0]).expect("open").window
}

/// Rates of a busy client, in replies per second: alone, beside 1,000 idle clients, and beside
/// 1,000 that call once per 100 ms. The server's receive buffer has `recv_buffer` bytes.
fn rates(recv_buffer: usize) -> [f64; 3] {
    let stop = Arc::new(AtomicBool::new(false));
    let loopback: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let config = UdpConfig::new().address(loopback).recv_buffer(recv_buffer);
    let mut server = endpoint(&config);
    let at = server.local_route();
    server.listen(Acceptor::new(Arc::new(ListenGroup::new([1; 16], vec![0])), 0));
    let stopped = Arc::clone(&stop);
    let serving = thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            server.run_once(&mut Echo);
        }
        server.transport().stats().rx_overflow
    });
    let small = UdpConfig::new().address(loopback);
    let mut busy = endpoint(&small);
    let mut caller = Caller { again: true, ..Caller::default() };
    for token in 0..SESSIONS {
        caller.sessions.push(busy.context().connect(at).expect("room"));
        (0..OUTSTANDING).for_each(|_| call(&mut busy, caller.sessions[token], token as u64));
    }
    let alone = rate(&mut busy, &mut caller);

    let calling = Arc::new(AtomicBool::new(false));
    let (stopped, call_now) = (Arc::clone(&stop), Arc::clone(&calling));
    let others = thread::spawn(move || {
        let mut others: Vec<_> = (0..OTHERS)
            .map(|_| {
                let mut rpc = endpoint(&small);
                let session = rpc.context().connect(at).expect("room");
                rpc.run_once(&mut Caller::default());
                (rpc, session, Caller::default())
            })
            .collect();
        let mut round = 0;
        while !stopped.load(Ordering::Relaxed) {
            // Each round runs a tenth of the endpoints, so each endpoint calls once in ten rounds.
            for (rpc, session, app) in others.iter_mut().skip(round % 10).step_by(10) {
                rpc.run_once(app);
                if call_now.load(Ordering::Relaxed) {
                    call(rpc, *session, 0);
                    rpc.run_once(app);
                }
            }
            round += 1;
            thread::sleep(Duration::from_millis(10));
        }
        others.iter().map(|(_, _, app)| app.replies).sum::<u64>()
    });
    let settle = Instant::now();
    while settle.elapsed() < Duration::from_secs(3) {
        busy.run_once(&mut caller);
    }
    let idle = rate(&mut busy, &mut caller);
    let window = window(&mut busy, &caller);
    calling.store(true, Ordering::Relaxed);
    let now_and_then = rate(&mut busy, &mut caller);
    stop.store(true, Ordering::Relaxed);
    let replies = others.join().expect("no panic");
    let overflow = serving.join().expect("no panic");
    let (beside_idle, beside_calling) = (idle / alone, now_and_then / alone);
    println!(
        "{recv_buffer} bytes: alone {alone:.0}/s; beside {OTHERS} idle {beside_idle:.2} of that, in a window of {window}; \
         beside {OTHERS} that call {beside_calling:.2}; {replies} replies to those, {overflow} packets lost to the queue"
    );
    assert_eq!(caller.failed, 0);
    [alone, idle, now_and_then]
}

#[test]
#[ignore = "needs an idle machine and many files"]
fn a_busy_client_keeps_four_fifths_of_its_rate_beside_a_thousand_others() {
    for recv_buffer in [212_992, 8 << 20] {
        let [alone, idle, now_and_then] = rates(recv_buffer);
        assert!(idle >= 0.8 * alone && now_and_then >= 0.8 * alone);
    }
}

/// Sessions that open at the same time: one burst of packets.
const AT_ONCE: usize = 32;
/// How often the sessions open and close.
const ROUNDS: usize = 400;

/// Runs the endpoint until it has nothing to do. Returns the durations of its turns, in us.
fn turns<A: App<UdpTransport>>(rpc: &mut Rpc<UdpTransport>, app: &mut A) -> Vec<f64> {
    let mut turns = Vec::new();
    loop {
        let begin = Instant::now();
        let work = rpc.run_once(app);
        if work == 0 {
            return turns;
        }
        turns.push(begin.elapsed().as_secs_f64() * 1e6);
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Client and server take turns on one thread, so that each `Hello`, `Open` and `Close` waits in
/// the server's socket when the server's turn begins.
#[test]
#[ignore = "needs an idle machine"]
fn handshakes_stall_the_loop_by_less_than_20_us_and_take_a_tenth_of_a_core() {
    let loopback: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let config = UdpConfig::new().address(loopback);
    let rate = 20_000.0;
    let mut server = endpoint(&config);
    let at = server.local_route();
    server.listen(Acceptor::new(Arc::new(ListenGroup::new([1; 16], vec![0])), 0));
    let mut client = endpoint(&config);
    let (mut app, mut echo) = (Caller::default(), Echo);
    let (mut hellos, mut opens, mut cycles) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let sessions: Vec<_> =
            (0..AT_ONCE).map(|_| client.context().connect(at).expect("room")).collect();
        turns(&mut client, &mut app);
        let hello = turns(&mut server, &mut echo);
        turns(&mut client, &mut app);
        let open = turns(&mut server, &mut echo);
        turns(&mut client, &mut app);
        assert_eq!(server.sessions().1, AT_ONCE, "the sessions are open");
        sessions.into_iter().for_each(|session| client.context().disconnect(session));
        turns(&mut client, &mut app);
        let close = turns(&mut server, &mut echo);
        turns(&mut client, &mut app);
        cycles.push([&hello, &open, &close].into_iter().flatten().sum::<f64>() / AT_ONCE as f64);
        hellos.push(hello.into_iter().fold(0.0, f64::max));
        opens.push(open.into_iter().fold(0.0, f64::max));
        // The server limits the rate of `Open`s. Wait until it accepts the next ones.
        thread::sleep(Duration::from_micros((AT_ONCE as f64 / rate * 1.1e6) as u64));
    }
    let (hello, open, cycle) = (median(hellos), median(opens), median(cycles));
    let core = cycle * rate / 1e4;
    println!(
        "the longest turn with {AT_ONCE} Hellos {hello:.1} us, with as many Opens {open:.1} us; Hello, Open and Close, packets \
         included, {cycle:.2} us, or {core:.1} % of a core at {rate} per second"
    );
    assert!(open - hello <= 20.0, "Opens stall the loop");
    assert!(core <= 10.0, "handshakes take the core");
}
