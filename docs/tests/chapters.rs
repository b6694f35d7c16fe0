//! The programs of the guide, in the order of its chapters.

use std::cell::Cell;
use std::error::Error;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use erpc::health::{HealthReporter, ServingStatus};
use erpc::{
    Balance, CallContext, CallError, CallOptions, Cause, Channel, Code, Endpoint, IdlePolicy,
    Interceptor, Metadata, MetadataError, Request, Response, RetryPolicy, Server, ServerHandle,
    Status, join_all,
};
use erpc_guide::market::market_service::Market;
use erpc_guide::market::{MarketClient, Price, PutReply, PutRequest, PutRequestView, Quote};
use erpc_guide::stock::{CountReply, CountRequest, Parcel, StockClient, WatchRequest};
use erpc_guide::warehouse::Warehouse;

type Outcome = Result<(), Box<dyn Error>>;

/// Upper limit for a test. Long enough for a machine that stalls for a while.
const TEST_LIMIT: Duration = Duration::from_secs(20);

fn bolts() -> CountRequest {
    CountRequest { item: "bolt".into() }
}

/// A warehouse with seven bolts, and a client of it with a long deadline.
fn lab() -> Result<(ServerHandle, Endpoint, StockClient), Box<dyn Error>> {
    let server = Server::builder().add_service(Warehouse::with("bolt", 7)).spawn("127.0.0.1:0")?;
    let endpoint = Endpoint::udp()?;
    let stock = StockClient::connect(&endpoint, server.local_addr())?;
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

    // Compiled, and not run: the function returns when a signal arrives.
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
        let stock = StockClient::connect(&endpoint, server.local_addr())?;
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
        let stock = StockClient::connect(&endpoint, address)?;

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
        let second = StockClient::connect(&endpoint, other.local_addr())?;
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
        let stock = StockClient::new(channel);
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
        let stock = StockClient::new(channel);
        for _ in 0..10 {
            assert_eq!(endpoint.block_on(stock.count(bolts()))?.count, 7);
        }
        // Ten calls, and the channel's question about its health.
        assert_eq!(other.stats().protocol.requests, 11);
        Ok(())
    }
}

mod nanoseconds {
    use super::*;

    #[derive(erpc::Service)]
    #[erpc(service = erpc_guide::market::market_service::Market)]
    #[erpc(max_request = 65_536, method(Put, max_request = 1_024, deadline = "20ms"))]
    struct Exchange;

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
    }

    #[test]
    fn a_handler_reads_messages_in_the_packet() -> Outcome {
        let server = Server::builder().add_service(Exchange).spawn("127.0.0.1:0")?;
        let endpoint = Endpoint::udp()?;
        let market = MarketClient::connect(&endpoint, server.local_addr())?;

        let quote = Quote::new().with_bid(9_998).with_ask(10_001).with_venue(*b"XNAS");
        assert_eq!(endpoint.block_on(market.mid(quote))?.half_ticks(), 19_999);

        let request = PutRequest { key: "k".into(), value: vec![1; 100] };
        assert_eq!(endpoint.block_on(market.put(&request))?.size, 100);

        let large = PutRequest { key: "k".into(), value: vec![1; 2_000] };
        let refused = endpoint.block_on(market.put(&large)).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        Ok(())
    }
}
