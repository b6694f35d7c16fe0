//! Messages of 256 MiB, with a raised message limit.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use erpc::raw::{Body, Context, MsgBuf, NewCall, PoolStats, Reply, Rpc};
use erpc::{CallError, EndpointConfig, Udp};
use erpc_test_tools::data::digest;
use erpc_test_tools::limit::{millis, secs, within};
use erpc_tests::lab::loopback;
use erpc_tests::raw::{Answers, Caller, DIGEST, PRODUCE, listening, produce_request, request_of};

const SIZE: usize = 256 << 20;
/// Most bytes that a pool may keep after the calls. While a message grows, it moves to larger
/// buffers. The pool keeps the former buffers for reuse, except those of more than 32 MiB.
const LITTLE: usize = 64 << 20;

fn config() -> EndpointConfig {
    EndpointConfig::new().max_message(SIZE as u32)
}

fn transport() -> Udp {
    Udp::bind(&loopback()).expect("the socket opens")
}

fn memory(pool: PoolStats) -> usize {
    pool.in_use_bytes + pool.idle_bytes
}

#[test]
fn a_request_and_a_response_of_256_mib_arrive() {
    within(secs(120), || {
        let stop = Arc::new(AtomicBool::new(false));
        let (send, listens) = channel();
        let server = {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                let mut rpc = listening(transport(), config());
                let mut answers = Answers::default();
                send.send(rpc.local_route()).expect("the test receives the address");
                while !stop.load(Ordering::Acquire) {
                    if rpc.run_once(&mut answers) == 0 {
                        rpc.wait(Some(millis(10)));
                    }
                }
                rpc.stats()
            })
        };
        let peer = listens.recv().expect("the server starts");
        let mut client =
            Rpc::new(transport(), config()).expect("the configuration is within bounds");
        let session = client.context().connect(peer).expect("there is room for a session");

        let replies = RefCell::new(Vec::new());
        let mut caller = Caller::new(
            |cx: &mut Context<'_, Udp>, _, reply: Result<Reply<'_>, CallError>, request: MsgBuf| {
                cx.recycle(request);
                let body = reply.expect("the call succeeds").body;
                let bytes = body.as_slice();
                // A response of 8 bytes is a digest already.
                let digest = if bytes.len() == 8 {
                    u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
                } else {
                    digest(bytes)
                };
                replies.borrow_mut().push((bytes.len(), digest));
                if let Body::Message(message) = body {
                    cx.recycle(message);
                }
            },
        );
        let mut wait_for = |client: &mut Rpc<Udp>, count: usize| {
            let begun = Instant::now();
            while replies.borrow().len() < count {
                if client.run_once(&mut caller) == 0 {
                    client.wait(Some(millis(10)));
                }
            }
            begun.elapsed()
        };
        let per_second = |took: Duration| SIZE as f64 / took.as_secs_f64() / f64::from(1 << 20);

        let mut cx = client.context();
        let request = request_of(&mut cx, 77, SIZE);
        let of_request = digest(request.as_slice());
        cx.call(session, NewCall::new(DIGEST, request, 0)).expect("the call is accepted");
        eprintln!("a request of 256 MiB: {:.0} MiB/s", per_second(wait_for(&mut client, 1)));

        let mut cx = client.context();
        let request = produce_request(&mut cx, 77, SIZE);
        cx.call(session, NewCall::new(PRODUCE, request, 1)).expect("the call is accepted");
        eprintln!(
            "a response of 256 MiB: {:.0} MiB/s, including the time to fill it",
            per_second(wait_for(&mut client, 2))
        );
        assert_eq!(*replies.borrow(), [(8, of_request), (SIZE, of_request)]);

        // The client immediately rejects a request that is one byte larger.
        let mut cx = client.context();
        let request = request_of(&mut cx, 78, SIZE + 1);
        let rejected =
            cx.call(session, NewCall::new(DIGEST, request, 2)).expect_err("above the limit");
        cx.recycle(rejected.request);

        // The server keeps the response until the client has acknowledged it, which happens soon.
        let patience = Instant::now() + secs(1);
        while Instant::now() < patience {
            client.run_once(&mut Caller::new(
                |_: &mut Context<'_, Udp>, _, _: Result<Reply<'_>, CallError>, _| {},
            ));
            client.wait(Some(millis(10)));
        }
        let at_client = client.stats().pool;
        assert!(memory(at_client) < LITTLE, "the client keeps memory: {at_client:?}");
        assert_eq!(at_client.in_use, 0, "the client leaks buffers");
        stop.store(true, Ordering::Release);
        let at_server = server.join().expect("the server does not panic").pool;
        assert!(memory(at_server) < LITTLE, "the server keeps memory: {at_server:?}");
    });
}
