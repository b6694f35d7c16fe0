//! An endpoint that sleeps, and another thread with work for it, under every schedule.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use crate::endpoint::Endpoint;
use crate::event_loop::IdlePolicy;
use crate::protocol::EndpointConfig;
use crate::transport::mem::{MemConfig, MemHub, MemTransport};

fn endpoint() -> Endpoint<MemTransport> {
    let port = MemHub::new().port(MemConfig::default().entries(32).max_datagram(0));
    let endpoint = Endpoint::new(port, EndpointConfig::new()).expect("an endpoint");
    endpoint.set_idle_policy(IdlePolicy::Sleep);
    endpoint
}

#[test]
fn a_wake_at_any_point_makes_the_loop_check_its_condition() {
    loom::model(|| {
        let endpoint = endpoint();
        let (handle, stop) = (endpoint.handle(), Arc::new(AtomicU32::new(0)));
        let stopper = thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                stop.store(1, Ordering::Relaxed);
                handle.wake();
            }
        });
        endpoint.run_until(|| stop.load(Ordering::Relaxed) == 1);
        stopper.join().expect("no panic");
    });
}

#[test]
fn a_closure_runs_is_dropped_or_is_refused() {
    loom::model(|| {
        let endpoint = endpoint();
        let (handle, ran) = (endpoint.handle(), Arc::new(AtomicU32::new(0)));
        let held = Arc::new(());
        let submitter = thread::spawn({
            let (handle, ran, held) = (handle.clone(), Arc::clone(&ran), Arc::clone(&held));
            move || {
                let job = move |_: &Endpoint<MemTransport>| {
                    drop(held);
                    ran.fetch_add(1, Ordering::Relaxed);
                };
                handle.submit(job).is_ok()
            }
        });
        endpoint.run_once();
        drop(endpoint);
        let submitted = submitter.join().expect("no panic");
        assert!(submitted || ran.load(Ordering::Relaxed) == 0);
        assert_eq!(Arc::strong_count(&held), 1, "the closure is dropped");
        assert!(handle.submit(|_| ()).is_err());
    });
}

#[test]
fn a_closure_wakes_a_sleeping_loop() {
    loom::model(|| {
        let endpoint = endpoint();
        let (handle, ran) = (endpoint.handle(), Arc::new(AtomicU32::new(0)));
        let submitter = thread::spawn({
            let ran = Arc::clone(&ran);
            move || handle.submit(move |_| ran.store(1, Ordering::Relaxed)).expect("room")
        });
        endpoint.run_until(|| ran.load(Ordering::Relaxed) == 1);
        submitter.join().expect("no panic");
    });
}
