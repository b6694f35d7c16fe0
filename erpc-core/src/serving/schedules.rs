//! Loom models of workers and of the end of their pool. The queue is built on this crate's lock,
//! not on a channel, so loom sees every access.

use std::cell::Cell;
use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread;

use crate::buf::MsgBuf;
use crate::event_loop::mailbox::Mailbox;
use crate::event_loop::parker::LoomParker;
use crate::protocol::RequestHandle;
use crate::service::{Method, Mode, Request, Response, RouteEntry, Routes};
use crate::serving::worker::{JobRefused, WorkerJob, WorkerPool, WorkerQueue};
use crate::status::Status;
use crate::sync::atomic::AtomicBool;
use crate::time::Instant;
use crate::transport::mem::MemTransport;

fn mailbox() -> Arc<Mailbox> {
    let (_parker, bell) = LoomParker::new();
    Arc::new(Mailbox::new::<MemTransport>(bell))
}

/// Queues a job.
fn push(
    queue: &WorkerQueue,
    mailbox: &Arc<Mailbox>,
    entry: &Arc<RouteEntry>,
) -> Result<(), JobRefused> {
    queue.push(WorkerJob {
        entry: Arc::clone(entry),
        body: MsgBuf::detached(0).expect("memory"),
        front: 0,
        call: RequestHandle::for_tests(),
        peer: None,
        deadline: Instant::NEVER,
        cancelled: Arc::new(AtomicBool::new(false)),
        mailbox: Arc::clone(mailbox),
    })
}

fn replies(mailbox: &Mailbox) -> usize {
    mailbox.take_answers(&Cell::default()).map_or(0, |replies| replies.len())
}

/// A worker method that runs `handler` and fails.
fn method(handler: impl Fn() + Send + Sync + 'static) -> Arc<RouteEntry> {
    const METHOD: Method<u32, u32> = Method::new("test.Schedules/Method");
    let mut routes = Routes::new();
    let handler = move |_: &(), _: Request<'_, u32>| {
        handler();
        Err::<Response<u32>, _>(Status::internal("the test's status"))
    };
    routes.unary(METHOD, Mode::Worker, &Arc::new(()), handler).expect("the only method");
    Arc::clone(routes.get(METHOD.id()).expect("the method is registered"))
}

#[test]
fn every_accepted_job_is_answered_however_the_pool_ends() {
    loom::model(|| {
        let mailbox = mailbox();
        let pool = WorkerPool::new(1, 1).expect("a thread");
        let queue = pool.queue();
        let endpoint = thread::spawn({
            let mailbox = Arc::clone(&mailbox);
            move || {
                let entry = method(|| {});
                let taken = [(); 2].map(|()| push(&queue, &mailbox, &entry).is_ok());
                taken.into_iter().filter(|taken| *taken).count()
            }
        });
        drop(pool);
        let taken = endpoint.join().expect("no panic");
        assert_eq!(replies(&mailbox), taken);
    });
}

#[test]
fn two_workers_share_a_queue() {
    loom::model(|| {
        let mailbox = mailbox();
        let pool = WorkerPool::new(2, 2).expect("two threads");
        let entry = method(|| {});
        for _ in 0..2 {
            assert_eq!(push(&pool.queue(), &mailbox, &entry), Ok(()));
        }
        drop(pool);
        assert_eq!(replies(&mailbox), 2);
    });
}

#[test]
fn a_handler_ends_its_own_pool() {
    loom::model(|| {
        let mailbox = mailbox();
        let pool = WorkerPool::new(1, 1).expect("a thread");
        let queue = pool.queue();
        let owner = Arc::new(Mutex::new(Some(pool)));
        let ending = method({
            let owner = Arc::clone(&owner);
            move || {
                let pool = owner.lock().expect("no panic").take();
                drop(pool);
            }
        });
        drop(owner);
        let mut taken = 0;
        for _ in 0..3 {
            taken += usize::from(push(&queue, &mailbox, &ending).is_ok());
        }
        drop(ending);
        // The test has no handle to join the worker's thread. It waits instead until the thread has
        // dropped its references to the mailbox.
        while Arc::strong_count(&mailbox) > 1 {
            thread::yield_now();
        }
        assert!(taken > 0);
        assert_eq!(replies(&mailbox), taken);
    });
}
