//! The bounded queue between endpoints and workers. Stopping it loses no job.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::Duration;

use crate::clock;
use crate::mutants::mutant;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard, Padded};
use crate::time::Instant;

/// A queue of jobs from many endpoints to many workers.
///
/// It uses a lock and a flag instead of a channel. A stop message in a channel would wait for room,
/// and a job could be queued behind it.
pub(crate) struct JobQueue<J> {
    state: Mutex<JobQueueState<J>>,
    /// Notified when a job is queued or the queue is stopped.
    changed: Condvar,
    /// Whether there may be jobs, or the queue is stopped, for workers that spin. A pusher sets it
    /// after it has released the lock. A worker clears it under the lock, while the queue is empty,
    /// so it never clears the announcement of a job that waits. In a cache line of its own, so that
    /// workers that spin do not slow the lock.
    has_work: Padded<AtomicBool>,
    limit: usize,
    /// For how long a worker without a job spins before it sleeps.
    spin: Duration,
}

struct JobQueueState<J> {
    jobs: VecDeque<J>,
    /// Number of workers that wait for a job. While it is 0, `push` makes no system call.
    idle: usize,
    stopped: bool,
    /// Number of workers that have ended.
    ended: usize,
}

/// Why a job was not queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JobRefused {
    Full,
    Stopped,
}

