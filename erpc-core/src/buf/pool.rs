//! The pool of msgbufs. It keeps idle memory in size classes. One owner allocates; msgbufs are
//! returned from any thread.

use std::fmt;
use std::ops::AddAssign;
use std::sync::Arc;

use super::block::{Arena, Block, Home};
use super::msgbuf::{MsgBuf, block_bytes};
use crate::mutants::mutant;
use crate::sync;

/// Smallest block, in bytes: a header and 40 bytes of data.
const MIN_BLOCK: usize = 64;
/// Size classes per doubling of the size. A block above [`MIN_BLOCK`] is at most a quarter larger
/// than requested.
const STEPS: usize = 4;
/// Number of classes, for sizes up to `64 << 19` bytes, 32 MiB. Larger blocks are allocated and
/// freed individually.
const CLASSES: usize = 19 * STEPS + 1;

/// Largest capacity, in bytes, of a msgbuf that the pool keeps in `last` for the next allocation.
const SMALL: usize = 256;

/// The allocation exceeds the pool's limit or [`MsgBuf::MAX_CAPACITY`], or the pool's memory source
/// (its arena, otherwise the system) has no memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoMemory {
    /// Bytes of data that the requested msgbuf should hold.
    pub wanted: usize,
    /// Bytes that the pool may use in total.
    pub limit: usize,
}

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no memory for a msgbuf of {} bytes within the endpoint's {}; raise its memory limit",
            self.wanted, self.limit
        )
    }
}

impl std::error::Error for NoMemory {}

/// Counters of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolStats {
    /// Number of msgbufs that users, slots and transmit queues hold.
    pub in_use: usize,
    /// Bytes of these msgbufs, bookkeeping included.
    pub in_use_bytes: usize,
    /// Bytes of idle blocks that the pool keeps for reuse, bookkeeping included.
    pub idle_bytes: usize,
}

impl AddAssign for PoolStats {
    fn add_assign(&mut self, other: Self) {
        let Self { in_use, in_use_bytes, idle_bytes } = other;
        self.in_use += in_use;
        self.in_use_bytes += in_use_bytes;
        self.idle_bytes += idle_bytes;
    }
}

/// A pool of msgbufs with a memory budget.
///
/// One owner allocates. Dropping a [`MsgBuf`] on any thread returns its memory. An allocation costs
/// a few nanoseconds if its class has an idle block. Otherwise the pool collects the blocks that
/// other threads returned, and if none fits, it allocates one from its arena or from the system.
/// Buffers may outlive their pool.
pub struct Pool {
    home: sync::Arc<Home>,
    /// The last recycled msgbuf, if it is small. Usually it is large enough for the next
    /// allocation, which then needs no lookup of a class. It is idle, but not on the idle lists.
    last: Option<MsgBuf>,
    /// Idle blocks by class.
    idle: Vec<Vec<Block>>,
    idle_bytes: usize,
    idle_count: usize,
    /// Number of blocks that are allocated and not freed, idle blocks included.
    live_count: usize,
    live_bytes: usize,
    limit: usize,
}

/// The smallest class whose blocks hold `bytes`, and the size of its blocks in bytes; `None` above
/// the largest class.
fn class_for(bytes: usize) -> Option<(usize, usize)> {
    if bytes <= MIN_BLOCK {
        return Some((0, MIN_BLOCK));
    }
    // `bytes` lies in (base, 2 * base]; the classes there are base + base * (1..=4) / 4.
    let base = bytes.next_power_of_two() / 2;
    let doubling = (base / MIN_BLOCK).trailing_zeros() as usize;
    let step = (bytes - base).div_ceil(base / STEPS);
    let class = doubling * STEPS + step;
    (class < CLASSES).then_some((class, base + base / STEPS * step))
}

