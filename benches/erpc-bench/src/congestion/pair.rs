//! Two endpoints of this process, on one thread or on two. Measurements on one thread depend least
//! on other processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use erpc::raw::ListenGroup;
use erpc::raw::{Acceptor, App, Rpc};
use erpc::{EndpointConfig, Transport};

use crate::failure::Failure;
use crate::load::Load;
use crate::machine;
use crate::service::Answerer;

/// The service that answers calls.
pub(super) fn answerer() -> Result<Answerer, Failure> {
    Answerer::new(false).map_err(Failure::of("the service does not register"))
}

/// An endpoint that accepts sessions.
pub(super) fn server<T: Transport>(serving: T, config: EndpointConfig) -> Result<Rpc<T>, Failure> {
    let mut rpc = Rpc::new(serving, config).map_err(Failure::of("no endpoint"))?;
    rpc.listen(Acceptor::new(Arc::new(ListenGroup::new([7; 16], vec![0])), 0));
    Ok(rpc)
}

/// A server that may answer later than in the turn that delivers the request.
pub(super) trait Answers<T: Transport>: App<T> {
    /// Sends the responses that are due. Runs between two turns.
    #[inline]
    fn between_turns(&mut self, _: &mut Rpc<T>) {}
}

impl<T: Transport> Answers<T> for Answerer {}

/// A client and a server. One thread runs the loops of both.
pub(super) struct Pair<C: Transport, S: Transport, A> {
    pub(super) client: Rpc<C>,
    pub(super) server: Rpc<S>,
    pub(super) answerer: A,
    pub(super) load: Load,
    outstanding: usize,
}

impl<C: Transport, S: Transport, A: Answers<S>> Pair<C, S, A> {
    /// Connects `client` to `serving`, with as many sessions as `outstanding` calls at a time need.
    pub(super) fn connect(
        ends: (C, S),
        peer: C::Route,
        config: &EndpointConfig,
        answerer: A,
        load: Load,
        outstanding: usize,
    ) -> Result<Self, Failure> {
        let width = (outstanding.div_ceil(8), outstanding);
        Self::connect_sessions(ends, peer, config, answerer, load, width)
    }

    /// Connects `client` to `serving` with a number of sessions, for a number of calls at a time.
    pub(super) fn connect_sessions(
        (client, serving): (C, S),
        peer: C::Route,
        config: &EndpointConfig,
        answerer: A,
        load: Load,
        (sessions, outstanding): (usize, usize),
    ) -> Result<Self, Failure> {
        let server = server(serving, config.clone())?;
        let client = Rpc::new(client, config.clone()).map_err(Failure::of("no endpoint"))?;
        let mut pair = Self { client, server, answerer, load, outstanding };
        let Self { client, server, answerer, load, .. } = &mut pair;
        load.connect(client, peer, sessions, || {
            server.run_once(answerer);
        })?;
        Ok(pair)
    }

    /// Makes calls for `time` and waits until they end. Returns the number of completed calls and
    /// the time that they took.
    pub(super) fn run(&mut self, time: Duration) -> Result<(u64, Duration), Failure> {
        self.run_while(time, |_| true)
    }

    /// Like [`Self::run`], but the server's loop runs only while `is_there` returns true.
    pub(super) fn run_while(
        &mut self,
        time: Duration,
        mut is_there: impl FnMut(&mut Rpc<S>) -> bool,
    ) -> Result<(u64, Duration), Failure> {
        let Self { client, server, answerer, load, outstanding } = self;
        load.run(client, *outstanding, time, || {
            if is_there(server) {
                server.run_once(answerer);
                answerer.between_turns(server);
            }
        })
    }
}

/// Runs `client` on core `cores.0`, and meanwhile a server over `serving` on core `cores.1`. `made`
/// creates the server's service on the server's thread.
pub(super) fn serve_while<T: Transport + Send, A: App<T>, V>(
    (serving, config): (T, EndpointConfig),
    made: impl FnOnce() -> Result<A, Failure> + Send,
    cores: (usize, usize),
    client: impl FnOnce() -> Result<V, Failure>,
) -> Result<V, Failure> {
    let stop = AtomicBool::new(false);
    let serve = || -> Result<(), Failure> {
        machine::pin(cores.1)?;
        let (mut rpc, mut answerer) = (server(serving, config)?, made()?);
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
