//! The programs of the guide, in the order of its chapters.

use std::cell::Cell;
use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use erpc::health::{HealthReporter, ServingStatus};
use erpc::memory::prefetch;
use erpc::{
    Balance, Burst, CallContext, CallError, CallOptions, Cause, Channel, Code, Endpoint,
    IdlePolicy, Interceptor, Metadata, MetadataError, Request, Response, RetryPolicy, Server,
    ServerHandle, Status, join_all,
};
use erpc_guide::market::market_service::Market;
use erpc_guide::market::{
    GetReply, GetReplyView, GetRequest, LocalMarketClient, Price, PutReply, PutRequest,
    PutRequestView, Quote,
};
use erpc_guide::stock::{CountReply, CountRequest, LocalStockClient, Parcel, WatchRequest};
use erpc_guide::warehouse::Warehouse;

type Outcome = Result<(), Box<dyn Error>>;

/// Upper limit for a test. Long enough for a machine that stalls for a while.
const TEST_LIMIT: Duration = Duration::from_secs(20);

fn bolts() -> CountRequest {
    CountRequest { item: "bolt".into() }
}

/// A warehouse with seven bolts, and a client of it with a long deadline.
fn lab() -> Result<(ServerHandle, Endpoint, LocalStockClient), Box<dyn Error>> {
    let server = Server::builder().add_service(Warehouse::with("bolt", 7)).spawn("127.0.0.1:0")?;
    let endpoint = Endpoint::udp()?;
    let stock = LocalStockClient::connect(&endpoint, server.local_addr())?;
    let stock = stock.with(CallOptions::new().deadline(TEST_LIMIT));
    Ok((server, endpoint, stock))
}

mod server {
    use super::*;

    #[test]
    fn a_server_runs_in_the_background() -> Outcome {
        let server = Server::builder()
            .add_service(Warehouse::with("bolt", 7))
            .threads(2)
            .spawn("127.0.0.1:0")?;
        println!("serving at {}", server.local_addr());
        Ok(())
    }

    #[test]
    fn a_server_that_is_drained_refuses_new_calls() -> Outcome {
        let (server, endpoint, stock) = lab()?;
        assert_eq!(endpoint.block_on(stock.count(bolts()))?.count, 7);
        let draining = std::thread::spawn(move || {
            let cut_off = server.drain(Duration::from_secs(10));
            if cut_off > 0 {
                eprintln!("{cut_off} calls and streams did not end in time");
            }
            cut_off
        });
        endpoint.run_until(|| draining.is_finished());
        assert_eq!(draining.join().expect("no panic"), 0);
        assert!(endpoint.block_on(stock.count(bolts())).is_err());
        Ok(())
    }

    // This function is compiled but not run, because it returns only when a signal arrives.
    fn _serve() -> Outcome {
        Server::builder()
            .add_service(Warehouse::default())
            .serve_until_signal("0.0.0.0:31850", Duration::from_secs(10))?;
        Ok(())
    }

    fn count(request: Request<'_, CountRequest>) -> Result<Response<CountReply>, Status> {
        // The client's address, the time left until the deadline, and the request's metadata.
        let _peer = request.peer();
        if request.time_left().is_some_and(|left| left < Duration::from_micros(50)) {
            return Err(Status::new(Code::DeadlineExceeded, "no time to look"));
        }
        if request.metadata().get("tenant").is_none() {
            return Err(Status::new(Code::Unauthenticated, "say who you are"));
        }
        let mut metadata = Metadata::new();
        metadata.insert("shelf", "b 12").map_err(|error| Status::internal(error.to_string()))?;
        Ok(Response::new(CountReply { count: 1 }).with_metadata(metadata))
    }

    async fn patient(request: Request<'_, CountRequest>) -> Result<Response<CountReply>, Status> {
        let item = request.into_message().item;
        let counting = async {
            erpc::sleep(Duration::from_millis(1)).await;
            7
        };
        let count = erpc::timeout(Duration::from_secs(1), counting)
            .await
            .map_err(|_| Status::unavailable("counting takes too long today"))?;
        // Continues after the handler has answered.
        erpc::spawn(async move { println!("{item} was counted") });
        Ok(Response::new(CountReply { count }))
    }

