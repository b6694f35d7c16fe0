//! The ring between two ports: one producer, one consumer, no locks. All `unsafe` code of the
//! memory transport's data path is here, except [`Loan::bytes`]'s caller.
//!
//! ```text
//!            192 bytes per slot                          stride per slot
//! +------+------------------+------+-----       +---------------------+---------
//! | word | up to 184 bytes  | word |  ..        | up to max_datagram  |   ..
//! +------+------------------+------+-----       +---------------------+---------
//!  word = position + 1 (32 bits) | length (32 bits)
//! ```
//!
//! The word of a slot is its flag. The consumer polls the word of the next slot; the datagram has
//! arrived when the word carries the position that the consumer expects (FastForward, PPoPP'08). So
//! a datagram of up to 56 bytes, its length and its flag are in one cache line, and the two sides
//! share no index.
//! Only a producer that has used all slots reads how far the consumer is. Datagrams that do not fit
//! a small slot lie in a second array, which keeps the small slots dense. Both strides are an odd
//! number of cache lines, so that slots spread over all sets of the caches.
//!
//! Words are written in order, except for the first word of a batch, which is written last. So no
//! part of a batch is visible before [`Producer::publish`], and the whole batch after it.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::mutants::mutant;
use crate::sync::alloc::{alloc_zeroed, dealloc};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Padded, Witness};
use crate::transport::MAX_BURST;
use crate::wire::{HEADER_LEN, HeaderWords};

/// Size of a cache line, in bytes.
const LINE: usize = 64;
/// Size of a small slot, in bytes.
const SMALL: usize = 3 * LINE;
/// Bytes in a small slot before the datagram.
const WORD: usize = size_of::<u64>();
/// Longest datagram that fits a small slot, in bytes.
const INLINE: usize = SMALL - WORD;

/// The array of small slots. Each end has a copy, so that it need not read the ring to find a slot.
#[derive(Clone, Copy)]
struct SmallSlots {
    memory: NonNull<u8>,
    /// Length of the array in bytes.
    len: u32,
}

// SAFETY: only an address and a length. Each access states why it is exclusive.
unsafe impl Send for SmallSlots {}

/// The part that both ends share.
struct Ring {
    small: SmallSlots,
    layout: Layout,
    slots: u32,
    /// Offset and stride of the array of large slots, in bytes.
    large: usize,
    stride: usize,
    max_datagram: usize,
    /// Position up to which the consumer has released slots. Written by the consumer.
    released: Padded<AtomicU32>,
    /// Written by the producer.
    counts: Padded<Counts>,
    /// Loom needs its own atomics for the words, and a witness for the datagrams' bytes, which loom
    /// does not observe.
    #[cfg(loom)]
    watched: Box<[(AtomicU64, Witness)]>,
}

/// Data from the producer to the consumer besides datagrams.
struct Counts {
    overflowed: AtomicU64,
    oversized: AtomicU64,
    producer_gone: AtomicBool,
}

// SAFETY: the ring owns its memory. There is one `Producer` and one `Consumer`, and they never
// access the bytes of a slot concurrently: the producer writes them after the consumer has released
// the slot and before it publishes the slot's word, and the consumer reads them only after the word
// is published and before it releases the slot.
unsafe impl Send for Ring {}
// SAFETY: as above; all other fields are constant or atomic.
unsafe impl Sync for Ring {}

