//! Calls through a faulty network, made by one process and executed by another.

use std::rc::Rc;

use erpc::transport::fault::Faulty;
use erpc::{Endpoint, Udp};
use erpc_test_tools::limit::{millis, secs};
use erpc_tests::load::{self, Ending, Lengths, judge};
use erpc_tests::proto::LabClient;

use crate::net::{SERVER, say};

pub(crate) type Load = load::Load<Faulty<Udp>>;

/// How long calls may take to end once no more are made.
const LIMIT: std::time::Duration = secs(120);

/// Mostly small, some of several packets.
pub(crate) const LENGTHS: Lengths = &[(17, 500), (2, 5_000), (1, 20_000)];

/// Opens sessions and makes calls on them until one fails or `is_over` says so, and lets those end that are
/// under way.
pub(crate) fn round(
    load: &Rc<Load>,
    endpoint: &Endpoint<Faulty<Udp>>,
    mut is_over: impl FnMut() -> bool,
) {
    Load::start(load, || LabClient::new(endpoint.open(SERVER.into())));
    while !is_over() && !load.is_halted() {
        endpoint.run_for(millis(2));
    }
    load.drain(endpoint, LIMIT);
}

/// Says how each call has ended, for [`compare`].
pub(crate) fn tell(load: &Load) {
    for (id, ending) in load.endings() {
        let word = Ending::WORDS.iter().find(|(of, _)| *of == ending);
        let (_, word) = word.expect("there is a word for each");
        say(&format!("{word} {id}"));
    }
}

/// Compares what a server says, `EXECUTED` with an id per request, and what its client says at the end.
/// Returns how many calls were answered.
///
/// # Panics
/// If one of them is wrong.
pub(crate) fn compare(server: &[String], client: &[String]) -> usize {
    let number = |id: &str| id.parse::<u64>().expect("ids are numbers");
    let executed = server.iter().filter_map(|line| line.strip_prefix("EXECUTED ")).map(number);
    // The rest are the harness's words.
    let endings = client.iter().filter_map(|line| {
        let (word, id) = line.split_once(' ')?;
        let (ending, _) = Ending::WORDS.iter().find(|(_, of)| *of == word)?;
        Some((number(id), *ending))
    });
    let counts = judge(&executed.collect::<Vec<_>>(), &endings.collect::<Vec<_>>());
    counts.get(&Ending::Answered).copied().unwrap_or(0)
}
