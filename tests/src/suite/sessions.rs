//! Many sessions, and endpoints that sleep.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use erpc::transport::fault::{FaultPlan, Faults, Faulty};
use erpc::{
    CallError, Cause, Endpoint, EndpointConfig, IdlePolicy, Listen, ServerBuilder, ServerHandle,
    SubmitError, Transport,
};
use erpc_test_tools::limit::{millis, secs, within};
use rustix::time::{ClockId, clock_gettime};

use super::{Network, builder};
use crate::proto::*;

const SHORT: EndpointConfig =
    EndpointConfig::new().ping_interval(millis(100)).liveness_timeout(millis(500));

fn serve<N: Network>(
    network: &N,
    builder: ServerBuilder<N::Transport>,
) -> ServerHandle<N::Transport> {
    network.spawn(builder).expect("the server starts")
}

fn client<N: Network>(network: &N, config: EndpointConfig) -> Endpoint<N::Transport> {
    Endpoint::new(network.client(), config).expect("the configuration is valid")
}

fn connect<'a, T: Listen>(
    endpoint: &'a Endpoint<T>,
    server: &ServerHandle<T>,
) -> (&'a Endpoint<T>, LocalLabClient<T>) {
    (endpoint, LocalLabClient::new(endpoint.open(server.local_route())))
}

fn counts<T: Transport>(endpoint: &Endpoint<T>, lab: &LocalLabClient<T>, number: u64) {
    assert_eq!(endpoint.block_on(lab.count(CountRequest { number })), Ok(CountReply { number }));
}

/// Runs `endpoint` until `done`, and fails if that takes longer than `limit`. Returns the elapsed
/// time.
#[track_caller]
fn wait_until<T: Transport>(
    endpoint: &Endpoint<T>,
    limit: Duration,
    what: &str,
    mut done: impl FnMut() -> bool,
) -> Duration {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < limit, "{what}: not within {limit:?}");
        endpoint.run_for(millis(5));
    }
    begun.elapsed()
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A thousand sessions of one endpoint.
pub fn a_thousand_sessions_open_and_end<N: Network>() {
    within(secs(60), || sessions_open_and_end(&N::new(), 1_000));
}

/// All sessions open together, are used, and end.
///
/// # Panics
/// If one of these fails.
pub fn sessions_open_and_end<N: Network>(network: &N, sessions: usize) {
    let server = serve(network, builder(network));
    let endpoint = client(network, EndpointConfig::new().connect_timeout(secs(30)));
    let begun = Instant::now();
    // All sessions open together. Hellos that overflow the server's queue are retransmitted.
    let labs: Vec<_> =
        (0..sessions).map(|_| LocalLabClient::new(endpoint.open(server.local_route()))).collect();
    let done = Rc::new(Cell::new(0));
    for round in 0..3 {
        for (at, lab) in labs.iter().enumerate() {
            let (number, done) = ((round * sessions + at) as u64, Rc::clone(&done));
            lab.count_with(CountRequest { number }, move |reply| {
                assert_eq!(reply, Ok(CountReply { number }));
                done.set(done.get() + 1);
            });
        }
        endpoint.run_until(|| done.get() == (round + 1) * sessions);
        if round == 0 {
            eprintln!("{sessions} sessions opened and used once in {:?}", begun.elapsed());
        }
    }
    assert_eq!(server.stats().server_sessions, sessions);
    drop(labs);
    wait_until(&endpoint, secs(30), "the server forgets sessions", || {
        server.stats().server_sessions == 0
    });
    wait_until(&endpoint, secs(30), "the client's sessions end", || {
        endpoint.stats().expect("called outside of the loop").client_sessions == 0
    });
}

/// Calls of handlers in the loop and of workers.
pub fn endpoints_answer_with_every_idle_policy<N: Network>() {
    within(secs(60), || {
        let policies = [
            IdlePolicy::Sleep,
            IdlePolicy::SpinThenSleep { spin: millis(1) },
            IdlePolicy::default(),
            IdlePolicy::Spin,
        ];
        for policy in policies {
            let network = N::new();
            let server = serve(&network, builder(&network).idle(policy).workers(1));
            let endpoint = client(&network, EndpointConfig::new());
            endpoint.set_idle_policy(policy);
            let (endpoint, lab) = connect(&endpoint, &server);
            for number in 0..200 {
                counts(endpoint, &lab, number);
            }
            // Workers answer from other threads.
            for _ in 0..20 {
                assert_eq!(
                    endpoint.block_on(lab.nap(NapRequest { millis: 1 })),
                    Ok(NapReply {}),
                    "{policy:?}"
                );
            }
        }
    });
}

