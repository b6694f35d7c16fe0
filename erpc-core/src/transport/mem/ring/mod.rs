//! The ring between two ports: one producer, one consumer, no locks. All `unsafe` of the memory
//! transport's data path is here.
//!
//! ```text
//!            192 bytes per slot                          stride per slot
//! +------+------------------+------+-----       +---------------------+---------
//! | word | up to 184 bytes  | word |  ..        | up to max_datagram  |   ..
//! +------+------------------+------+-----       +---------------------+---------
//!  word = lap of the slot (32 bits) | length (32 bits)
//! ```
//!
//! A slot is its own flag: the consumer looks at the word of the slot it wants next, and the datagram is
//! there once the word carries the position that the consumer expects (FastForward, PPoPP'08). So a
//! small datagram, its length and its arrival are one cache line, and the two sides share no index
//! while datagrams fit; only a producer that has gone around reads how far the consumer is. Datagrams
//! that do not fit the small slots lie in a second array, which keeps the small slots dense. Both
//! strides are an odd number of cache lines, so that slots spread over all sets of the caches.
//!
//! Words are written in order except the first of a batch, which is written last: nothing of a batch
//! can be seen before [`Producer::publish`], and then everything.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::sync::Witness;
use crate::sync::alloc::{alloc_zeroed, dealloc};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::wire::HEADER_LEN;

/// A cache line.
const LINE: usize = 64;
/// Bytes of a small slot.
const SMALL: usize = 3 * LINE;
/// Bytes in front of a small slot's datagram.
const WORD: usize = size_of::<u64>();
/// Longest datagram that fits a small slot.
const INLINE: usize = SMALL - WORD;

/// Keeps what one side writes out of the other side's cache lines; two lines, because of the adjacent
/// line prefetchers.
#[repr(align(128))]
struct Padded<T>(T);

/// What both ends share.
struct Ring {
    memory: NonNull<u8>,
    layout: Layout,
    slots: u32,
    /// Where the array of large slots begins, and its stride.
    large: usize,
    stride: usize,
    max_datagram: usize,
    /// Position up to which the consumer has given slots back. Written by the consumer.
    released: Padded<AtomicU32>,
    /// Written by the producer.
    counts: Padded<Counts>,
    /// Loom's words are no plain memory, and it does not see the bytes beside them.
    #[cfg(loom)]
    watched: Box<[(AtomicU64, Witness)]>,
}

/// What the producer tells the consumer besides datagrams.
struct Counts {
    overflowed: AtomicU64,
    oversized: AtomicU64,
    producer_gone: AtomicBool,
}

// SAFETY: the memory is owned by the ring; which end may touch which bytes of it when is the protocol of
// `Producer` and `Consumer`, of which there is one each.
unsafe impl Send for Ring {}
// SAFETY: as above; everything else in a ring is constant or atomic.
unsafe impl Sync for Ring {}

/// An empty ring of `slots` datagrams of up to `max_datagram` bytes; `None` if there is no memory for
/// it. Memory that was never used is not resident.
pub(super) fn ring(slots: u32, max_datagram: usize) -> Option<(Producer, Consumer)> {
    let lines = max_datagram.div_ceil(LINE) | 1;
    let (large, stride) = (slots as usize * SMALL, lines * LINE);
    let size = large.checked_add(stride.checked_mul(slots as usize)?)?;
    let layout = Layout::from_size_align(size.max(LINE), LINE).ok()?;
    // SAFETY: the layout's size is at least a line, so not 0.
    let memory = NonNull::new(unsafe { alloc_zeroed(layout) })?;
    let ring = Arc::new(Ring {
        memory,
        layout,
        slots,
        large,
        stride,
        max_datagram,
        released: Padded(AtomicU32::new(0)),
        counts: Padded(Counts {
            overflowed: AtomicU64::new(0),
            oversized: AtomicU64::new(0),
            producer_gone: AtomicBool::new(false),
        }),
        #[cfg(loom)]
        watched: (0..slots).map(|_| (AtomicU64::new(0), Witness::new())).collect(),
    });
    let producer = Producer {
        ring: Arc::clone(&ring),
        next: Cursor::default(),
        limit: slots,
        batch: Batch::default(),
        first: None,
    };
    Some((producer, Consumer { ring, next: Cursor::default(), lent: 0 }))
}