/// Creates an empty ring of `slots` datagrams of at most `max_datagram` bytes. `None` if there is
/// no memory for it. Memory that was never used is not resident.
pub(super) fn ring(slots: u32, max_datagram: usize) -> Option<(Producer, Consumer)> {
    let lines = max_datagram.div_ceil(LINE) | 1;
    let len = slots.checked_mul(SMALL as u32)?;
    let (large, stride) = (len as usize, lines * LINE);
    let size = large.checked_add(stride.checked_mul(slots as usize)?)?;
    let layout = Layout::from_size_align(size.max(LINE), LINE).ok()?;
    // SAFETY: the layout's size is at least one line, so it is not 0.
    let memory = NonNull::new(unsafe { alloc_zeroed(layout) })?;
    let small = SmallSlots { memory, len };
    let ring = Arc::new(Ring {
        small,
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
        small,
        next: Cursor::default(),
        room: 0,
        limit: slots,
        published: 0,
        bytes: 0,
        first: (0, 0),
        ring: Arc::clone(&ring),
    };
    Some((producer, Consumer { small, next: Cursor::default(), lent: 0, ring }))
}

impl SmallSlots {
    /// The small slot at `offset`.
    #[inline(always)]
    fn at(self, offset: u32) -> NonNull<u8> {
        debug_assert!(offset < self.len);
        // SAFETY: `offset` is that of a cursor, so it is less than `len`, and the slot lies within
        // the allocation.
        unsafe { self.memory.add(offset as usize) }
    }
}

impl Ring {
    /// The word of the slot at `offset`.
    #[cfg(not(loom))]
    #[inline(always)]
    fn word(&self, small: SmallSlots, offset: u32) -> &AtomicU64 {
        // SAFETY: the word is aligned, because small slots are aligned to lines. It is initialised
        // (zeroed), lives as long as `self`, and is only accessed as an atomic.
        unsafe { small.at(offset).cast::<AtomicU64>().as_ref() }
    }

    #[cfg(loom)]
    fn word(&self, _small: SmallSlots, offset: u32) -> &AtomicU64 {
        &self.watched[offset as usize / SMALL].0
    }

    /// The witness by which loom observes accesses to the datagram in the slot at `offset`.
    #[cfg(not(loom))]
    #[inline]
    fn witness(&self, _offset: u32) -> Witness {
        Witness
    }

    #[cfg(loom)]
    fn witness(&self, offset: u32) -> &Witness {
        &self.watched[offset as usize / SMALL].1
    }

    /// Address of a datagram of `len` bytes in the slot whose small slot is at `offset`.
    #[inline(always)]
    fn data(&self, small: SmallSlots, offset: u32, len: usize) -> NonNull<u8> {
        debug_assert!(len <= self.max_datagram);
        if len <= INLINE {
            // SAFETY: a small slot is longer than its word.
            unsafe { small.at(offset).add(WORD) }
        } else {
            self.large_data(offset)
        }
    }

    /// Address of the large slot whose small slot is at `offset`.
    #[inline]
    fn large_data(&self, offset: u32) -> NonNull<u8> {
        let at = self.large + offset as usize / SMALL * self.stride;
        // SAFETY: `offset` belongs to one of the `slots` slots, so the large slot lies within the
        // allocation.
        unsafe { self.small.memory.add(at) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `ring` allocated the memory with this layout, and both ends are gone.
        unsafe { dealloc(self.small.memory.as_ptr(), self.layout) };
    }
}

/// A position in the endless sequence of datagrams, and the offset of its small slot.
#[derive(Clone, Copy, Default)]
struct Cursor {
    position: u32,
    offset: u32,
}

impl Cursor {
    #[inline(always)]
    fn advance(&mut self, small: SmallSlots) {
        self.position = self.position.wrapping_add(1);
        let next = self.offset + SMALL as u32;
        self.offset = if next == small.len { 0 } else { next };
    }

    /// The value of the slot's word when the datagram of this position has arrived. The value of
    /// position 0 differs from the 0 of fresh memory. When `position + 1` wraps to 0, no slot is
    /// fresh any more.
    #[inline(always)]
    fn word(self, len: usize) -> u64 {
        u64::from(self.position.wrapping_add(1)) << 32 | len as u64
    }

    /// The length in `word`, `None` if the word belongs to another position.
    #[inline(always)]
    fn len_in(self, word: u64) -> Option<u32> {
        ((word >> 32) as u32 == self.position.wrapping_add(1)).then_some(word as u32)
    }
}

/// Why a datagram was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// All slots are in use.
    Full,
    /// The datagram is longer than the ring's `max_datagram`.
    TooLong,
}

/// Number and size of the packets that are staged, or were published together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Batch {
    pub(super) packets: u32,
    pub(super) bytes: u64,
}

