//! A closed loop of typed calls, written as a user would: a generated client and callbacks.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use erpc::UdpConfig;
use erpc::{CallError, Endpoint, EndpointConfig, EndpointStats, IdlePolicy};

use crate::failure::Failure;
use crate::report::Latencies;
use crate::service::proto;
use crate::values::is_answer;

/// A closed loop that calls `Get`.
pub(crate) struct GetLoad {
    endpoint: Endpoint,
    shared: Rc<CallbackState>,
    outstanding: usize,
}

/// State that the callbacks share.
struct CallbackState {
    clients: Vec<proto::LocalBenchClient>,
    end: Cell<Instant>,
    is_running: Cell<bool>,
    under_way: Cell<usize>,
    next_key: Cell<u64>,
    done: Cell<u64>,
    latencies: RefCell<Option<Latencies>>,
    failure: RefCell<Option<Failure>>,
}

impl GetLoad {
    /// Payload of a call in bytes: a key in the request, a value and a flag in the response.
    pub(crate) const PAYLOAD: usize = 8 + 64 + 1;

    /// Opens `sessions` sessions.
    pub(crate) fn connect(
        server: SocketAddr,
        socket: &UdpConfig,
        config: EndpointConfig,
        sessions: usize,
        outstanding: usize,
    ) -> Result<Self, Failure> {
        let endpoint = Endpoint::udp_with(socket, config).map_err(Failure::of("no endpoint"))?;
        endpoint.set_idle_policy(IdlePolicy::Spin);
        let clients = (0..sessions).map(|_| proto::LocalBenchClient::connect(&endpoint, server));
        let shared = CallbackState {
            clients: clients.collect::<Result<_, _>>().map_err(Failure::of("cannot connect"))?,
            end: Cell::new(Instant::now()),
            is_running: Cell::new(false),
            under_way: Cell::new(0),
            next_key: Cell::new(0),
            done: Cell::new(0),
            latencies: RefCell::default(),
            failure: RefCell::default(),
        };
        Ok(Self { endpoint, shared: Rc::new(shared), outstanding })
    }

    /// Keeps `outstanding` calls in flight for `duration`, then waits until they have ended.
    /// Returns the number of answered calls and the elapsed time.
    pub(crate) fn run(&mut self, duration: Duration) -> Result<(u64, Duration), Failure> {
        let (start, before) = (Instant::now(), self.shared.done.get());
        self.shared.end.set(start + duration);
        self.shared.is_running.set(true);
        for slot in 0..self.outstanding {
            self.shared.under_way.set(self.shared.under_way.get() + 1);
            Rc::clone(&self.shared).call(slot % self.shared.clients.len(), start);
        }
        self.endpoint.run_until(|| self.shared.under_way.get() == 0);
        let elapsed = start.elapsed();
        self.shared.failure.take().map_or(Ok((self.shared.done.get() - before, elapsed)), Err)
    }

    pub(crate) fn measure_latencies(&mut self) {
        self.shared.latencies.replace(Some(Latencies::new()));
    }

    pub(crate) fn take_latencies(&mut self) -> Latencies {
        self.shared.latencies.take().unwrap_or_else(Latencies::new)
    }

    pub(crate) fn stats(&mut self) -> EndpointStats {
        self.endpoint.stats().unwrap_or_default()
    }
}

impl CallbackState {
    fn call(self: Rc<Self>, client: usize, now: Instant) {
        let key = self.next_key.get();
        self.next_key.set(key + 1);
        let shared = Rc::clone(&self);
        let request = proto::GetRequest { key };
        self.clients[client]
            .get_with(request, move |result| shared.answered(client, key, now, result));
    }

    fn answered(
        self: Rc<Self>,
        client: usize,
        key: u64,
        sent: Instant,
        result: Result<proto::GetResponseView<'_>, CallError>,
    ) {
        let failure = match result {
            Ok(answer) if is_answer(answer.value, answer.found, key) => None,
            Ok(_) => Some(Failure::new(format!("the answer for key {key} is wrong"))),
            Err(error) => Some(Failure::new(format!("a call failed: {error}"))),
        };
        if let Some(failure) = failure {
            self.is_running.set(false);
            self.failure.borrow_mut().get_or_insert(failure);
        }
        let now = Instant::now();
        self.done.set(self.done.get() + 1);
        if let Some(latencies) = &mut *self.latencies.borrow_mut() {
            latencies.record((now - sent).as_nanos() as u64);
        }
        if now >= self.end.get() {
            self.is_running.set(false);
        }
        if self.is_running.get() {
            self.call(client, now);
        } else {
            self.under_way.set(self.under_way.get() - 1);
        }
    }
}
