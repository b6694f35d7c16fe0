//! The time saved when messages are read in the packet, and written from what the service has,
//! instead of copied.
//!
//! The same work runs with owned messages and with borrowed ones. Client and server share this thread
//! and the memory transport. The two variants alternate.

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use erpc::service::Routes;
use erpc::transport::mem::{MemHub, MemTransport};
use erpc::{CallError, Endpoint, EndpointConfig, Request, Response, Service, Status};
use proto::{
    Blob, FixedPrice, FixedQuote, LentBlob, LentBlobView, LocalQuotesClient, Price, Quote, Quotes,
    Stored, Wanted,
};

mod proto {
    erpc::include_proto!("quotes.v1");
}

/// Calls in flight.
const WINDOW: u64 = 32;
/// Calls in one run of a variant.
const CALLS: u64 = 100_000;
/// The name of all blobs.
const NAME: &str = "blob";
/// Runs of each variant. The fastest run is the result.
const TURNS: usize = 7;

#[derive(erpc::Service)]
#[erpc(service = proto::Quotes)]
struct Desk {
    data: Vec<u8>,
}

impl Quotes for Desk {
    fn mid(&self, request: Request<'_, Quote>) -> Result<Response<Price>, Status> {
        let quote = request.message();
        Ok(Response::new(Price { half_ticks: quote.bid + quote.ask }))
    }

    // `request.message()` is a reference into the packet.
    fn fixed_mid(&self, request: Request<'_, &FixedQuote>) -> Result<Response<FixedPrice>, Status> {
        let quote = request.message();
        Ok(Response::new(FixedPrice::new().with_half_ticks(quote.bid() + quote.ask())))
    }

    fn store(&self, request: Request<'_, Blob>) -> Result<Response<Stored>, Status> {
        Ok(Response::new(Stored { sum: sum(&request.message().data) }))
    }

    // `name` and `data` of the view are slices of the packet.
    fn store_lent(
        &self,
        request: Request<'_, LentBlobView<'_>>,
    ) -> Result<Response<Stored>, Status> {
        Ok(Response::new(Stored { sum: sum(request.message().data) }))
    }

    fn fetch(&self, request: Request<'_, &Wanted>) -> Result<Response<Blob>, Status> {
        let data = self.wanted(request.message())?;
        Ok(Response::new(Blob { name: NAME.to_owned(), data: data.to_vec() }))
    }

    // The answer is written to the packet here.
    fn fetch_lent(&self, request: Request<'_, &Wanted>) -> Result<Response<LentBlob>, Status> {
        let data = self.wanted(request.message())?;
        request.answer(&LentBlobView { name: NAME, data })
    }
}

impl Desk {
    fn wanted(&self, wanted: &Wanted) -> Result<&[u8], Status> {
        self.data.get(..wanted.len() as usize).ok_or_else(|| Status::out_of_range("no such blob"))
    }
}

/// Sums one byte in 64, so that the handler reads the data.
fn sum(data: &[u8]) -> u64 {
    data.iter().step_by(64).map(|&byte| u64::from(byte)).sum()
}

/// A server, a client, and counts of the answers.
struct Lab {
    server: Endpoint<MemTransport>,
    client: Endpoint<MemTransport>,
    quotes: LocalQuotesClient<MemTransport>,
    done: Rc<Cell<u64>>,
    wrong: Rc<Cell<u64>>,
}

impl Lab {
    fn new() -> Result<Self, Box<dyn Error>> {
        let hub = MemHub::new();
        let server = Endpoint::new(hub.port(Default::default()), EndpointConfig::new())?;
        let mut routes = Routes::new();
        Arc::new(Desk { data: vec![1; 16_000] }).register(&mut routes)?;
        server.serve(Arc::new(routes), None);
        server.listen();
        let client = Endpoint::new(hub.port(Default::default()), EndpointConfig::new())?;
        let route = server.local_route().ok_or("the server's loop is not running")?;
        let session = client.open(route);
        let quotes = LocalQuotesClient::new(session.clone());
        while !session.is_open() {
            client.run_once();
            server.run_once();
        }
        Ok(Self { server, client, quotes, done: Rc::default(), wrong: Rc::default() })
    }

