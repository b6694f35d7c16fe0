//! Calls through a faulty network. One process makes them and another one executes them.

use std::rc::Rc;

use erpc::transport::fault::Faulty;
use erpc::{Endpoint, Udp};
use erpc_test_tools::limit::{millis, secs};
use erpc_tests::load::{self, Ending, Lengths, judge};
use erpc_tests::proto::LocalLabClient;

use crate::net::{SERVER, say};

pub(crate) type Load = load::Load<Faulty<Udp>>;

/// Time limit for the calls in flight to end, once the load makes no further calls.
const LIMIT: std::time::Duration = secs(120);

/// Most messages are small, some need several packets.
pub(crate) const LENGTHS: Lengths = &[(17, 500), (2, 5_000), (1, 20_000)];

/// Opens sessions and makes calls on them until a call fails or `is_over`. Then waits for the calls
/// in flight.
pub(crate) fn round(
    load: &Rc<Load>,
    endpoint: &Endpoint<Faulty<Udp>>,
    mut is_over: impl FnMut() -> bool,
) {
    Load::start(load, || LocalLabClient::new(endpoint.open(SERVER.into())));
    while !is_over() && !load.is_halted() {
        endpoint.run_for(millis(2));
    }
    load.drain(endpoint, LIMIT);
}

/// Prints the ending of each call, for [`compare`].
pub(crate) fn tell(load: &Load) {
    for (id, ending) in load.endings() {
        let word = Ending::WORDS.iter().find(|(of, _)| *of == ending);
        let (_, word) = word.expect("each ending has a word");
        say(&format!("{word} {id}"));
    }
}

/// Compares the output of a server with the endings that its client prints at the end. The server
/// prints a line `EXECUTED id` for each request. Returns the number of answered calls.
///
/// # Panics
/// If an ending contradicts the server.
pub(crate) fn compare(server: &[String], client: &[String]) -> usize {
    let number = |id: &str| id.parse::<u64>().expect("ids are numbers");
    let executed = server.iter().filter_map(|line| line.strip_prefix("EXECUTED ")).map(number);
    // Ignores other lines, which the test harness prints.
    let endings = client.iter().filter_map(|line| {
        let (word, id) = line.split_once(' ')?;
        let (ending, _) = Ending::WORDS.iter().find(|(_, of)| *of == word)?;
        Some((number(id), *ending))
    });
    let counts = judge(&executed.collect::<Vec<_>>(), &endings.collect::<Vec<_>>());
    counts.get(&Ending::Answered).copied().unwrap_or(0)
}
