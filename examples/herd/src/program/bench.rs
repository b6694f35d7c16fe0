//! What the cache and the sequencer add to a call: the same calls to handlers that do the work, and
//! to handlers that answer at once with a reply of the same size.

use std::cell::Cell;
use std::error::Error;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use erpc::service::Routes;
use erpc::transport::mem::MemHub;
use erpc::{
    CallError, Endpoint, EndpointConfig, Request, Response, Service, Session, Status, Transport,
    Udp, UdpConfig,
};
use erpc_test_tools::random::Random;
use erpc_test_tools::zipf::Zipf;

use super::load::{Mix, key, value};
use super::{LoadArgs, TemporaryFile};
use crate::cache::{Config, Hash, Key, Partition};
use crate::proto::{
    Cache, DeleteReply, DeleteRequest, GetReply, GetReplyView, GetRequest, LocalCacheClient,
    LocalSequencerClient, NextReply, NextRequest, PutReply, PutRequestView, Sequencer, StatsReply,
    StatsRequest,
};
use crate::sequencer;
use crate::service::{Numbers, Partitioned};

/// Rounds that alternate between the variants. The median is the result.
const ROUNDS: usize = 7;
/// Calls of a round.
const CALLS: u64 = 200_000;
/// Calls in flight.
const WINDOW: u64 = 64;
const SESSIONS: usize = 8;
/// Pairs of a server and a client that are compared over each transport.
const LABS: usize = 4;
/// Keys of a batch of the cache alone.
const BATCH: usize = 16;

/// Answers as the cache does if it knows every key, at once.
#[derive(erpc::Service)]
#[erpc(service = crate::proto::Cache)]
struct CacheEcho {
    value: Vec<u8>,
}

impl Cache for CacheEcho {
    fn get(&self, request: Request<'_, &GetRequest>) -> Result<Response<GetReply>, Status> {
        request.answer(&GetReplyView { value: Some(&self.value) })
    }

    fn put(&self, request: Request<'_, PutRequestView<'_>>) -> Result<Response<PutReply>, Status> {
        black_box(request.message().value);
        Ok(Response::new(PutReply::new()))
    }

    fn delete(&self, _: Request<'_, &DeleteRequest>) -> Result<Response<DeleteReply>, Status> {
        Err(Status::unimplemented("only reads and writes"))
    }

    fn stats(&self, _: Request<'_, StatsRequest>) -> Result<Response<StatsReply>, Status> {
        Err(Status::unimplemented("only reads and writes"))
    }
}

/// Answers with the request's number.
#[derive(erpc::Service)]
#[erpc(service = crate::proto::Sequencer)]
struct SequencerEcho;

impl Sequencer for SequencerEcho {
    fn next(&self, request: Request<'_, &NextRequest>) -> Result<Response<NextReply>, Status> {
        Ok(Response::new(NextReply::new().with_first(request.message().count().into())))
    }
}

/// Prints all comparisons, and a line of JSON for each.
pub(super) fn run(args: &LoadArgs) -> Result<(), Box<dyn Error>> {
    alone(args)?;
    let hub = MemHub::new();
    over("memory", args, || Ok(hub.port(Default::default())))?;
    let udp = UdpConfig::new().address(([127, 0, 0, 1], 0).into());
    over("UDP", args, || Ok(Udp::bind(&udp)?))?;
    #[cfg(feature = "dpdk")]
    {
        // The driver reports errors when both ends of a pair stop in one process, so they run until its
        // end.
        std::mem::forget(over("DPDK", args, memif::ports()?)?);
    }
    Ok(())
}

/// Pairs of ports in this process, which DPDK's driver memif connects by memory that both share.
#[cfg(feature = "dpdk")]
mod memif {
    use std::cell::Cell;
    use std::error::Error;

    use erpc::transport::dpdk::{DpdkConfig, DpdkTransport, init};

    use super::{LABS, TemporaryFile};

    type Opened = Result<DpdkTransport, Box<dyn Error>>;

    /// Opens the ports one after another: of each pair first the server's, then the client's.
    pub(super) fn ports() -> Result<impl Fn() -> Opened, Box<dyn Error>> {
        let socket = TemporaryFile::new("memif");
        let path = socket.0.display();
        let prefix = format!("--file-prefix=erpc-herd-{}", std::process::id());
        let mut arguments: Vec<String> =
            ["--no-huge", "-m", "512", "--no-pci", "--no-telemetry", "-l", "0"]
                .map(String::from)
                .into();
        arguments.push(prefix);
        for port in 0..2 * LABS {
            let (role, pair) = (["server", "client"][port % 2], port / 2);
            arguments.push(format!(
                "--vdev=net_memif{port},role={role},id={pair},bsize=2200,socket={path},socket-abstract=no"
            ));
        }
        init(&arguments)?;
        let opened = Cell::new(0);
        Ok(move || {
            // The socket is needed until all are open.
            let _ = &socket;
            let port = opened.replace(opened.get() + 1);
            let address = [10, 9, (port / 2) as u8, (port % 2 + 1) as u8];
            let config = DpdkConfig::new(format!("net_memif{port}"), address.into(), 24);
            Ok(DpdkTransport::open(&config.udp_port(31_850))?)
        })
    }
}

