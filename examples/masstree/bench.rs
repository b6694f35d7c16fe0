//! Two questions about the index as a service: what the network adds to the index, and how much
//! longer reads take if scans run in the event loop.

use std::cell::Cell;
use std::error::Error;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use erpc::service::Routes;
use erpc::transport::mem::MemHub;
use erpc::{
    Endpoint, EndpointConfig, Request, Response, Server, Service, Status, Transport, Udp,
    UdpConfig, WorkerPool,
};
use erpc_masstree::{BATCH, Masstree, pin};
use erpc_test_tools::random::Random;

use crate::data::{entries, key};
use crate::load::{Load, Mix};
use crate::proto::{
    GetReply, GetRequest, GetRequestView, Index, LocalIndexClient, PutReply, PutRequestView,
    RemoveReply, RemoveRequestView, ScanReply, ScanRequestView,
};
use crate::store::{Store, Undivided};

/// Rounds that alternate between the variants. The median is the result.
const ROUNDS: usize = 5;
/// Calls of a round.
const CALLS: u64 = 200_000;
/// Calls in flight.
const WINDOW: u64 = 64;
const SESSIONS: usize = 8;
/// Calls in flight beside scans. The thesis has 128 for 14 event loops.
const FEW: [usize; 4] = [2, 4, 8, 32];
/// Scans that wait for a worker.
const QUEUE: usize = 64;
/// For how long a worker waits for the next scan before it sleeps.
const SPIN: Duration = Duration::from_micros(200);

pub(crate) fn run(keys: u64, window: usize, time: Duration) -> Result<(), Box<dyn Error>> {
    let index = index_alone(keys);
    println!("index alone, batches of {BATCH}: {index:.0} ns per get");
    let store = Arc::new(Store::filled(entries(keys)));
    let hub = MemHub::new();
    let port = || hub.port(Default::default());
    network("memory", index, keys, &store, || Ok(port()))?;
    let udp = UdpConfig::new().address(([127, 0, 0, 1], 0).into());
    network("UDP", index, keys, &store, || Ok(Udp::bind(&udp)?))?;
    let divided = Lab::new(store, port(), port())?;
    let undivided = Lab::new(Arc::new(Undivided(Store::filled(entries(keys)))), port(), port())?;
    for few in FEW {
        let (mut late, mut alone) = ([[0.0; ROUNDS]; 2], [0.0; ROUNDS]);
        for round in 0..ROUNDS {
            let seed = 1 + round as u64;
            late[0][round] = divided.late_reads(Mix::Thesis, keys, seed, few, time)?;
            late[1][round] = undivided.late_reads(Mix::Thesis, keys, seed, few, time)?;
            alone[round] = divided.late_reads(Mix::Get, keys, seed, few, time)?;
        }
        report_late_reads(&format!("memory, one thread but the worker, {few} in flight"), late);
        println!("    without scans: {:.1} us", median(&mut alone));
    }
    scans(keys, window, time)
}

/// Prints the medians of reads beside scans in a worker, and in the event loop.
fn report_late_reads(name: &str, latencies: [[f64; ROUNDS]; 2]) {
    let [divided, undivided] = latencies.map(|mut rounds| median(&mut rounds));
    println!(
        "{name}: 99 % of gets beside 1 % scans: {divided:.1} us with scans in a worker, \
         {undivided:.1} us with scans in the event loop, ratio {:.2}",
        divided / undivided
    );
}

/// ns per read of the index in batches, without a network.
fn index_alone(keys: u64) -> f64 {
    let tree = Masstree::<u64>::new();
    for (key, value) in entries(keys) {
        // A key of 8 bytes is not too long.
        let _ = tree.put(&key, value, &pin());
    }
    let mut random = Random::new(5);
    let asked: Vec<_> = (0..CALLS).map(|_| key(random.below(keys))).collect();
    let mut rounds = [0.0; ROUNDS];
    for round in &mut rounds {
        let start = Instant::now();
        for keys in asked.chunks(BATCH) {
            tree.get_many(keys, &pin(), |_, value| {
                black_box(value);
            });
        }
        *round = start.elapsed().as_nanos() as f64 / CALLS as f64;
    }
    median(&mut rounds)
}

/// Answers every read with the same number. Shows what a call costs without the index.
#[derive(erpc::Service)]
#[erpc(service = crate::proto::Index)]
struct Constant;

impl Index for Constant {
    fn get(&self, request: Request<'_, GetRequestView<'_>>) -> Result<Response<GetReply>, Status> {
        let value = request.message().key.len() as u64;
        Ok(Response::new(GetReply { value }))
    }

    fn put(&self, _: Request<'_, PutRequestView<'_>>) -> Result<Response<PutReply>, Status> {
        Err(Status::unimplemented("only reads"))
    }

    fn remove(
        &self,
        _: Request<'_, RemoveRequestView<'_>>,
    ) -> Result<Response<RemoveReply>, Status> {
        Err(Status::unimplemented("only reads"))
    }

    fn scan(&self, _: Request<'_, ScanRequestView<'_>>) -> Result<Response<ScanReply>, Status> {
        Err(Status::unimplemented("only reads"))
    }
}

