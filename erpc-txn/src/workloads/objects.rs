//! Objects of 40 bytes: O(r, w) accesses `r` keys, and writes `w` of them on average.
//!
//! Keys are uniform. The keys of a transaction are different, and their primaries are different nodes
//! if there are enough, so that no two accesses share a message.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::{Failed, Random, Workload, table};
use crate::cluster::Placement;
use crate::codec::TypedTable;
use crate::participant::Place;
use crate::table::Config;
use crate::transaction::{Abort, Backend, Transaction};

/// The objects.
pub const OBJECTS: TypedTable<u64, [u8; 40]> = TypedTable::new(1);

/// The most keys of a transaction.
pub const MAX_KEYS: u32 = 16;

/// How often a key is drawn again because its primary is that of another key.
const DRAWS: usize = 64;

/// O(r, w) over a number of objects.
#[derive(Clone, Copy, Debug)]
pub struct Objects {
    objects: u64,
    keys: u32,
    writes: u32,
}

/// The keys that a transaction reads, and those that it gives new values.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Choice {
    /// The keys to read.
    pub reads: SmallVec<[u64; 4]>,
    /// The keys to write, and their values.
    pub writes: SmallVec<[(u64, [u8; 40]); 2]>,
}

impl Objects {
    /// O(`keys`, `writes`) over this many objects. There are 1 to [`MAX_KEYS`] keys, at most as many
    /// writes as keys, and at least twice as many objects as keys; other numbers are replaced by the
    /// nearest possible ones. The benchmark has 1 million objects per thread of the cluster.
    #[must_use]
    pub fn new(objects: u64, keys: u32, writes: u32) -> Self {
        let keys = keys.clamp(1, MAX_KEYS);
        Self { objects: objects.max(2 * u64::from(keys)), keys, writes: writes.min(keys) }
    }
}

impl Workload for Objects {
    type Choice = Choice;

    const KINDS: &'static [&'static str] = &["READ", "WRITE"];

    fn tables(&self, partitions: u16) -> BTreeMap<u16, Config> {
        [(OBJECTS.id(), table(self.objects, partitions, 40))].into()
    }

    fn rows<E>(&self, mut put: impl FnMut(u16, u64, &[u8]) -> Result<(), E>) -> Result<(), E> {
        (0..self.objects).try_for_each(|key| {
            let value: [u8; 40] = Random::of_row(1, key).bytes();
            put(OBJECTS.id(), key, &value)
        })
    }

    fn choose(&self, placement: &dyn Placement, random: &mut Random) -> Choice {
        let mut choice = Choice::default();
        let mut chosen: SmallVec<[(u64, u16); 4]> = SmallVec::new();
        let partitions = usize::from(placement.partitions());
        for at in 0..self.keys as usize {
            // All primaries have keys already: start over with them.
            let others = &chosen[at - at % partitions..];
            let draw = |random: &mut Random| {
                let key = random.below(self.objects);
                (key, placement.partition_of(key))
            };
            let mut drawn = draw(random);
            for _ in 0..DRAWS {
                if others.iter().all(|&(_, partition)| partition != drawn.1) {
                    break;
                }
                drawn = draw(random);
            }
            while chosen.iter().any(|&(key, _)| key == drawn.0) {
                // Ends, because there are more objects than keys.
                let key = (drawn.0 + 1) % self.objects;
                drawn = (key, placement.partition_of(key));
            }
            chosen.push(drawn);
            if random.below(self.keys.into()) < u64::from(self.writes) {
                choice.writes.push((drawn.0, random.bytes()));
            } else {
                choice.reads.push(drawn.0);
            }
        }
        choice
    }

    fn kind(choice: &Choice) -> usize {
        usize::from(!choice.writes.is_empty())
    }

    fn places(&self, choice: &Choice, mut each: impl FnMut(Place)) {
        choice.reads.iter().for_each(|&key| each(OBJECTS.place(key)));
        choice.writes.iter().for_each(|&(key, _)| each(OBJECTS.place(key)));
    }

    async fn run<B: Backend>(&self, tx: &Transaction<B>, choice: &Choice) -> Result<i64, Abort> {
        if let ([key], []) = (&choice.reads[..], &choice.writes[..]) {
            tx.read(OBJECTS, *key).await?.ok_or(Failed)?;
            return Ok(0);
        }
        let mut batch = tx.batch();
        let reads = choice.reads.iter().map(|&key| batch.read(OBJECTS, key));
        let mut tickets: SmallVec<[_; 4]> = reads.collect();
        tickets.extend(choice.writes.iter().map(|&(key, _)| batch.read_for_update(OBJECTS, key)));
        let mut found = batch.send().await?;
        for ticket in tickets {
            found.take(ticket)?.ok_or(Failed)?;
        }
        choice.writes.iter().try_for_each(|(key, value)| tx.write(OBJECTS, *key, value))?;
        Ok(0)
    }
}
