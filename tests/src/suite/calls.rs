//! Typed calls: from the generated client to the handlers and back.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use erpc::service::Method;
use erpc::{
    CallError, Cause, Code, Endpoint, EndpointConfig, Listen, RejectReason, ServerHandle,
    Transport, join_all,
};
use erpc_test_tools::data::bytes_of;
use erpc_test_tools::limit::{secs, within};
use prost::Message;

use super::{Network, Side, builder};
use crate::lab::{LabService, work};
use crate::proto::*;

/// The default message limit in bytes.
const LIMIT: usize = 8 << 20;

fn serve<N: Network>(network: &N) -> ServerHandle<N::Transport> {
    serve_with(network, EndpointConfig::new())
}

fn serve_with<N: Network>(network: &N, config: EndpointConfig) -> ServerHandle<N::Transport> {
    let builder = builder(network).threads(2).workers(2).config(config);
    network.spawn(builder).expect("the server starts")
}

fn client<N: Network>(network: &N, config: EndpointConfig) -> Endpoint<N::Transport> {
    Endpoint::new(network.client(), config).expect("the configuration is valid")
}

fn connect<T: Listen>(
    endpoint: Endpoint<T>,
    server: &ServerHandle<T>,
) -> (Endpoint<T>, LocalLabClient<T>) {
    let session = endpoint.block_on(endpoint.connect_async(server.local_route()));
    let lab = LocalLabClient::new(session.expect("the server answers"));
    (endpoint, lab)
}

fn status(error: CallError) -> (Code, String, Vec<u8>) {
    match error {
        CallError::Status(status) => {
            (status.code(), status.message().to_owned(), status.details().to_vec())
        }
        other => panic!("not a status: {other:?}"),
    }
}

/// Uses all methods of the store at one server.
///
/// # Panics
/// If an answer is wrong.
pub fn use_store<T: Transport>(endpoint: &Endpoint<T>, lab: &LocalLabClient<T>) {
    let missing = endpoint.block_on(lab.get(GetRequest { key: "a".into() }));
    assert_eq!(missing.map_err(status).unwrap_err().0, Code::NotFound);
    let puts: Vec<_> = (0..200u64)
        .map(|n| {
            lab.put(PutRequest { key: format!("key/{n:03}"), value: bytes_of(n, n as usize * 97) })
        })
        .collect();
    for put in endpoint.block_on(join_all(puts)) {
        assert_eq!(put, Ok(PutReply { replaced: false }));
    }
    let gets = (0..200).map(|n| lab.get(GetRequest { key: format!("key/{n:03}") }));
    for (n, got) in endpoint.block_on(join_all(gets)).into_iter().enumerate() {
        assert_eq!(got, Ok(GetReply { value: bytes_of(n as u64, n * 97) }), "value {n}");
    }
    let scanned = endpoint
        .block_on(lab.scan(ScanRequest { prefix: "key/01".into() }))
        .expect("a scan succeeds");
    assert_eq!(scanned.keys, (10..20).map(|n| format!("key/{n:03}")).collect::<Vec<_>>());
    let again =
        endpoint.block_on(lab.put(PutRequest { key: "key/000".into(), value: Bytes::new() }));
    assert_eq!(again, Ok(PutReply { replaced: true }));
}

/// Puts, gets and scans.
pub fn a_store_is_used<N: Network>() {
    within(secs(60), || {
        let network = N::new();
        let server = serve(&network);
        let (endpoint, lab) = connect(client(&network, EndpointConfig::new()), &server);
        use_store(&endpoint, &lab);
    });
}

/// The threads of a server get equal numbers of sessions.
pub fn sessions_are_spread_over_the_servers_threads<N: Network>() {
    within(secs(60), || {
        let network = N::new();
        let server = serve(&network);
        let endpoint = client(&network, EndpointConfig::new());
        let open = |_| endpoint.block_on(endpoint.connect_async(server.local_route()));
        let sessions = (0..6).map(open).map(|session| session.expect("the server answers"));
        let labs: Vec<_> = sessions.map(LocalLabClient::new).collect();
        let calls =
            (0..600u64).map(|n| labs[n as usize % labs.len()].count(CountRequest { number: n }));
        for (n, reply) in endpoint.block_on(join_all(calls)).into_iter().enumerate() {
            assert_eq!(reply, Ok(CountReply { number: n as u64 }));
        }
        let threads: Vec<_> = server
            .endpoint_stats()
            .iter()
            .map(|stats| (stats.server_sessions, stats.protocol.requests))
            .collect();
        assert_eq!(threads, [(3, 300), (3, 300)], "sessions and requests per thread");
    });
}

