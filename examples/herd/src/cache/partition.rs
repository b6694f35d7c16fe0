//! The operations of a partition.

use std::error::Error;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use erpc::memory::{ZeroedArray, prefetch};

use super::config::{Config, ConfigError};
use super::hash::{Hash, TAG_BITS};
use super::log::{Header, Log, PAGE, POSITIONS};
use super::{Key, MAX_VALUE};

/// Slots of a bucket, which fill a cache line.
const SLOTS: usize = 8;

/// A slot in use: this bit, the tag, and the low bits of the position. A free slot is 0.
const USED: u64 = 1 << 63;

/// One bucket of the index is swept after so many words of the log. Positions repeat after 2^40
/// words. The index has at most 2^24 buckets, so each one is swept within 2^38 words, before a slot
/// whose value was overwritten could seem valid again.
const SWEEP: u64 = 1 << 14;

/// The longest time to live in ms, about 4,000 years.
const MAX_TIME: u64 = (1 << 47) - 1;

/// A partition of the cache.
///
/// One thread uses it. From several threads at once nothing undefined happens, but values may be
/// mixed: [`service::Partitioned`](crate::service::Partitioned) refuses other threads.
pub struct Partition {
    index: ZeroedArray<Bucket>,
    log: Log,
    /// Up to which position of the log the index was swept, and the next bucket.
    swept: AtomicU64,
    next_swept: AtomicU64,
    counters: Counters,
}

/// A cache line, because the index begins at a page.
type Bucket = [AtomicU64; SLOTS];

#[derive(Default)]
struct Counters {
    values: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    puts: AtomicU64,
    overwritten: AtomicU64,
    displaced: AtomicU64,
    expired: AtomicU64,
}

/// What a partition has done since its start.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Counts {
    /// Values that it has now, those included that have expired and were not met since.
    pub values: u64,
    /// Reads that found a value.
    pub hits: u64,
    /// Reads that found none.
    pub misses: u64,
    /// Writes.
    pub puts: u64,
    /// Values forgotten because the log needed their memory.
    pub overwritten: u64,
    /// Values forgotten because their bucket was full.
    pub displaced: u64,
    /// Values that were found expired.
    pub expired: u64,
}

/// A value is longer than [`MAX_VALUE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueTooLong(
    /// Its length in bytes.
    pub usize,
);

/// Where the index points to the value of a key.
struct Found<'p> {
    slot: &'p AtomicU64,
    position: u64,
    header: Header,
}