/// The sending end.
pub(super) struct Producer {
    small: SmallSlots,
    next: Cursor,
    /// How many datagrams [`Producer::stage_small`] may stage now. 0 while no datagram is staged.
    room: u32,
    /// Position that must not be reached: the last known released position plus the number of
    /// slots.
    limit: u32,
    /// Position after the last published datagram. Those from here to `next` are the batch.
    published: u32,
    /// Bytes of the batch.
    bytes: u64,
    /// Offset and word of the first datagram of the batch, if the batch is not empty. The word is
    /// written by [`Producer::publish`].
    first: (u32, u64),
    ring: Arc<Ring>,
}

impl Producer {
    /// Copies a datagram, given in two pieces, into the next slot. The consumer sees it after
    /// [`Producer::publish`]. Returns the number of staged datagrams, this one included.
    ///
    /// # Errors
    /// [`Refused`], which also increments a counter that the consumer reads.
    #[inline]
    pub(super) fn stage(&mut self, head: &[u8], tail: &[u8]) -> Result<u32, Refused> {
        self.stage_with(head.len() + tail.len(), |to| {
            // SAFETY: `to` is aligned, has room for both pieces, does not overlap them, and no
            // other code accesses it; see `stage_with`.
            unsafe { copy(head, to) };
            if !tail.is_empty() {
                // SAFETY: `head.len()` is within that room.
                let to = unsafe { to.add(head.len()) };
                // SAFETY: the rest of the room has `tail.len()` bytes, which do not overlap `tail`.
                unsafe { to.copy_from_nonoverlapping(NonNull::from(tail).cast(), tail.len()) };
            }
        })
    }

    /// Like [`Producer::stage`], for a datagram in three pieces.
    ///
    /// # Errors
    /// As [`Producer::stage`].
    #[inline]
    pub(super) fn stage_three(&mut self, pieces: [&[u8]; 3]) -> Result<u32, Refused> {
        let [head, middle, tail] = pieces;
        self.stage_with(head.len() + middle.len() + tail.len(), |to| {
            // SAFETY: `to` is aligned, has room for all pieces, does not overlap them, and no other
            // code accesses it; see `stage_with`.
            unsafe { copy(head, to) };
            // SAFETY: `head.len()` is within that room.
            let to = unsafe { to.add(head.len()) };
            // SAFETY: the rest of the room has at least `middle.len()` bytes, which do not overlap
            // `middle`.
            unsafe { to.copy_from_nonoverlapping(NonNull::from(middle).cast(), middle.len()) };
            // SAFETY: `head.len() + middle.len()` is within that room.
            let to = unsafe { to.add(middle.len()) };
            // SAFETY: the rest of the room has `tail.len()` bytes, which do not overlap `tail`.
            unsafe { to.copy_from_nonoverlapping(NonNull::from(tail).cast(), tail.len()) };
        })
    }

