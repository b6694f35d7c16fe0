//! The server as a process, which is killed.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};
use std::{cell::RefCell, env, fs};

use erpc::{CallError, Code, Endpoint};
use erpc_herd::client::{Partitions, PartitionsError};
use erpc_herd::proto::{
    GetRequest, LocalCacheClient, LocalSequencerClient, NextRequest, PutRequest,
};
use erpc_test_tools::process::Process;

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

#[test]
fn a_sequencer_that_is_killed_gives_no_number_again() {
    let folder = Folder::new("sequencer");
    let file = folder.0.join("numbers");
    let file = file.to_str().expect("the path is text");
    let mut seen = HashSet::new();
    for round in 0..10_u32 {
        let (mut server, addresses) = server(&["--partitions", "1", "--sequencer", file]);
        let endpoint = Endpoint::udp().expect("a socket");
        let client = LocalSequencerClient::connect(&endpoint, addresses[0]).expect("it listens");
        // The server is killed while calls are in flight, after many numbers or at the first one.
        let numbers: Rc<RefCell<Vec<u64>>> = Rc::default();
        let wanted = if round % 2 == 0 { 3_000 } else { 1 };
        let began = Instant::now();
        while numbers.borrow().len() < wanted {
            assert!(began.elapsed() < PATIENCE, "{} numbers", numbers.borrow().len());
            for count in 1..=4 {
                let numbers = Rc::clone(&numbers);
                let request = NextRequest::new().with_count(count);
                client.next_with(request, move |reply| {
                    // Calls in flight when the server is killed fail.
                    if let Ok(reply) = reply {
                        numbers
                            .borrow_mut()
                            .extend(reply.first()..reply.first() + u64::from(count));
                    }
                });
            }
            endpoint.run_once();
        }
        server.kill();
        for &number in &*numbers.borrow() {
            assert!(seen.insert(number), "number {number} came again in round {round}");
        }
    }
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
