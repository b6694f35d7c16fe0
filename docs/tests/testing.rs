//! The tests of the chapter "Testing".

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use erpc::service::{MethodCollision, Routes};
use erpc::testing::{VirtualNetwork, VirtualServer};
use erpc::transport::fault::Faults;
use erpc::transport::mem::{MemConfig, MemHub, MemTransport};
use erpc::{
    CallError, CallOptions, Cause, Channel, Code, Endpoint, EndpointConfig, Request, Response,
    RetryPolicy, Service, SharedChannel, SharedRequest, Status, Transport,
};
use erpc_guide::port::helloworld::{Greeter, HelloReply, HelloRequest, LocalGreeterClient};
use erpc_guide::port::helloworld_server::MyGreeter;
use erpc_guide::port::route_guide_server::MyGuide;
use erpc_guide::port::routeguide::{Feature, LocalRouteGuideClient, Point, Rectangle};
use erpc_guide::stock::{
    Change, CountRequest, LocalStockClient, Stock, StockClient, TakeRequest, WatchRequest,
};
use erpc_guide::warehouse::Warehouse;
use tokio::runtime::{Builder, Runtime};

type Outcome = Result<(), Box<dyn Error>>;

fn bolts() -> CountRequest {
    CountRequest { item: "bolt".into() }
}

#[test]
fn a_warehouse_has_no_nuts() {
    let warehouse = Warehouse::with("bolt", 7);
    let request = Request::new(CountRequest { item: "nut".into() });
    let refused = warehouse.count(request).expect_err("there are no nuts");
    assert_eq!(refused.code(), Code::NotFound);
}

#[tokio::test]
async fn a_handler_in_tokio_is_awaited() -> Outcome {
    let greeter = MyGreeter::default();
    let request = SharedRequest::new(HelloRequest { name: "tokio".into() });
    let reply = greeter.say_hello(request).await?.into_message();
    assert_eq!(reply.map(|reply| reply.message), Some("Hello tokio!".into()));
    Ok(())
}

/// A warehouse at an endpoint that also calls it: one thread is enough.
fn in_memory(
    warehouse: Warehouse,
) -> Result<(Endpoint<MemTransport>, LocalStockClient<MemTransport>), Box<dyn Error>> {
    let mut routes = Routes::new();
    Arc::new(warehouse).register(&mut routes)?;
    let port = MemHub::new().port(MemConfig::default());
    let address = port.local_route();
    let endpoint = Endpoint::new(port, EndpointConfig::new())?;
    endpoint.serve(Arc::new(routes), None);
    endpoint.listen();
    let stock = LocalStockClient::connect(&endpoint, address)?;
    Ok((endpoint, stock))
}

#[test]
fn a_watcher_is_told_of_a_change() -> Outcome {
    let (endpoint, stock) = in_memory(Warehouse::with("bolt", 7))?;
    endpoint.block_on(async {
        let mut changes = stock.watch(WatchRequest { item: "bolt".into() });
        assert_eq!(changes.next().await?, Some(Change { count: 7 }));
        stock.take(TakeRequest { item: "bolt".into(), count: 2 }).await?;
        assert_eq!(changes.next().await?, Some(Change { count: 5 }));
        Ok::<(), CallError>(())
    })?;
    Ok(())
}

fn bolts_are_taken_once(seed: u64) -> Outcome {
    let network = VirtualNetwork::new(seed);
    let millisecond = Duration::from_millis(1);
    let faults = Faults::none()
        .drop(0.1)
        .duplicate(0.1, 2, millisecond)
        .reorder(0.2, millisecond)
        .spike(0.01, 100 * millisecond);
    network.set_faults(faults);

    let server = network.serve(Warehouse::with("bolt", 100));
    let client = network.endpoint();
    let stock = LocalStockClient::connect(&client, server.route())?;
    for left in (0..100).rev() {
        let taken = client.block_on(stock.take(TakeRequest { item: "bolt".into(), count: 1 }))?;
        assert_eq!(taken.left, left);
    }
    // The faults have acted, or the test shows nothing.
    assert!(network.fault_counts().dropped > 0 && network.fault_counts().duplicated > 0);
    Ok(())
}

#[test]
fn a_faulty_network_takes_no_bolt_twice() -> Outcome {
    for seed in 0..20 {
        bolts_are_taken_once(seed).map_err(|error| format!("seed {seed}: {error}"))?;
    }
    Ok(())
}