/// From nothing to the default limit of 8 MiB, and around the sizes of packets.
pub fn messages_of_all_sizes_travel_both_ways<N: Network>() {
    // The tag and the length of the body take 5 bytes of the message limit.
    let largest = LIMIT - 5;
    assert_eq!(EchoRequest { body: Bytes::from(vec![1; largest]) }.encoded_len(), LIMIT);
    within(secs(100), move || {
        let network = N::new();
        let server = serve(&network);
        let (endpoint, lab) = connect(client(&network, EndpointConfig::new()), &server);
        let around = |edge: usize| [edge - 1, edge, edge + 1];
        let mut sizes =
            vec![0, 1, 2, 31, 32, 33, 10_000, 100_000, 1 << 20, LIMIT / 2, largest - 1, largest];
        // Sizes around those at which a message needs one packet more, for different packet sizes
        // and headers.
        sizes.extend([1_024, 1_472, 4_096, 65_507, 2 * 65_507].into_iter().flat_map(around));
        sizes.extend((65_400..65_540).step_by(7));
        for (id, len) in (0..).zip(sizes) {
            let body = bytes_of(id, len);
            let reply = endpoint.block_on(lab.echo(EchoRequest { body: body.clone() }));
            assert!(reply.is_ok_and(|reply| reply.body == body), "echo of {len} bytes");
        }
        // In the first call, nearly all bytes are in the request; in the second call, in the
        // response.
        for (id, there, back) in [(1_000, largest - 100, 0), (1_001, 0, largest - 100)] {
            let (request, expected) = work(id, there, back);
            let reply = endpoint.block_on(lab.work(request)).expect("the call succeeds");
            assert!(reply == expected, "request of {there} bytes, response of {back} bytes");
        }
    });
}

/// Messages of 1 MiB do not disturb small ones.
pub fn large_and_small_calls_share_a_session<N: Network>() {
    within(secs(60), || {
        let network = N::new();
        let server = serve(&network);
        let (endpoint, lab) = connect(client(&network, EndpointConfig::new()), &server);
        let sizes = |id: u64| match id % 20 {
            0 => (1 << 20, 0),
            10 => (0, 1 << 20),
            odd => (odd as usize * 111, odd as usize * 7),
        };
        let calls: Vec<_> = (0..200u64)
            .map(|id| {
                let (there, back) = sizes(id);
                lab.work(work(id, there, back).0)
            })
            .collect();
        for (id, reply) in (0..).zip(endpoint.block_on(join_all(calls))) {
            let (there, back) = sizes(id);
            assert!(reply.as_ref() == Ok(&work(id, there, back).1), "call {id}: {:?}", reply.err());
        }
    });
}

/// By the client, by the server, and as a response.
pub fn a_message_above_the_limit_is_refused<N: Network>() {
    within(secs(60), || {
        let mib = 1 << 20;
        let network = N::new();
        let server = serve_with(&network, EndpointConfig::new().max_message(mib as u32));
        let mut transports = network.clients(2);
        let mut open = |config| {
            Endpoint::new(transports.remove(0), config).expect("the configuration is valid")
        };
        let (endpoint, lab) = connect(open(EndpointConfig::new()), &server);
        let too_large = EchoRequest { body: Bytes::from(vec![7; mib]) };
        let size = too_large.encoded_len();

        // The client knows the server's limit once the session is open.
        let error = endpoint.block_on(lab.echo(&too_large)).expect_err("the request is too large");
        assert_eq!(error, CallError::Rejected(RejectReason::TooLarge { size, limit: mib }));
        // While the session opens, the call waits for the limit.
        let opening = LocalLabClient::new(endpoint.open(server.local_route()));
        let (early, small) = (opening.echo(&too_large), opening.count(CountRequest { number: 1 }));
        let error = endpoint.block_on(early).expect_err("the request is too large");
        assert_eq!(error, CallError::NotExecuted(Cause::RequestTooLarge(size as u32)));
        assert_eq!(
            endpoint.block_on(small),
            Ok(CountReply { number: 1 }),
            "other calls are not affected"
        );
        // A response above the client's own limit fails, too.
        let (small, lab) = connect(open(EndpointConfig::new().max_message(10_000)), &server);
        let (request, _) = work(1, 0, 10_000);
        let error = small.block_on(lab.work(request)).expect_err("the response is too large");
        let (code, message, _) = status(error);
        assert_eq!(code, Code::OutOfRange);
        assert!(message.contains("10000"), "the message names the limit: {message}");
        let (request, reply) = work(2, 5_000, 9_900);
        assert_eq!(small.block_on(lab.work(request)), Ok(reply), "the session still works");
    });
}

