//! Panics of users' code that the loop runs. A panic ends only what the panicking code belongs to,
//! such as a task or a look-up.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use bytes::BufMut;
use erpc_core::calling::CallOptions;
use erpc_core::client::{Channel, Lookup, Resolver, Target};
use erpc_core::service::{Codec, DecodeError, Method, Request, Response, Routes};
use erpc_core::status::{Code, Status};
use erpc_core::transport::mem::{MemHub, MemRoute};
use erpc_test_tools::limit::{millis, secs, within};

use crate::support::{Background, DOUBLE, client, math, number};

#[test]
fn a_job_that_panics_does_not_end_the_loop() {
    let endpoint = client(&MemHub::new());
    let handle = endpoint.handle();
    let (send, received) = channel();
    handle.submit(|_| panic!("the first job")).unwrap();
    let after = send.clone();
    handle.submit(move |_| after.send("second").unwrap()).unwrap();
    endpoint.run_once();
    assert_eq!(received.try_recv(), Ok("second"), "the jobs of the same turn run");
    handle.submit(move |_| send.send("third").unwrap()).unwrap();
    endpoint.run_once();
    assert_eq!(received.try_recv(), Ok("third"));
}

/// A resolver that panics at the first query: in `resolve`, or in `good_for` if `panics_late`.
struct Flaky {
    server: MemRoute,
    questions: Rc<Cell<u32>>,
    panics_late: bool,
}

impl Resolver<MemRoute> for Flaky {
    fn resolve(&mut self) -> impl Future<Output = io::Result<Vec<MemRoute>>> {
        self.questions.set(self.questions.get() + 1);
        assert!(self.questions.get() > 1 || self.panics_late, "the first question");
        std::future::ready(Ok(vec![self.server]))
    }

    fn good_for(&self) -> Option<Duration> {
        assert!(self.questions.get() > 1, "after the first answer");
        None
    }
}

#[test]
fn a_resolver_that_panics_is_asked_again() {
    within(secs(20), || {
        let hub = MemHub::new();
        let server = Background::start(&hub, math(), None);
        for panics_late in [false, true] {
            let (endpoint, questions) = (client(&hub), Rc::new(Cell::new(0)));
            let flaky =
                Flaky { server: server.route, questions: Rc::clone(&questions), panics_late };
            let channel = Channel::to(&endpoint, flaky)
                .resolve_pause(millis(1))
                .options(CallOptions::new().wait_for_ready(true))
                .build();
            let error = endpoint.block_on(channel.ready()).unwrap_err();
            assert!(error.to_string().contains("the resolver panicked"), "{error}");
            assert_eq!(endpoint.block_on(channel.call(&DOUBLE, &number(2))), Ok(number(4)));
            assert_eq!(questions.get(), 2);
        }
    });
}

/// A target whose look-up panics.
struct Nowhere;

impl Target<MemRoute> for Nowhere {
    fn routes(&self) -> io::Result<Vec<MemRoute>> {
        panic!("in the look-up")
    }
}

#[test]
fn a_look_up_that_panics_is_a_failed_look_up() {
    within(secs(20), || {
        let endpoint = client(&MemHub::new());
        let channel = Channel::to(&endpoint, Lookup::new(Nowhere)).build();
        let error = endpoint.block_on(channel.ready()).unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
    });
}

/// A codec for messages of one byte. The decoder panics for 13.
enum Superstitious {}

impl Codec<u8> for Superstitious {
    type View<'a> = u8;

    fn encoded_len(_: &u8) -> usize {
        1
    }

    fn encode(message: &u8, out: &mut impl BufMut) {
        out.put_u8(*message);
    }

    fn decode(bytes: &[u8]) -> Result<u8, DecodeError> {
        assert_ne!(bytes, [13], "the decoder panics on 13");
        bytes.first().copied().ok_or_else(|| DecodeError::new("it is empty"))
    }

    fn view(bytes: &[u8]) -> Result<u8, DecodeError> {
        Self::decode(bytes)
    }
}

const NEXT: Method<u8, u8, Superstitious> = Method::new("test.Bytes/Next");

async fn next(_: &(), request: Request<'_, u8>) -> Result<Response<u8>, Status> {
    Ok(Response::new(request.message() + 1))
}

#[test]
fn a_decoder_that_panics_ends_only_its_call() {
    within(secs(20), || {
        let hub = MemHub::new();
        let mut routes = Routes::new();
        routes.unary_async(NEXT, &Arc::new(()), next).unwrap();
        let server = Background::start(&hub, Arc::new(routes), None);
        let (endpoint, session) = server.connect(&hub);
        let failed = endpoint.block_on(session.call(&NEXT, &13)).unwrap_err();
        assert_eq!(failed.code(), Code::Internal, "{failed}");
        assert_eq!(endpoint.block_on(session.call(&NEXT, &1)), Ok(2), "the server continues");
    });
}