    /// Stages a datagram as [`Producer::stage_single`] does, if this is the common case: a small
    /// datagram, neither the first nor the last of a batch, and room in the ring. Otherwise does
    /// nothing and returns false.
    #[inline(always)]
    pub(super) fn stage_small(&mut self, header: HeaderWords, data: &[u8]) -> bool {
        let is_common = self.room != 0 && (HALF..=2 * HALF).contains(&data.len());
        if is_common {
            let Cursor { offset, .. } = self.next;
            self.ring.witness(offset).write();
            let slot = self.small.at(offset);
            // SAFETY: the datagram follows the slot's word.
            let to = unsafe { slot.add(WORD) };
            // SAFETY: a small slot has room for a header and `2 * HALF` bytes of data. No other code
            // accesses it meanwhile, as in `stage_with`.
            unsafe { to.cast::<[u8; HEADER_LEN]>().write(header.to_bytes()) };
            // SAFETY: the data follows the header.
            let to = unsafe { to.add(HEADER_LEN) };
            // SAFETY: as above. The ring's memory does not overlap `data`.
            unsafe { copy_data(data, to) };
            let len = HEADER_LEN + data.len();
            // Release: a consumer that reads the word also sees the datagram.
            self.ring.word(self.small, offset).store(self.next.word(len), Ordering::Release);
            self.next.advance(self.small);
            self.room -= 1;
            self.bytes += len as u64;
        }
        is_common
    }

    /// Stages a datagram that consists of a header, given as words, and of `data`. Like
    /// [`Producer::stage`].
    #[inline]
    pub(super) fn stage_single(
        &mut self,
        header: HeaderWords,
        data: &[u8],
    ) -> Result<u32, Refused> {
        self.stage_with(HEADER_LEN + data.len(), |to| {
            // SAFETY: `stage_with` passes a pointer with room for header and data.
            unsafe { to.cast::<[u8; HEADER_LEN]>().write(header.to_bytes()) };
            // SAFETY: the header is within that room.
            let to = unsafe { to.add(HEADER_LEN) };
            // SAFETY: the rest of the room has `data.len()` bytes. They do not overlap `data`, because
            // no slice of this slot exists.
            unsafe { copy_data(data, to) };
        })
    }

    /// Claims the next slot for a datagram of `len` bytes and lets `write` write it. The pointer
    /// passed to `write` is valid for writing `len` bytes and aligned to 8. No other code accesses
    /// these bytes meanwhile: the slot is not lent (`limit`), and the consumer reads it only after
    /// its word is written. No slice overlaps them: only this ring hands out slices of its memory,
    /// and the consumer lends none of this slot.
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
        let Cursor { offset, .. } = self.next;
        self.ring.witness(offset).write();
        write(self.ring.data(self.small, offset, len));
        let word = self.next.word(len);
        if self.has_staged() {
            // Release: a consumer that reads the word also sees the datagram.
            self.ring.word(self.small, offset).store(word, Ordering::Release);
        } else {
            self.first = (offset, word);
        }
        self.next.advance(self.small);
        self.bytes += len as u64;
        let staged = self.next.position.wrapping_sub(self.published);
        // The caller of the last datagram of a batch has to learn that it is the last.
        let room_of_batch = (MAX_BURST as u32 - 1).saturating_sub(staged);
        self.room = self.limit.wrapping_sub(self.next.position).min(room_of_batch);
        Ok(staged)
    }

    /// Whether there are staged datagrams that the consumer does not see yet.
    #[inline(always)]
    pub(super) fn has_staged(&self) -> bool {
        self.next.position != self.published
    }

    /// Makes the staged datagrams visible to the consumer, and returns their number and size.
    #[inline]
    pub(super) fn publish(&mut self) -> Batch {
        let packets = self.next.position.wrapping_sub(self.published);
        if packets > 0 {
            let (offset, word) = self.first;
            // Release: a consumer that reads the word also sees the batch's datagrams.
            self.ring.word(self.small, offset).store(word, Ordering::Release);
        }
        self.published = self.next.position;
        self.room = 0;
        Batch { packets, bytes: std::mem::take(&mut self.bytes) }
    }

    /// Publishes the staged datagrams and closes the ring. The caller must not stage any more.
    pub(super) fn close(&mut self) -> Batch {
        let batch = self.publish();
        self.ring.counts.0.producer_gone.store(true, Ordering::Release);
        batch
    }

    /// Reads how far the consumer is; returns whether there is room now.
    #[cold]
    fn look_again(&mut self) -> bool {
        // Acquire: the consumer's reads of released slots happen before the next writes to them.
        let released = self.ring.released.0.load(Ordering::Acquire);
        self.limit = released.wrapping_add(self.ring.slots);
        self.next.position != self.limit
    }
}