impl Ring {
    /// The word of slot `index`.
    #[cfg(not(loom))]
    #[inline]
    fn word(&self, index: u32) -> &AtomicU64 {
        debug_assert!(index < self.slots);
        // SAFETY: `index < slots`, so the small slot lies within the allocation.
        let at = unsafe { self.memory.add(index as usize * SMALL) };
        // SAFETY: the word is aligned, zeroed at first, lives as long as `self` and is only ever
        // accessed as an atomic.
        unsafe { at.cast::<AtomicU64>().as_ref() }
    }

    #[cfg(loom)]
    fn word(&self, index: u32) -> &AtomicU64 {
        &self.watched[index as usize].0
    }

    /// The witness of accesses to the datagram in slot `index`.
    #[cfg(not(loom))]
    #[inline]
    fn witness(&self, _index: u32) -> Witness {
        Witness
    }

    #[cfg(loom)]
    fn witness(&self, index: u32) -> &Witness {
        &self.watched[index as usize].1
    }

    /// Where a datagram of `len` bytes lies in slot `index`.
    #[inline]
    fn data(&self, index: u32, len: usize) -> NonNull<u8> {
        debug_assert!(index < self.slots && len <= self.max_datagram);
        let at = if len <= INLINE {
            index as usize * SMALL + WORD
        } else {
            self.large + index as usize * self.stride
        };
        // SAFETY: `index < slots`, so the slot lies within the allocation, in either array.
        unsafe { self.memory.add(at) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `ring`; both ends are gone.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}

/// A position in the endless sequence of datagrams, and the slot that it falls on.
#[derive(Clone, Copy, Default)]
struct Cursor {
    position: u32,
    index: u32,
}

impl Cursor {
    #[inline]
    fn advance(&mut self, slots: u32) {
        self.position = self.position.wrapping_add(1);
        self.index = if self.index + 1 == slots { 0 } else { self.index + 1 };
    }

    /// What the word of the slot says when the datagram of this position is there. Position 0 does
    /// not give the 0 of fresh memory; later positions never meet fresh memory.
    #[inline]
    fn word(self, len: usize) -> u64 {
        u64::from(self.position.wrapping_add(1)) << 32 | len as u64
    }

    /// The length in `word`, if that is the word of this position.
    #[inline]
    fn len_in(self, word: u64) -> Option<usize> {
        ((word >> 32) as u32 == self.position.wrapping_add(1)).then_some(word as u32 as usize)
    }
}

/// Why a datagram was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// All slots are in use.
    Full,
    /// The datagram is longer than a slot.
    TooLong,
}

/// What was staged, or published at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Batch {
    pub(super) packets: u32,
    pub(super) bytes: u64,
}

/// The sending end.
pub(super) struct Producer {
    ring: Arc<Ring>,
    next: Cursor,
    /// Position that must not be reached: the consumer's as last seen, plus the slots.
    limit: u32,
    batch: Batch,
    /// Slot and word of the batch's first datagram, not yet written.
    first: Option<(u32, u64)>,
}

impl Producer {
    /// Copies a datagram, given in two pieces, into the next slot. The consumer sees it after
    /// [`Producer::publish`]. Returns how many are staged with it.
    ///
    /// # Errors
    /// [`Refused`], which the consumer's side counts too.
    #[inline]
    pub(super) fn stage(&mut self, head: &[u8], tail: &[u8]) -> Result<u32, Refused> {
        self.stage_with(head.len() + tail.len(), |to| {
            // SAFETY: `to` has room for both pieces.
            unsafe { copy(head, to) };
            if !tail.is_empty() {
                // SAFETY: within that room.
                let to = unsafe { to.add(head.len()) };
                // SAFETY: as for `head`.
                unsafe { to.copy_from_nonoverlapping(NonNull::from(tail).cast(), tail.len()) };
            }
        })
    }