    #[test]
    fn a_handler_waits_in_its_event_loop() -> Outcome {
        let endpoint = Endpoint::udp()?;
        let reply = endpoint.block_on(patient(Request::new(bolts())))?;
        assert_eq!(reply.into_message().map(|reply| reply.count), Some(7));
        Ok(())
    }

    mod wrong {
        use super::*;

        // Clippy reports an unfulfilled expectation if the lint does not see the mistake.
        #[expect(clippy::await_holding_lock, reason = "the guide shows that clippy reports it")]
        #[expect(dead_code, reason = "it would stop the loop")]
        async fn take_all(items: &Mutex<HashMap<String, u64>>, item: &str) -> Option<u64> {
            let mut items = items.lock().unwrap_or_else(PoisonError::into_inner);
            // Wrong: the guard `items` lives until the end of the function.
            erpc::sleep(Duration::from_millis(1)).await;
            items.remove(item)
        }
    }

    async fn take_all(items: &Mutex<HashMap<String, u64>>, item: &str) -> Option<u64> {
        let count = items.lock().unwrap_or_else(PoisonError::into_inner).remove(item);
        erpc::sleep(Duration::from_millis(1)).await;
        count
    }

    #[test]
    fn handlers_that_release_their_lock_before_they_wait_do_not_stop_the_loop() -> Outcome {
        let endpoint = Endpoint::udp()?;
        let items = Mutex::new(HashMap::from([("bolt".to_owned(), 7)]));
        let calls = [take_all(&items, "bolt"), take_all(&items, "bolt")];
        let counts = endpoint.block_on(join_all(calls.map(Box::pin)));
        assert_eq!(counts, [Some(7), None]);
        Ok(())
    }

    #[test]
    fn a_handler_is_tested_like_a_function() {
        let refused = count(Request::new(CountRequest::default()));
        assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
    }

    enum StockError {
        NoSuchItem(String),
        TooFew { left: u64 },
    }

    impl From<StockError> for Status {
        fn from(error: StockError) -> Self {
            match error {
                StockError::NoSuchItem(item) => Self::not_found(format!("there is no {item}")),
                StockError::TooFew { left } => {
                    Self::failed_precondition("there are fewer").with_details(&left.to_le_bytes())
                }
            }
        }
    }

    #[test]
    fn an_error_type_converts_to_a_status() {
        assert_eq!(Status::from(StockError::NoSuchItem("nut".into())).code(), Code::NotFound);
        assert_eq!(Status::from(StockError::TooFew { left: 1 }).details().len(), 8);
    }

    struct Tenants;

    impl Interceptor for Tenants {
        fn before(&self, call: &CallContext<'_>) -> Result<(), Status> {
            match call.metadata().get("tenant") {
                Some(_) => Ok(()),
                None => Err(Status::new(Code::Unauthenticated, "say who you are")),
            }
        }
    }

    #[test]
    fn an_interceptor_runs_before_all_services() -> Outcome {
        let server = Server::builder()
            .add_service(Warehouse::with("bolt", 7))
            .intercept(Tenants)
            .spawn("127.0.0.1:0")?;
        let endpoint = Endpoint::udp()?;
        let stock = LocalStockClient::connect(&endpoint, server.local_addr())?;
        let refused = endpoint.block_on(stock.count(bolts())).unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated);
        Ok(())
    }

    #[test]
    fn a_handler_calls_another_server() -> Outcome {
        let (other, ..) = lab()?;
        let (_server, endpoint, stock) = lab()?;
        let to = other.local_addr().to_string();
        let request = erpc_guide::stock::MoveRequest { item: "bolt".into(), count: 3, to };
        endpoint.block_on(stock.r#move(request))?;
        assert_eq!(endpoint.block_on(stock.count(bolts()))?.count, 4);
        Ok(())
    }
}

mod client {
    use super::*;

