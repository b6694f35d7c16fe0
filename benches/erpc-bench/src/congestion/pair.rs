//! Two endpoints of this process, each on a thread and a core of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use erpc::raw::protocol::ListenGroup;
use erpc::raw::{Acceptor, Rpc};
use erpc::{EndpointConfig, Transport};

use crate::failure::Failure;
use crate::machine;
use crate::service::Answerer;

/// Serves over `serving` on core `cores.1` while `client` runs on core `cores.0`.
pub(super) fn serve_while<T: Transport + Send, V>(
    serving: T,
    config: EndpointConfig,
    cores: (usize, usize),
    client: impl FnOnce() -> Result<V, Failure>,
) -> Result<V, Failure> {
    let stop = AtomicBool::new(false);
    let serve = || -> Result<(), Failure> {
        machine::pin(cores.1)?;
        let mut rpc = Rpc::new(serving, config).map_err(Failure::of("no endpoint"))?;
        rpc.listen(Acceptor::new(Arc::new(ListenGroup::new([7; 16], vec![0])), 0));
        let mut answerer =
            Answerer::new(false).map_err(Failure::of("the service does not register"))?;
        while !stop.load(Ordering::Relaxed) {
            rpc.run_once(&mut answerer);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let serving = scope.spawn(serve);
        let outcome = machine::pin(cores.0).and_then(|()| client());
        stop.store(true, Ordering::Relaxed);
        serving.join().unwrap_or_else(|_| Err(Failure::new("the server's thread panicked")))?;
        outcome
    })
}