    /// The same for a datagram in three pieces.
    ///
    /// # Errors
    /// [`Refused`].
    #[inline]
    pub(super) fn stage_three(&mut self, pieces: [&[u8]; 3]) -> Result<u32, Refused> {
        let [head, middle, tail] = pieces;
        self.stage_with(head.len() + middle.len() + tail.len(), |to| {
            // SAFETY: `to` has room for all pieces.
            unsafe { copy(head, to) };
            // SAFETY: within that room.
            let to = unsafe { to.add(head.len()) };
            // SAFETY: as for `head`.
            unsafe { to.copy_from_nonoverlapping(NonNull::from(middle).cast(), middle.len()) };
            // SAFETY: within that room.
            let to = unsafe { to.add(middle.len()) };
            // SAFETY: as for `head`.
            unsafe { to.copy_from_nonoverlapping(NonNull::from(tail).cast(), tail.len()) };
        })
    }

    /// Takes the next slot for a datagram of `len` bytes and lets `write` write it. Where it is told to
    /// write, there is room for `len` bytes, aligned to 8; no other code accesses them, for the slot is not
    /// lent (`limit`) and the consumer reads it only once its word is written; and no slice overlaps them, for
    /// only this ring hands them out, and the consumer lends none of this slot.
    #[inline(always)]
    fn stage_with(&mut self, len: usize, write: impl FnOnce(NonNull<u8>)) -> Result<u32, Refused> {
        if len > self.ring.max_datagram {
            bump(&self.ring.counts.0.oversized);
            return Err(Refused::TooLong);
        }
        if self.next.position == self.limit && !self.look_again() {
            bump(&self.ring.counts.0.overflowed);
            return Err(Refused::Full);
        }
        let Cursor { index, .. } = self.next;
        self.ring.witness(index).write();
        write(self.ring.data(index, len));
        let word = self.next.word(len);
        match self.first {
            None => self.first = Some((index, word)),
            // Release, so that the datagram is there for a consumer that reads the word.
            Some(_) => self.ring.word(index).store(word, Ordering::Release),
        }
        self.next.advance(self.ring.slots);
        self.batch.packets += 1;
        self.batch.bytes += len as u64;
        Ok(self.batch.packets)
    }

    /// Lets the consumer see what was staged, and says how much that was.
    #[inline]
    pub(super) fn publish(&mut self) -> Batch {
        if let Some((index, word)) = self.first.take() {
            self.ring.word(index).store(word, Ordering::Release);
        }
        std::mem::take(&mut self.batch)
    }

    /// Publishes what is staged; nothing may follow.
    pub(super) fn close(&mut self) -> Batch {
        let batch = self.publish();
        self.ring.counts.0.producer_gone.store(true, Ordering::Release);
        batch
    }

    /// Reads how far the consumer is; whether there is room now.
    #[cold]
    fn look_again(&mut self) -> bool {
        // Acquire: the consumer's reads of the slots it gave back come before our writes to them.
        let released = self.ring.released.0.load(Ordering::Acquire);
        self.limit = released.wrapping_add(self.ring.slots);
        self.next.position != self.limit
    }
}

/// Copies `packet`, or the first piece of one, to `to`.
///
/// Its header was written in words of 8 bytes a few nanoseconds ago. A wider load would have to wait
/// until all of them have left the store buffer, 5 ns and more; a load of a single word is served out of
/// it. Atomic stores are what keeps the compiler from joining the words.
///
/// # Safety
/// `to` is aligned to 8 bytes and valid for writing `packet.len()` bytes that do not overlap `packet`,
/// and that no other code accesses meanwhile.
#[inline]
unsafe fn copy(packet: &[u8], to: NonNull<u8>) {
    let Some((header, data)) = packet.split_first_chunk::<HEADER_LEN>() else {
        // SAFETY: the caller's promise.
        return unsafe { copy_data(packet, to) };
    };
    let (words, _) = header.as_chunks::<WORD>();
    for (index, word) in words.iter().enumerate() {
        // SAFETY: within the header, for which there is room.
        let to = unsafe { to.cast::<std::sync::atomic::AtomicU64>().add(index) };
        // SAFETY: aligned, writable and not accessed by anybody else, as the caller promises.
        unsafe { to.as_ref() }.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
    }
    // SAFETY: the packet is at least as long as its header.
    let to = unsafe { to.add(HEADER_LEN) };
    // SAFETY: the caller's promise, for the rest.
    unsafe { copy_data(data, to) };
}

