//! What callers and operators read about a handler that panicked.

use std::any::Any;

use crate::status::Status;

/// The status of a call whose handler, interceptor or codec panicked. The panic's own text stays at
/// the server.
#[cold]
pub(super) fn handler_panicked(method: &str) -> Status {
    Status::internal(format!("the handler of {method} panicked"))
}

/// Reports a panic of a handler, interceptor or codec, and returns the status of the call.
#[cold]
pub(super) fn panicked(method: &str, panic: &(dyn Any + Send)) -> Status {
    advise(method, panic);
    handler_panicked(method)
}

/// If a handler panicked for the lack of a tokio runtime, prints how to do without one. The panic
/// hook has printed the panic itself.
#[cold]
pub(super) fn advise(method: &str, panic: &(dyn Any + Send)) {
    if let Some(advice) = advice(method, panic) {
        eprintln!("{advice}");
    }
}

/// Part of tokio's panic messages for code that needs a runtime.
const NO_REACTOR: &str = "must be called from the context of a Tokio";

fn advice(method: &str, panic: &(dyn Any + Send)) -> Option<String> {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied())?;
    text.contains(NO_REACTOR).then(|| {
        format!(
            "erpc: the handler of {method} needs a tokio runtime and runs without one. To run it in tokio, set \
             `mode: TOKIO` in the .proto file or `.default_mode(Mode::Tokio)` in the build script, and give the \
             server a runtime: `Server::builder().tokio(Handle::current())`. Merely to wait, `erpc::sleep` needs \
             no runtime."
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_panic_of_tokio_brings_advice() {
        let tokio =
            "there is no reactor running, must be called from the context of a Tokio 1.x runtime";
        let panics: [Box<dyn Any + Send>; 2] = [Box::new(tokio), Box::new(tokio.to_owned())];
        for panic in panics {
            assert_eq!(
                advice("kv.v1.Kv/Get", &*panic).as_deref(),
                Some(
                    "erpc: the handler of kv.v1.Kv/Get needs a tokio runtime and runs without one. To run it in \
                     tokio, set `mode: TOKIO` in the .proto file or `.default_mode(Mode::Tokio)` in the build \
                     script, and give the server a runtime: `Server::builder().tokio(Handle::current())`. Merely \
                     to wait, `erpc::sleep` needs no runtime."
                )
            );
        }
        #[cfg(feature = "tokio")]
        {
            let sleep = || drop(::tokio::time::sleep(std::time::Duration::ZERO));
            let panic = std::panic::catch_unwind(sleep).expect_err("no runtime runs here");
            assert!(advice("kv.v1.Kv/Get", &*panic).is_some());
        }
        let others: [Box<dyn Any + Send>; 2] = [Box::new("index out of bounds"), Box::new(7)];
        for panic in others {
            assert_eq!(advice("kv.v1.Kv/Get", &*panic), None);
        }
    }
}
