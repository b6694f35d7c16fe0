//! The memory that streams may use at a server.

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use erpc_core::client::Session;
use erpc_core::endpoint::Endpoint;
use erpc_core::protocol::{CallError, EndpointConfig};
use erpc_core::service::{Incoming, Method, Outgoing, Request, Routes};
use erpc_core::status::{Code, Status};
use erpc_core::time::Instant;
use erpc_core::transport::mem::{MemConfig, MemHub, MemTransport};

use crate::support::{Number, number};

/// A stream whose handler never reads.
const MUTE: Method<Number, Number> = Method::new("test.Memory/Mute");
/// Reads one message for each count of [`Reader::may_read`], and answers it.
const SLOW: Method<Number, Number> = Method::new("test.Memory/Slow");

/// Size of a large message, in bytes.
const LARGE: usize = 1_000_000;

#[derive(Default)]
struct Reader {
    may_read: AtomicU64,
}

impl Reader {
    async fn mute(
        &self,
        request: Request<'_, Incoming<Number>>,
        _: Outgoing<Number>,
    ) -> Result<(), Status> {
        let _unread = request;
        std::future::pending().await
    }

    async fn slow(
        &self,
        request: Request<'_, Incoming<Number>>,
        out: Outgoing<Number>,
    ) -> Result<(), Status> {
        let mut numbers = request.into_message();
        loop {
            while self.may_read.load(Ordering::Relaxed) == 0 {
                yield_once().await;
            }
            self.may_read.fetch_sub(1, Ordering::Relaxed);
            match numbers.next().await? {
                Some(Number { value, .. }) => out.send(number(value)).await?,
                None => return Ok(()),
            }
        }
    }
}

async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A client and a server on this thread, in virtual time.
struct Pair {
    client: Endpoint<MemTransport>,
    server: Endpoint<MemTransport>,
    reader: Arc<Reader>,
    now: Cell<u64>,
}

impl Pair {
    fn new(session_memory: usize) -> (Self, Session<MemTransport>) {
        let hub = MemHub::new();
        let endpoint = |seed| {
            let config = EndpointConfig::new()
                .seed(seed)
                .max_message(1 << 20)
                .session_memory_limit(session_memory);
            Endpoint::new(hub.port(MemConfig::default()), config).unwrap()
        };
        let (client, server) = (endpoint(1), endpoint(2));
        let (reader, mut routes) = (Arc::new(Reader::default()), Routes::new());
        routes.bidi_streaming(MUTE, &reader, Reader::mute).unwrap();
        routes.bidi_streaming(SLOW, &reader, Reader::slow).unwrap();
        server.listen();
        assert!(server.serve(Arc::new(routes), None));
        let route = server.local_route().unwrap();
        let pair = Self { client, server, reader, now: Cell::new(1_000_000) };
        let session = pair.wait(pin!(pair.client.connect_async(route))).unwrap();
        (pair, session)
    }

    fn turn(&self) {
        self.now.set(self.now.get() + 2_000);
        let now = Instant::from_nanos(self.now.get());
        self.client.run_once_at(now);
        self.server.run_once_at(now);
    }

    /// Runs turns. Returns the largest number of bytes that were in use at the server after one of
    /// these turns.
    fn turns(&self, turns: usize) -> usize {
        let in_use = |_| {
            self.turn();
            self.server.stats().unwrap().pool.in_use_bytes
        };
        (0..turns).map(in_use).max().unwrap_or(0)
    }

    fn wait<F: Future>(&self, mut future: Pin<&mut F>) -> F::Output {
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..1_000_000 {
            if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                return output;
            }
            self.turn();
        }
        panic!("the future does not complete");
    }
}

fn large(value: u64) -> Number {
    Number { value, ballast: vec![0; LARGE] }
}

#[test]
fn unread_messages_count_against_the_memory_of_their_session() {
    let (pair, session) = Pair::new(1 << 20);
    let (out, mut answers) = session.bidi_streaming(&MUTE);
    let mut cx = Context::from_waker(Waker::noop());
    let mut most = 0;
    for value in 0..4 {
        most = most.max(pair.turns(5_000));
        let _ = pin!(out.send(&large(value))).poll(&mut cx);
    }
    most = most.max(pair.turns(5_000));
    // In use are the first message, the part of the second that fits the limit, and a buffer's
    // overhead.
    assert!((LARGE..LARGE * 3 / 2).contains(&most), "{most}");
    let error = pair.wait(pin!(answers.next())).unwrap_err();
    let CallError::Status(status) = error else { panic!("{error}") };
    assert_eq!(status.code(), Code::ResourceExhausted);
    drop((out, answers));
    pair.turns(5_000);
    let left = pair.server.stats().unwrap().pool.in_use_bytes;
    assert!(left < LARGE / 10, "messages of an ended stream are dropped: {left} bytes left");
    // The stream's end has released the session's memory.
    let (out, mut answers) = session.bidi_streaming(&SLOW);
    pair.reader.may_read.store(9, Ordering::Relaxed);
    pair.wait(pin!(out.send(&large(7)))).unwrap();
    assert_eq!(pair.wait(pin!(answers.next())).unwrap().unwrap().value, 7);
}

#[test]
fn a_session_with_memory_for_four_messages_carries_any_number_of_them_to_a_slow_handler() {
    let (pair, session) = Pair::new(4 << 20);
    let (out, mut answers) = session.bidi_streaming(&SLOW);
    let mut most = 0;
    for value in 0..20 {
        // The client sends as far ahead as it can.
        pair.wait(pin!(out.send(&large(value)))).unwrap();
        most = most.max(pair.turns(2_000));
        // The client can send four messages before the server answers a push: one in OPEN, two in
        // pushes, and one that waits at the client. To send the fifth, the client needs the answer
        // to the first push, which comes with the handler's second read: the first read takes the
        // message in OPEN. So the handler reads once after the third message and once after each
        // later one.
        if value >= 2 {
            pair.reader.may_read.fetch_add(1, Ordering::Relaxed);
            most = most.max(pair.turns(200));
        }
    }
    assert!(most > 2 * LARGE, "the slow handler leaves messages unread: {most} bytes");
    pair.reader.may_read.store(100, Ordering::Relaxed);
    drop(out);
    for value in 0..20 {
        assert_eq!(pair.wait(pin!(answers.next())).unwrap().unwrap().value, value);
    }
    assert!(pair.wait(pin!(answers.next())).unwrap().is_none());
}