/// Bytes that [`copy_data`] moves at once.
const HALF: usize = 16;

/// Copies `packet`, or the first piece of one, to `to`.
///
/// The header was written in words of 8 bytes a few nanoseconds ago. A wider load would wait until
/// all words have left the store buffer, 5 ns or more; a load of a single word is served from the
/// store buffer. Atomic stores prevent the compiler from merging the words.
///
/// # Safety
/// `to` must be aligned to 8 bytes and valid for writing `packet.len()` bytes, which must not
/// overlap `packet` and which no other code may access meanwhile.
#[inline]
unsafe fn copy(packet: &[u8], to: NonNull<u8>) {
    let Some((header, data)) = packet.split_first_chunk::<HEADER_LEN>() else {
        // SAFETY: guaranteed by the caller.
        return unsafe { copy_data(packet, to) };
    };
    let (words, _) = header.as_chunks::<WORD>();
    for (index, word) in words.iter().enumerate() {
        // SAFETY: the word lies within the header, for which `to` has room.
        let to = unsafe { to.cast::<std::sync::atomic::AtomicU64>().add(index) };
        // SAFETY: aligned, writable and not accessed by other code, as the caller guarantees.
        unsafe { to.as_ref() }.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
    }
    // SAFETY: the packet is at least as long as its header, so the result is within `to`'s room.
    let to = unsafe { to.add(HEADER_LEN) };
    // SAFETY: the caller's guarantee, for the rest of the packet.
    unsafe { copy_data(data, to) };
}

/// Copies `bytes` to `to`. For small messages, two overlapping moves of fixed size take half the
/// time of a `memcpy` call.
///
/// # Safety
/// `to` must be valid for writing `bytes.len()` bytes, which must not overlap `bytes` and which no
/// other code may access meanwhile.
#[inline(always)]
unsafe fn copy_data(bytes: &[u8], to: NonNull<u8>) {
    match (bytes.first_chunk::<HALF>(), bytes.last_chunk::<HALF>()) {
        (Some(first), Some(last)) if bytes.len() <= 2 * HALF => {
            // SAFETY: `bytes` has at least HALF bytes, so `to` has room for them.
            unsafe { to.cast::<[u8; HALF]>().write_unaligned(*first) };
            // SAFETY: `bytes.len() >= HALF`, so this is within `to`'s room, HALF bytes before its
            // end.
            let end = unsafe { to.add(bytes.len() - HALF) };
            // SAFETY: `end` has room for HALF bytes; see above.
            unsafe { end.cast::<[u8; HALF]>().write_unaligned(*last) };
        }
        // SAFETY: guaranteed by the caller.
        _ => unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) },
    }
}

const _: () = assert!(HEADER_LEN.is_multiple_of(WORD));

/// Increments a counter that only the caller writes.
#[cold]
fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// A datagram that was taken and not yet released, and its sender.
#[derive(Clone, Copy)]
pub(super) struct Loan<S> {
    data: NonNull<u8>,
    len: u32,
    from: S,
}

// SAFETY: besides the sender, a loan is only an address and a length. The bytes are read only
// through `bytes`, whose caller guarantees that they are still lent.
unsafe impl<S: Send> Send for Loan<S> {}

impl<S: Copy> Loan<S> {
    /// No datagram.
    pub(super) fn none(from: S) -> Self {
        Self { data: NonNull::dangling(), len: 0, from }
    }

    /// The datagram's sender.
    #[inline]
    pub(super) fn from(&self) -> S {
        self.from
    }