#[test]
fn another_warehouse_counts_when_one_dies() -> Outcome {
    let network = VirtualNetwork::new(1);
    let servers = [(); 2].map(|()| network.serve(Warehouse::with("bolt", 7)));
    let client = network.endpoint();
    let routes = servers.each_ref().map(VirtualServer::route);
    let channel = Channel::to(&client, routes.to_vec()).build();
    client.block_on(channel.ready())?;
    let stock = LocalStockClient::new(channel);

    // `Take` is not idempotent, so a call that the server may have executed is not repeated.
    let take = TakeRequest { item: "bolt".into(), count: 1 };
    let calls = [&stock; 4].map(|stock| stock.take(&take));
    servers[0].kill();
    for call in calls {
        match client.block_on(call) {
            Ok(_) | Err(CallError::MaybeExecuted(Cause::Unreachable(_))) => {}
            other => return Err(format!("unexpected: {other:?}").into()),
        }
    }
    // `Count` is idempotent, so a call that was lost with its server is repeated. If no server can be
    // reached, the call waits for one.
    let patient = CallOptions::new().retry(RetryPolicy::new(3)).wait_for_ready(true);
    let steady = stock.with(patient);
    servers[0].restart(Warehouse::with("bolt", 7));
    servers[1].kill();
    for _ in 0..10 {
        client.block_on(steady.count(bolts()))?;
    }
    Ok(())
}

#[test]
fn a_call_ends_at_its_deadline_if_the_warehouse_is_cut_off() -> Outcome {
    let network = VirtualNetwork::new(1);
    let server = network.serve(Warehouse::with("bolt", 7));
    let client = network.endpoint();
    let stock = LocalStockClient::connect(&client, server.route())?;

    server.cut_off();
    let before = network.elapsed();
    let patient = stock.with(CallOptions::new().deadline(Duration::from_secs(2)));
    let late = client.block_on(patient.count(bolts())).expect_err("nobody answers");
    assert_eq!(late.code(), Code::DeadlineExceeded);
    // Virtual time: the test itself takes no two seconds.
    let waited = network.elapsed() - before;
    assert!(waited.abs_diff(Duration::from_secs(2)) < Duration::from_millis(1));

    server.reconnect();
    assert_eq!(client.block_on(stock.count(bolts()))?.count, 7);
    Ok(())
}

/// Code that calls the service. `T` is `erpc::Udp` unless a test names another transport.
async fn has_bolts<T: Transport>(stock: &StockClient<T>) -> Result<bool, CallError> {
    Ok(stock.count(CountRequest { item: "bolt".into() }).await?.count > 0)
}

#[test]
fn code_with_a_shared_client_runs_in_virtual_time() -> Outcome {
    let network = VirtualNetwork::new(1);
    let server = network.serve(Warehouse::with("bolt", 7));
    let client = network.endpoint();
    let channel = SharedChannel::on(&client.handle(), vec![server.route()]).build()?;
    assert!(client.block_on(has_bolts(&StockClient::new(channel)))?);
    Ok(())
}

/// A runtime whose tasks run, and whose clock moves, only when the test says so.
fn paused_runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_time().start_paused(true).build()
}

/// Serves `service` in the network. Its handlers run in `runtime`.
fn serve_in_tokio(
    network: &VirtualNetwork,
    service: impl Service,
    runtime: &Runtime,
) -> Result<VirtualServer, MethodCollision> {
    let mut routes = Routes::new();
    Arc::new(service).register(&mut routes)?;
    routes.tokio(runtime.handle().clone());
    Ok(network.serve_routes(routes))
}

/// Gives `runtime` a turn every 100 us, and lets its clock follow the virtual time.
async fn run_tokio(runtime: Runtime) {
    let step = Duration::from_micros(100);
    loop {
        erpc::sleep(step).await;
        runtime.block_on(tokio::time::advance(step));
    }
}

/// The virtual time that the calls take.
fn greetings_arrive(seed: u64) -> Result<Duration, Box<dyn Error>> {
    let network = VirtualNetwork::new(seed);
    network.set_faults(Faults::none().drop(0.1));
    let runtime = paused_runtime()?;
    let server = serve_in_tokio(&network, MyGreeter::default(), &runtime)?;
    let client = network.endpoint();
    client.spawn(run_tokio(runtime));

    let greeter = LocalGreeterClient::connect(&client, server.route())?;
    for _ in 0..100 {
        let reply = client.block_on(greeter.say_hello(HelloRequest { name: "tokio".into() }))?;
        assert_eq!(reply.message, "Hello tokio!");
    }
    assert!(network.fault_counts().dropped > 0);
    Ok(network.elapsed())
}

