//! The programs of the chapter "Operating".

use std::error::Error;
use std::net::UdpSocket;
use std::time::Duration;

use erpc::health::{CHECK, HealthCheckRequest, HealthReporter, ServingStatus};
use erpc::{Balance, ClientThreadsError, Endpoint, Lookup, Server, ServerHandle, SharedChannel};
use erpc_guide::stock::{CountRequest, StockClient};
use erpc_guide::warehouse::Warehouse;

type Outcome = Result<(), Box<dyn Error>>;

/// A warehouse that reports its health.
fn serve(health: &HealthReporter) -> Result<ServerHandle, Box<dyn Error>> {
    let warehouse = Warehouse::with("bolt", 7);
    Ok(Server::builder().add_service(warehouse).health(health).spawn("127.0.0.1:0")?)
}

// Compiled, and not run: the function returns when a signal arrives.
fn _serve() -> Outcome {
    let health = HealthReporter::new();
    Server::builder()
        .add_service(Warehouse::default())
        .health(&health)
        .serve_until_signal("0.0.0.0:31850", Duration::from_secs(20))?;
    Ok(())
}

fn warehouses(name: &str) -> Result<StockClient, ClientThreadsError> {
    let pods = Lookup::new(name.to_owned()).good_for(Duration::from_secs(10));
    let channel = SharedChannel::to(pods).balance(Balance::TwoChoices).build()?;
    Ok(StockClient::new(channel))
}

fn probe(address: &str) -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint::udp()?;
    let session = endpoint.connect(address)?;
    let question = HealthCheckRequest { service: "stock.v1.Stock".into() };
    let answer = endpoint.block_on(session.call(&CHECK, &question))?;
    match answer.status() {
        ServingStatus::Serving => Ok(()),
        status => Err(format!("the service reports {status:?}").into()),
    }
}

#[test]
fn a_lookup_of_a_name_finds_the_servers() -> Outcome {
    let server = serve(&HealthReporter::new())?;
    let stock = warehouses(&format!("localhost:{}", server.local_addr().port()))?;
    let reply = stock.count(CountRequest { item: "bolt".into() }).wait()?;
    assert_eq!(reply.count, 7);
    Ok(())
}

#[test]
fn a_probe_tells_whether_a_server_serves() -> Outcome {
    let health = HealthReporter::new();
    let server = serve(&health)?;
    let address = server.local_addr().to_string();
    probe(&address)?;
    health.set("stock.v1.Stock", ServingStatus::NotServing);
    let error = probe(&address).expect_err("the service does not serve").to_string();
    assert!(error.contains("NotServing"), "{error}");

    drop(server);
    let error = probe(&address).expect_err("nothing listens").to_string();
    assert!(error.contains("connection refused"), "{error}");
    // A server that does not answer: the probe fails after the connect timeout.
    let silent = UdpSocket::bind("127.0.0.1:0")?;
    let error = probe(&silent.local_addr()?.to_string()).expect_err("no answer").to_string();
    assert!(error.contains("no answer within the connect timeout"), "{error}");
    Ok(())
}

#[test]
fn a_probe_fails_while_the_server_drains() -> Outcome {
    let server = serve(&HealthReporter::new())?;
    let address = server.local_addr().to_string();
    // A stream keeps the server from ending.
    let stock = warehouses(&address)?;
    let watch = erpc_guide::stock::WatchRequest { item: "bolt".into() };
    let mut changes = stock.watch(watch);
    let local = Endpoint::udp()?;
    let first = local.block_on(changes.next())?;
    assert_eq!(first.map(|change| change.count), Some(7));

    let draining = std::thread::spawn(move || server.drain(Duration::from_secs(10)));
    let refused = loop {
        match probe(&address) {
            Ok(()) => std::thread::yield_now(),
            Err(error) => break error.to_string(),
        }
    };
    assert!(refused.contains("shutting down") || refused.contains("NotServing"), "{refused}");
    drop(changes);
    assert_eq!(draining.join().expect("no panic"), 0);
    Ok(())
}

#[test]
fn counters_show_the_size_of_packets_and_lost_ones() -> Outcome {
    let server = serve(&HealthReporter::new())?;
    let endpoint = Endpoint::udp()?;
    let session = endpoint.connect(server.local_addr())?;
    let payload = session.stats().map_or(0, |stats| stats.payload);
    println!("up to {payload} bytes of a message per packet");
    assert!(payload >= 1_024);

    let stats = server.stats();
    println!("{} datagrams lost in the receive buffer", stats.transport.rx_overflow);
    Ok(())
}