/// Copies `bytes` to `to`. For small messages, two overlapping moves of fixed size take half the time of
/// a call of `memcpy`.
///
/// # Safety
/// `to` is valid for writing `bytes.len()` bytes that do not overlap `bytes`, and that no other code
/// accesses meanwhile.
#[inline]
unsafe fn copy_data(bytes: &[u8], to: NonNull<u8>) {
    const HALF: usize = 16;
    match (bytes.first_chunk::<HALF>(), bytes.last_chunk::<HALF>()) {
        (Some(first), Some(last)) if bytes.len() <= 2 * HALF => {
            // SAFETY: `bytes` has at least HALF bytes, so `to` has room for them.
            unsafe { to.cast::<[u8; HALF]>().write_unaligned(*first) };
            // SAFETY: the last HALF of the bytes at `to`.
            let end = unsafe { to.add(bytes.len() - HALF) };
            // SAFETY: as above.
            unsafe { end.cast::<[u8; HALF]>().write_unaligned(*last) };
        }
        // SAFETY: the caller's promise.
        _ => unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) },
    }
}

const _: () = assert!(HEADER_LEN.is_multiple_of(WORD));

/// Adds one to a counter that only the caller writes.
#[cold]
fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// A datagram that was taken and not yet given back.
#[derive(Clone, Copy)]
pub(super) struct Loan {
    data: NonNull<u8>,
    len: usize,
}

// SAFETY: a loan is an address; the caller of `bytes` promises that it is still good.
unsafe impl Send for Loan {}

impl Loan {
    /// No datagram.
    pub(super) const NONE: Self = Self { data: NonNull::dangling(), len: 0 };

    /// Bytes of the datagram.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The datagram.
    ///
    /// # Safety
    /// For as long as `'a`, the consumer that lent it exists and does not release it.
    #[inline]
    pub(super) unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: the producer wrote `len` bytes there before `take` acquired the slot's word, and does
        // not write again before the release, which the caller rules out.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }
}

/// The receiving end.
pub(super) struct Consumer {
    ring: Arc<Ring>,
    next: Cursor,
    /// Position of the oldest datagram that is lent out.
    lent: u32,
}