/// A server and a client on this thread.
struct Lab<T: Transport> {
    server: Endpoint<T>,
    client: Endpoint<T>,
    clients: Vec<LocalIndexClient<T>>,
    /// Threads for scans.
    _workers: WorkerPool,
}

impl<T: Transport + 'static> Lab<T> {
    fn new<S: Service>(service: Arc<S>, server: T, client: T) -> Result<Self, Box<dyn Error>> {
        let server = Endpoint::new(server, EndpointConfig::new())?;
        let mut routes = Routes::new();
        service.register(&mut routes)?;
        let workers = WorkerPool::spinning(1, QUEUE, SPIN)?;
        server.serve(Arc::new(routes), Some(&workers));
        server.listen();
        let client = Endpoint::new(client, EndpointConfig::new())?;
        let route = server.local_route().ok_or("the server's loop is not running")?;
        let sessions: Vec<_> = (0..SESSIONS).map(|_| client.open(route)).collect();
        while !sessions.iter().all(erpc::Session::is_open) {
            client.run_once();
            server.run_once();
        }
        let clients = sessions.into_iter().map(LocalIndexClient::new).collect();
        Ok(Self { server, client, clients, _workers: workers })
    }

    /// The 99 % quantile of the latency of the mix's reads, in us.
    fn late_reads(
        &self,
        mix: Mix,
        keys: u64,
        seed: u64,
        window: usize,
        time: Duration,
    ) -> Result<f64, Box<dyn Error>> {
        let mut load = Load::new(self.clients.clone(), mix, keys, seed);
        let tally = load.run(window, time, || {
            self.client.run_once();
            self.server.run_once();
        })?;
        Ok(tally.gets.value_at_quantile(0.99) as f64 / 1e3)
    }

    /// ns per read of a random key.
    fn time(&self, keys: u64) -> Result<f64, Box<dyn Error>> {
        let (done, failed) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let (mut random, mut made) = (Random::new(9), 0);
        let start = Instant::now();
        while done.get() < CALLS {
            while made < CALLS && made - done.get() < WINDOW {
                let (done, failed) = (Rc::clone(&done), Rc::clone(&failed));
                let request = GetRequest { key: key(random.below(keys)).to_vec() };
                let client = &self.clients[made as usize % SESSIONS];
                client.get_with(request, move |reply: Result<GetReply, _>| {
                    done.set(done.get() + 1);
                    failed.set(failed.get() + u64::from(reply.is_err()));
                });
                made += 1;
            }
            self.client.run_once();
            self.server.run_once();
        }
        match failed.get() {
            0 => Ok(start.elapsed().as_nanos() as f64 / CALLS as f64),
            failed => Err(format!("{failed} reads failed").into()),
        }
    }
}

/// Compares reads over a transport with the sum of a call that reads nothing and a batched read.
fn network<T: Transport + 'static>(
    name: &str,
    index: f64,
    keys: u64,
    store: &Arc<Store>,
    transport: impl Fn() -> Result<T, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let constant = Lab::new(Arc::new(Constant), transport()?, transport()?)?;
    let reads = Lab::new(Arc::clone(store), transport()?, transport()?)?;
    let (mut calls, mut gets) = ([0.0; ROUNDS], [0.0; ROUNDS]);
    for (call, get) in calls.iter_mut().zip(&mut gets) {
        (*call, *get) = (constant.time(keys)?, reads.time(keys)?);
    }
    let (call, get) = (median(&mut calls), median(&mut gets));
    println!(
        "{name}: a call without the index {call:.0} ns, a get {get:.0} ns; rate {:.2} of 1 / (call + \
         index)",
        (call + index) / get
    );
    Ok(())
}

/// Compares the latency of reads beside scans in a worker with that beside scans in the event loop.
fn scans(keys: u64, window: usize, time: Duration) -> Result<(), Box<dyn Error>> {
    let divided = Server::builder().add_service(Store::filled(entries(keys))).workers(1);
    let divided = divided.spawn("127.0.0.1:0")?;
    let undivided = Undivided(Store::filled(entries(keys)));
    let undivided = Server::builder().add_service(undivided).spawn("127.0.0.1:0")?;
    let mut latencies = [[0.0; ROUNDS]; 2];
    let [of_divided, of_undivided] = &mut latencies;
    for (seed, round) in (1..).zip(of_divided.iter_mut().zip(of_undivided)) {
        for (server, latency) in [(&divided, round.0), (&undivided, round.1)] {
            let endpoint = Endpoint::udp()?;
            let clients = (0..SESSIONS)
                .map(|_| LocalIndexClient::connect(&endpoint, server.local_addr()))
                .collect::<Result<Vec<_>, _>>()?;
            let mut load = Load::new(clients, Mix::Thesis, keys, seed);
            let tally = load.run(window, time, || {
                endpoint.run_once();
            })?;
            *latency = tally.gets.value_at_quantile(0.99) as f64 / 1e3;
        }
    }
    report_late_reads(&format!("UDP, a thread for the client, {window} in flight"), latencies);
    Ok(())
}

fn median(rounds: &mut [f64]) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}
