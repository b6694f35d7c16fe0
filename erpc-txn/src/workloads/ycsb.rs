//! YCSB: records of several fields, of which few are popular.
//!
//! | mix | transactions | keys |
//! |---|---|---|
//! | A | 50 % reads, 50 % updates | zipfian |
//! | B | 95 % reads, 5 % updates | zipfian |
//! | C | reads | zipfian |
//! | D | 95 % reads, 5 % inserts | the latest are the most popular |
//! | F | 50 % reads, 50 % reads of a record, then a write of it | zipfian |
//!
//! An update changes one field. As there are no writes without a read in this store, updates and the
//! writes of F cost the same. E needs scans, which the store does not have.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Failed, Random, Workload, Zipf, table};
use crate::cluster::Placement;
use crate::codec::TypedTable;
use crate::participant::Place;
use crate::table::Config;
use crate::transaction::{Abort, Backend, Transaction};

/// The records: all fields, one after the other.
pub const RECORDS: TypedTable<u64, Vec<u8>> = TypedTable::new(1);

/// The exponent of the distribution of keys.
pub const THETA: f64 = 0.99;

/// What the transactions of a run do; see the [module](self).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the letters of the benchmark")]
pub enum Mix {
    A,
    B,
    C,
    D,
    F,
}

/// The sizes of a population.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Records, at least 2.
    pub records: u64,
    /// Records for which there is room besides. Only mix D inserts. When the room is used up, its next
    /// insert ends with [`NoRoom`].
    pub inserts: u64,
    /// Fields of a record, at least one. The benchmark has 10.
    pub fields: usize,
    /// Bytes of a field. The benchmark has 100.
    pub field: usize,
}

/// All of the [room for new records](Size::inserts) is used up. The run must end: without inserts, it
/// would be another mix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRoom {
    /// The new records for which there was room.
    pub inserts: u64,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the room for {} new records is used up", self.inserts)
    }
}

impl Error for NoRoom {}

/// YCSB with one of its mixes. Mix D counts the records in this value, so all nodes must share it.
#[derive(Debug)]
pub struct Ycsb {
    mix: Mix,
    size: Size,
    zipf: Zipf,
    /// The number of records, those included whose inserts have begun.
    records: AtomicU64,
}

/// A transaction of YCSB.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Reads a record.
    Read(u64),
    /// Changes one field of a record.
    Update {
        /// The record.
        key: u64,
        /// The field.
        field: usize,
        /// Its new contents.
        value: Vec<u8>,
    },
    /// Inserts a record, or ends with [`NoRoom`].
    Insert(u64),
}

impl Ycsb {
    /// A population and a mix. Takes O(records) time.
    #[must_use]
    pub fn new(mix: Mix, size: Size) -> Self {
        let size = Size { records: size.records.max(2), fields: size.fields.max(1), ..size };
        let (zipf, records) = (Zipf::new(size.records, THETA), AtomicU64::new(size.records));
        Self { mix, size, zipf, records }
    }

    fn record(&self, key: u64) -> Vec<u8> {
        let mut record = vec![0; self.size.fields * self.size.field];
        Random::of_row(1, key).fill(&mut record);
        record
    }

    /// A key of the population, with popular ones all over it.
    fn popular(&self, random: &mut Random) -> u64 {
        fnv_1a(self.zipf.rank(random)) % self.size.records
    }

    /// A key near the last one. Its insert may not have committed yet: a read then fails.
    fn latest(&self, random: &mut Random) -> u64 {
        // The counter orders nothing.
        self.records.load(Ordering::Relaxed) - 1 - self.zipf.rank(random)
    }

    fn update(&self, random: &mut Random) -> Choice {
        let key = self.popular(random);
        let field = random.below(self.size.fields as u64) as usize;
        let mut value = vec![0; self.size.field];
        random.fill(&mut value);
        Choice::Update { key, field, value }
    }

    /// The first key for which there is no room.
    fn end(&self) -> u64 {
        self.size.records.saturating_add(self.size.inserts)
    }

