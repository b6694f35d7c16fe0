//! The server as a process, which is killed.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};
use std::{env, fs};

use erpc::{CallError, Code, Endpoint};
use erpc_herd::client::{Partitions, PartitionsError};
use erpc_herd::proto::{
    GetRequest, LocalCacheClient, LocalSequencerClient, NextRequest, PutRequest,
};
use erpc_herd::service::MAX_COUNT;
use erpc_test_tools::process::Process;
use erpc_test_tools::random::Random;

/// For anything that takes milliseconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder of the test, which is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = env::temp_dir().join(format!("erpc-herd-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

/// A server, and the addresses of its partitions.
fn server(args: &[&str]) -> (Process, Vec<SocketAddr>) {
    let all = [&["server", "--listen", "127.0.0.1:0", "--log-mib", "1"], args].concat();
    let server = Process::start("herd server", env!("CARGO_BIN_EXE_erpc-herd"), &all);
    let addresses = server.expect("listening");
    let addresses = addresses.split(' ').map(|address| address.parse().expect("an address"));
    let addresses = addresses.collect();
    (server, addresses)
}

/// Each round kills the server at a random moment, with calls in flight, after up to six blocks.
#[test]
fn a_sequencer_that_is_killed_gives_no_number_again() {
    const ROUNDS: u64 = 12;
    /// The smallest that the server allows.
    const BLOCK: u64 = 2 * MAX_COUNT as u64;
    let folder = Folder::new("sequencer");
    let file = folder.0.join("numbers");
    let file = file.to_str().expect("the path is text");
    let block = BLOCK.to_string();
    let args = ["--partitions", "1", "--sequencer", file, "--block", &block];
    // Runs of numbers: the first, and the one after the last.
    let mut given: Vec<(u64, u64)> = Vec::new();
    for round in 0..ROUNDS {
        let mut random = Random::new(round);
        let (mut server, addresses) = server(&args);
        let endpoint = Endpoint::udp().expect("a socket");
        let client = LocalSequencerClient::connect(&endpoint, addresses[0]).expect("it listens");
        let runs: Rc<RefCell<Vec<(u64, u64)>>> = Rc::default();
        let in_flight: Rc<Cell<u32>> = Rc::default();
        let taken = || runs.borrow().iter().map(|(first, end)| end - first).sum::<u64>();
        // In some rounds the server is killed at its first number.
        let wanted = if round % 4 == 0 { 1 } else { random.below(6 * BLOCK) };
        let began = Instant::now();
        while taken() < wanted {
            assert!(began.elapsed() < PATIENCE, "{} numbers", taken());
            while in_flight.get() < 16 {
                in_flight.set(in_flight.get() + 1);
                let count = 1 << random.below(17);
                let (runs, in_flight) = (Rc::clone(&runs), Rc::clone(&in_flight));
                client.next_with(NextRequest::new().with_count(count), move |reply| {
                    in_flight.set(in_flight.get() - 1);
                    // A call fails while a block is reserved, and when the server is killed.
                    if let Ok(reply) = reply {
                        let first = reply.first();
                        runs.borrow_mut().push((first, first + u64::from(count)));
                    }
                });
            }
            endpoint.run_once();
        }
        server.kill();
        given.extend(runs.borrow().iter());
    }
    let taken: u64 = given.iter().map(|(first, end)| end - first).sum();
    assert!(taken > ROUNDS * BLOCK, "{taken} numbers are too few to go through the blocks");
    given.sort_unstable();
    for pair in given.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "numbers came again: {pair:?}");
    }
}

#[test]
fn a_block_of_less_than_two_calls_is_refused() {
    let less = (2 * MAX_COUNT - 1).to_string();
    let (lines, code) = refused(&["server", "--listen", "127.0.0.1:0", "--block", &less]);
    assert_eq!((lines, code), (Vec::new(), Some(2)));
}