impl<J> JobQueue<J> {
    /// A queue of at most `limit` jobs, whose workers spin for `spin` before they sleep.
    pub(crate) fn new(limit: usize, spin: Duration) -> Self {
        let state = JobQueueState { jobs: VecDeque::new(), idle: 0, stopped: false, ended: 0 };
        let has_work = Padded(AtomicBool::new(false));
        Self { state: Mutex::new(state), changed: Condvar::new(), has_work, limit, spin }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    fn lock(&self) -> MutexGuard<'_, JobQueueState<J>> {
        // Under the lock only an allocation can panic, and it leaves the queue consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job without waiting for room. `Err` returns the job.
    pub(crate) fn push(&self, job: J) -> Result<(), (JobRefused, J)> {
        let mut state = self.lock();
        if state.stopped {
            return Err((JobRefused::Stopped, job));
        }
        if state.jobs.len() >= self.limit {
            return Err((JobRefused::Full, job));
        }
        state.jobs.push_back(job);
        let somebody_waits = state.idle > 0 && !(mutant!(WorkerNotWoken) && state.jobs.len() > 1);
        drop(state);
        // After the release: a worker that sees this at once finds the lock free.
        self.announce_work();
        if somebody_waits {
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Waits for the next job. `None` once the queue is stopped and empty.
    pub(crate) fn pop(&self) -> Option<J> {
        let mut state = self.lock();
        // Until when to spin; not known before the first job is missed.
        let mut spin_until = None;
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.stopped {
                return None;
            }
            if !self.spin.is_zero() {
                self.has_work.0.store(false, Ordering::Relaxed);
                drop(state);
                let until = *spin_until.get_or_insert_with(|| clock::now() + self.spin);
                let saw_work = self.spin_for_work(until);
                state = self.lock();
                // Another worker may have taken the job. Then this one spins on.
                if saw_work || !state.jobs.is_empty() || state.stopped {
                    continue;
                }
            }
            state.idle += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    /// Spins until there may be a job, at most until a point in time. A job that arrives meanwhile
    /// needs no system call. Returns whether there may be one.
    fn spin_for_work(&self, until: Instant) -> bool {
        // The lock that the worker takes next orders its accesses, so this load needs no order.
        while !self.has_work.0.load(Ordering::Relaxed) {
            if clock::now() >= until {
                return false;
            }
            std::hint::spin_loop();
        }
        true
    }

    /// Tells workers that spin that a job is queued or the queue is stopped.
    fn announce_work(&self) {
        if !self.spin.is_zero() {
            self.has_work.0.store(true, Ordering::Relaxed);
        }
    }

    /// Takes the next job, if one is queued.
    pub(super) fn try_pop(&self) -> Option<J> {
        self.lock().jobs.pop_front()
    }

    /// Takes out the queued jobs that `is_wanted` selects.
    pub(crate) fn take_waiting(&self, is_wanted: impl Fn(&J) -> bool) -> Vec<J> {
        let mut state = self.lock();
        let (taken, left): (VecDeque<J>, VecDeque<J>) =
            std::mem::take(&mut state.jobs).into_iter().partition(is_wanted);
        state.jobs = left;
        taken.into()
    }

    /// Records that a worker got no further job and ends.
    pub(crate) fn note_end(&self) {
        self.lock().ended += 1;
        self.changed.notify_all();
    }

    /// Waits until `workers` workers have ended, at most for `within`. Returns whether they have.
    pub(crate) fn wait_for_ends(&self, workers: usize, within: Duration) -> bool {
        let end = clock::now() + within;
        let mut state = self.lock();
        while state.ended < workers {
            let left = end - clock::now();
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Refuses jobs from now on. Queued jobs are still handed out.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        drop(state);
        self.announce_work();
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::sync::Arc;

    /// A worker must take a job or end within this time.
    const LIMIT: Duration = Duration::from_secs(20);

    /// Runs `step` on a thread. If `step` does not return within [`LIMIT`], the test fails and does
    /// not wait for the thread.
    fn within_limit<R: Send + 'static>(
        expected: &str,
        step: impl FnOnce() -> R + Send + 'static,
    ) -> R {
        let (send, done) = channel();
        thread::spawn(move || send.send(step()));
        done.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("{expected}: {error}"))
    }

    #[test]
    fn a_stop_ends_waiting_workers() {
        let queue = Arc::new(JobQueue::<u32>::new(2, Duration::ZERO));
        let (send, ended) = channel();
        for _ in 0..3 {
            let (queue, send) = (Arc::clone(&queue), send.clone());
            thread::spawn(move || send.send(queue.pop()));
        }
        while queue.lock().idle < 3 {
            thread::yield_now();
        }
        queue.stop();
        for worker in 0..3 {
            let job = ended.recv_timeout(LIMIT);
            assert_eq!(job, Ok(None), "the stop ended {worker} of 3 waiting workers");
        }
    }

    #[test]
    fn a_full_queue_refuses_jobs_and_a_stopped_queue_hands_out_its_jobs() {
        let queue = JobQueue::new(2, Duration::ZERO);
        assert_eq!(queue.push(1), Ok(()));
        assert_eq!(queue.push(2), Ok(()));
        assert_eq!(queue.push(3), Err((JobRefused::Full, 3)));
        assert_eq!(queue.pop(), Some(1));
        assert_eq!(queue.push(3), Ok(()));
        queue.stop();
        assert_eq!(queue.push(4), Err((JobRefused::Stopped, 4)));
        let jobs = move || [queue.pop(), queue.pop(), queue.pop()];
        let jobs = within_limit("a worker waits for jobs of a stopped queue", jobs);
        assert_eq!(jobs, [Some(2), Some(3), None]);
    }

    #[test]
    fn each_job_wakes_a_worker() {
        let queue = Arc::new(JobQueue::<u32>::new(2, Duration::ZERO));
        // A job ends only when the other one has begun, so two workers have to run.
        let both = Arc::new(std::sync::Barrier::new(2));
        let (send, begun) = channel();
        for _ in 0..2 {
            let (queue, both, send) = (Arc::clone(&queue), Arc::clone(&both), send.clone());
            thread::spawn(move || {
                while queue.pop().is_some() {
                    both.wait();
                    send.send(()).unwrap();
                }
            });
        }
        // The first worker rarely wakes before the second job is queued.
        for round in 0..100 {
            while queue.lock().idle < 2 {
                thread::yield_now();
            }
            queue.push(1).unwrap();
            queue.push(2).unwrap();
            for _ in 0..2 {
                let job = begun.recv_timeout(LIMIT);
                assert_eq!(job, Ok(()), "round {round}: both jobs run at the same time");
            }
        }
        queue.stop();
    }

    #[test]
    fn a_spinning_worker_takes_a_job_and_ends_by_a_stop_without_having_slept() {
        let queue = Arc::new(JobQueue::<u32>::new(2, 10 * LIMIT));
        let (send, popped) = channel();
        thread::spawn({
            let queue = Arc::clone(&queue);
            move || (0..3).for_each(|_| send.send(queue.pop()).unwrap())
        });
        for job in 1..3 {
            queue.push(job).unwrap();
            assert_eq!(popped.recv_timeout(LIMIT), Ok(Some(job)));
            assert_eq!(queue.lock().idle, 0);
        }
        queue.stop();
        assert_eq!(popped.recv_timeout(LIMIT), Ok(None), "the stop ends a worker that spins");
    }

    #[test]
    fn a_spinning_worker_whose_job_another_one_has_taken_spins_on() {
        let queue = Arc::new(JobQueue::<u32>::new(2, 10 * LIMIT));
        let (send, popped) = channel();
        for _ in 0..2 {
            let (queue, send) = (Arc::clone(&queue), send.clone());
            thread::spawn(move || {
                while let Some(job) = queue.pop() {
                    send.send(Some(job)).unwrap();
                }
                // The test reads the end of one worker only.
                send.send(None).unwrap_or_default();
            });
        }
        for job in 0..200 {
            queue.push(job).unwrap();
            assert_eq!(popped.recv_timeout(LIMIT), Ok(Some(job)));
            assert_eq!(queue.lock().idle, 0, "after job {job} no worker sleeps");
        }
        queue.stop();
        assert_eq!(popped.recv_timeout(LIMIT), Ok(None));
    }

    #[test]
    fn a_worker_that_has_spun_in_vain_sleeps_until_there_is_a_job() {
        let queue = Arc::new(JobQueue::<u32>::new(2, Duration::from_millis(1)));
        let (send, popped) = channel();
        thread::spawn({
            let queue = Arc::clone(&queue);
            move || send.send(queue.pop())
        });
        let end = clock::now() + LIMIT;
        while queue.lock().idle == 0 {
            assert!(clock::now() < end, "the worker still spins");
            thread::yield_now();
        }
        queue.push(1).unwrap();
        assert_eq!(popped.recv_timeout(LIMIT), Ok(Some(1)));
    }
}
