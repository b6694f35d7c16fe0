//! The time that a burst hook saves on a table larger than the processor's caches.
//!
//! Two methods look up the same keys in the same table, with the same handler. One of them has a
//! burst hook, which prefetches the entries of all requests of a burst, so that their cache misses
//! overlap. Client and server share this thread, over the memory transport and over UDP on the
//! loopback interface. The two methods alternate.

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use erpc::memory::prefetch;
use erpc::service::Routes;
use erpc::transport::mem::MemHub;
use erpc::{
    Burst, Endpoint, EndpointConfig, Request, Response, Service, Status, Transport, Udp, UdpConfig,
};
use proto::{Key, LocalTableClient, Table, Value};

mod proto {
    erpc::include_proto!("table.v1");
}

/// Keys in the table.
const KEYS: u64 = 1_000_000;
/// Sessions, each of which has at most 8 calls in flight.
const SESSIONS: usize = 8;
/// Calls in flight.
const WINDOW: u64 = 64;
/// Calls in one run of a method.
const CALLS: u64 = 100_000;
/// Runs of each method. The median is the result.
const RUNS: usize = 9;

/// An entry of the table: one cache line.
#[derive(Clone)]
#[repr(align(64))]
struct Entry {
    /// 0 if the entry is free.
    key: u64,
    value: [u8; 56],
}

/// A hash table with open addressing, at most half full, of 128 MiB.
#[derive(erpc::Service)]
#[erpc(service = proto::Table, burst(GetAhead = look_ahead))]
struct Store {
    entries: Vec<Entry>,
}

impl Store {
    fn new() -> Self {
        let free = Entry { key: 0, value: [0; 56] };
        let mut store = Self { entries: vec![free; (2 * KEYS as usize).next_power_of_two()] };
        for number in 0..KEYS {
            let (key, mut value) = (key(number), [0; 56]);
            value[..8].copy_from_slice(&key.to_le_bytes());
            let at = store.place(key);
            store.entries[at] = Entry { key, value };
        }
        store
    }

    /// Where the key would be if no other key had the same place.
    fn home(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) as usize & (self.entries.len() - 1)
    }

    /// The place of the key, or of the free entry for it.
    fn place(&self, key: u64) -> usize {
        let mut at = self.home(key);
        while ![0, key].contains(&self.entries[at].key) {
            at = (at + 1) & (self.entries.len() - 1);
        }
        at
    }

    fn find(&self, key: u64) -> Result<Response<Value>, Status> {
        Ok(Response::new(Value::new().with_bytes(self.entries[self.place(key)].value)))
    }

    /// Called once per burst with all requests for `GetAhead`, before their handlers run.
    fn look_ahead(&self, burst: Burst<'_, &Key>) {
        for request in &burst {
            prefetch(&self.entries[self.home(request.message().key())]);
        }
    }
}

impl Table for Store {
    fn get(&self, request: Request<'_, &Key>) -> Result<Response<Value>, Status> {
        self.find(request.message().key())
    }

    fn get_ahead(&self, request: Request<'_, &Key>) -> Result<Response<Value>, Status> {
        self.find(request.message().key())
    }
}

/// The key with this number. Different numbers have different keys: each step can be reversed.
fn key(number: u64) -> u64 {
    let mixed = (number + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

/// The methods of the table.
#[derive(Clone, Copy)]
enum Method {
    Get,
    GetAhead,
}

/// A server and a client with several sessions.
struct Lab<T: Transport> {
    server: Endpoint<T>,
    client: Endpoint<T>,
    tables: Vec<LocalTableClient<T>>,
    done: Rc<Cell<u64>>,
    wrong: Rc<Cell<u64>>,
}

impl<T: Transport> Lab<T> {
    fn new(store: &Arc<Store>, server: T, client: T) -> Result<Self, Box<dyn Error>> {
        let server = Endpoint::new(server, EndpointConfig::new())?;
        let mut routes = Routes::new();
        Arc::clone(store).register(&mut routes)?;
        server.serve(Arc::new(routes), None);
        server.listen();
        let client = Endpoint::new(client, EndpointConfig::new())?;
        let route = server.local_route().ok_or("the server's loop is not running")?;
        let sessions: Vec<_> = (0..SESSIONS).map(|_| client.open(route)).collect();
        while !sessions.iter().all(erpc::Session::is_open) {
            client.run_once();
            server.run_once();
        }
        let tables = sessions.into_iter().map(LocalTableClient::new).collect();
        Ok(Self { server, client, tables, done: Rc::default(), wrong: Rc::default() })
    }

    /// Calls the method for random ones of the first `keys` keys, the same ones each time. Returns
    /// the mean time of a call in ns.
    fn time(&self, method: Method, keys: u64) -> f64 {
        self.done.set(0);
        let (start, mut made, mut random) = (Instant::now(), 0, 1_u64);
        while self.done.get() < CALLS {
            while made < CALLS && made - self.done.get() < WINDOW {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                self.call(made as usize % SESSIONS, method, key(random % keys));
                made += 1;
            }
            self.client.run_once();
            self.server.run_once();
        }
        start.elapsed().as_nanos() as f64 / CALLS as f64
    }

    fn call(&self, table: usize, method: Method, key: u64) {
        let (done, wrong) = (Rc::clone(&self.done), Rc::clone(&self.wrong));
        let answered = move |reply: Result<&Value, _>| {
            let is_right = reply.is_ok_and(|value| value.bytes()[..8] == key.to_le_bytes());
            done.set(done.get() + 1);
            wrong.set(wrong.get() + u64::from(!is_right));
        };
        let (table, key) = (&self.tables[table], Key::new().with_key(key));
        match method {
            Method::Get => table.get_with(key, answered),
            Method::GetAhead => table.get_ahead_with(key, answered),
        }
    }

    /// Prints the median times of both methods, and the median of the ratios of two runs that
    /// follow each other.
    fn compare(&self, what: &str, keys: u64) {
        let runs: Vec<_> = (0..RUNS)
            .map(|_| (self.time(Method::Get, keys), self.time(Method::GetAhead, keys)))
            .collect();
        let median = |of: fn(&(f64, f64)) -> f64| {
            let mut values: Vec<_> = runs.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values[RUNS / 2]
        };
        println!(
            "{what}, {keys} keys: {:.0} ns per call, with the hook {:.0} ns, ratio {:.2}",
            median(|run| run.0),
            median(|run| run.1),
            median(|run| run.1 / run.0)
        );
    }

    /// Compares for the whole table, and for so few keys that the caches hold their entries.
    fn run(&self, what: &str) -> Result<(), Box<dyn Error>> {
        self.compare(what, KEYS);
        self.compare(what, 100);
        match self.wrong.get() {
            0 => Ok(()),
            wrong => Err(format!("{wrong} answers were wrong").into()),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let store = Arc::new(Store::new());
    let hub = MemHub::new();
    let port = || hub.port(Default::default());
    Lab::new(&store, port(), port())?.run("in memory")?;
    let udp = UdpConfig::new().address(([127, 0, 0, 1], 0).into());
    Lab::new(&store, Udp::bind(&udp)?, Udp::bind(&udp)?)?.run("UDP on loopback")
}
