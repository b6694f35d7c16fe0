//! What callers and operators read about a handler that panicked.

use std::any::Any;

use crate::log;
use crate::status::Status;

/// Reports a panic of a method's handler, interceptor or codec to the log, and returns the status
/// of the call. The panic's own text stays at the server.
#[cold]
pub(super) fn handler_panicked(method: &str, panic: &(dyn Any + Send)) -> Status {
    log::handler_panicked(method, panic, advice(panic));
    panicked_status(method)
}

/// The status of a call whose handler, interceptor or codec panicked.
#[cold]
pub(super) fn panicked_status(method: &str) -> Status {
    Status::internal(format!("the handler of {method} panicked"))
}

/// Part of tokio's panic messages for code that needs a runtime.
const NO_REACTOR: &str = "must be called from the context of a Tokio";

/// If a handler panicked for the lack of a tokio runtime: how to do without one.
fn advice(panic: &(dyn Any + Send)) -> Option<&'static str> {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied())?;
    text.contains(NO_REACTOR).then_some(ADVICE)
}

const ADVICE: &str = "the handler uses tokio, but erpc's own event loop runs it: to wait, use `erpc::sleep`; to use \
    other parts of tokio, keep a `tokio::runtime::Handle` in the service and await the result of its `spawn`";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_panic_of_tokio_brings_advice() {
        let tokio =
            "there is no reactor running, must be called from the context of a Tokio 1.x runtime";
        let panics: [Box<dyn Any + Send>; 2] = [Box::new(tokio), Box::new(tokio.to_owned())];
        for panic in panics {
            assert_eq!(advice(&*panic), Some(ADVICE));
        }
        #[cfg(feature = "tokio")]
        {
            let sleep = || drop(::tokio::time::sleep(std::time::Duration::ZERO));
            let panic = std::panic::catch_unwind(sleep).expect_err("no runtime runs here");
            assert!(advice(&*panic).is_some());
        }
        let others: [Box<dyn Any + Send>; 2] = [Box::new("index out of bounds"), Box::new(7)];
        for panic in others {
            assert_eq!(advice(&*panic), None);
        }
    }
}