    #[test]
    fn a_client_calls_in_three_ways() -> Outcome {
        let (server, ..) = lab()?;
        let address = server.local_addr();

        let endpoint = Endpoint::udp()?;
        let stock = LocalStockClient::connect(&endpoint, address)?;

        // 1. A call that blocks this thread.
        let request = CountRequest { item: "bolt".into() };
        let reply = endpoint.block_on(stock.count(&request))?;
        assert_eq!(reply.count, 7);

        // 2. Several calls that are awaited.
        endpoint.block_on(async {
            let (one, other) = (stock.count(&request), stock.count(&request));
            // Both calls are in flight.
            assert_eq!(one.await?.count + other.await?.count, 14);
            Ok::<(), CallError>(())
        })?;

        // 3. A call with a callback, the fastest way.
        let seen = Rc::new(Cell::new(0));
        stock.count_with(&request, {
            let seen = Rc::clone(&seen);
            move |reply| seen.set(reply.map_or(0, |reply| reply.count))
        });
        endpoint.run_until(|| seen.get() == 7);
        Ok(())
    }

    #[test]
    fn a_client_calls_in_batches_and_in_tasks() -> Outcome {
        let (_one, endpoint, first) = lab()?;
        let (other, ..) = lab()?;
        let second = LocalStockClient::connect(&endpoint, other.local_addr())?;
        let clients = [first, second];

        // One round trip for any number of servers.
        let calls = clients.iter().map(|client| client.count(bolts()));
        let replies = endpoint.block_on(join_all(calls));
        assert!(replies.iter().all(|reply| reply.is_ok()));

        // A task per client. Each task makes its calls in sequence.
        let tasks = clients.map(|client| {
            endpoint.spawn(async move {
                let mut sum = 0;
                for _ in 0..10 {
                    sum += client.count(bolts()).await?.count;
                }
                Ok::<u64, CallError>(sum)
            })
        });
        let sums = endpoint.block_on(join_all(tasks));
        assert!(sums.iter().all(|sum| *sum == Ok(70)));
        Ok(())
    }

    #[test]
    fn a_call_fails_at_its_deadline() -> Outcome {
        let (_server, endpoint, stock) = lab()?;

        let hurried = stock.with(CallOptions::new().deadline(Duration::from_nanos(1)));
        match endpoint.block_on(hurried.count(bolts())) {
            Err(CallError::NotExecuted(Cause::DeadlineExceeded)) => println!("it has not run"),
            Err(CallError::MaybeExecuted(Cause::DeadlineExceeded)) => println!("it may have run"),
            // The client or the server refused the call because its deadline was over.
            Err(error) => assert_eq!(error.code(), Code::DeadlineExceeded),
            Ok(_) => unreachable!("nothing takes less than a nanosecond"),
        }
        Ok(())
    }

    #[test]
    fn a_dropped_call_is_cancelled() -> Outcome {
        let (_server, endpoint, stock) = lab()?;

        let patience = Duration::from_micros(1);
        match endpoint.block_on(endpoint.timeout(patience, stock.count(bolts()))) {
            Ok(reply) => assert_eq!(reply?.count, 7),
            Err(_elapsed) => println!("the call was dropped; the client tells the server"),
        }
        Ok(())
    }

    fn metadata() -> Result<Metadata, MetadataError> {
        let mut metadata = Metadata::new();
        metadata.insert("tenant", "acme")?;
        Ok(metadata)
    }

    #[test]
    fn requests_and_responses_carry_metadata() -> Outcome {
        let (_server, endpoint, stock) = lab()?;

        let tenant = stock.with(CallOptions::new().metadata(metadata()?));
        let (reply, sent_back) = endpoint.block_on(tenant.count(bolts()).with_metadata())?;
        println!("{} on shelf {:?}", reply.count, sent_back.get("shelf"));
        Ok(())
    }

    #[test]
    fn a_call_is_retried() -> Outcome {
        let (_server, endpoint, stock) = lab()?;

        let steady = stock.with(CallOptions::new().retry(RetryPolicy::new(3)));
        let reply = endpoint.block_on(steady.count(bolts()))?;
        assert_eq!(reply.count, 7);
        Ok(())
    }
}