impl Pool {
    /// A pool that may use `limit` bytes, for buffers in use and idle memory together.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self::in_arena(limit, None)
    }

    /// Like [`Pool::new`], with memory from `arena` if it is given.
    #[must_use]
    pub fn in_arena(limit: usize, arena: Option<Arc<dyn Arena>>) -> Self {
        Self {
            home: sync::Arc::new(Home::new(arena)),
            last: None,
            idle: (0..CLASSES).map(|_| Vec::new()).collect(),
            idle_bytes: 0,
            idle_count: 0,
            live_count: 0,
            live_bytes: 0,
            limit,
        }
    }

    /// An empty msgbuf with room for at least `len` bytes.
    ///
    /// # Errors
    /// [`NoMemory`] if the allocation would exceed the limit, if `len` exceeds
    /// [`MsgBuf::MAX_CAPACITY`], or if the arena or the system has no memory.
    #[inline]
    pub fn alloc(&mut self, len: usize) -> Result<MsgBuf, NoMemory> {
        match self.last.take() {
            Some(mut last) if last.capacity() >= len => {
                last.clear();
                Ok(last)
            }
            last => {
                self.last = last;
                self.alloc_block(len)
            }
        }
    }

    #[inline(never)]
    fn alloc_block(&mut self, len: usize) -> Result<MsgBuf, NoMemory> {
        match class_for(block_bytes(len)) {
            Some((class, size)) => match self.idle[class].pop() {
                Some(block) => Ok(self.reuse(block)),
                None => self.alloc_slow(class, size, len),
            },
            None => self.allocate(block_bytes(len), len),
        }
    }

    /// A msgbuf with a copy of `bytes`.
    ///
    /// # Errors
    /// As [`Pool::alloc`].
    #[inline]
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Result<MsgBuf, NoMemory> {
        let mut copy = self.alloc(bytes.len())?;
        copy.resize(bytes.len());
        copy.as_mut_slice().copy_from_slice(bytes);
        Ok(copy)
    }

    /// A msgbuf with a copy of `bytes`: in `spare`, if that is large enough and has no other
    /// reference. Otherwise `spare` is recycled and the copy is in a new msgbuf.
    ///
    /// # Errors
    /// As [`Pool::alloc`].
    #[inline]
    pub(crate) fn copy_into(
        &mut self,
        mut spare: MsgBuf,
        bytes: &[u8],
    ) -> Result<MsgBuf, NoMemory> {
        if spare.capacity() < bytes.len() || !(spare.is_unique() || mutant!(SharedOverwritten)) {
            self.recycle(spare);
            return self.copy(bytes);
        }
        spare.resize(bytes.len());
        spare.as_mut_slice().copy_from_slice(bytes);
        Ok(spare)
    }

    /// A msgbuf for at least `len` bytes from idle memory of the pool; `None` if no idle block of
    /// the right class exists.
    pub(crate) fn alloc_idle(&mut self, len: usize) -> Option<MsgBuf> {
        self.collect();
        let (class, _) = class_for(block_bytes(len))?;
        let block = self.idle[class].pop()?;
        Some(self.reuse(block))
    }

    /// Makes a [detached](MsgBuf::detached) msgbuf count against this pool's limit, like the pool's
    /// own msgbufs. Other msgbufs are returned unchanged. If the memory itself cannot be moved to
    /// this pool (a pool with an arena, or a queue that still reads the msgbuf), the pool copies
    /// it.
    ///
    /// # Errors
    /// [`NoMemory`] if the limit does not allow it; then the msgbuf is dropped.
    pub(crate) fn adopt(&mut self, mut msgbuf: MsgBuf) -> Result<MsgBuf, NoMemory> {
        if !msgbuf.is_detached() {
            return Ok(msgbuf);
        }
        let bytes = msgbuf.footprint();
        if self.live_bytes + bytes > self.limit {
            self.shrink();
        }
        if self.live_bytes + bytes > self.limit {
            return Err(NoMemory { wanted: msgbuf.len(), limit: self.limit });
        }
        if msgbuf.adopt(&self.home) {
            self.live_bytes += bytes;
            self.live_count += usize::from(!mutant!(AdoptUncounted));
            return Ok(msgbuf);
        }
        let mut copy = self.alloc(msgbuf.len())?;
        copy.write_at(0, msgbuf.as_slice());
        copy.resize(msgbuf.len());
        Ok(copy)
    }

    /// Takes a msgbuf back directly, not through the cross-thread list. A msgbuf that a transmit
    /// queue still reads, or that is not from this pool, is only dropped.
    #[inline]
    pub fn recycle(&mut self, msgbuf: MsgBuf) {
        let is_idle = msgbuf.is_idle(&self.home) || mutant!(QueuedBufferReused);
        if self.last.is_none() && msgbuf.capacity() <= SMALL && is_idle {
            self.last = Some(msgbuf);
        } else {
            self.recycle_block(msgbuf);
        }
    }

    #[inline(never)]
    fn recycle_block(&mut self, msgbuf: MsgBuf) {
        if let Ok(block) = msgbuf.reclaim(&self.home) {
            self.keep(block);
        }
    }

    /// Current counters. First collects what other threads have returned.
    pub fn stats(&mut self) -> PoolStats {
        self.collect();
        PoolStats {
            in_use: self.live_count - self.idle_count,
            in_use_bytes: self.live_bytes - self.idle_bytes,
            idle_bytes: self.idle_bytes,
        }
    }

    /// Frees all idle memory.
    pub fn shrink(&mut self) {
        if !mutant!(ShrinkBlind) {
            self.collect();
        }
        for class in 0..CLASSES {
            while let Some(block) = self.idle[class].pop() {
                self.uncount_idle(&block);
                self.free(block);
            }
        }
    }

    #[inline]
    fn reuse(&mut self, block: Block) -> MsgBuf {
        self.uncount_idle(&block);
        MsgBuf::from_block(block.activate())
    }

    #[inline]
    fn uncount_idle(&mut self, block: &Block) {
        self.idle_bytes -= Block::footprint(block.capacity());
        self.idle_count -= 1;
    }

    #[cold]
    fn alloc_slow(&mut self, class: usize, size: usize, len: usize) -> Result<MsgBuf, NoMemory> {
        self.collect();
        match self.idle[class].pop() {
            Some(block) => Ok(self.reuse(block)),
            None => self.allocate(size, len),
        }
    }

    #[cold]
    fn allocate(&mut self, size: usize, len: usize) -> Result<MsgBuf, NoMemory> {
        let error = NoMemory { wanted: len, limit: self.limit };
        if len > MsgBuf::MAX_CAPACITY {
            return Err(error);
        }
        let bytes = Block::footprint(size);
        if self.live_bytes + bytes > self.limit {
            self.shrink();
        }
        if self.live_bytes + bytes > self.limit {
            return Err(error);
        }
        let block = Block::allocate(size, Some(sync::Arc::clone(&self.home))).ok_or(error)?;
        self.live_bytes += bytes;
        self.live_count += 1;
        Ok(MsgBuf::from_block(block.activate()))
    }

    /// Moves to the idle lists the blocks that other threads and queues have dropped, and `last`.
    fn collect(&mut self) {
        if let Some(last) = self.last.take() {
            self.recycle_block(last);
        }
        let returned = self.home.take_returned();
        for block in returned {
            self.keep(block);
        }
    }

    /// Keeps an idle block for reuse if it has the size of a class, and frees it otherwise. Adopted
    /// blocks and blocks above the largest class have other sizes.
    #[inline]
    fn keep(&mut self, block: Block) {
        match class_for(block.capacity()) {
            Some((class, size)) if size == block.capacity() || mutant!(OddBlockKept) => {
                self.idle_bytes += Block::footprint(block.capacity());
                self.idle_count += 1;
                self.idle[class].push(block);
            }
            _ => self.free(block),
        }
    }

    fn free(&mut self, block: Block) {
        self.live_bytes -= Block::footprint(block.capacity());
        self.live_count -= 1;
        drop(block);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.idle.clear();
        self.home.close();
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("live_bytes", &self.live_bytes)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_holds_the_requested_size_and_wastes_at_most_a_quarter() {
        for bytes in (1..20_000).chain([1 << 20, (1 << 20) + 1, 8_585_240, 32 << 20]) {
            let (class, size) = class_for(bytes).unwrap();
            assert!(
                size >= bytes && (size <= MIN_BLOCK || size * 4 <= bytes * 5 + 64),
                "{bytes} -> {size}"
            );
            assert_eq!(class_for(size), Some((class, size)), "a block returns to its class");
        }
        assert_eq!(class_for((32 << 20) + 1), None);
    }

    #[test]
    fn dropped_and_recycled_buffers_are_reused() {
        let mut pool = Pool::new(1 << 20);
        let (a, b) = (pool.alloc(100).unwrap(), pool.alloc(100).unwrap());
        assert_eq!(pool.stats().in_use, 2);
        drop(a);
        pool.recycle(b);
        let stats = pool.stats();
        assert_eq!((stats.in_use, stats.in_use_bytes), (0, 0));
        let kept = stats.idle_bytes;
        let _again = (pool.alloc(100).unwrap(), pool.alloc(100).unwrap());
        assert_eq!(pool.stats().in_use_bytes, kept, "no new memory was allocated");
    }

    #[test]
    fn the_last_recycled_msgbuf_is_reused_first_if_it_is_small_and_unique() {
        let mut pool = Pool::new(1 << 20);
        let mut first = pool.alloc(100).unwrap();
        first.resize(100);
        let place = first.as_slice().as_ptr();
        pool.recycle(first);
        let again = pool.alloc(1).unwrap();
        assert_eq!((again.as_slice().as_ptr(), again.len()), (place, 0));
        let queued = again.share();
        pool.recycle(again);
        assert_ne!(pool.alloc(1).unwrap().as_slice().as_ptr(), place, "a queue still reads it");
        drop(queued);
        let large = pool.alloc(4 * SMALL).unwrap();
        pool.recycle(large);
        assert!(
            pool.alloc(1).unwrap().capacity() <= SMALL,
            "a large msgbuf is not used for a small message"
        );
        pool.recycle(MsgBuf::detached(10).unwrap());
        assert_eq!(pool.stats().in_use, 0, "a msgbuf of no pool is not kept");
    }

    #[test]
    fn a_buffer_returns_from_another_thread_and_outlives_its_pool() {
        let mut pool = Pool::new(1 << 20);
        let (a, b) = (pool.alloc(10).unwrap(), pool.alloc(10).unwrap());
        std::thread::spawn(move || drop(a)).join().unwrap();
        assert_eq!(pool.stats().in_use, 1);
        drop(pool);
        assert_eq!(b.as_slice(), b"");
    }

    /// An arena that takes memory from the system allocator and counts its bytes.
    #[derive(Default)]
    struct Counting(std::sync::atomic::AtomicUsize);

    // SAFETY: returns memory of the system allocator unchanged, zeroed, with the requested layout.
    unsafe impl Arena for Counting {
        fn allocate(&self, layout: std::alloc::Layout) -> Option<std::ptr::NonNull<u8>> {
            self.0.fetch_add(layout.size(), std::sync::atomic::Ordering::Relaxed);
            // SAFETY: the trait promises a size that is not 0.
            std::ptr::NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
        }

        unsafe fn release(&self, memory: std::ptr::NonNull<u8>, layout: std::alloc::Layout) {
            self.0.fetch_sub(layout.size(), std::sync::atomic::Ordering::Relaxed);
            // SAFETY: the caller promises that `memory` came from `allocate` with this layout.
            unsafe { std::alloc::dealloc(memory.as_ptr(), layout) };
        }
    }

    #[test]
    fn memory_comes_from_the_arena_and_returns_to_it() {
        let arena = Arc::new(Counting::default());
        let mut pool = Pool::in_arena(1 << 20, Some(Arc::clone(&arena) as _));
        let (early, late) = (pool.alloc(100).unwrap(), pool.alloc(5_000).unwrap());
        assert!(arena.0.load(std::sync::atomic::Ordering::Relaxed) > 5_100);
        drop((early, pool));
        std::thread::spawn(move || drop(late)).join().unwrap();
        assert_eq!(arena.0.load(std::sync::atomic::Ordering::Relaxed), 0);
    }

    #[test]
    fn the_limit_holds_and_idle_memory_is_freed_to_make_room() {
        let mut pool = Pool::new(10_000);
        let small = pool.alloc(4_000).unwrap();
        assert_eq!(pool.alloc(8_000).unwrap_err(), NoMemory { wanted: 8_000, limit: 10_000 });
        drop(small);
        assert!(pool.alloc(7_000).is_ok(), "the pool frees the idle 4,000 bytes");
    }

    #[test]
    fn an_adopted_buffer_is_counted_and_freed_like_the_pools_own() {
        let mut pool = Pool::new(10_000);
        let foreign = MsgBuf::detached(4_999).unwrap();
        let bytes = foreign.footprint();
        let adopted = pool.adopt(foreign).unwrap();
        assert_eq!((pool.stats().in_use, pool.stats().in_use_bytes), (1, bytes));
        assert!(pool.adopt(MsgBuf::detached(5_000).unwrap()).is_err(), "beyond the limit");
        drop(adopted);
        assert_eq!(pool.stats(), PoolStats::default(), "a block of no class is not kept");
        let own = pool.alloc(100).unwrap();
        let own = pool.adopt(own).unwrap();
        assert_eq!(pool.stats().in_use, 1, "the pool's own msgbuf is unchanged");
        drop(own);
    }

    #[test]
    fn a_queued_buffer_is_not_reused_before_the_queue_releases_it() {
        let mut pool = Pool::new(1 << 20);
        let buffer = pool.alloc(10).unwrap();
        let queued = buffer.share();
        pool.recycle(buffer);
        assert_eq!(pool.stats().in_use, 1);
        drop(queued);
        assert_eq!(pool.stats().in_use, 0);
    }

    #[test]
    fn returned_memory_makes_room() {
        let mut pool = Pool::new(10_000);
        let large = pool.alloc(7_000).unwrap();
        std::thread::spawn(move || drop(large)).join().unwrap();
        pool.shrink();
        assert_eq!(pool.stats(), PoolStats::default(), "returned memory is freed");
        let large = pool.alloc(7_000).unwrap();
        std::thread::spawn(move || drop(large)).join().unwrap();
        let foreign = MsgBuf::detached(5_000).unwrap();
        assert!(pool.adopt(foreign).is_ok(), "the pool frees what the other thread has returned");
    }

    #[test]
    fn a_copy_spares_a_buffer_that_a_queue_reads() {
        let mut pool = Pool::new(1 << 20);
        let request = pool.copy(b"request").unwrap();
        let place = request.as_slice().as_ptr();
        let reply = pool.copy_into(request, b"reply").unwrap();
        assert_eq!((reply.as_slice(), reply.as_slice().as_ptr()), (&b"reply"[..], place));
        let queued = reply.share();
        let next = pool.copy_into(reply, b"other").unwrap();
        assert_ne!(next.as_slice().as_ptr(), place);
        assert_eq!((queued.as_slice(), next.as_slice()), (&b"reply"[..], &b"other"[..]));
    }
}
