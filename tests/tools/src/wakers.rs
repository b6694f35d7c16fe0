//! Wakers with code of their own in places where most wakers have none.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::task::{RawWaker, RawWakerVTable, Waker};

/// A waker that wakes nothing. Each time it or a clone of it is cloned, it runs `on_clone`.
pub fn on_clone(on_clone: impl Fn() + Send + Sync + 'static) -> Waker {
    raw_waker(Arc::new(on_clone))
}

fn raw_waker<F: Fn() + Send + Sync + 'static>(on_clone: Arc<F>) -> Waker {
    let data = Arc::into_raw(on_clone).cast::<()>();
    // SAFETY: the functions of the table take `data` as the `Arc<F>` that it is. `F` may be used
    // from any thread.
    unsafe { Waker::new(data, &Table::<F>::TABLE) }
}

/// The functions of the wakers whose data is an `Arc<F>`.
struct Table<F>(PhantomData<F>);

impl<F: Fn() + Send + Sync + 'static> Table<F> {
    const TABLE: RawWakerVTable =
        RawWakerVTable::new(Self::clone, Self::release, |_| (), Self::release);

    unsafe fn clone(data: *const ()) -> RawWaker {
        // SAFETY: `data` is from `Arc::into_raw`. Its reference stays with the caller's waker.
        let on_clone = ManuallyDrop::new(unsafe { Arc::from_raw(data.cast::<F>()) });
        on_clone();
        RawWaker::new(Arc::into_raw(Arc::clone(&on_clone)).cast(), &Self::TABLE)
    }

    unsafe fn release(data: *const ()) {
        // SAFETY: `data` is from `Arc::into_raw`, and the caller gives its reference up.
        drop(unsafe { Arc::from_raw(data.cast::<F>()) });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn each_clone_runs_the_code_and_the_last_drop_frees_it() {
        let count = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&count);
        let waker = on_clone(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        let clones = [waker.clone(), waker.clone()];
        clones[0].wake_by_ref();
        let [first, second] = clones;
        first.wake();
        drop((waker, second.clone()));
        assert_eq!(count.load(Ordering::Relaxed), 3);
        assert_eq!(Arc::strong_count(&count), 2, "a waker is left");
        drop(second);
        assert_eq!(Arc::strong_count(&count), 1);
    }
}