#[test]
fn streams() -> Outcome {
    let (_server, endpoint, stock) = lab()?;

    endpoint.block_on(async {
        let mut changes = stock.watch(WatchRequest { item: "bolt".into() });
        // The first message of the stream is the current count.
        assert_eq!(changes.next().await?.map(|change| change.count), Some(7));

        let delivery = stock.deliver();
        for _ in 0..3 {
            delivery.send(Parcel { item: "bolt".into(), count: 10 }).await?;
        }
        assert_eq!(delivery.finish().await?.parcels, 3);

        // The server may merge changes that follow each other quickly.
        let mut count = 7;
        while count < 37 {
            count = changes.next().await?.map_or(37, |change| change.count);
        }
        Ok::<(), CallError>(())
    })?;
    Ok(())
}

mod machines {
    use super::*;

    #[expect(dead_code, reason = "it serves until the process ends")]
    fn a_server_that_owns_its_cores() -> Outcome {
        Server::builder()
            .add_service(Warehouse::default())
            .threads(4) // event loops, one UDP port for all
            .core(2) // on cores 2, 3, 4 and 5
            .workers(4) // for worker methods
            .idle(IdlePolicy::Spin) // never sleeps: the lowest latency, and all of the cores
            .serve("0.0.0.0:31850")?;
        Ok(())
    }

    #[test]
    fn a_channel_balances_over_several_servers() -> Outcome {
        let servers = [lab()?.0, lab()?.0, lab()?.0];
        let addresses: Vec<SocketAddr> = servers.iter().map(ServerHandle::local_addr).collect();
        let endpoint = Endpoint::udp()?;

        let servers = addresses.into_iter().map(Into::into).collect::<Vec<_>>();
        let channel = Channel::to(&endpoint, servers).balance(Balance::TwoChoices).build();
        let stock = LocalStockClient::new(channel);
        let reply = endpoint.block_on(stock.count(bolts()))?;
        assert_eq!(reply.count, 7);
        Ok(())
    }
}

mod health {
    use super::*;

    #[test]
    fn a_channel_avoids_servers_that_do_not_serve() -> Outcome {
        let health = HealthReporter::new();
        let server = Server::builder()
            .add_service(Warehouse::with("bolt", 7))
            .health(&health)
            .spawn("127.0.0.1:0")?;
        health.set("stock.v1.Stock", ServingStatus::NotServing);

        let other = lab()?.0;
        let servers = vec![server.local_addr().into(), other.local_addr().into()];
        let endpoint = Endpoint::udp()?;
        let channel = Channel::to(&endpoint, servers).health_check("stock.v1.Stock").build();
        let stock = LocalStockClient::new(channel);
        for _ in 0..10 {
            assert_eq!(endpoint.block_on(stock.count(bolts()))?.count, 7);
        }
        // The other server received the ten calls, and the channel's request for its health.
        assert_eq!(other.stats().protocol.requests, 11);
        Ok(())
    }
}

mod nanoseconds {
    use super::*;

    #[derive(erpc::Service)]
    #[erpc(service = erpc_guide::market::market_service::Market)]
    #[erpc(max_request = 65_536, method(Put, max_request = 1_024, deadline = "20ms"))]
    struct Exchange {
        /// By name.
        blobs: HashMap<String, Vec<u8>>,
    }

    impl Market for Exchange {
        fn mid(&self, request: Request<'_, &Quote>) -> Result<Response<Price>, Status> {
            // `quote` is a reference into the packet.
            let quote = request.message();
            Ok(Response::new(Price::new().with_half_ticks(quote.bid() + quote.ask())))
        }

        fn put(
            &self,
            request: Request<'_, PutRequestView<'_>>,
        ) -> Result<Response<PutReply>, Status> {
            // `key` and `value` are slices of the packet.
            let PutRequestView { key, value, .. } = *request.message();
            println!("{key}: {} bytes", value.len());
            Ok(Response::new(PutReply { size: value.len() as u64 }))
        }

