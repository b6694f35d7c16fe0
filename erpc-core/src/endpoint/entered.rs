//! Tracks the endpoints whose loops run on a thread.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;

use crate::executor::scheduler::Scheduler;
use crate::executor::tasks::{self, Executor};

/// An endpoint over any transport.
pub(crate) trait AnyEndpoint: Any {
    fn scheduler(&self) -> &Rc<Scheduler>;
}

thread_local! {
    /// The endpoints whose loops run on this thread, innermost last.
    static ENTERED: RefCell<Vec<Rc<dyn AnyEndpoint>>> = const { RefCell::new(Vec::new()) };
}

/// The innermost endpoint whose loop runs on this thread.
pub(crate) fn current() -> Option<Rc<dyn AnyEndpoint>> {
    ENTERED.with_borrow(|entered| entered.last().cloned())
}

/// Whether this thread runs the loop of an endpoint.
pub(crate) fn runs_here() -> bool {
    ENTERED.with_borrow(|entered| !entered.is_empty())
}

/// While this value exists, this thread runs the loop of an endpoint. Dropping the value removes
/// the endpoint from the list.
pub(crate) struct EnteredEndpoint {
    _executor: tasks::EnteredExecutor,
}

impl EnteredEndpoint {
    /// Records that this thread runs the loop of `endpoint`, until the result is dropped.
    pub(crate) fn enter(endpoint: Rc<dyn AnyEndpoint>, executor: &Executor) -> Self {
        ENTERED.with_borrow_mut(|entered| entered.push(endpoint));
        Self { _executor: executor.enter() }
    }
}

impl Drop for EnteredEndpoint {
    fn drop(&mut self) {
        // `left` may be the endpoint's last reference, and dropping an endpoint may run any code.
        // So it is dropped when the list is no longer borrowed.
        let left = ENTERED.with_borrow_mut(Vec::pop);
        drop(left);
    }
}
