//! What a member holds, as text: its replicas, locks and records.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use erpc_txn::cluster::NodeId;
use erpc_txn::coordinator::Node;
use erpc_txn::log::{Coordinator, Record};
use erpc_txn::participant::Participant;

/// A bucket of a partition. There is one table.
pub(crate) type Place = (u16, u32);

/// The committed contents of a bucket.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Contents {
    pub(crate) version: u64,
    pub(crate) values: BTreeMap<u64, Vec<u8>>,
}

/// What one member holds.
#[derive(Clone, Debug)]
pub(crate) struct Holdings {
    pub(crate) node: NodeId,
    /// The partitions of which it has a replica.
    pub(crate) replicas: BTreeSet<u16>,
    pub(crate) buckets: BTreeMap<Place, Contents>,
    /// The owner of each lock.
    pub(crate) locks: Vec<(Place, u64)>,
    /// Encoded records of all logs.
    pub(crate) records: Vec<Vec<u8>>,
    /// Transactions that the member coordinates.
    pub(crate) active: usize,
    /// Members that it cannot reach.
    pub(crate) unreachable: Vec<u16>,
}

/// The last line of the text.
pub(crate) const END: &str = "held";

/// What this member holds, in lines.
pub(crate) fn of(participant: &Participant, node: &Node) -> String {
    lines(participant, node).expect("a string takes all text")
}

fn lines(participant: &Participant, node: &Node) -> Result<String, std::fmt::Error> {
    let mut out = format!("active {}", node.active());
    let unreachable: Vec<_> = node.unreachable().iter().map(ToString::to_string).collect();
    write!(out, "\nunreachable {}", unreachable.join(" "))?;
    for (_, partition, table) in participant.replicas() {
        write!(out, "\nreplica {partition}")?;
        for snapshot in table.snapshots() {
            // Only this thread commits.
            let snapshot = snapshot.expect("nobody writes meanwhile");
            let (bucket, version) = (snapshot.bucket.index(), snapshot.version.get());
            write!(out, "\nbucket {partition} {bucket} {version}")?;
            for (key, value) in &snapshot.entries {
                write!(out, " {key}={}", hex(value))?;
            }
        }
    }
    for (_, partition, bucket, owner) in participant.locks() {
        write!(out, "\nlock {partition} {} {}", bucket.index(), owner.get())?;
    }
    for node in participant.placement().nodes() {
        let Some(log) = participant.log(Coordinator { node: node.0, thread: 0 }) else { continue };
        for record in log.encoded() {
            write!(out, "\nrecord {}", hex(record))?;
        }
    }
    write!(out, "\n{END}")?;
    Ok(out)
}

impl Holdings {
    /// From lines, without the last one.
    pub(crate) fn parse<'a>(
        node: NodeId,
        lines: impl Iterator<Item = &'a str>,
    ) -> Result<Self, String> {
        let mut all = Self {
            node,
            replicas: BTreeSet::new(),
            buckets: BTreeMap::new(),
            locks: Vec::new(),
            records: Vec::new(),
            active: 0,
            unreachable: Vec::new(),
        };
        for line in lines {
            all.add(line).ok_or_else(|| format!("node {node} says: {line}"))?;
        }
        Ok(all)
    }

    fn add(&mut self, line: &str) -> Option<()> {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("active") => self.active = words.next()?.parse().ok()?,
            Some("unreachable") => {
                self.unreachable = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
            }
            Some("replica") => {
                self.replicas.insert(words.next()?.parse().ok()?);
            }
            Some("bucket") => {
                let place = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                let version = words.next()?.parse().ok()?;
                let entry = |word: &str| {
                    let (key, value) = word.split_once('=')?;
                    Some((key.parse().ok()?, bytes(value)?))
                };
                let values = words.map(entry).collect::<Option<_>>()?;
                self.buckets.insert(place, Contents { version, values });
            }
            Some("lock") => {
                let place = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                self.locks.push((place, words.next()?.parse().ok()?));
            }
            Some("record") => self.records.push(bytes(words.next()?)?),
            // The test harness writes, too.
            _ => {}
        }
        Some(())
    }

    /// In a few words.
    pub(crate) fn brief(&self) -> String {
        let Self { node, locks, records, active, unreachable, .. } = self;
        let (locks, records) = (locks.len(), records.len());
        format!(
            "node {node} has {active} transactions, {locks} locks and {records} records, and cannot \
             reach {unreachable:?}"
        )
    }

    /// The records, decoded.
    pub(crate) fn decoded(&self) -> Result<Vec<Record<'_>>, String> {
        let decode = |bytes: &'_ Vec<u8>| match Record::decode(bytes) {
            Ok((_, len)) if len != bytes.len() => Err("bytes follow a record".to_owned()),
            Ok(_) => Ok(()),
            Err(error) => Err(format!("node {} has a record that is wrong: {error}", self.node)),
        };
        self.records.iter().try_for_each(decode)?;
        let records = self.records.iter().filter_map(|bytes| Record::decode(bytes).ok());
        Ok(records.map(|(record, _)| record).collect())
    }
}

fn hex(bytes: &[u8]) -> String {
    let digit = |four: u8| char::from(b"0123456789abcdef"[usize::from(four)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
