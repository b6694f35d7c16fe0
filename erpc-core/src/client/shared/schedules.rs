//! Calls between a caller's thread and an endpoint's thread, under every schedule.

use std::future::{Future, poll_fn, ready};
use std::io;
use std::sync::Arc;

use loom::future::block_on;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use super::SharedChannel;
use super::lane::{Lane, Post};
use crate::calling::posted::{PostedCall, PostedCaller};
use crate::client::channel::{Channel, Resolver};
use crate::endpoint::Endpoint;
use crate::event_loop::IdlePolicy;
use crate::event_loop::wakes::{WakeBatch, WakeList};
use crate::protocol::{CallError, Cause, EndpointConfig};
use crate::service::Method;
use crate::transport::mem::{MemConfig, MemHub, MemRoute, MemTransport};

const DOUBLE: Method<u32, u32> = Method::new("math.v1.Math/Double");
const FAILED: CallError = CallError::NotExecuted(Cause::Unresolved);

/// No server has this route: a call that the endpoint takes waits until the endpoint ends.
const NOWHERE: MemRoute = MemRoute::new(77);

fn endpoint() -> Endpoint<MemTransport> {
    let port = MemHub::new().port(MemConfig::default().entries(32).max_datagram(0));
    Endpoint::new(port, EndpointConfig::new()).expect("an endpoint")
}

/// A lane to the endpoint. Each channel that is built for it holds the returned value.
fn lane(endpoint: &Endpoint<MemTransport>) -> (Arc<Lane<MemTransport>>, Arc<Vec<MemRoute>>) {
    let servers = Arc::new(vec![NOWHERE]);
    let held = Arc::clone(&servers);
    let build = move |endpoint: &Endpoint<MemTransport>| {
        Channel::to(endpoint, Held(Arc::clone(&held))).build()
    };
    (Arc::new(Lane::new(endpoint.handle(), None, Arc::new(build))), servers)
}

/// A resolver that shows how long its channel lives.
struct Held(Arc<Vec<MemRoute>>);

impl Resolver<MemRoute> for Held {
    fn resolve(&mut self) -> impl Future<Output = io::Result<Vec<MemRoute>>> {
        ready(Ok(self.0.to_vec()))
    }
}

/// Counts the posts that the endpoint has handled.
fn count(count: &Arc<AtomicU32>) -> Post<MemTransport> {
    let count = Arc::clone(count);
    Post::Ask(Box::new(move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
    }))
}

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
        let endpoint = endpoint();
        let channel = SharedChannel::on(&endpoint.handle(), vec![NOWHERE]);
        let channel = channel.build().expect("no thread is needed");
        let caller = thread::spawn(move || block_on(channel.call(&DOUBLE, &21)));
        endpoint.run_once();
        drop(endpoint);
        let outcome = caller.join().expect("no panic");
        let ended = CallError::NotExecuted(Cause::Shutdown);
        assert_eq!(outcome, Err(ended));
    });
}

#[test]
fn a_post_wakes_a_sleeping_endpoint() {
    loom::model(|| {
        let endpoint = endpoint();
        endpoint.set_idle_policy(IdlePolicy::Sleep);
        let ((lane, _), handled) = (lane(&endpoint), Arc::new(AtomicU32::new(0)));
        let poster = thread::spawn({
            let handled = Arc::clone(&handled);
            move || lane.post(count(&handled))
        });
        endpoint.run_until(|| handled.load(Ordering::Relaxed) == 1);
        poster.join().expect("no panic");
    });
}

#[test]
fn posts_of_two_threads_are_all_handled() {
    loom::model(|| {
        let endpoint = endpoint();
        let ((lane, _), handled) = (lane(&endpoint), Arc::new(AtomicU32::new(0)));
        let [first, second] = [(); 2].map(|()| {
            let (lane, handled) = (Arc::clone(&lane), Arc::clone(&handled));
            thread::spawn(move || lane.post(count(&handled)))
        });
        first.join().expect("no panic");
        // The endpoint takes the first post, and perhaps the second one.
        endpoint.run_once();
        second.join().expect("no panic");
        endpoint.run_once();
        assert_eq!(handled.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_dropped_call_is_never_started_or_is_cancelled() {
    loom::model(|| {
        let endpoint = endpoint();
        let channel = SharedChannel::on(&endpoint.handle(), vec![NOWHERE]);
        let channel = channel.build().expect("no thread is needed");
        let call = channel.call(&DOUBLE, &21);
        let caller = thread::spawn(move || drop(call));
        endpoint.run_once();
        caller.join().expect("no panic");
        endpoint.run_once();
        assert!(endpoint.parts().calls().table().pending().is_empty());
    });
}

#[test]
fn a_cancel_beside_the_end_of_its_channel_leaves_no_channel() {
    loom::model(|| {
        let endpoint = endpoint();
        let ((lane, servers), handled) = (lane(&endpoint), Arc::new(AtomicU32::new(0)));
        let held = Arc::strong_count(&servers);
        lane.post(count(&handled));
        endpoint.run_once();
        assert_eq!(Arc::strong_count(&servers), held + 1, "the endpoint has a channel");
        let canceller = thread::spawn({
            let lane = Arc::clone(&lane);
            move || lane.post(Post::Cancel(Arc::new(PostedCall::new())))
        });
        lane.end();
        drop(lane);
        endpoint.run_once();
        canceller.join().expect("no panic");
        endpoint.run_once();
        // A channel's task ends in the turn after the channel's end.
        endpoint.run_once();
        assert_eq!(Arc::strong_count(&servers), 1, "the channels are gone");
    });
}

#[test]
fn a_sleeping_endpoint_sees_a_cancel_and_the_end_of_its_channel() {
    let mut model = loom::model::Builder::new();
    // With two preemptions this takes half a minute, with three far longer.
    model.preemption_bound = Some(1);
    model.check(|| {
        let endpoint = endpoint();
        endpoint.set_idle_policy(IdlePolicy::Sleep);
        let ((lane, servers), handled) = (lane(&endpoint), Arc::new(AtomicU32::new(0)));
        lane.post(count(&handled));
        endpoint.run_once();
        let ended = Arc::new(AtomicU32::new(0));
        let start = |act: fn(Arc<Lane<MemTransport>>)| {
            let (lane, ended, handle) = (Arc::clone(&lane), Arc::clone(&ended), endpoint.handle());
            thread::spawn(move || {
                act(lane);
                ended.fetch_add(1, Ordering::Relaxed);
                handle.wake();
            })
        };
        let threads = [
            start(|lane| lane.post(Post::Cancel(Arc::new(PostedCall::new())))),
            start(|lane| lane.end()),
        ];
        drop(lane);
        endpoint.run_until(|| ended.load(Ordering::Relaxed) == 2);
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        endpoint.run_once();
        endpoint.run_once();
        assert_eq!(Arc::strong_count(&servers), 1, "the channels are gone");
    });
}