/// A partition that has all keys.
fn filled(args: &LoadArgs) -> Result<Partition, Box<dyn Error>> {
    let len = usize::from(args.value);
    // Twice the memory and the slots that the keys need, at least.
    let bytes = (args.keys as usize * (24 + len.next_multiple_of(8)) * 2).next_power_of_two();
    let buckets = (args.keys as usize / 4).next_power_of_two();
    let partition = Partition::new(Config::new(bytes.max(4096)).buckets(buckets))?;
    for number in 0..args.keys {
        partition.put(&key(number), &value(number, 1, len), None)?;
    }
    Ok(partition)
}

/// The cache without calls.
fn alone(args: &LoadArgs) -> Result<(), Box<dyn Error>> {
    let partition = filled(args)?;
    let mut random = Random::new(3);
    let keys: Vec<Key> = (0..CALLS).map(|_| key(random.below(args.keys))).collect();
    let mut out = Vec::with_capacity(1024);
    let mut batched = || {
        for batch in keys.chunks(BATCH) {
            let mut hints = [None; BATCH];
            batch.iter().for_each(|key| partition.prefetch(Hash::of(key)));
            for (key, hint) in batch.iter().zip(&mut hints) {
                *hint = partition.locate(Hash::of(key));
            }
            for (key, hint) in batch.iter().zip(hints) {
                out.clear();
                let is_there = match hint {
                    Some(hint) => partition.get_at(hint, key, || 0, &mut out),
                    None => false,
                };
                black_box((is_there, &out));
            }
        }
    };
    let mut rounds = [0.0; ROUNDS];
    rounds.iter_mut().for_each(|round| *round = nanos(&mut batched));
    let get = median(&mut rounds);
    let mut out = Vec::with_capacity(1024);
    let mut singly = || {
        for key in &keys {
            out.clear();
            black_box((partition.get(key, || 0, &mut out), &out));
        }
    };
    rounds.iter_mut().for_each(|round| *round = nanos(&mut singly));
    let single = median(&mut rounds);
    let written = value(1, 1, args.value.into());
    let puts = || {
        for key in &keys {
            black_box(partition.put(key, &written, None).is_ok());
        }
    };
    rounds.iter_mut().for_each(|round| *round = nanos(puts));
    let put = median(&mut rounds);
    println!(
        "cache alone: {:.1} M GET/s in batches of {BATCH}, {:.1} M singly; {:.1} M PUT/s",
        1e3 / get,
        1e3 / single,
        1e3 / put
    );
    println!(
        "{{\"what\":\"alone\",\"keys\":{},\"value\":{},\"get_batched_ns\":{get:.1},\
         \"get_ns\":{single:.1},\"put_ns\":{put:.1}}}",
        args.keys, args.value
    );
    Ok(())
}

/// ns per call of a run that makes [`CALLS`].
fn nanos(run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_nanos() as f64 / CALLS as f64
}

/// Compares over a transport. Returns what was compared.
fn over<T: Transport + 'static>(
    name: &str,
    args: &LoadArgs,
    transport: impl Fn() -> Result<T, Box<dyn Error>>,
) -> Result<[Lab<T>; LABS], Box<dyn Error>> {
    let value = value(1, 1, args.value.into());
    let lab = |service| Lab::new(service, transport()?, transport()?);
    let echo = lab(Arc::new(CacheEcho { value }) as Arc<dyn Register>)?;
    let cache = lab(Arc::new(Partitioned::new(filled(args)?, 0, 1)))?;
    for mix in Mix::ALL {
        let zipf = mix.is_zipf.then(|| Zipf::new(args.keys));
        let run = |lab: &Lab<T>| lab.mixed(args, mix, zipf.as_ref());
        compare(name, &mix.to_string(), || run(&echo), || run(&cache))?;
    }
    let file = TemporaryFile::new("numbers");
    let sequencer = Arc::new(sequencer::Sequencer::open(&file.0)?);
    let ready = lab(Arc::new(SequencerEcho))?;
    let numbers = lab(Arc::new(Numbers(sequencer)))?;
    compare(name, "sequencer", || ready.numbers(), || numbers.numbers())?;
    Ok([echo, cache, ready, numbers])
}

