//! A load of writes that keeps track of the time between answers.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use erpc::Transport;
use hdrhistogram::Histogram;

use crate::client::{ClientError, Nodes};

/// What the tasks of a load have seen together.
pub(super) struct Seen {
    /// Of writes, in nanoseconds.
    pub(super) latency: Histogram<u64>,
    pub(super) writes: u64,
    last: Instant,
    /// The longest time without an answer.
    pub(super) gap: Duration,
    pub(super) failure: Option<ClientError>,
    pub(super) is_over: bool,
}

pub(super) type Shared = Rc<RefCell<Seen>>;

pub(super) fn shared() -> Shared {
    Rc::new(RefCell::new(Seen {
        latency: Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are valid"),
        writes: 0,
        last: Instant::now(),
        gap: Duration::ZERO,
        failure: None,
        is_over: false,
    }))
}

impl Seen {
    /// Forgets what was measured.
    pub(super) fn begin(&mut self) {
        self.latency.reset();
        (self.writes, self.gap, self.last) = (0, Duration::ZERO, Instant::now());
    }

    pub(super) fn answered(&mut self, begun: Instant) {
        let now = Instant::now();
        self.latency.saturating_record((now - begun).as_nanos() as u64);
        self.gap = self.gap.max(now - self.last);
        self.last = now;
        self.writes += 1;
    }

    /// A percentile in microseconds.
    pub(super) fn micros(&self, percentile: f64) -> f64 {
        self.latency.value_at_percentile(percentile) as f64 / 1000.0
    }
}

/// Writes until the load is over: each time the key that `key` gives for the number of the write.
pub(super) async fn write<T: Transport>(
    nodes: Nodes<T>,
    seen: Shared,
    value: Vec<u8>,
    key: impl Fn(u64) -> [u8; 16],
) {
    let run = async {
        let session = nodes.open().await?;
        let mut number = 0;
        while !seen.borrow().is_over {
            let begun = Instant::now();
            session.put(&key(number), &value).await?;
            seen.borrow_mut().answered(begun);
            number += 1;
        }
        Ok(())
    };
    if let Err(error) = run.await {
        seen.borrow_mut().failure = Some(error);
    }
}

/// Counts a key up by compare-and-swap until the load is over. Each answer is checked: nobody else
/// writes the key. Returns the last count.
pub(super) async fn count<T: Transport>(nodes: Nodes<T>, seen: Shared, key: String) -> u64 {
    let mut count = 0_u64;
    let run = async {
        let session = nodes.open().await?;
        while !seen.borrow().is_over {
            let begun = Instant::now();
            let expected = (count > 0).then(|| count.to_string());
            let next = (count + 1).to_string();
            let expected = expected.as_deref().map(str::as_bytes);
            let swapped = session.cas(key.as_bytes(), expected, next.as_bytes()).await?;
            let read = nodes.get(key.as_bytes()).await?;
            if !swapped || read.as_deref() != Some(next.as_bytes()) {
                let text = format!(
                    "{key} should be {next}, but swapped is {swapped}, and {read:?} was read"
                );
                return Err(ClientError::Invalid(text));
            }
            count += 1;
            seen.borrow_mut().answered(begun);
        }
        Ok(())
    };
    if let Err(error) = run.await {
        seen.borrow_mut().failure = Some(error);
    }
    count
}
