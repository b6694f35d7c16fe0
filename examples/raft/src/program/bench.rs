//! `client bench`: writes of many clients.

use std::time::{Duration, Instant};

use erpc::Endpoint;

use super::args::BenchArgs;
use super::failure::{Failure, say};
use super::load;
use crate::client::Nodes;

/// Before the measurement.
const WARM_UP: Duration = Duration::from_millis(500);

pub(super) fn run(endpoint: &Endpoint, nodes: &Nodes, args: &BenchArgs) -> Result<(), Failure> {
    let seen = load::shared();
    let value = vec![b'v'; args.value as usize];
    let tasks: Vec<_> = (0..u64::from(args.clients))
        .map(|client| {
            let (keys, clients) = (args.keys, u64::from(args.clients));
            let key = move |number: u64| key((number * clients + client) % keys);
            endpoint.spawn(load::write(nodes.clone(), seen.clone(), value.clone(), key))
        })
        .collect();
    endpoint.run_for(WARM_UP);
    seen.borrow_mut().begin();
    let begun = Instant::now();
    endpoint.run_for(Duration::from_secs(args.secs));
    let elapsed = begun.elapsed().as_secs_f64();
    let line = {
        let seen = seen.borrow();
        format!(
            "{} clients: {:.0} writes/s, median {:.1} us, 99 % {:.1} us, longest time without an answer {:.1} ms",
            args.clients,
            seen.writes as f64 / elapsed,
            seen.micros(50.0),
            seen.micros(99.0),
            seen.gap.as_secs_f64() * 1e3,
        )
    };
    seen.borrow_mut().is_over = true;
    endpoint.block_on(async {
        for task in tasks {
            task.await;
        }
    });
    match &seen.borrow().failure {
        Some(error) => Err(Failure::new(error.to_string())),
        None => say(line),
    }
}

/// A key of 16 bytes.
pub(super) fn key(number: u64) -> [u8; 16] {
    let mut key = *b"key-000000000000";
    let mut rest = number;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}