    /// What a callback does with its answer: it counts it, and whether it is right.
    fn count(&self) -> impl FnOnce(bool) + 'static {
        let (done, wrong) = (Rc::clone(&self.done), Rc::clone(&self.wrong));
        move |is_right| {
            done.set(done.get() + 1);
            wrong.set(wrong.get() + u64::from(!is_right));
        }
    }

    /// Makes [`CALLS`] calls. Returns the mean time of a call.
    fn time(&self, call: &dyn Fn(&Self)) -> Duration {
        self.done.set(0);
        let (start, mut made) = (Instant::now(), 0);
        while self.done.get() < CALLS {
            while made < CALLS && made - self.done.get() < WINDOW {
                call(self);
                made += 1;
            }
            self.client.run_once();
            self.server.run_once();
        }
        start.elapsed() / u32::try_from(CALLS).unwrap_or(u32::MAX)
    }

    /// The time of a call in the fastest run of each variant. The variants alternate.
    fn compare(&self, one: &dyn Fn(&Self), other: &dyn Fn(&Self)) -> (Duration, Duration) {
        let turns = (0..TURNS).map(|_| (self.time(one), self.time(other)));
        turns.fold((Duration::MAX, Duration::MAX), |best, turn| {
            (best.0.min(turn.0), best.1.min(turn.1))
        })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let lab = Lab::new()?;

    let quote = Quote { instrument: 7, bid: 9_998, ask: 10_001, venue: b"XNAS".to_vec() };
    let fixed =
        FixedQuote::new().with_instrument(7).with_bid(9_998).with_ask(10_001).with_venue(*b"XNAS");
    let prost = |lab: &Lab| {
        let count = lab.count();
        lab.quotes.mid_with(&quote, |reply| count(reply.is_ok_and(|it| it.half_ticks == 19_999)));
    };
    // The reply is a reference into the packet.
    let in_place = |lab: &Lab| {
        let count = lab.count();
        lab.quotes
            .fixed_mid_with(fixed, |reply| count(reply.is_ok_and(|it| it.half_ticks() == 19_999)));
    };
    report("a quote of 28 bytes", "protobuf", "fixed layout", lab.compare(&prost, &in_place));

    for size in [1_000, 16_000] {
        let (name, data) = (NAME.to_owned(), vec![1; size]);
        let (expected, wanted) = (sum(&data), Wanted::new().with_len(size as u32));
        let blob = Blob { name: name.clone(), data: data.clone() };
        let view = LentBlob { name, data };
        let owned = |lab: &Lab| {
            let count = lab.count();
            lab.quotes
                .store_with(&blob, move |reply| count(reply.is_ok_and(|it| it.sum == expected)));
        };
        let borrowed = |lab: &Lab| {
            let count = lab.count();
            let check =
                move |reply: Result<Stored, _>| count(reply.is_ok_and(|it| it.sum == expected));
            lab.quotes.store_lent_with(&view, check);
        };
        let what = format!("a request of {size} bytes");
        report(&what, "owned", "borrowed view", lab.compare(&owned, &borrowed));
        let owned = |lab: &Lab| {
            let count = lab.count();
            let is_right = move |blob: Blob| sum(&blob.data) == expected;
            lab.quotes.fetch_with(wanted, move |reply| count(reply.is_ok_and(is_right)));
        };
        // The reply's data is a slice of the packet.
        let borrowed = |lab: &Lab| {
            let count = lab.count();
            let check = move |reply: Result<LentBlobView<'_>, CallError>| {
                count(reply.is_ok_and(|blob| sum(blob.data) == expected));
            };
            lab.quotes.fetch_lent_with(wanted, check);
        };
        let what = format!("a response of {size} bytes");
        report(&what, "owned", "borrowed view", lab.compare(&owned, &borrowed));
    }
    match lab.wrong.get() {
        0 => Ok(()),
        wrong => Err(format!("{wrong} answers were wrong").into()),
    }
}

fn report(what: &str, one: &str, other: &str, times: (Duration, Duration)) {
    let (a, b) = (times.0.as_nanos(), times.1.as_nanos());
    println!("{what}: {one} {a} ns per call, {other} {b} ns, {} ns less", a.saturating_sub(b));
}
