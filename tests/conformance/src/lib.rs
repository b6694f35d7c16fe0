//! Calls every method of services from public `.proto` files, with random messages. Both sides
//! compare the received messages with the sent ones.
//!
//! The services are those of etcd, Kubernetes, Envoy and others; `build/systems.rs` lists them.
//! Cargo downloads packages with their `.proto` files. The build script compiles the files with
//! `erpc_build` and writes, for each method, a handler ([`Answers`]) and its calls ([`Calls`]).
//! Each system has one test.

mod answers;
mod calls;
mod plan;
mod random;

use std::env;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use erpc::{Endpoint, EndpointConfig, Server, ServerBuilder, UdpConfig};

pub use answers::Answers;
pub use calls::{Calls, Done, ROUNDS};
pub use plan::{Plan, Typed};

/// The expected numbers of a system. They detect files, services or methods that the generator or
/// the harness leaves out.
#[derive(Debug)]
pub struct Expected {
    /// The system's name.
    pub name: &'static str,
    /// Number of `.proto` files.
    pub files: usize,
    /// Number of services in them.
    pub services: usize,
    /// Number of methods without streams.
    pub unary: usize,
    /// Number of methods where only the responses are a stream.
    pub server: usize,
    /// Number of methods where only the requests are a stream.
    pub client: usize,
    /// Number of methods where the requests and the responses are streams.
    pub bidi: usize,
}

/// The output of the build script for a system.
pub struct Built {
    /// The encoded `FileDescriptorSet`.
    pub descriptors: &'static [u8],
    /// Names of the `.proto` files.
    pub files: &'static [&'static str],
    /// Adds all services to a server.
    pub serve: fn(ServerBuilder, &Arc<Answers>) -> ServerBuilder,
    /// Plans all calls.
    pub drive: fn(&mut Calls),
}

/// Serves and calls all methods of a system, and prints their numbers.
///
/// The environment variable `ERPC_CONFORMANCE_SEED` changes the messages; the default seed is 1.
///
/// # Panics
/// If a number is not the expected one, or a received message differs from the sent one.
pub fn run(expected: &Expected, built: &Built) {
    let name = expected.name;
    let seed = env::var("ERPC_CONFORMANCE_SEED")
        .map_or(1, |seed| seed.parse().expect("ERPC_CONFORMANCE_SEED must be a number"));
    let started = Instant::now();
    let plan = Plan::new(built.descriptors);
    let methods = count(&plan, expected, built);
    let messages = plan.pool().all_messages().filter(|message| !message.is_map_entry()).count();
    let answers = Arc::new(Answers::new(plan));
    let loopback = UdpConfig::new().address(SocketAddr::from(([127, 0, 0, 1], 0)));
    let server =
        (built.serve)(Server::builder().threads(2).workers(1), &answers).udp(loopback.clone());
    let server = server.spawn("127.0.0.1:0").unwrap_or_else(|error| panic!("{name}: {error}"));
    let endpoint = Endpoint::udp_with(&loopback, EndpointConfig::new());
    let endpoint = endpoint.unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut calls = Calls::new(endpoint, server.local_addr(), answers.clone(), seed);
    (built.drive)(&mut calls);
    let done = calls.run().unwrap_or_else(|why| panic!("{name}: {why}"));
    for method in &methods {
        assert_eq!(
            u64::from(answers.served(method)),
            ROUNDS,
            "{name}: number of calls of {method}"
        );
    }
    assert_eq!(done, methods.len() as u64 * ROUNDS, "{name}: number of all calls");
    println!(
        "{name}: {} files, {messages} messages, {} services, {} methods ({} unary, {} server, {} client, {} bidi), \
         {done} calls in {} ms",
        expected.files,
        expected.services,
        methods.len(),
        expected.unary,
        expected.server,
        expected.client,
        expected.bidi,
        started.elapsed().as_millis(),
    );
}

/// Compares the numbers with the expected ones. Returns the full names of all methods.
fn count(plan: &Plan, expected: &Expected, built: &Built) -> Vec<String> {
    let named = |file: &str| built.files.contains(&file);
    let services: Vec<_> =
        plan.pool().services().filter(|service| named(service.parent_file().name())).collect();
    let methods: Vec<_> = services.iter().flat_map(|service| service.methods()).collect();
    let shape = |client: bool, server: bool| {
        let has = |method: &&prost_reflect::MethodDescriptor| {
            (method.is_client_streaming(), method.is_server_streaming()) == (client, server)
        };
        methods.iter().filter(has).count()
    };
    let found = [
        built.files.len(),
        services.len(),
        shape(false, false),
        shape(false, true),
        shape(true, false),
        shape(true, true),
    ];
    let wanted = [
        expected.files,
        expected.services,
        expected.unary,
        expected.server,
        expected.client,
        expected.bidi,
    ];
    assert_eq!(
        found, wanted,
        "{}: files, services, methods: unary, server, client, bidi",
        expected.name
    );
    let full_name = |method: &prost_reflect::MethodDescriptor| {
        format!("{}/{}", method.parent_service().full_name(), method.name())
    };
    methods.iter().map(full_name).collect()
}

/// Defines the test of a system.
#[macro_export]
macro_rules! system {
    ($name:literal, files: $files:literal, services: $services:literal, unary: $unary:literal, server: $server:literal, client: $client:literal, bidi: $bidi:literal) => {
        #[allow(dead_code, reason = "services do not use all messages")]
        mod proto {
            include!(concat!(env!("OUT_DIR"), "/", $name, "/mod.rs"));
        }

        #[allow(deprecated, reason = "deprecated methods are called, too")]
        mod harness {
            include!(concat!(env!("OUT_DIR"), "/", $name, "/harness.rs"));
        }

        #[test]
        fn every_message_arrives_as_it_was_sent() {
            let expected = $crate::Expected {
                name: $name,
                files: $files,
                services: $services,
                unary: $unary,
                server: $server,
                client: $client,
                bidi: $bidi,
            };
            let built = $crate::Built {
                descriptors: include_bytes!(concat!(
                    env!("OUT_DIR"),
                    "/",
                    $name,
                    "/descriptors.bin"
                )),
                files: &harness::FILES,
                serve: harness::serve,
                drive: harness::drive,
            };
            $crate::run(&expected, &built);
        }
    };
}
