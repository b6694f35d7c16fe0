//! Workers and the end of their pool. Channels are no part of this: the queue is a lock of ours, so
//! that loom sees all of it.

use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread;

use super::Bed;
use crate::buf::MsgBuf;
use crate::protocol::RequestHandle;
use crate::runtime::mailbox::{Mailbox, Reply};
use crate::runtime::worker::{Job, Refused, WorkerPool, WorkerQueue};
use crate::service::{ErasedHandler, Outcome, Status};
use crate::transport::mem::MemTransport;

type Pool = WorkerPool<MemTransport>;

fn mailbox() -> Arc<Mailbox<MemTransport>> {
    let (_bed, bell) = Bed::new();
    Arc::new(Mailbox::new(bell))
}

/// Queues a job; 1 if the queue took it.
fn push(
    queue: &WorkerQueue<MemTransport>,
    mailbox: &Arc<Mailbox<MemTransport>>,
    handler: &Arc<ErasedHandler>,
) -> Result<(), Refused> {
    queue.push(Job {
        handler: Arc::clone(handler),
        body: MsgBuf::detached(0).expect("memory"),
        call: RequestHandle::for_tests(),
        peer: None,
        mailbox: Arc::clone(mailbox),
    })
}

fn replies(mailbox: &Mailbox<MemTransport>) -> usize {
    let mut replies: Vec<Reply> = Vec::new();
    mailbox.replies.swap(&mut replies);
    replies.len()
}

fn answer() -> Arc<ErasedHandler> {
    Arc::new(|_: &_, _: &_, _: &mut _| Outcome::Failed(Status::internal("as arranged")))
}

#[test]
fn every_job_that_is_taken_is_answered_however_the_pool_ends() {
    loom::model(|| {
        let mailbox = mailbox();
        let pool = Pool::new(1, 1).expect("a thread");
        let queue = pool.queue();
        let endpoint = thread::spawn({
            let mailbox = Arc::clone(&mailbox);
            move || {
                let handler = answer();
                let taken = [(); 2].map(|()| push(&queue, &mailbox, &handler).is_ok());
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
        let pool = Pool::new(2, 2).expect("two threads");
        let handler = answer();
        for _ in 0..2 {
            assert_eq!(push(&pool.queue(), &mailbox, &handler), Ok(()));
        }
        drop(pool);
        assert_eq!(replies(&mailbox), 2);
    });
}

#[test]
fn a_handler_ends_its_own_pool() {
    loom::model(|| {
        let mailbox = mailbox();
        let pool = Pool::new(1, 1).expect("a thread");
        let queue = pool.queue();
        let owner = Arc::new(Mutex::new(Some(pool)));
        let ending: Arc<ErasedHandler> = Arc::new({
            let owner = Arc::clone(&owner);
            move |_: &_, _: &_, _: &mut _| {
                let pool = owner.lock().expect("no panic").take();
                drop(pool);
                Outcome::Failed(Status::internal("as arranged"))
            }
        });
        drop(owner);
        let mut taken = 0;
        for _ in 0..3 {
            taken += usize::from(push(&queue, &mailbox, &ending).is_ok());
        }
        drop(ending);
        // The worker is nobody's to wait for; it has ended when all of what it holds is gone.
        while Arc::strong_count(&mailbox) > 1 {
            thread::yield_now();
        }
        assert!(taken > 0);
        assert_eq!(replies(&mailbox), taken);
    });
}
