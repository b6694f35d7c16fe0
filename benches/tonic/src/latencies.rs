//! Latencies of calls, collected in a histogram per thread: one per task would not fit into the
//! caches.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

/// The histograms of all threads, in nanoseconds.
static ALL: Mutex<Vec<Arc<Mutex<Histogram<u64>>>>> = Mutex::new(Vec::new());

thread_local! {
    /// Only this thread locks its histogram, until [`take`].
    static MINE: Arc<Mutex<Histogram<u64>>> = {
        let mine = Arc::new(Mutex::new(empty()));
        ALL.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&mine));
        mine
    };
}

/// A histogram with the range and precision of those of erpc-bench.
fn empty() -> Histogram<u64> {
    const MAX: Duration = Duration::from_secs(60);
    Histogram::new_with_bounds(1, MAX.as_nanos() as u64, 3).expect("constant bounds are valid")
}

/// Records the latency of a call.
pub(crate) fn record(latency: Duration) {
    MINE.with(|mine| {
        let mut mine = mine.lock().unwrap_or_else(PoisonError::into_inner);
        mine.saturating_record(latency.as_nanos() as u64);
    });
}

/// Takes the latencies that all threads have recorded since the last call of this function.
pub(crate) fn take() -> Histogram<u64> {
    let mut sum = empty();
    for each in &*ALL.lock().unwrap_or_else(PoisonError::into_inner) {
        let mut each = each.lock().unwrap_or_else(PoisonError::into_inner);
        sum.add(&*each).expect("all histograms have the same range");
        each.clear();
    }
    sum
}
