//! Handlers that end while an endpoint waits for them, under every schedule.

use std::future::poll_fn;
use std::sync::Arc;

use loom::future::block_on;
use loom::thread;

use super::endpoint::Handlers;

#[test]
fn the_last_handler_wakes_the_endpoint_that_waits() {
    loom::model(|| {
        let handlers = Arc::new(Handlers::default());
        let threads = [Handlers::begin(&handlers), Handlers::begin(&handlers)]
            .map(|handler| thread::spawn(move || drop(handler)));
        block_on(poll_fn(|cx| handlers.poll_idle(cx)));
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}
