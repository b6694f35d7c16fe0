//! Memory allocations of calls after a warm-up.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use erpc::raw::{Context, MsgBuf, NewCall, Reply, SessionId};
use erpc::service::{Fixed, Method, Mode, Routes};
use erpc::transport::mem::{MemConfig, MemHub};
use erpc::zerocopy::little_endian::U64;
use erpc::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use erpc::{
    Balance, Burst, CallError, CallOptions, Channel, Endpoint, EndpointConfig, Incoming, Outgoing,
    Request, Response, Status, Transport, Udp,
};
use erpc_test_tools::counting::{Account, Counting};
use erpc_test_tools::limit::{millis, secs, within};
use erpc_tests::lab::{LabService, loopback};
use erpc_tests::proto::*;
use erpc_tests::raw::{Answers, Caller, ECHO, listening, request_of};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SESSIONS: usize = 4;
/// Calls in flight: the windows of all sessions, and some that wait.
const OUTSTANDING: u64 = 48;
const WARM_UP: u64 = 20_000;
const CALLS: u64 = 20_000;
const BYTES: usize = 32;

/// Makes echo calls in a closed loop over raw endpoints on one thread. After a warm-up, these calls
/// must not allocate.
fn raw_path<T: Transport>(client: T, server: T) {
    let config = || EndpointConfig::new().min_rto(millis(500));
    let mut server = listening(server, config());
    let mut client =
        erpc::raw::Rpc::new(client, config()).expect("the configuration is within bounds");
    let mut answers = Answers::default();
    let peer = server.local_route();
    let sessions: Vec<SessionId> = (0..SESSIONS)
        .map(|_| client.context().connect(peer).expect("the endpoint has room for sessions"))
        .collect();

    let (done, next) = (Cell::new(0u64), Cell::new(0u64));
    let call = |cx: &mut Context<'_, T>, request: MsgBuf| {
        let token = next.replace(next.get() + 1);
        cx.call(sessions[token as usize % SESSIONS], NewCall::new(ECHO, request, token))
            .expect("the call is accepted");
    };
    let mut caller = Caller::new(
        |cx: &mut Context<'_, T>, _, reply: Result<Reply<'_>, CallError>, request: MsgBuf| {
            let reply = reply.expect("the call succeeds");
            assert_eq!(reply.as_slice().len(), BYTES);
            done.set(done.get() + 1);
            call(cx, request);
        },
    );
    for id in 0..OUTSTANDING {
        let mut cx = client.context();
        let request = request_of(&mut cx, id, BYTES);
        call(&mut cx, request);
    }
    let mut run = |calls: u64| {
        let end = done.get() + calls;
        while done.get() < end {
            client.run_once(&mut caller);
            server.run_once(&mut answers);
        }
    };
    run(WARM_UP);
    let account = Account::new(0);
    account.charge(|| run(CALLS));
    assert_eq!(account.allocations(), 0, "allocations in {CALLS} calls, both sides");
    assert_eq!(account.live_bytes(), 0, "bytes freed in {CALLS} calls, both sides");
}

#[test]
fn raw_calls_through_memory_allocate_nothing() {
    within(secs(60), || {
        let hub = MemHub::new();
        raw_path(hub.port(MemConfig::default()), hub.port(MemConfig::default()));
    });
}

#[test]
fn raw_calls_over_udp_allocate_nothing() {
    within(secs(60), || {
        let bind = || Udp::bind(&loopback()).expect("the socket opens");
        raw_path(bind(), bind());
    });
}

/// A server and a client with a session to it, on this thread.
fn typed_pair() -> (Endpoint, Endpoint, LocalLabClient) {
    let endpoint = || {
        Endpoint::udp_with(&loopback(), EndpointConfig::new().min_rto(millis(500)))
            .expect("the endpoint opens")
    };
    let (server, client) = (endpoint(), endpoint());
    server.listen();
    assert!(server.serve(LabService::default().routes(), None));
    let route = server.local_route().expect("called outside of the loop");
    let lab = LocalLabClient::new(client.open(route));
    (server, client, lab)
}

