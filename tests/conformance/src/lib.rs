//! Calls every method of services that others have defined, with random messages, and compares what
//! arrives with what was sent, on both sides.
//!
//! The services are those of etcd, Kubernetes, Envoy and others; `build/systems.rs` lists them. Their
//! `.proto` files are in packages that cargo downloads; the build script compiles them with `erpc_build`
//! and writes, for each method, a handler ([`Answers`]) and its calls ([`Calls`]). One test per system.

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

/// What there must be in a system: neither the generator nor the harness may leave out anything.
#[derive(Debug)]
pub struct Expected {
    /// The system's name.
    pub name: &'static str,
    /// `.proto` files.
    pub files: usize,
    /// Services in them.
    pub services: usize,
    /// Methods without streams.
    pub unary: usize,
    /// Methods whose responses are a stream.
    pub server: usize,
    /// Methods whose requests are a stream.
    pub client: usize,
    /// Methods with both.
    pub bidi: usize,
}

/// What the build script has made of a system.
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

/// Serves and calls everything, and prints what that was.
///
/// `ERPC_CONFORMANCE_SEED` gives other messages than those of every run.
///
/// # Panics
/// If something is missing, or a message did not arrive as it was sent.
pub fn run(expected: &Expected, built: &Built) {
    let name = expected.name;
    let seed = env::var("ERPC_CONFORMANCE_SEED").map_or(1, |seed| seed.parse().expect("a number"));
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
        assert_eq!(u64::from(answers.served(method)), ROUNDS, "{name}: calls of {method}");
    }
    assert_eq!(done, methods.len() as u64 * ROUNDS, "{name}: all calls");
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

/// The full names of all methods, after a comparison of their numbers with those expected.
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

/// The test of a system.
#[macro_export]
macro_rules! system {
    ($name:literal, files: $files:literal, services: $services:literal, unary: $unary:literal, server: $server:literal, client: $client:literal, bidi: $bidi:literal) => {
        #[allow(dead_code, reason = "not all messages travel")]
        mod proto {
            include!(concat!(env!("OUT_DIR"), "/", $name, "/mod.rs"));
        }

        #[allow(deprecated, reason = "deprecated methods travel, too")]
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
