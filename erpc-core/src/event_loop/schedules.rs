//! The bell and queues under every schedule.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use crate::event_loop::bell::Bell;
use crate::event_loop::mailbox::{PushError, Queue};
use crate::event_loop::parker::LoomParker;

#[test]
fn every_posted_item_ends_the_sleep() {
    loom::model(|| {
        let (parker, bell) = LoomParker::new();
        let queue = Arc::new(Queue::new());
        let posters = [1, 2].map(|item| {
            let (bell, queue) = (Arc::clone(&bell), Arc::clone(&queue));
            thread::spawn(move || {
                queue.push(item, 8).expect("room");
                bell.ring(Bell::REPLIES);
            })
        });
        let (mut sum, mut items) = (0, Vec::new());
        while sum != 3 {
            if bell.is_rung() && bell.answer(Bell::REPLIES) != 0 {
                queue.swap(&mut items);
                sum += items.drain(..).sum::<u32>();
            } else {
                bell.sleep(|| parker.wait());
            }
        }
        posters.into_iter().for_each(|poster| poster.join().expect("no panic"));
    });
}

#[test]
fn a_ring_of_one_kind_does_not_hide_another() {
    loom::model(|| {
        let (parker, bell) = LoomParker::new();
        let queues = [(); 2].map(|()| Arc::new(Queue::new()));
        let kinds = [Bell::REPLIES, Bell::JOBS];
        let posters = [0, 1].map(|index: usize| {
            let (bell, queue) = (Arc::clone(&bell), Arc::clone(&queues[index]));
            thread::spawn(move || {
                queue.push(1, 8).expect("room");
                bell.ring(kinds[index]);
            })
        });
        let (mut sum, mut items) = (0, Vec::new());
        while sum != 2 {
            bell.sleep(|| parker.wait());
            for (kind, queue) in kinds.into_iter().zip(&queues) {
                if bell.answer(kind) != 0 {
                    queue.swap(&mut items);
                    sum += items.drain(..).sum::<u32>();
                }
            }
        }
        posters.into_iter().for_each(|poster| poster.join().expect("no panic"));
    });
}

#[test]
fn a_nudged_loop_sees_its_condition() {
    loom::model(|| {
        let (parker, bell) = LoomParker::new();
        let condition = Arc::new(AtomicU32::new(0));
        let nudgers = [(); 2].map(|()| {
            let (bell, condition) = (Arc::clone(&bell), Arc::clone(&condition));
            thread::spawn(move || {
                condition.fetch_add(1, Ordering::Relaxed);
                bell.nudge();
            })
        });
        while condition.load(Ordering::Relaxed) < 2 {
            if !(bell.is_rung() && bell.answer_nudge()) {
                bell.sleep(|| parker.wait());
            }
        }
        nudgers.into_iter().for_each(|nudger| nudger.join().expect("no panic"));
    });
}

#[test]
fn an_item_is_taken_dropped_or_refused() {
    loom::model(|| {
        let queue = Arc::new(Queue::new());
        let posters = [(); 2].map(|()| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || match queue.push(Arc::new(()), 1) {
                Ok(()) | Err(PushError::Closed) => 1,
                Err(PushError::Full) => 0,
            })
        });
        let (mut items, mut taken) = (Vec::new(), 0);
        queue.swap(&mut items);
        taken += items.drain(..).count();
        queue.close();
        queue.swap(&mut items);
        taken += items.len();
        let posted: usize =
            posters.into_iter().map(|poster| poster.join().expect("no panic")).sum();
        assert!(taken <= posted && posted > 0);
        assert_eq!(queue.push(Arc::new(()), 1), Err(PushError::Closed));
    });
}