#[test]
fn typed_calls_allocate_only_the_callback() {
    within(secs(60), || {
        let (server, client, lab) = typed_pair();
        let run = |calls: u64| {
            for number in 0..calls {
                let done = Rc::new(Cell::new(false));
                let flag = Rc::clone(&done);
                lab.count_with(CountRequest { number }, move |reply| {
                    assert_eq!(reply, Ok(CountReply { number }));
                    flag.set(true);
                });
                while !done.get() {
                    client.run_once();
                    server.run_once();
                }
            }
        };
        run(2_000);
        let account = Account::new(0);
        account.charge(|| run(CALLS));
        // The test itself allocates once per call, for its flag. This allocation does not count.
        let per_call = account.allocations() as f64 / CALLS as f64 - 1.0;
        eprintln!("{per_call} allocations per typed call with a callback, both sides");
        assert!(per_call <= 1.01, "{per_call} allocations per call");
    });
}

/// A message that needs no decoding.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, erpc::FixedLayout)]
#[zerocopy(crate = "erpc::zerocopy")]
#[repr(C)]
struct Echoed(U64);

#[test]
fn a_burst_hook_allocates_nothing() {
    const HOOKED: Method<Echoed, Echoed, Fixed> = Method::new("test.Bursts/Echo");
    within(secs(60), || {
        let bind = || Udp::bind(&loopback()).expect("the socket opens");
        let endpoint = || Endpoint::new(bind(), EndpointConfig::new()).expect("the endpoint opens");
        let (server, client) = (endpoint(), endpoint());
        let (service, mut routes) = (Arc::new(AtomicU64::new(0)), Routes::new());
        let echo = |_: &AtomicU64, request: Request<'_, &Echoed>| {
            let number = request.note().ok_or(Status::internal("the hook has not seen it"))?;
            Ok(Response::new(Echoed(U64::new(number))))
        };
        routes.unary(HOOKED, Mode::Dispatch, &service, echo).expect("the first method");
        routes.on_burst(HOOKED, &service, |bursts, burst: Burst<'_, &Echoed>| {
            bursts.fetch_add(1, Ordering::Relaxed);
            burst.iter().for_each(|request| request.set_note(request.message().0.get()));
        });
        server.listen();
        assert!(server.serve(Arc::new(routes), None));
        let session = client.open(server.local_route().expect("called outside of the loop"));
        let done = Rc::new(Cell::new(0));
        let run = |calls: u64| {
            for number in 0..calls {
                let count = Rc::clone(&done);
                session.call_with(&HOOKED, &Echoed(U64::new(number)), move |reply| {
                    let reply: &Echoed = reply.expect("the call succeeds");
                    assert_eq!(reply.0.get(), number);
                    count.set(count.get() + 1);
                });
                while number % 8 == 7 && done.get() <= number {
                    client.run_once();
                    server.run_once();
                }
            }
            done.set(0);
        };
        run(2_000);
        service.store(0, Ordering::Relaxed);
        let account = Account::new(0);
        account.charge(|| run(CALLS));
        let bursts = service.load(Ordering::Relaxed);
        assert!(bursts < CALLS / 2, "{bursts} bursts of {CALLS} requests");
        // The callbacks.
        assert!(account.allocations() <= CALLS + CALLS / 100, "{}", account.allocations());
    });
}

/// Number of allocations of an awaited call of `lab`, both sides together.
fn awaited((server, client, lab): (Endpoint, Endpoint, LocalLabClient)) -> f64 {
    let done = Rc::new(Cell::new(0));
    let count = Rc::clone(&done);
    // The task never ends, so that the measurement does not include its creation.
    let _task = client.spawn(async move {
        for number in 0.. {
            assert_eq!(lab.count(CountRequest { number }).await, Ok(CountReply { number }));
            count.set(count.get() + 1);
        }
    });
    let run = |calls: u64| {
        let end = done.get() + calls;
        while done.get() < end {
            client.run_once();
            server.run_once();
        }
    };
    run(2_000);
    let account = Account::new(0);
    account.charge(|| run(CALLS));
    account.allocations() as f64 / CALLS as f64
}

