//! The log of the chapter "Two machines": what a program prints. The subscriber is global to the
//! process, so this is a program of its own.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use erpc::{Channel, Endpoint, Server};
use erpc_guide::stock::{CountRequest, LocalStockClient};
use erpc_guide::warehouse::Warehouse;
use tracing_subscriber::fmt::MakeWriter;

fn print_events<W>(writer: W)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    tracing_subscriber::fmt().with_env_filter("warn,erpc=info").with_writer(writer).init();
}

/// What the program has printed.
#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<u8>>>);

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Printed {
    fn has(&self, parts: &[&str]) -> bool {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&bytes);
        text.lines().any(|line| parts.iter().all(|part| line.contains(part)))
    }
}

#[test]
fn the_program_prints_what_happens_to_its_sessions() -> Result<(), Box<dyn std::error::Error>> {
    let printed = Printed::default();
    let writer = printed.clone();
    print_events(move || writer.clone());

    let serve = |address| Server::builder().add_service(Warehouse::with("bolt", 7)).spawn(address);
    let server = serve("127.0.0.1:0".to_owned())?;
    let address = server.local_addr().to_string();
    let endpoint = Endpoint::udp()?;
    let channel = Channel::to(&endpoint, vec![server.local_addr().into()]).build();
    let stock = LocalStockClient::new(channel);
    endpoint.block_on(stock.count(CountRequest { item: "bolt".into() }))?;
    let end = Instant::now() + Duration::from_secs(20);
    let wait_for = |parts: &[&str]| {
        while !printed.has(parts) {
            assert!(Instant::now() < end, "no line has {parts:?}");
            endpoint.run_for(Duration::from_millis(5));
        }
    };
    wait_for(&["INFO erpc::session: session opened", &address]);
    drop(server);
    wait_for(&["WARN erpc::session: session lost", &address, "cause="]);
    let _server = serve(address.clone())?;
    wait_for(&["INFO erpc::channel: reconnected", &address, "after_ms=", "failures="]);
    assert!(!printed.has(&["DEBUG"]));
    Ok(())
}