        fn get(&self, request: Request<'_, GetRequest>) -> Result<Response<GetReply>, Status> {
            let value = self.blobs.get(&request.message().key);
            let value = value.ok_or_else(|| Status::not_found("no such blob"))?;
            // The value is copied once, from the map to the packet.
            request.answer(&GetReplyView { value })
        }
    }

    #[derive(erpc::Service)]
    #[erpc(service = erpc_guide::market::market_service::Market, burst(Mid = look_ahead))]
    struct Desk {
        /// By instrument; more than the processor's caches hold.
        margins: Vec<Margin>,
    }

    /// One cache line.
    #[derive(Clone)]
    #[repr(align(64))]
    struct Margin {
        half_ticks: i64,
    }

    impl Desk {
        /// Called once per burst with all its requests for `Mid`, before their handlers run.
        fn look_ahead(&self, burst: Burst<'_, &Quote>) {
            for request in &burst {
                if let Some(margin) = self.margins.get(request.message().instrument() as usize) {
                    prefetch(margin);
                }
            }
        }
    }

    impl Market for Desk {
        fn mid(&self, request: Request<'_, &Quote>) -> Result<Response<Price>, Status> {
            let quote = request.message();
            let margin = self.margins.get(quote.instrument() as usize);
            let margin = margin.ok_or_else(|| Status::not_found("no such instrument"))?;
            let half_ticks = quote.bid() + quote.ask() + margin.half_ticks;
            Ok(Response::new(Price::new().with_half_ticks(half_ticks)))
        }

        fn put(&self, _: Request<'_, PutRequestView<'_>>) -> Result<Response<PutReply>, Status> {
            Err(Status::unimplemented("the desk stores nothing"))
        }

        fn get(&self, _: Request<'_, GetRequest>) -> Result<Response<GetReply>, Status> {
            Err(Status::unimplemented("the desk stores nothing"))
        }
    }

    #[test]
    fn a_burst_hook_prefetches_for_the_handlers() -> Outcome {
        let desk = Desk { margins: vec![Margin { half_ticks: 2 }; 1_000] };
        let server = Server::builder().add_service(desk).spawn("127.0.0.1:0")?;
        let endpoint = Endpoint::udp()?;
        let market = LocalMarketClient::connect(&endpoint, server.local_addr())?;
        let of = |instrument| {
            let quote = Quote::new().with_instrument(instrument).with_bid(9_998).with_ask(10_001);
            market.mid(quote)
        };
        let prices = endpoint.block_on(join_all((0..100).map(of)));
        assert!(prices.iter().all(|price| price.as_ref().is_ok_and(|p| p.half_ticks() == 20_001)));
        assert_eq!(endpoint.block_on(of(1_000)).unwrap_err().code(), Code::NotFound);
        Ok(())
    }

    #[test]
    fn messages_are_read_and_written_in_the_packet() -> Outcome {
        let exchange = Exchange { blobs: HashMap::from([("k".into(), vec![1; 100])]) };
        let server = Server::builder().add_service(exchange).spawn("127.0.0.1:0")?;
        let endpoint = Endpoint::udp()?;
        let market = LocalMarketClient::connect(&endpoint, server.local_addr())?;

        let quote = Quote::new().with_bid(9_998).with_ask(10_001).with_venue(*b"XNAS");
        assert_eq!(endpoint.block_on(market.mid(quote))?.half_ticks(), 19_999);

        let large = PutRequest { key: "k".into(), value: vec![1; 2_000] };
        let refused = endpoint.block_on(market.put(&large)).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);

        let blob = [1; 100];
        let sum = Rc::new(Cell::new(0));
        let result = Rc::clone(&sum);

        let request = PutRequestView { key: "k", value: &blob };
        assert_eq!(endpoint.block_on(market.put(request))?.size, 100);

        market.get_with(GetRequest { key: "k".into() }, move |reply| {
            // `reply.value` is a slice of the packet.
            result.set(reply.map_or(0, |reply| reply.value.iter().sum::<u8>()));
        });

        endpoint.run_until(|| sum.get() != 0);
        assert_eq!(sum.get(), 100);
        Ok(())
    }
}