impl Partition {
    /// An empty partition.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a size is not allowed.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        Self::starting_at(config, 0)
    }

    /// As [`new`](Self::new), after so many words have been written.
    pub(super) fn starting_at(config: Config, origin: u64) -> Result<Self, ConfigError> {
        config.check()?;
        let index = ZeroedArray::<Bucket>::new(config.buckets)?;
        // As in `Log::new`.
        index
            .iter()
            .step_by(PAGE / size_of::<Bucket>())
            .for_each(|[slot, ..]| slot.store(0, Relaxed));
        Ok(Self {
            index,
            log: Log::new(config.log_bytes, origin)?,
            swept: AtomicU64::new(origin),
            next_swept: AtomicU64::new(0),
            counters: Counters::default(),
        })
    }

    /// Begins to load the bucket of a key.
    #[inline]
    pub fn prefetch(&self, hash: Hash) {
        prefetch(self.bucket(hash));
    }

    /// Looks into the bucket of a key, and begins to load its value. Returns a hint where the value
    /// may be, for [`get_at`](Self::get_at).
    #[inline]
    pub fn locate(&self, hash: Hash) -> Option<u64> {
        let mut slots = self.bucket(hash).iter().map(|slot| slot.load(Relaxed));
        let low = slots.find(|&slot| is_of(slot, hash))? & (POSITIONS - 1);
        self.log.prefetch(low);
        Some(low)
    }

    /// Appends the value of a key to `out`. Returns false if there is none. `now` is the time in ms,
    /// which is only read if the value expires.
    pub fn get(&self, key: &Key, now: impl FnOnce() -> u64, out: &mut Vec<u8>) -> bool {
        match self.find(Hash::of(key), key) {
            Some(found) if found.header.expiry().is_some_and(|expiry| now() >= expiry) => {
                self.forget(&found);
                add(&self.counters.expired, 1);
            }
            Some(Found { position, header, .. }) => {
                add(&self.counters.hits, 1);
                self.log.read(position, header.len(), out);
                return true;
            }
            None => {}
        }
        add(&self.counters.misses, 1);
        false
    }

    /// As [`get`](Self::get), with a hint from [`locate`](Self::locate).
    pub fn get_at(
        &self,
        hint: u64,
        key: &Key,
        now: impl FnOnce() -> u64,
        out: &mut Vec<u8>,
    ) -> bool {
        // The value may have been overwritten since, and another key may have the same tag.
        let position = self.log.position(hint).filter(|&at| self.log.has_key(at, key));
        let header = position.map(|at| (at, self.log.header(at)));
        match header {
            Some((position, header)) if !header.is_dead() && header.expiry().is_none() => {
                add(&self.counters.hits, 1);
                self.log.read(position, header.len(), out);
                true
            }
            _ => self.get(key, now, out),
        }
    }

    /// Writes the value of a key, which expires at a time in ms if there is one. Returns how many
    /// values of other keys were forgotten for it.
    ///
    /// # Errors
    ///
    /// [`ValueTooLong`] if the value is longer than [`MAX_VALUE`].
    pub fn put(&self, key: &Key, value: &[u8], expiry: Option<u64>) -> Result<u32, ValueTooLong> {
        if value.len() > MAX_VALUE {
            return Err(ValueTooLong(value.len()));
        }
        let hash = Hash::of(key);
        let header = Header::new(value.len(), expiry.map(|expiry| expiry.clamp(1, MAX_TIME)));
        add(&self.counters.puts, 1);
        let mut forgotten = 0;
        let slot = match self.find(hash, key) {
            Some(found) if self.log.can_replace(found.position, found.header, header) => {
                self.log.write(found.position, header, value);
                return Ok(0);
            }
            Some(Found { slot, position, .. }) => {
                self.log.kill(position);
                slot
            }
            None => {
                let (slot, displaced) = self.vacate(hash);
                forgotten += displaced;
                add(&self.counters.values, 1);
                slot
            }
        };
        let (position, overwritten) = self.log.append(key, header, value);
        slot.store(front(hash) | position & (POSITIONS - 1), Relaxed);
        add(&self.counters.overwritten, overwritten.into());
        subtract(&self.counters.values, overwritten.into());
        self.sweep();
        Ok(forgotten + overwritten)
    }

    /// Forgets a key. Returns whether there was a value.
    pub fn delete(&self, key: &Key, now: impl FnOnce() -> u64) -> bool {
        let Some(found) = self.find(Hash::of(key), key) else { return false };
        self.forget(&found);
        let is_expired = found.header.expiry().is_some_and(|expiry| now() >= expiry);
        add(&self.counters.expired, is_expired.into());
        !is_expired
    }

    /// The counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let Counters { values, hits, misses, puts, overwritten, displaced, expired } =
            &self.counters;
        Counts {
            values: values.load(Relaxed),
            hits: hits.load(Relaxed),
            misses: misses.load(Relaxed),
            puts: puts.load(Relaxed),
            overwritten: overwritten.load(Relaxed),
            displaced: displaced.load(Relaxed),
            expired: expired.load(Relaxed),
        }
    }

    #[inline]
    fn bucket(&self, hash: Hash) -> &Bucket {
        &self.index[hash.bucket(self.index.len())]
    }

    #[inline]
    fn find(&self, hash: Hash, key: &Key) -> Option<Found<'_>> {
        for slot in self.bucket(hash) {
            let content = slot.load(Relaxed);
            if is_of(content, hash)
                && let Some(position) = self.log.position(content & (POSITIONS - 1))
                && self.log.has_key(position, key)
            {
                let header = self.log.header(position);
                return Some(Found { slot, position, header });
            }
        }
        None
    }

    fn forget(&self, found: &Found<'_>) {
        found.slot.store(0, Relaxed);
        self.log.kill(found.position);
        subtract(&self.counters.values, 1);
    }

    /// A slot for a new key: a free one, or that of the oldest value. Returns how many values were
    /// forgotten for it.
    fn vacate(&self, hash: Hash) -> (&AtomicU64, u32) {
        let bucket = self.bucket(hash);
        let mut oldest = (&bucket[0], 0, 0);
        for slot in bucket {
            let content = slot.load(Relaxed);
            let position = self.log.position(content & (POSITIONS - 1));
            let Some(position) = position.filter(|_| content != 0) else { return (slot, 0) };
            let age = self.log.age(position);
            if age > oldest.2 {
                oldest = (slot, position, age);
            }
        }
        let (slot, position, _) = oldest;
        self.log.kill(position);
        add(&self.counters.displaced, 1);
        subtract(&self.counters.values, 1);
        (slot, 1)
    }

    /// Frees the slots of overwritten values, a bucket at a time.
    fn sweep(&self) {
        let mut swept = self.swept.load(Relaxed);
        while self.log.age(swept) >= SWEEP {
            swept += SWEEP;
            let next = self.next_swept.load(Relaxed) as usize % self.index.len();
            self.next_swept.store(next as u64 + 1, Relaxed);
            for slot in &self.index[next] {
                let low = slot.load(Relaxed) & (POSITIONS - 1);
                if self.log.position(low).is_none() {
                    slot.store(0, Relaxed);
                }
            }
        }
        self.swept.store(swept, Relaxed);
    }
}

/// A slot of a key with this hash, without the position.
#[inline]
fn front(hash: Hash) -> u64 {
    USED | hash.tag() << (63 - TAG_BITS)
}

/// Whether a slot may be that of a key with this hash.
#[inline]
fn is_of(slot: u64, hash: Hash) -> bool {
    slot & !(POSITIONS - 1) == front(hash)
}

/// One thread writes, so it needs no atomic addition.
fn add(counter: &AtomicU64, number: u64) {
    counter.store(counter.load(Relaxed) + number, Relaxed);
}

fn subtract(counter: &AtomicU64, number: u64) {
    counter.store(counter.load(Relaxed) - number, Relaxed);
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partition").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl fmt::Display for ValueTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value of {} bytes; at most {MAX_VALUE} are allowed", self.0)
    }
}

impl Error for ValueTooLong {}
