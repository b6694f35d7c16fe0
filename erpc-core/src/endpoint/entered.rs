//! Which endpoints' loops a thread is in.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;

use crate::executor::tasks::{self, Executor};

thread_local! {
    /// The endpoints whose loops this thread is in, innermost last.
    static ENTERED: RefCell<Vec<Rc<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// The endpoint whose loop this thread is in, innermost.
pub(crate) fn current() -> Option<Rc<dyn Any>> {
    ENTERED.with_borrow(|entered| entered.last().cloned())
}

/// Leaves the loop when dropped.
pub(crate) struct EnteredEndpoint {
    _executor: tasks::EnteredExecutor,
}

impl EnteredEndpoint {
    /// This thread is in the loop of `endpoint` from here on.
    pub(crate) fn enter(endpoint: Rc<dyn Any>, executor: &Executor) -> Self {
        ENTERED.with_borrow_mut(|entered| entered.push(endpoint));
        Self { _executor: executor.enter() }
    }
}

impl Drop for EnteredEndpoint {
    fn drop(&mut self) {
        // Dropped outside of the borrow: it may be the last reference.
        let left = ENTERED.with_borrow_mut(Vec::pop);
        drop(left);
    }
}