/// The endpoint waits for a slow call.
pub fn a_sleeping_endpoint_uses_little_cpu_time_and_wakes_for_packets<N: Network>() {
    within(secs(60), || {
        let network = N::new();
        let server = serve(&network, builder(&network).idle(IdlePolicy::Sleep).workers(1));
        let endpoint = client(&network, EndpointConfig::new());
        endpoint.set_idle_policy(IdlePolicy::Sleep);
        let (endpoint, lab) = connect(&endpoint, &server);
        let before = cpu_time();
        assert_eq!(endpoint.block_on(lab.nap(NapRequest { millis: 1_000 })), Ok(NapReply {}));
        let spent = cpu_time() - before;
        assert!(spent < millis(200), "{spent:?} of CPU time for a second of waiting");
    });
}

/// Retransmission and liveness, with no packet to wake the endpoint.
pub fn a_sleeping_endpoint_wakes_for_timers<N: Network>() {
    within(secs(60), || {
        let network = N::new();
        let server = serve(&network, builder(&network).idle(IdlePolicy::Sleep));
        let transport = Faulty::new(network.client(), FaultPlan::new(1));
        let network = transport.handle();
        let endpoint = Endpoint::new(transport, SHORT).expect("the configuration is valid");
        endpoint.set_idle_policy(IdlePolicy::Sleep);
        let session = endpoint.open(server.local_route());
        let lab = LocalLabClient::new(session);
        let once = endpoint.block_on(lab.count(CountRequest { number: 1 }));
        assert_eq!(once, Ok(CountReply { number: 1 }));

        // The request is lost and no packet comes, so only a timer can wake the endpoint.
        network.set_plan(FaultPlan::new(2).both(Faults::none().drop(1.0)));
        let call = lab.count(CountRequest { number: 2 });
        endpoint.run_once();
        endpoint.run_once();
        assert_eq!(network.stats().tx.dropped, 1, "the request is lost");
        network.set_plan(FaultPlan::new(3));
        let begun = Instant::now();
        assert_eq!(endpoint.block_on(call), Ok(CountReply { number: 2 }));
        assert!(begun.elapsed() < secs(3), "answered after {:?}", begun.elapsed());

        // All packets are lost from now on: the liveness timeout ends the sleep.
        network.set_plan(FaultPlan::new(4).both(Faults::none().drop(1.0)));
        let begun = Instant::now();
        let reply = endpoint.block_on(lab.count(CountRequest { number: 3 }));
        assert_eq!(reply, Err(CallError::MaybeExecuted(Cause::PeerDead)));
        assert!(begun.elapsed() < secs(5), "failed after {:?}", begun.elapsed());
    });
}

/// Another thread submits calls to a sleeping endpoint.
pub fn a_sleeping_endpoint_wakes_for_other_threads<N: Network>() {
    within(secs(60), || {
        let network = N::new();
        let server = serve(&network, builder(&network).idle(IdlePolicy::Sleep));
        let mut transports = network.clients(2);
        let mut open = || {
            let opened = Endpoint::new(transports.remove(0), EndpointConfig::new());
            opened.expect("the configuration is valid")
        };
        let endpoint = open();
        endpoint.set_idle_policy(IdlePolicy::Sleep);
        let (endpoint, lab) = connect(&endpoint, &server);
        drop(lab);
        endpoint.run_for(millis(50));
        let (handle, address) = (endpoint.handle(), server.local_route());
        let (send, replies) = channel();
        let other = thread::spawn(move || {
            for number in 0..20 {
                // The pause is long enough for the endpoint to fall asleep.
                thread::sleep(millis(20));
                let (send, begun) = (send.clone(), Instant::now());
                let submitted = handle.submit(move |endpoint: &Endpoint<N::Transport>| {
                    let lab = LocalLabClient::new(endpoint.open(address));
                    lab.count_with(CountRequest { number }, move |reply| {
                        send.send((reply, begun.elapsed())).expect("the test receives replies");
                    });
                });
                submitted.expect("the endpoint exists");
            }
            drop(send);
            handle
        });
        let mut answers = Vec::new();
        endpoint.run_until(|| {
            answers.extend(replies.try_iter());
            answers.len() == 20
        });
        for (number, (reply, took)) in (0..).zip(answers) {
            assert_eq!(reply, Ok(CountReply { number }));
            assert!(took < secs(2), "a sleeping endpoint took {took:?} to answer");
        }
        let handle = other.join().expect("the other thread does not panic");
        // The handle of a dropped endpoint refuses jobs.
        let gone = open().handle();
        assert_eq!(gone.submit(|_| {}), Err(SubmitError::Gone));
        assert_eq!(handle.submit(|_| {}), Ok(()));
    });
}