/// Compares the time of a call with that of an echo.
fn compare(
    transport: &str,
    what: &str,
    echo: impl Fn() -> Result<f64, String>,
    work: impl Fn() -> Result<f64, String>,
) -> Result<(), Box<dyn Error>> {
    // The first rounds warm caches and pools.
    echo()?;
    work()?;
    let (mut echoes, mut works, mut more) = ([0.0; ROUNDS], [0.0; ROUNDS], [0.0; ROUNDS]);
    for round in 0..ROUNDS {
        (echoes[round], works[round]) = (echo()?, work()?);
        more[round] = works[round] - echoes[round];
    }
    let (echo, work, more) = (median(&mut echoes), median(&mut works), median(&mut more));
    println!(
        "{transport:7} {what:20} {work:6.0} ns per call, client included; {more:+5.0} ns beside an \
         echo"
    );
    println!(
        "{{\"what\":\"{what}\",\"transport\":\"{transport}\",\"call_ns\":{work:.1},\
         \"echo_ns\":{echo:.1},\"more_ns\":{more:.1}}}"
    );
    Ok(())
}

/// A service of which a trait object can be made.
trait Register {
    fn register(self: Arc<Self>, routes: &mut Routes) -> Result<(), Box<dyn Error>>;
}

impl<S: Service> Register for S {
    fn register(self: Arc<Self>, routes: &mut Routes) -> Result<(), Box<dyn Error>> {
        Ok(Service::register(self, routes)?)
    }
}

/// A server and a client on this thread, so that the time of a call is the CPU time of both.
struct Lab<T: Transport> {
    server: Endpoint<T>,
    client: Endpoint<T>,
    sessions: Vec<Session<T>>,
    done: Rc<Cell<u64>>,
    failure: Rc<Cell<Option<CallError>>>,
}

impl<T: Transport + 'static> Lab<T> {
    fn new(service: Arc<dyn Register>, server: T, client: T) -> Result<Self, Box<dyn Error>> {
        let server = Endpoint::new(server, EndpointConfig::new())?;
        let mut routes = Routes::new();
        service.register(&mut routes)?;
        server.serve(Arc::new(routes), None);
        server.listen();
        let client = Endpoint::new(client, EndpointConfig::new())?;
        let route = server.local_route().ok_or("the server's loop is not running")?;
        let sessions: Vec<_> = (0..SESSIONS).map(|_| client.open(route)).collect();
        while !sessions.iter().all(Session::is_open) {
            client.run_once();
            server.run_once();
        }
        Ok(Self { server, client, sessions, done: Rc::default(), failure: Rc::default() })
    }

    /// ns per call. `call` makes the call of a number.
    fn time(&self, mut call: impl FnMut(u64)) -> Result<f64, String> {
        self.done.set(0);
        let mut made = 0;
        let nanos = nanos(|| {
            while self.done.get() < CALLS {
                while made < CALLS && made - self.done.get() < WINDOW {
                    call(made);
                    made += 1;
                }
                self.client.run_once();
                self.server.run_once();
            }
        });
        match self.failure.take() {
            Some(error) => Err(error.to_string()),
            None => Ok(nanos),
        }
    }

    /// Counts a reply.
    fn finish(&self) -> impl FnOnce(Result<(), CallError>) + 'static {
        let (done, failure) = (Rc::clone(&self.done), Rc::clone(&self.failure));
        move |reply| {
            done.set(done.get() + 1);
            if let Err(error) = reply {
                failure.set(Some(error));
            }
        }
    }

    fn mixed(&self, args: &LoadArgs, mix: Mix, zipf: Option<&Zipf>) -> Result<f64, String> {
        let sessions = self.sessions.iter().cloned();
        let clients: Vec<_> = sessions.map(LocalCacheClient::new).collect();
        let mut random = Random::new(9);
        // Before the measurement, which is about the server.
        let chosen: Vec<_> = (0..CALLS)
            .map(|_| {
                let number = match zipf {
                    Some(zipf) => zipf.number(&mut random),
                    None => random.below(args.keys),
                };
                (key(number), random.percent(mix.puts))
            })
            .collect();
        let written = value(1, 1, args.value.into());
        self.time(|made| {
            let (client, (key, is_put)) =
                (&clients[made as usize % SESSIONS], chosen[made as usize]);
            let finish = self.finish();
            if is_put {
                let request = PutRequestView { key: &key, value: &written, ttl_ms: 0 };
                client.put_with(request, move |reply| {
                    finish(reply.map(|reply| _ = black_box(reply)))
                });
            } else {
                let request = GetRequest::new().with_key(key);
                client.get_with(request, move |reply| {
                    finish(reply.map(|reply| _ = black_box(reply)))
                });
            }
        })
    }

    fn numbers(&self) -> Result<f64, String> {
        let sessions = self.sessions.iter().cloned();
        let clients: Vec<_> = sessions.map(LocalSequencerClient::new).collect();
        self.time(|made| {
            let client = &clients[made as usize % SESSIONS];
            let (request, finish) = (NextRequest::new().with_count(1), self.finish());
            client.next_with(request, move |reply| finish(reply.map(|reply| _ = black_box(reply))));
        })
    }
}

fn median(rounds: &mut [f64]) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}