#[test]
fn handlers_in_tokio_run_in_a_virtual_network() -> Outcome {
    for seed in 0..5 {
        let time = greetings_arrive(seed).map_err(|error| format!("seed {seed}: {error}"))?;
        assert_eq!(time, greetings_arrive(seed)?, "a test with the same seed repeats exactly");
    }
    Ok(())
}

/// Greets after a pause.
#[derive(erpc::Service)]
#[erpc(service = erpc_guide::port::helloworld::Greeter)]
struct LateGreeter(Duration);

impl Greeter for LateGreeter {
    async fn say_hello(
        &self,
        request: SharedRequest<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        tokio::time::sleep(self.0).await;
        MyGreeter::default().say_hello(request).await
    }
}

#[test]
fn the_clock_of_tokio_follows_the_virtual_time() -> Outcome {
    let network = VirtualNetwork::new(1);
    let (runtime, pause) = (paused_runtime()?, Duration::from_secs(2));
    let server = serve_in_tokio(&network, LateGreeter(pause), &runtime)?;
    let client = network.endpoint();
    client.spawn(run_tokio(runtime));
    let greeter = LocalGreeterClient::connect(&client, server.route())?;
    let before = network.elapsed();
    client.block_on(greeter.say_hello(HelloRequest { name: "tokio".into() }))?;
    let waited = network.elapsed() - before;
    assert!(waited.abs_diff(pause) < Duration::from_millis(5), "{waited:?}");

    let hurried = greeter.with(CallOptions::new().deadline(pause / 2));
    let late = client.block_on(hurried.say_hello(HelloRequest { name: "tokio".into() }));
    assert_eq!(late.expect_err("the handler sleeps").code(), Code::DeadlineExceeded);
    Ok(())
}

#[test]
fn streams_of_handlers_in_tokio_arrive_in_a_virtual_network() -> Outcome {
    let network = VirtualNetwork::new(1);
    network.set_faults(Faults::none().drop(0.1).reorder(0.2, Duration::from_millis(1)));
    let runtime = paused_runtime()?;
    let place = |latitude| Feature {
        name: format!("feature {latitude}"),
        location: Some(Point { latitude, longitude: -latitude }),
    };
    let features: Vec<_> = (0..200).map(place).collect();
    let service = MyGuide { features: Arc::new(features.clone()) };
    let server = serve_in_tokio(&network, service, &runtime)?;
    let client = network.endpoint();
    client.spawn(run_tokio(runtime));
    let guide = LocalRouteGuideClient::connect(&client, server.route())?;
    let (lo, hi) = (features[0].location, features[99].location);
    let received = client.block_on(async {
        let mut stream = guide.list_features(Rectangle { lo, hi });
        let mut received = Vec::new();
        while let Some(feature) = stream.next().await? {
            received.push(feature);
        }
        Ok::<_, CallError>(received)
    })?;
    assert_eq!(received, features[..100]);
    assert!(network.fault_counts().dropped > 0);
    Ok(())
}

/// Without a runtime, a call fails, and the reason says so.
#[test]
fn a_virtual_server_without_a_runtime_refuses_calls_of_tokio_methods() -> Outcome {
    let network = VirtualNetwork::new(1);
    let server = network.serve(MyGreeter::default());
    let client = network.endpoint();
    let greeter = LocalGreeterClient::connect(&client, server.route())?;
    let refused = client.block_on(greeter.say_hello(HelloRequest { name: "tokio".into() }));
    let refused = refused.expect_err("there is no runtime");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.to_string().contains("the server has no runtime"), "{refused}");
    Ok(())
}

#[test]
fn a_rolling_restart_fails_no_call() -> Outcome {
    let network = VirtualNetwork::new(1);
    let servers = [(); 2].map(|()| network.serve(Warehouse::with("bolt", 1_000)));
    let client = network.endpoint();
    let routes = servers.each_ref().map(VirtualServer::route);
    let stock = LocalStockClient::new(Channel::to(&client, routes.to_vec()).build());

    let calls = client.spawn(async move {
        for _ in 0..1_000 {
            stock.take(TakeRequest { item: "bolt".into(), count: 1 }).await?;
            erpc::sleep(Duration::from_micros(300)).await;
        }
        Ok::<(), CallError>(())
    });
    for server in &servers {
        client.run_for(Duration::from_millis(50));
        assert_eq!(client.block_on(server.drain(Duration::from_secs(1))), 0);
        server.restart(Warehouse::with("bolt", 1_000));
        // Long enough that the channel uses the server again.
        client.run_for(Duration::from_millis(200));
    }
    client.block_on(calls)?;
    Ok(())
}
