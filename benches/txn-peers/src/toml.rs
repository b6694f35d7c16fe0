//! A cluster of erpc-txn for a workload.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write;
use std::net::SocketAddr;

use crate::work::Work;

/// The file for `erpc-txn serve`. The tables have room for the population, and for partitions that
/// get more of it by chance.
pub(crate) fn cluster(work: &Work, replicas: u16, nodes: &[SocketAddr]) -> String {
    // Rows, and the bytes of the longest.
    let mut tables = BTreeMap::<u16, (usize, usize)>::new();
    let Ok(()) = work.rows(|table, _, value| {
        let (rows, longest) = tables.entry(table).or_default();
        *rows += 1;
        *longest = value.len().max(*longest);
        Ok::<_, Infallible>(())
    });
    let mut text = format!("name = \"{}\"\nreplicas = {replicas}\n", work.name());
    for (id, address) in nodes.iter().enumerate() {
        // Cannot fail: writes to a string.
        let _ = write!(text, "\n[[nodes]]\nid = {id}\naddress = \"{address}\"\n");
    }
    for (id, (rows, longest)) in tables {
        let share = rows.div_ceil(nodes.len());
        let capacity = share + share / 20 + 200;
        let _ = write!(
            text,
            "\n[[tables]]\nid = {id}\ncapacity = {capacity}\ninline = {longest}\nmax_value = {longest}\n"
        );
    }
    text
}