    /// The datagram.
    ///
    /// # Safety
    /// During `'a`, the consumer that lent the datagram must exist and must not release it.
    #[inline]
    pub(super) unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: the producer wrote `len` bytes there before it published the slot's word, which
        // `take` read with Acquire. It writes there again only after the release, which the caller
        // excludes.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len as usize) }
    }
}

/// The receiving end.
pub(super) struct Consumer {
    small: SmallSlots,
    next: Cursor,
    /// Position of the oldest datagram that is lent out.
    lent: u32,
    ring: Arc<Ring>,
}

impl Consumer {
    /// Whether a datagram waits to be taken.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.peek(self.next).is_some()
    }

    #[inline(always)]
    fn peek(&self, at: Cursor) -> Option<u32> {
        at.len_in(self.ring.word(self.small, at.offset).load(Ordering::Acquire))
    }

    /// Takes datagrams, until no further one has arrived or `loans` is full, and returns their
    /// number and bytes. They stay readable until [`Consumer::release`]. `from`: their sender.
    #[inline]
    pub(super) fn take<S: Copy>(&mut self, from: S, loans: &mut [Loan<S>]) -> (usize, u64) {
        let (mut next, mut count, mut bytes) = (self.next, 0, 0);
        for loan in loans {
            let Some(len) = self.peek(next) else { break };
            self.ring.witness(next.offset).read();
            let data = self.ring.data(self.small, next.offset, len as usize);
            *loan = Loan { data, len, from };
            next.advance(self.small);
            count += 1;
            bytes += u64::from(len);
        }
        self.next = next;
        (count, bytes)
    }

    /// Releases all taken slots to the producer.
    #[inline]
    pub(super) fn release(&mut self) {
        if self.lent != self.next.position {
            #[cfg(loom)]
            self.read_to_the_end();
            self.lent = self.next.position;
            if !mutant!(ReleaseForgotten) {
                self.ring.released.0.store(self.lent, Ordering::Release);
            }
        }
    }

    /// Tells loom that the holder of a loan may have read the datagram until now.
    #[cfg(loom)]
    fn read_to_the_end(&self) {
        let SmallSlots { len, .. } = self.small;
        for back in 1..=self.next.position.wrapping_sub(self.lent) {
            self.ring.witness((self.next.offset + len - back * SMALL as u32) % len).read();
        }
    }

    /// Whether the producer has closed the ring.
    pub(super) fn is_abandoned(&self) -> bool {
        self.ring.counts.0.producer_gone.load(Ordering::Acquire)
    }

    /// Whether the producer has closed the ring and no datagram remains.
    pub(super) fn is_finished(&self) -> bool {
        // The order matters: after `is_abandoned`, `is_ready` sees everything that the producer
        // published before it closed.
        self.is_abandoned() && !self.is_ready()
    }

    /// Number of datagrams refused because the ring was full.
    pub(super) fn overflowed(&self) -> u64 {
        self.ring.counts.0.overflowed.load(Ordering::Relaxed)
    }

    /// Number of datagrams refused because they were too long for the ring.
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

    /// The next datagram.
    fn take(consumer: &mut Consumer) -> Option<Loan<()>> {
        let mut loans = [Loan::none(())];
        (consumer.take((), &mut loans).0 == 1).then_some(loans[0])
    }

    /// The bytes of a loan from `_lender`.
    fn read(_lender: &Consumer, loan: Loan<()>) -> &[u8] {
        // SAFETY: the bytes borrow the lender, and releasing needs `&mut`.
        unsafe { loan.bytes() }
    }

    /// A datagram whose bytes depend on its number. Its length varies, so that both arrays of slots
    /// are used.
    fn datagram(number: u32) -> Vec<u8> {
        (0..number * 37 % 1_500).map(|at| (at ^ number) as u8).collect()
    }

    #[test]
    fn datagrams_arrive_unchanged_over_many_laps() {
        let (mut producer, mut consumer) = ring(10, 1_500).unwrap();
        let mut expect = 0;
        for number in 0..1_000 {
            send(&mut producer, &datagram(number)).unwrap();
            if number % 5 == 4 {
                consumer.release();
                while let Some(loan) = take(&mut consumer) {
                    assert_eq!(read(&consumer, loan), datagram(expect));
                    assert_eq!(read(&consumer, loan).len(), datagram(expect).len());
                    expect += 1;
                }
            }
        }
        assert_eq!(expect, 1_000);
    }

    #[test]
    fn positions_wrap_around_32_bits() {
        let (mut producer, mut consumer) = ring(5, 1_500).unwrap();
        let start = Cursor { position: u32::MAX - 7, offset: 3 * SMALL as u32 };
        (producer.next, producer.limit) = (start, start.position.wrapping_add(5));
        producer.published = start.position;
        (consumer.next, consumer.lent) = (start, start.position);
        // Slots that were used before hold the words of the previous lap.
        for back in 1..=5 {
            let offset = (3 + 5 - back) % 5 * SMALL as u32;
            let old = Cursor { position: start.position - back, offset };
            producer.ring.word(producer.small, offset).store(old.word(0), Ordering::Relaxed);
        }
        for number in 0..40 {
            assert!(!consumer.is_ready());
            send(&mut producer, &datagram(number)).unwrap();
            let loan = take(&mut consumer).unwrap();
            assert_eq!(read(&consumer, loan), datagram(number));
            consumer.release();
        }
    }

    #[test]
    fn a_batch_is_visible_as_a_whole_or_not_at_all() {
        let (mut producer, mut consumer) = ring(8, 1_200).unwrap();
        for number in 1..=3 {
            assert_eq!(producer.stage(&[number], &[]), Ok(u32::from(number)));
        }
        assert!(!consumer.is_ready());
        assert_eq!(producer.publish(), Batch { packets: 3, bytes: 3 });
        let taken: Vec<u8> =
            std::iter::from_fn(|| take(&mut consumer).map(|loan| read(&consumer, loan)[0]))
                .collect();
        assert_eq!(taken, [1, 2, 3]);
        assert_eq!(producer.publish(), Batch::default(), "a second publish has nothing to publish");
    }

    #[test]
    fn a_full_ring_refuses_until_slots_are_released() {
        let (mut producer, mut consumer) = ring(4, 1_200).unwrap();
        for number in 0..4 {
            send(&mut producer, &[number]).unwrap();
        }
        assert_eq!(send(&mut producer, &[4]), Err(Refused::Full));
        assert!(take(&mut consumer).is_some());
        assert_eq!(
            send(&mut producer, &[4]),
            Err(Refused::Full),
            "a taken slot is not released yet"
        );
        consumer.release();
        send(&mut producer, &[4]).unwrap();
        assert_eq!(send(&mut producer, &[5]), Err(Refused::Full));
        assert_eq!(consumer.overflowed(), 3);
    }

    #[test]
    fn a_datagram_longer_than_a_slot_is_refused() {
        let (mut producer, consumer) = ring(4, 1_200).unwrap();
        assert_eq!(producer.stage_three([&[0; 24], &[0; 1_173], &[0; 4]]), Err(Refused::TooLong));
        assert_eq!((producer.publish().packets, consumer.oversized()), (0, 1));
        assert!(!consumer.is_ready());
        send(&mut producer, &[0; 1_200]).unwrap();
    }

    #[test]
    fn a_closed_ring_is_finished_after_its_last_datagram() {
        let (mut producer, mut consumer) = ring(4, 1_200).unwrap();
        producer.stage(&[7], &[]).unwrap();
        producer.close();
        assert!(!consumer.is_finished());
        let loan = take(&mut consumer).unwrap();
        assert_eq!(read(&consumer, loan), [7]);
        assert!(consumer.is_finished());
    }
}

#[cfg(all(test, loom))]
mod schedules;
