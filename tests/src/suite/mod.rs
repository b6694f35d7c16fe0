//! The end-to-end suite: tests of typed services that hold on every transport.
//!
//! | module | tests |
//! |---|---|
//! | [`calls`] | messages of all sizes, workers, nested calls, errors |
//! | [`streams`] | streams of all kinds |
//! | [`faults`] | losses, and servers that are killed and restart |
//! | [`sessions`] | many sessions, idle policies |
//!
//! [`suite!`](crate::suite!) makes the tests of one [`Network`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use erpc::raw::ProtocolStats;
use erpc::service::Routes;
use erpc::transport::mem::{MemConfig, MemHub, MemRoute, MemTransport};
use erpc::transport::udp::UdpRoute;
use erpc::{
    Endpoint, EndpointConfig, Handle, Listen, ServeError, Server, ServerBuilder, ServerHandle,
    Service, Transport, Udp, UdpConfig,
};

use crate::lab::{LabService, Reachable, loopback};

pub mod calls;
pub mod faults;
pub mod sessions;
pub mod streams;

/// The tests of a [`Network`](crate::suite::Network).
#[macro_export]
macro_rules! suite {
    ($(#[$attribute:meta])* $network:ty) => {
        $crate::suite!(@tests [$(#[$attribute])*] $network, calls:
            a_store_is_used
            sessions_are_spread_over_the_servers_threads
            messages_of_all_sizes_travel_both_ways
            large_and_small_calls_share_a_session
            a_message_above_the_limit_is_refused
            calls_complete_out_of_order
            a_worker_does_not_block_the_loop
            a_handler_calls_another_server_and_answers_later
            callbacks_receive_replies_and_make_further_calls
            the_status_of_a_handler_arrives_unchanged
            a_message_of_another_type_is_refused
            a_disconnect_waits_for_earlier_calls
        );
        $crate::suite!(@tests [$(#[$attribute])*] $network, streams:
            every_message_arrives_once_and_in_order_despite_losses
            ten_thousand_short_streams_share_a_few_sessions
            a_stream_carries_metadata
            streams_fail_when_their_server_ends
            handlers_end_when_their_client_ends
        );
        $crate::suite!(@tests [$(#[$attribute])*] $network, faults:
            every_call_is_executed_once_despite_losses
            call_outcomes_are_true_when_a_server_is_killed_and_restarts
        );
        $crate::suite!(@tests [$(#[$attribute])*] $network, sessions:
            a_thousand_sessions_open_and_end
            endpoints_answer_with_every_idle_policy
            a_sleeping_endpoint_uses_little_cpu_time_and_wakes_for_packets
            a_sleeping_endpoint_wakes_for_timers
            a_sleeping_endpoint_wakes_for_other_threads
        );
    };
    (@tests $attributes:tt $network:ty, $module:ident: $($test:ident)*) => {$(
        $crate::suite!(@test $attributes $network, $module, $test);
    )*};
    (@test [$(#[$attribute:meta])*] $network:ty, $module:ident, $test:ident) => {
        #[test]
        $(#[$attribute])*
        fn $test() {
            $crate::suite::$module::$test::<$network>();
        }
    };
}

/// A network with a host for the server and a host for clients. Each test has its own.
pub trait Network: Sized {
    /// The transport.
    type Transport: Listen + Reachable;

    /// A new network.
    fn new() -> Self;

    /// Settings of the server's transport.
    fn settings(&self) -> <Self::Transport as Listen>::Settings;

    /// The address that a server listens on. The network may choose the port.
    fn address(&self) -> <Self::Transport as Transport>::Route;

    /// Starts a server at [`Network::address`].
    fn spawn(
        &self,
        builder: ServerBuilder<Self::Transport>,
    ) -> Result<ServerHandle<Self::Transport>, ServeError>;

    /// Opens the transports of the host of clients; it has no others.
    fn clients(&self, count: usize) -> Vec<Self::Transport>;

    /// Opens the only transport of the host of clients.
    fn client(&self) -> Self::Transport {
        self.clients(1).remove(0)
    }

    /// Opens the only transport of the server's host, at `address`.
    ///
    /// # Panics
    /// If it cannot be opened.
    fn server(&self, address: <Self::Transport as Transport>::Route) -> Self::Transport {
        let opened = Listen::listen(&self.settings(), address, 1);
        let mut opened = opened.unwrap_or_else(|error| panic!("the server's transport: {error}"));
        opened.remove(0)
    }
}

/// A builder of a server of [`LabService`] on `network`.
pub fn builder<N: Network>(network: &N) -> ServerBuilder<N::Transport> {
    let service = LabService::<N::Transport>::over(|_| {});
    Server::builder().add_service(service).transport(network.settings())
}

/// Kernel UDP over loopback, with these settings on both sides.
#[derive(Debug)]
pub struct Loopback(pub UdpConfig);

impl Network for Loopback {
    type Transport = Udp;

    fn new() -> Self {
        Self(loopback())
    }

    fn settings(&self) -> UdpConfig {
        self.0.clone()
    }

    fn address(&self) -> UdpRoute {
        std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()
    }

    fn spawn(&self, builder: ServerBuilder<Udp>) -> Result<ServerHandle<Udp>, ServeError> {
        builder.spawn(self.address())
    }

    fn clients(&self, count: usize) -> Vec<Udp> {
        (0..count).map(|_| Udp::bind(&self.0).expect("the socket opens")).collect()
    }
}

/// Memory of this process.
#[derive(Debug)]
pub struct Memory(MemHub);

impl Network for Memory {
    type Transport = MemTransport;

    fn new() -> Self {
        Self(MemHub::new())
    }

    fn settings(&self) -> (MemHub, MemConfig) {
        (self.0.clone(), MemConfig::default())
    }

    fn address(&self) -> MemRoute {
        MemRoute::new(0)
    }

    fn spawn(
        &self,
        builder: ServerBuilder<MemTransport>,
    ) -> Result<ServerHandle<MemTransport>, ServeError> {
        builder.spawn(self.address())
    }

    fn clients(&self, count: usize) -> Vec<MemTransport> {
        (0..count).map(|_| self.0.port(MemConfig::default())).collect()
    }
}

/// A server of one endpoint, on its own thread.
pub struct Side<T: Transport> {
    route: T::Route,
    handle: Handle<T>,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<ProtocolStats>>,
}

impl<T: Transport + Send> Side<T> {
    /// Serves `service` on `transport`, with the default settings of endpoints.
    ///
    /// # Panics
    /// If the endpoint does not start.
    pub fn start(transport: T, service: impl Service) -> Self {
        Self::start_with(transport, Arc::new(service), EndpointConfig::new())
    }

    /// Serves `service` on `transport`.
    ///
    /// # Panics
    /// If the endpoint does not start.
    pub fn start_with(transport: T, service: Arc<impl Service>, config: EndpointConfig) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (send, started) = channel();
        let thread = thread::spawn(move || {
            let endpoint = Endpoint::new(transport, config).expect("the configuration is valid");
            let mut routes = Routes::new();
            service.register(&mut routes).expect("the methods do not collide");
            endpoint.listen();
            assert!(endpoint.serve(Arc::new(routes), None));
            let route = endpoint.local_route().expect("called outside of the loop");
            send.send((route, endpoint.handle())).expect("the test receives the address");
            endpoint.run_until(|| stopped.load(Ordering::Acquire));
            endpoint.stats().expect("called outside of the loop").protocol
        });
        let (route, handle) = started.recv().expect("the server starts");
        Self { route, handle, stop, thread: Some(thread) }
    }

    /// The address that clients connect to.
    pub fn route(&self) -> T::Route {
        self.route
    }

    /// Ends the server, and returns its counters.
    ///
    /// # Panics
    /// If the server has panicked.
    pub fn stop(mut self) -> ProtocolStats {
        self.end().expect("the server runs").expect("the server does not panic")
    }

    fn end(&mut self) -> Option<thread::Result<ProtocolStats>> {
        self.stop.store(true, Ordering::Release);
        self.handle.wake();
        self.thread.take().map(thread::JoinHandle::join)
    }
}

impl<T: Transport> Drop for Side<T> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.handle.wake();
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() || thread::panicking(), "the server panics");
        }
    }
}

impl<T: Transport> std::fmt::Debug for Side<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Side").field("route", &self.route).finish_non_exhaustive()
    }
}