mod tokio_service {
    use erpc::ClientThreads;
    use erpc_guide::port::helloworld_client::greet;
    use erpc_guide::port::helloworld_server::MyGreeter;
    use erpc_guide::stock::StockClient;
    use tokio::runtime::Handle;

    use super::*;

    fn nuts() -> CountRequest {
        CountRequest { item: "nut".into() }
    }

    fn on_tokio(body: impl Future<Output = Outcome>) -> Outcome {
        tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(body)
    }

    #[test]
    fn a_shared_client_is_awaited_anywhere() -> Outcome {
        let (server, ..) = lab()?;
        let address = server.local_addr();
        on_tokio(async move {
            let stock = StockClient::connect(address).await?;
            let reply = stock.count(bolts()).await?;
            assert_eq!(reply.count, 7);

            let hurried = stock.with(CallOptions::new().deadline(Duration::from_millis(50)));
            drop(hurried);
            let (bolts, nuts) = tokio::join!(stock.count(bolts()), stock.count(nuts()));
            assert_eq!((bolts?.count, nuts.unwrap_err().code()), (7, Code::NotFound));
            let (request, patience) = (self::bolts(), TEST_LIMIT);
            let count = tokio::time::timeout(patience, stock.count(&request)).await;
            assert_eq!(count??.count, 7);
            Ok(())
        })
    }

    #[test]
    fn handlers_run_in_tokio() -> Outcome {
        on_tokio(async {
            let server = Server::builder()
                .add_service(MyGreeter::default())
                .tokio(Handle::current())
                .spawn("127.0.0.1:0")?;
            let greeting = greet(&server.local_addr().to_string(), "tokio").await?;
            assert_eq!(greeting, "Hello tokio!");
            Ok(())
        })
    }

    /// The state of a web server; `axum::extract::State<Shop>` passes a clone to each request.
    #[derive(Clone)]
    struct Shop {
        stock: StockClient,
    }

    async fn page(shop: Shop, item: String) -> Result<String, CallError> {
        let reply = shop.stock.count(CountRequest { item }).await?;
        Ok(format!("{} pieces", reply.count))
    }

    #[test]
    fn tasks_share_a_client() -> Outcome {
        let (server, ..) = lab()?;
        on_tokio(async move {
            let shop = Shop { stock: StockClient::connect(server.local_addr()).await? };
            let pages = (0..10).map(|_| tokio::spawn(page(shop.clone(), "bolt".into())));
            for page in pages.collect::<Vec<_>>() {
                assert_eq!(page.await??, "7 pieces");
            }
            Ok(())
        })
    }

    #[test]
    fn streams_move_between_tasks() -> Outcome {
        let (server, ..) = lab()?;
        on_tokio(async move {
            let stock = StockClient::connect(server.local_addr()).await?;
            let mut changes = stock.watch(WatchRequest { item: "bolt".into() });
            let first = changes.next().await?;
            assert_eq!(first.map(|change| change.count), Some(7));

            let delivery = stock.deliver();
            for count in 1..=3 {
                delivery.send(Parcel { item: "bolt".into(), count }).await?;
            }
            let reply = delivery.finish().await?;
            assert_eq!(reply.parcels, 3);
            let watcher = tokio::spawn(async move { changes.next().await });
            assert!(watcher.await??.is_some_and(|change| change.count > 7));
            Ok(())
        })
    }

    #[test]
    fn threads_are_chosen_before_the_first_client() -> Outcome {
        // Other tests of this process may have started the default threads already.
        let started = || -> Result<(), erpc::ClientThreadsError> {
            ClientThreads::builder().threads(2).idle(IdlePolicy::Sleep).start_default()?;
            Ok(())
        };
        match started() {
            Ok(()) | Err(erpc::ClientThreadsError::DefaultRuns) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    #[test]
    fn a_plain_thread_waits() -> Outcome {
        let (server, ..) = lab()?;
        let mut stock = None;
        on_tokio(async {
            stock = Some(StockClient::connect(server.local_addr()).await?);
            Ok(())
        })?;
        let stock = stock.ok_or("connected")?;
        let reply = stock.count(bolts()).wait()?;
        assert_eq!(reply.count, 7);
        Ok(())
    }
}