#[test]
fn more_memory_than_there_is_is_refused() {
    // 64 PiB.
    let args = ["--log-mib", "1048576", "--partitions", "65535"];
    let (lines, code) = refused(&[&["server", "--listen", "127.0.0.1:0"], &args[..]].concat());
    assert_eq!((lines, code), (Vec::new(), Some(1)));
}

/// What a server prints that cannot start, and its exit code.
fn refused(args: &[&str]) -> (Vec<String>, Option<i32>) {
    Process::start("herd server", env!("CARGO_BIN_EXE_erpc-herd"), args).ended()
}

#[test]
fn two_threads_serve_their_own_keys_only() {
    let (_server, addresses) = server(&["--partitions", "2"]);
    let endpoint = Endpoint::udp().expect("a socket");
    let connect = |order: [usize; 2]| {
        let clients = order.map(|at| {
            LocalCacheClient::connect(&endpoint, addresses[at]).expect("the server listens")
        });
        endpoint.block_on(Partitions::new(clients.into()))
    };
    let wrong = connect([1, 0]).expect_err("the order is wrong");
    assert!(matches!(wrong, PartitionsError::Other { place: 0, found: (1, 2) }), "{wrong}");
    let cache = connect([0, 1]).expect("the order is right");
    let mut by_partition = [0; 2];
    for number in 0..200_u128 {
        let key = number.to_le_bytes();
        let value = number.to_string().into_bytes();
        let put = PutRequest { key: key.to_vec(), value: value.clone(), ttl_ms: 0 };
        endpoint.block_on(cache.of(&key).put(put)).expect("the partition is right");
        for (client, puts) in cache.all().iter().zip(&mut by_partition) {
            match endpoint.block_on(client.get(GetRequest::new().with_key(key))) {
                Ok(reply) => {
                    assert_eq!(reply.value.as_ref(), Some(&value));
                    *puts += 1;
                }
                Err(CallError::Status(status)) => {
                    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert_eq!(by_partition.iter().sum::<i32>(), 200, "one partition serves each key");
    assert!(by_partition.iter().all(|&of| of > 50), "{by_partition:?}");
}

#[test]
fn a_value_expires() {
    let (_server, addresses) = server(&["--partitions", "1"]);
    let endpoint = Endpoint::udp().expect("a socket");
    let client = LocalCacheClient::connect(&endpoint, addresses[0]).expect("it listens");
    let put = |key: [u8; 16], ttl_ms| {
        let put = PutRequest { key: key.to_vec(), value: b"value".to_vec(), ttl_ms };
        endpoint.block_on(client.put(put)).expect("the lengths are right");
    };
    let get = |key| {
        let reply = endpoint.block_on(client.get(GetRequest::new().with_key(key)));
        reply.expect("the partition is right").value
    };
    put([1; 16], 1);
    put([2; 16], 3_600_000);
    let began = Instant::now();
    while get([1; 16]).is_some() {
        assert!(began.elapsed() < PATIENCE, "the value does not expire");
    }
    assert_eq!(get([2; 16]), Some(b"value".to_vec()));
}

#[test]
fn the_load_finds_no_wrong_answer() {
    let (_server, addresses) = server(&["--partitions", "1"]);
    let address = addresses[0].to_string();
    // More keys than the log holds, so that the cache forgets.
    let args =
        ["client", "--connect", &address, "--partitions", "1", "--keys", "30000", "--secs", "1"];
    let mut client = Process::start("herd client", env!("CARGO_BIN_EXE_erpc-herd"), &args);
    let (lines, code) = client.ended();
    assert_eq!(code, Some(0), "{lines:?}");
    assert_eq!(lines.last().map(String::as_str), Some("all answers were correct"), "{lines:?}");
    let forgotten = lines.iter().find_map(|line| line.split_once(" values; "));
    let forgotten = forgotten.and_then(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok());
    assert!(forgotten > Some(0), "{lines:?}");
}