#[test]
fn typed_calls_that_are_awaited_allocate_nothing() {
    within(secs(60), || {
        let per_call = awaited(typed_pair());
        eprintln!("{per_call} allocations per typed call that is awaited, both sides");
        assert!(per_call <= 0.01, "{per_call} allocations per call");
    });
}

const NUMBERS: Method<u64, u64> = Method::new("test.Allocations/Numbers");
const TAKEN: Method<u64, u64> = Method::new("test.Allocations/Taken");

/// A service with streams, registered without generated code.
struct Numbers;

impl Numbers {
    async fn numbers(&self, _: Request<'_, u64>, out: Outgoing<u64>) -> Result<(), Status> {
        for number in 0.. {
            out.send(number).await?;
        }
        Ok(())
    }

    async fn taken(&self, request: Request<'_, Incoming<u64>>) -> Result<Response<u64>, Status> {
        let (mut numbers, mut next) = (request.into_message(), 0);
        while let Some(number) = numbers.next().await? {
            assert_eq!(number, next);
            next += 1;
        }
        Ok(Response::new(next))
    }
}

#[test]
fn messages_of_streams_allocate_nothing() {
    const MESSAGES: u64 = 200_000;
    within(secs(60), || {
        let endpoint = || {
            Endpoint::udp_with(&loopback(), EndpointConfig::new().min_rto(millis(500)))
                .expect("the endpoint opens")
        };
        let (server, client, service) = (endpoint(), endpoint(), Arc::new(Numbers));
        let mut routes = Routes::new();
        routes.server_streaming(NUMBERS, &service, Numbers::numbers).expect("no collision");
        routes.client_streaming(TAKEN, &service, Numbers::taken).expect("no collision");
        server.listen();
        assert!(server.serve(Arc::new(routes), None));
        let session = client.open(server.local_route().expect("called outside of the loop"));
        let [down, up] = [Rc::new(Cell::new(0u64)), Rc::new(Cell::new(0u64))];
        let (received, own) = (Rc::clone(&down), session.clone());
        let _down = client.spawn(async move {
            let mut numbers = own.server_streaming(&NUMBERS, &0);
            for number in 0.. {
                assert_eq!(numbers.next().await, Ok(Some(number)));
                received.set(number);
            }
        });
        let sent = Rc::clone(&up);
        let _up = client.spawn(async move {
            let upload = session.client_streaming(&TAKEN);
            for number in 0.. {
                assert_eq!(upload.send(number).await, Ok(()));
                sent.set(number);
            }
        });
        let run = |messages: u64| {
            let (down_end, up_end) = (down.get() + messages, up.get() + messages);
            while down.get() < down_end || up.get() < up_end {
                client.run_once();
                server.run_once();
            }
        };
        run(MESSAGES);
        let account = Account::new(0);
        account.charge(|| run(MESSAGES));
        let allocations = account.allocations();
        eprintln!("{allocations} allocations for {MESSAGES} messages each way, both sides");
        // No allocations per message, and few per batch: blocks of sizes that are new to the pools.
        assert!(allocations <= MESSAGES / 1_000, "{allocations} allocations");
    });
}

#[test]
fn balanced_calls_with_a_deadline_allocate_nothing() {
    within(secs(60), || {
        for balance in [Balance::RoundRobin, Balance::LeastOutstanding, Balance::TwoChoices] {
            let (server, client, _) = typed_pair();
            let route = server.local_route().expect("called outside of the loop");
            let channel = Channel::to(&client, vec![route]).balance(balance).sessions(3);
            let options = CallOptions::new().deadline(secs(50));
            let lab = LocalLabClient::new(channel.options(options).build());
            let per_call = awaited((server, client, lab));
            assert!(per_call <= 0.01, "{per_call} allocations per call, {balance:?}");
        }
    });
}

#[test]
fn the_counting_allocator_counts() {
    let account = Account::new(1);
    let boxed = account.charge(|| std::hint::black_box(vec![1u8; 1_000]));
    assert_eq!((account.allocations(), account.live_bytes()), (1, 1_000));
    drop(boxed);
    assert_eq!((account.allocations(), account.live_bytes()), (1, 1_000), "freed outside `charge`");
}