impl Consumer {
    /// Whether a datagram waits.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.peek().is_some()
    }

    #[inline]
    fn peek(&self) -> Option<usize> {
        self.next.len_in(self.ring.word(self.next.index).load(Ordering::Acquire))
    }

    /// Takes the next datagram. It can be read until [`Consumer::release`].
    #[inline]
    pub(super) fn take(&mut self) -> Option<Loan> {
        let len = self.peek()?;
        self.ring.witness(self.next.index).read();
        let data = self.ring.data(self.next.index, len);
        self.next.advance(self.ring.slots);
        Some(Loan { data, len })
    }

    /// Gives all taken slots back to the producer.
    #[inline]
    pub(super) fn release(&mut self) {
        if self.lent != self.next.position {
            #[cfg(loom)]
            self.read_to_the_end();
            self.lent = self.next.position;
            self.ring.released.0.store(self.lent, Ordering::Release);
        }
    }

    /// The holder of a loan may have read it until now.
    #[cfg(loom)]
    fn read_to_the_end(&self) {
        let slots = self.ring.slots;
        for back in 1..=self.next.position.wrapping_sub(self.lent) {
            self.ring.witness((self.next.index + slots - back) % slots).read();
        }
    }

    /// Whether the producer is closed.
    pub(super) fn is_abandoned(&self) -> bool {
        self.ring.counts.0.producer_gone.load(Ordering::Acquire)
    }

    /// Whether nothing more will come.
    pub(super) fn is_finished(&self) -> bool {
        // In this order: what the producer published before it closed is seen by `is_ready`.
        self.is_abandoned() && !self.is_ready()
    }

    /// Datagrams that met a full ring.
    pub(super) fn overflowed(&self) -> u64 {
        self.ring.counts.0.overflowed.load(Ordering::Relaxed)
    }

    /// Datagrams that were too long for the ring.
    pub(super) fn oversized(&self) -> u64 {
        self.ring.counts.0.oversized.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(producer: &mut Producer, datagram: &[u8]) -> Result<u32, Refused> {
        let (head, rest) = datagram.split_at(datagram.len().min(24));
        let (data, trailer) = rest.split_at(rest.len().saturating_sub(4));
        let staged = producer.stage_three([head, data, trailer]);
        producer.publish();
        staged
    }

    /// A datagram whose bytes depend on its number, of a length that walks over both slot arrays.
    fn read(_lender: &Consumer, loan: Loan) -> &[u8] {
        // SAFETY: the lender is borrowed for as long as the bytes are, and releases with `&mut` only.
        unsafe { loan.bytes() }
    }

    fn datagram(number: u32) -> Vec<u8> {
        (0..number * 37 % 1_500).map(|at| (at ^ number) as u8).collect()
    }

    #[test]
    fn datagrams_come_out_as_they_went_in_around_many_laps() {
        let (mut producer, mut consumer) = ring(10, 1_500).unwrap();
        let mut expect = 0;
        for number in 0..1_000 {
            send(&mut producer, &datagram(number)).unwrap();
            if number % 5 == 4 {
                consumer.release();
                while let Some(loan) = consumer.take() {
                    assert_eq!(read(&consumer, loan), datagram(expect));
                    assert_eq!(loan.len(), datagram(expect).len());
                    expect += 1;
                }
            }
        }
        assert_eq!(expect, 1_000);
    }

    #[test]
    fn positions_wrap_around_32_bits() {
        let (mut producer, mut consumer) = ring(5, 1_500).unwrap();
        let start = Cursor { position: u32::MAX - 7, index: 3 };
        (producer.next, producer.limit) = (start, start.position.wrapping_add(5));
        (consumer.next, consumer.lent) = (start, start.position);
        // Slots that were used before hold the words of the lap before.
        for back in 1..=5 {
            let index = (3 + 5 - back) % 5;
            let old = Cursor { position: start.position - back, index };
            producer.ring.word(index).store(old.word(0), Ordering::Relaxed);
        }
        for number in 0..40 {
            assert!(!consumer.is_ready());
            send(&mut producer, &datagram(number)).unwrap();
            let loan = consumer.take().unwrap();
            assert_eq!(read(&consumer, loan), datagram(number));
            consumer.release();
        }
    }

    #[test]
    fn a_batch_is_seen_whole_or_not_at_all() {
        let (mut producer, mut consumer) = ring(8, 1_200).unwrap();
        for number in 1..=3 {
            assert_eq!(producer.stage(&[number], &[]), Ok(u32::from(number)));
        }
        assert!(!consumer.is_ready());
        assert_eq!(producer.publish(), Batch { packets: 3, bytes: 3 });
        let taken: Vec<u8> =
            std::iter::from_fn(|| consumer.take().map(|loan| read(&consumer, loan)[0])).collect();
        assert_eq!(taken, [1, 2, 3]);
        assert_eq!(producer.publish(), Batch::default(), "there is nothing to publish twice");
    }

    #[test]
    fn a_full_ring_refuses_until_slots_are_released() {
        let (mut producer, mut consumer) = ring(4, 1_200).unwrap();
        for number in 0..4 {
            send(&mut producer, &[number]).unwrap();
        }
        assert_eq!(send(&mut producer, &[4]), Err(Refused::Full));
        assert!(consumer.take().is_some());
        assert_eq!(send(&mut producer, &[4]), Err(Refused::Full), "taken is not released");
        consumer.release();
        send(&mut producer, &[4]).unwrap();
        assert_eq!(send(&mut producer, &[5]), Err(Refused::Full));
        assert_eq!(consumer.overflowed(), 3);
    }

    #[test]
    fn what_is_longer_than_a_slot_is_refused() {
        let (mut producer, consumer) = ring(4, 1_200).unwrap();
        assert_eq!(producer.stage_three([&[0; 24], &[0; 1_173], &[0; 4]]), Err(Refused::TooLong));
        assert_eq!((producer.publish().packets, consumer.oversized()), (0, 1));
        assert!(!consumer.is_ready());
        send(&mut producer, &[0; 1_200]).unwrap();
    }

    #[test]
    fn what_a_closed_producer_staged_arrives_and_then_the_ring_is_finished() {
        let (mut producer, mut consumer) = ring(4, 1_200).unwrap();
        producer.stage(&[7], &[]).unwrap();
        producer.close();
        assert!(!consumer.is_finished());
        let loan = consumer.take().unwrap();
        assert_eq!(read(&consumer, loan), [7]);
        assert!(consumer.is_finished());
    }
}

#[cfg(all(test, loom))]
mod schedules;
