//! Calls between a caller's thread and an endpoint's thread, under every schedule.

use std::future::poll_fn;
use std::sync::Arc;

use loom::future::block_on;
use loom::thread;

use super::SharedChannel;
use crate::calling::posted::{PostedCall, PostedCaller};
use crate::endpoint::Endpoint;
use crate::event_loop::wakes::{WakeBatch, WakeList};
use crate::protocol::{CallError, Cause, EndpointConfig};
use crate::service::Method;
use crate::transport::mem::{MemConfig, MemHub, MemRoute, MemTransport};

const DOUBLE: Method<u32, u32> = Method::new("math.v1.Math/Double");
const FAILED: CallError = CallError::NotExecuted(Cause::Unresolved);

#[test]
fn an_outcome_reaches_a_future_that_waits() {
    loom::model(|| {
        let call = Arc::new(PostedCall::new());
        let caller = PostedCaller::new(&call);
        let endpoint = thread::spawn(move || {
            if let Some(waker) = caller.end(Err(FAILED)) {
                waker.wake();
            }
        });
        let outcome = block_on(poll_fn(|cx| call.poll(cx)));
        assert_eq!(outcome.err(), Some(FAILED));
        endpoint.join().expect("no panic");
    });
}

#[test]
fn every_outcome_of_a_batch_reaches_its_future() {
    loom::model(|| {
        let list = Arc::new(WakeList::new());
        let calls = [(); 2].map(|()| Arc::new(PostedCall::new()));
        let callers = [0, 1].map(|index| PostedCaller::new(&calls[index]));
        let futures = calls.map(|call| {
            let list = Arc::clone(&list);
            thread::spawn(move || {
                block_on(poll_fn(|cx| {
                    list.release();
                    call.poll(cx)
                }))
            })
        });
        let batch = WakeBatch::default();
        let wakers = callers.into_iter().filter_map(|caller| caller.end(Err(FAILED)));
        wakers.for_each(|waker| batch.push(waker));
        batch.end_turn(&list);
        batch.flush(&list);
        for future in futures {
            assert_eq!(future.join().expect("no panic").err(), Some(FAILED));
        }
    });
}

#[test]
fn a_dropped_future_is_cancelled_or_its_outcome_is_dropped() {
    loom::model(|| {
        let call = Arc::new(PostedCall::new());
        let caller = PostedCaller::new(&call);
        let endpoint = thread::spawn(move || drop(caller));
        // Returns true if the endpoint has not ended the call yet. In that case, the outcome that
        // the endpoint gives later is dropped.
        call.abandon();
        endpoint.join().expect("no panic");
        assert!(call.is_over());
        assert_eq!(Arc::strong_count(&call), 1);
    });
}

#[test]
fn a_post_is_taken_or_ends_with_the_endpoint() {
    loom::model(|| {
        let port = MemHub::new().port(MemConfig::default().entries(32).max_datagram(0));
        let endpoint: Endpoint<MemTransport> =
            Endpoint::new(port, EndpointConfig::new()).expect("an endpoint");
        // No server has this route: a call that the endpoint takes waits until the endpoint ends.
        let channel = SharedChannel::on(&endpoint.handle(), vec![MemRoute::new(77)]);
        let channel = channel.build().expect("no thread is needed");
        let caller = thread::spawn(move || block_on(channel.call(&DOUBLE, &21)));
        endpoint.run_once();
        drop(endpoint);
        let outcome = caller.join().expect("no panic");
        let ended = CallError::NotExecuted(Cause::Shutdown);
        assert_eq!(outcome, Err(ended));
    });
}
