//! Finds an event loop that stands still, because a handler or another function of the user does not
//! return.
//!
//! Another thread leaves a job for the loop and looks later whether the job is gone. The loop itself
//! could not report this before the function returns. It does nothing for the watch but run the jobs.

use std::sync::Arc;
use std::time::Duration;

use crate::endpoint::handle::Handle;
use crate::transport::Transport;

/// Time between two looks.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A loop stands still if a job has waited for it through this number of looks. The second look
/// follows the first one after [`LOOK_EVERY`], although the whole process may have been stopped
/// before the first one.
const LOOKS: u32 = 2;

/// The watch over one event loop.
#[derive(Default)]
pub(super) struct LoopWatch {
    /// The job for the loop holds a clone, until it runs or the loop has ended.
    job: Arc<()>,
    /// Number of looks since the job was left.
    looks: u32,
}

impl LoopWatch {
    /// Looks at the loop. Returns how long it has stood still, once per standstill.
    pub(super) fn look<T: Transport>(&mut self, event_loop: &Handle<T>) -> Option<Duration> {
        if Arc::strong_count(&self.job) > 1 {
            self.looks += 1;
            return (self.looks == LOOKS).then_some(LOOKS * LOOK_EVERY);
        }
        self.looks = 0;
        let job = Arc::clone(&self.job);
        event_loop.submit_always(move |_| drop(job));
        None
    }
}