    /// A new record; the one after the last if there is no room.
    fn insert(&self) -> Choice {
        let next = |next: u64| (next < self.end()).then_some(next + 1);
        let key = self.records.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        Choice::Insert(key.unwrap_or_else(|end| end))
    }
}

/// FNV-1a of 64 bits over the bytes of a number.
fn fnv_1a(number: u64) -> u64 {
    number.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Workload for Ycsb {
    type Choice = Choice;

    const KINDS: &'static [&'static str] = &["READ", "UPDATE", "INSERT"];

    fn tables(&self, partitions: u16) -> BTreeMap<u16, Config> {
        let inserts = if self.mix == Mix::D { self.size.inserts } else { 0 };
        let value = self.size.fields * self.size.field;
        // A long record has an allocation of its own, and its slot the pointer to it.
        let inline = if value > crate::table::MAX_INLINE { 8 } else { value };
        let records =
            table(self.size.records.saturating_add(inserts), partitions, value).inline(inline);
        [(RECORDS.id(), records)].into()
    }

    fn rows<E>(&self, mut put: impl FnMut(u16, u64, &[u8]) -> Result<(), E>) -> Result<(), E> {
        (0..self.size.records).try_for_each(|key| put(RECORDS.id(), key, &self.record(key)))
    }

    fn choose(&self, _placement: &dyn Placement, random: &mut Random) -> Choice {
        let reads = match self.mix {
            Mix::A | Mix::F => 50,
            Mix::B | Mix::D => 95,
            Mix::C => 100,
        };
        match (self.mix, random.percent(reads)) {
            (Mix::D, true) => Choice::Read(self.latest(random)),
            (Mix::D, false) => self.insert(),
            (_, true) => Choice::Read(self.popular(random)),
            (_, false) => self.update(random),
        }
    }

    fn kind(choice: &Choice) -> usize {
        match choice {
            Choice::Read(_) => 0,
            Choice::Update { .. } => 1,
            Choice::Insert(_) => 2,
        }
    }

    fn places(&self, choice: &Choice, mut each: impl FnMut(Place)) {
        match *choice {
            Choice::Read(key) | Choice::Update { key, .. } | Choice::Insert(key) => {
                each(RECORDS.place(key));
            }
        }
    }

    async fn run<B: Backend>(&self, tx: &Transaction<B>, choice: &Choice) -> Result<i64, Abort> {
        match choice {
            &Choice::Read(key) => {
                tx.read(RECORDS, key).await?.ok_or(Failed)?;
            }
            Choice::Update { key, field, value } => {
                let mut record = tx.read_for_update(RECORDS, *key).await?.ok_or(Failed)?;
                let at = field * self.size.field;
                record.get_mut(at..at + value.len()).ok_or(Failed)?.copy_from_slice(value);
                tx.write(RECORDS, *key, &record)?;
            }
            &Choice::Insert(key) if key >= self.end() => {
                return Err(NoRoom { inserts: self.size.inserts }.into());
            }
            &Choice::Insert(key) => tx.insert(RECORDS, key, &self.record(key)).await?,
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{NodeId, Ring};

    #[test]
    fn mix_d_inserts_its_share_when_the_room_is_used_up() {
        let size = Size { records: 100, inserts: 20, fields: 1, field: 8 };
        let (ycsb, mut random) = (Ycsb::new(Mix::D, size), Random::new(1));
        let ring = Ring::new(1, [NodeId(0)], 0).expect("a possible ring");
        let choices: Vec<_> = (0..2000).map(|_| ycsb.choose(&ring, &mut random)).collect();
        let inserts = choices.iter().filter_map(|choice| match choice {
            Choice::Insert(key) => Some(*key),
            Choice::Read(_) | Choice::Update { .. } => None,
        });
        let inserts: Vec<_> = inserts.collect();
        assert!((60..140).contains(&inserts.len()), "{} of 2000 insert", inserts.len());
        let (fit, rest) = inserts.split_at(20);
        assert!(fit.iter().copied().eq(100..120), "each record is inserted once: {fit:?}");
        assert!(rest.iter().all(|&key| key == 120), "there is no room: {rest:?}");
    }
}