/// Calls wait in the server while others complete.
pub fn calls_complete_out_of_order<N: Network>() {
    within(secs(60), || {
        let network = N::new();
        let server = serve(&network);
        let (endpoint, lab) = connect(client(&network, EndpointConfig::new()), &server);
        let waiting: Vec<_> = (0..7).map(|key| lab.r#await(AwaitRequest { key })).collect();
        // One slot of eight is free. Other calls complete while the seven wait.
        for number in 0..100 {
            assert_eq!(
                endpoint.block_on(lab.count(CountRequest { number })),
                Ok(CountReply { number })
            );
        }
        assert!(waiting.iter().all(|call| !call.is_ready()), "calls wait until they are released");
        let order = Rc::new(RefCell::new(Vec::new()));
        for (key, call) in waiting.into_iter().enumerate() {
            let order = Rc::clone(&order);
            // The task records when its call has ended.
            endpoint.spawn(async move {
                assert_eq!(call.await, Ok(AwaitReply {}));
                order.borrow_mut().push(key);
            });
        }
        let release_order = [3, 6, 0, 5, 1, 4, 2];
        for (at, key) in release_order.into_iter().enumerate() {
            let released = endpoint.block_on(lab.release(ReleaseRequest { key: key as u64 }));
            assert_eq!(released, Ok(ReleaseReply { released: 1 }));
            endpoint.run_until(|| order.borrow().len() > at);
        }
        assert_eq!(*order.borrow(), release_order);
    });
}

/// Small calls are answered while a worker sleeps.
pub fn a_worker_does_not_block_the_loop<N: Network>() {
    within(secs(60), || {
        let network = N::new();
        let server = serve(&network);
        let (endpoint, lab) = connect(client(&network, EndpointConfig::new()), &server);
        let napping = lab.nap(NapRequest { millis: 500 });
        let mut counted = 0;
        while !napping.is_ready() {
            assert_eq!(
                endpoint.block_on(lab.count(CountRequest { number: 1 })),
                Ok(CountReply { number: 1 })
            );
            counted += 1;
        }
        assert_eq!(endpoint.block_on(napping), Ok(NapReply {}));
        assert!(counted > 10, "{counted} small calls in 500 ms during a slow call");
    });
}

/// Callbacks instead of futures.
pub fn callbacks_receive_replies_and_make_further_calls<N: Network>() {
    within(secs(60), || {
        let network = N::new();
        let server = serve(&network);
        let (endpoint, lab) = connect(client(&network, EndpointConfig::new()), &server);
        let (replies, sum) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        for number in 0..500u64 {
            let (again, replies, sum) = (lab.clone(), Rc::clone(&replies), Rc::clone(&sum));
            lab.count_with(CountRequest { number }, move |reply| {
                let number = reply.expect("the call succeeds").number;
                again.count_with(CountRequest { number: number + 1 }, move |reply| {
                    sum.set(sum.get() + reply.expect("the call succeeds").number);
                    replies.set(replies.get() + 1);
                });
            });
        }
        endpoint.run_until(|| replies.get() == 500);
        assert_eq!(sum.get(), (1..=500).sum());
    });
}

/// All codes, details, panics, and a method that does not exist.
pub fn the_status_of_a_handler_arrives_unchanged<N: Network>() {
    within(secs(60), || {
        let network = N::new();
        let server = serve(&network);
        let (endpoint, lab) = connect(client(&network, EndpointConfig::new()), &server);
        let fail = |code: Code, message: &str| FailRequest {
            code: code as u32,
            message: message.to_owned(),
            details: Bytes::from_static(b"\x00\xff details"),
            panic: false,
        };
        for code in (1..=16).map(Code::from_u32) {
            for call in
                [lab.fail(fail(code, "no, thanks")), lab.fail_slowly(fail(code, "no, thanks"))]
            {
                let error = endpoint.block_on(call).expect_err("the request asks for a failure");
                assert_eq!(
                    status(error),
                    (code, "no, thanks".to_owned(), b"\x00\xff details".to_vec())
                );
            }
        }
        let panics = FailRequest { panic: true, ..fail(Code::Unknown, "requested by the test") };
        for call in [lab.fail(&panics), lab.fail_slowly(&panics)] {
            assert_eq!(
                status(endpoint.block_on(call).expect_err("the request asks for a panic")).0,
                Code::Internal
            );
        }
        let unknown = Method::<CountRequest, CountReply>::new("test.v1.Lab/NoSuch");
        let error = endpoint.block_on(lab.channel().call(&unknown, &CountRequest { number: 1 }));
        assert_eq!(error, Err(CallError::NoSuchMethod("test.v1.Lab/NoSuch")));
        assert_eq!(
            endpoint.block_on(lab.count(CountRequest { number: 1 })),
            Ok(CountReply { number: 1 }),
            "the session still works"
        );
    });
}

/// The types of client and server differ.
pub fn a_message_of_another_type_is_refused<N: Network>() {
    within(secs(60), || {
        let network = N::new();
        let server = serve(&network);
        let (endpoint, lab) = connect(client(&network, EndpointConfig::new()), &server);
        // Field 1 of an echo request is bytes, field 1 of a count request is a number.
        let confused = Method::<EchoRequest, CountReply>::new("test.v1.Lab/Count");
        let request = EchoRequest { body: bytes_of(1, 20) };
        let error = endpoint
            .block_on(lab.channel().call(&confused, &request))
            .expect_err("the types differ");
        assert_eq!(status(error).0, Code::InvalidArgument);
        let confused = Method::<CountRequest, EchoReply>::new("test.v1.Lab/Count");
        let error = endpoint.block_on(lab.channel().call(&confused, &CountRequest { number: 9 }));
        assert_eq!(error, Err(CallError::ResponseLost(Cause::Malformed)));
    });
}

/// Calls before the disconnect are answered, later ones are refused.
pub fn a_disconnect_waits_for_earlier_calls<N: Network>() {
    within(secs(60), || {
        let network = N::new();
        let server = serve(&network);
        let endpoint = client(&network, EndpointConfig::new());
        let session = endpoint.open(server.local_route());
        let lab = LocalLabClient::new(session.clone());
        let calls: Vec<_> = (0..100).map(|id| lab.work(work(id, 1_000, 2_000).0)).collect();
        let gone = session.disconnect();
        let late = lab.count(CountRequest { number: 1 });
        endpoint.block_on(gone);
        for (id, reply) in (0..).zip(endpoint.block_on(join_all(calls))) {
            assert_eq!(reply, Ok(work(id, 1_000, 2_000).1));
        }
        let late = endpoint.block_on(late).expect_err("the call was made after the disconnect");
        assert!(matches!(late, CallError::Rejected(_) | CallError::NotExecuted(_)), "{late:?}");
        assert_eq!(server.stats().server_sessions, 0, "the server has closed the session");
    });
}

/// Nested calls: the other server is on the side of the client.
pub fn a_handler_calls_another_server_and_answers_later<N: Network>() {
    within(secs(60), || {
        let network = N::new();
        let front = serve(&network);
        let mut transports = network.clients(2);
        let back = Side::start(transports.remove(1), LabService::<N::Transport>::over(|_| {}));
        let endpoint = Endpoint::new(transports.remove(0), EndpointConfig::new());
        let (endpoint, lab) = connect(endpoint.expect("the configuration is valid"), &front);
        let backend = back.route().to_string();
        let request = |len| ForwardRequest { server: backend.clone(), body: bytes_of(9, len) };
        for len in [0, 100, 200_000] {
            let reply = endpoint.block_on(lab.forward(request(len)));
            assert_eq!(reply, Ok(ForwardReply { body: bytes_of(9, len) }), "from the loop");
            let reply = endpoint.block_on(lab.forward_slowly(request(len)));
            assert_eq!(reply, Ok(ForwardReply { body: bytes_of(9, len) }), "from a worker");
        }
        let many = (0..100).map(|n| {
            if n % 2 == 0 { lab.forward(request(n)) } else { lab.forward_slowly(request(n)) }
        });
        for (n, reply) in endpoint.block_on(join_all(many)).into_iter().enumerate() {
            assert_eq!(reply, Ok(ForwardReply { body: bytes_of(9, n) }));
        }
        assert_eq!(back.stop().requests, 106, "each call leads to one call of the other server");
    });
}
