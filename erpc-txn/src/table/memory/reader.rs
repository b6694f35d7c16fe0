//! Optimistic reads: no lock, no write to shared memory, and a second look to see whether the bucket
//! changed meanwhile.
#![expect(unsafe_code, reason = "Taking references to cells that slots own.")]

use super::arena::Block;
use super::cell::CellPointer;
use super::window::Window;
use super::{Memory, SHARED, occupied};
use crate::sync::atomic::Ordering::{Acquire, Relaxed};
use crate::sync::atomic::fence;
use crate::sync::spin_loop;
use crate::table::errors::Conflict;
use crate::table::head::{ALL_SLOTS, Head, Slots};
use crate::table::ids::{Owner, Version};
use crate::table::layout::INLINE_WORDS;
use crate::table::value::Value;

/// How often a read begins again because other threads change the bucket. A change takes less than a
/// microsecond, unless its thread is preempted.
const ATTEMPTS: usize = if cfg!(loom) { 2 } else { 100 };

/// Whose lock does not hinder a read.
#[derive(Clone, Copy)]
pub(in crate::table) enum Access {
    /// Only this transaction's own.
    Of(Option<Owner>),
    /// Anybody's: the read is of what is committed, and a commit may be under way.
    Committed,
}

/// All entries of a bucket, as they were committed together.
pub(in crate::table) struct Contents {
    pub(in crate::table) version: Version,
    pub(in crate::table) entries: Vec<(u64, Value)>,
}

/// What a slot holds, before the second look at the head.
enum Found {
    /// The length; the words are elsewhere. To return them from here would copy them once more.
    Inline(u8),
    Cell(CellPointer),
}

type Words = [u64; INLINE_WORDS];

impl Found {
    /// # Safety
    ///
    /// The caller has been in the bucket's window since before it loaded the head, and the second
    /// look has found it unchanged; or the caller has the bucket's `Exclusive`.
    unsafe fn into_value(self, words: Words) -> Value {
        match self {
            Self::Inline(len) => Value::inline(len, words),
            // SAFETY: the slot owned a reference when its bucket had the head that the caller saw. A
            // later commit that releases this reference first waits until the window is empty.
            Self::Cell(pointer) => Value::shared(unsafe { pointer.share() }),
        }
    }
}

impl Memory {
    /// The bucket's version and the key's value.
    #[inline]
    pub(in crate::table) fn read(
        &self,
        bucket: u32,
        key: u64,
        access: Access,
    ) -> Result<(Version, Option<Value>), Conflict> {
        let main = self.blocks.get(bucket);
        let mut words = [0; INLINE_WORDS];
        let (head, found) = stable(main, access, |head| self.find(main, head, key, &mut words))?;
        match found {
            None => Ok((head.version(), None)),
            Some(Found::Inline(len)) => Ok((head.version(), Some(Value::inline(len, words)))),
            Some(Found::Cell(_)) => self.read_cell(bucket, key, access),
        }
    }

    /// As `read`, for a value that was in a cell a moment ago.
    #[cold]
    fn read_cell(
        &self,
        bucket: u32,
        key: u64,
        access: Access,
    ) -> Result<(Version, Option<Value>), Conflict> {
        let main = self.blocks.get(bucket);
        let window = Window::enter(main.back);
        let mut words = [0; INLINE_WORDS];
        let (head, found) = stable(main, access, |head| self.find(main, head, key, &mut words))?;
        // SAFETY: the window is open since before the head was loaded, and `stable` succeeded.
        let value = found.map(|found| unsafe { found.into_value(words) });
        drop(window);
        Ok((head.version(), value))
    }

    /// All entries of a bucket, sorted by key.
    pub(in crate::table) fn contents(
        &self,
        bucket: u32,
        access: Access,
    ) -> Result<Contents, Conflict> {
        let main = self.blocks.get(bucket);
        let window = Window::enter(main.back);
        let (head, found) = stable(main, access, |head| self.find_all(main, head))?;
        let entries = found.into_iter().map(|(key, found, words)| {
            // SAFETY: the window is open since before the head was loaded, and `stable` succeeded.
            (key, unsafe { found.into_value(words) })
        });
        let mut entries: Vec<_> = entries.collect();
        drop(window);
        entries.sort_unstable_by_key(|entry| entry.0);
        Ok(Contents { version: head.version(), entries })
    }

    /// The owner of the bucket's lock and the version, as of one moment. `Err` while a thread
    /// changes the bucket.
    #[inline]
    pub(in crate::table) fn status(
        &self,
        bucket: u32,
    ) -> Result<(Version, Option<Owner>), Conflict> {
        let main = self.blocks.get(bucket);
        let (head, owner) = stable(main, Access::Committed, |head| owner_of(main, head))?;
        Ok((head.version(), owner))
    }

    /// The key's value, for the thread that has the bucket's `Exclusive`, which is the proof.
    #[inline]
    pub(super) fn own_value(&self, exclusive: &super::Exclusive<'_>, key: u64) -> Option<Value> {
        let mut words = [0; INLINE_WORDS];
        let found = self.find(exclusive.main(), exclusive.head(), key, &mut words)?;
        // SAFETY: the caller has the `Exclusive`, so no commit releases a reference of the bucket.
        Some(unsafe { found.into_value(words) })
    }

    /// Finds a key and copies its value. The case of a key in the bucket's own block is kept apart
    /// and inline, so that what it needs stays in registers: through memory it takes 5 ns more.
    #[inline(always)]
    fn find(&self, main: Block<'_>, head: Head, key: u64, words: &mut Words) -> Option<Found> {
        let slots = head.slots();
        if let Some(slot) = main.find(slots.occupied, key) {
            return Some(self.copy(main, slots, slot, words));
        }
        if slots.occupied == ALL_SLOTS { self.find_in_overflow(main, key, words) } else { None }
    }

    #[inline(never)]
    fn find_in_overflow(&self, main: Block<'_>, key: u64, words: &mut Words) -> Option<Found> {
        self.overflow_of(main, ALL_SLOTS).find_map(|(_, block)| {
            let slots = block.head().slots();
            let slot = block.find(slots.occupied, key)?;
            Some(self.copy(block, slots, slot, words))
        })
    }

    fn find_all(&self, main: Block<'_>, head: Head) -> Vec<(u64, Found, Words)> {
        let mut all = Vec::new();
        let mut add = |block: Block<'_>, slots: Slots| {
            for slot in occupied(slots.occupied) {
                let mut words = [0; INLINE_WORDS];
                let found = self.copy(block, slots, slot, &mut words);
                all.push((block.front.keys[slot].load(Relaxed), found, words));
            }
        };
        add(main, head.slots());
        for (_, block) in self.overflow_of(main, head.occupancy()) {
            add(block, block.head().slots());
        }
        all
    }

    #[inline(always)]
    fn copy(&self, block: Block<'_>, slots: Slots, slot: usize, value: &mut Words) -> Found {
        let words = block.slot(slot, self.words);
        let len = block.len(slots, slot, self.inline);
        if len == SHARED {
            return Found::Cell(words[0].pointer());
        }
        for (to, from) in value.iter_mut().zip(words) {
            *to = from.bits();
        }
        Found::Inline(len)
    }
}

#[inline]
pub(super) fn owner_of(main: Block<'_>, head: Head) -> Option<Owner> {
    if head.is_locked() { Owner::new(main.front.owner.load(Acquire)) } else { None }
}

/// Runs `read` until the bucket did not change during it. Returns the head and what was read.
#[inline(always)]
fn stable<T>(
    main: Block<'_>,
    access: Access,
    mut read: impl FnMut(Head) -> T,
) -> Result<(Head, T), Conflict> {
    for _ in 0..ATTEMPTS {
        let head = Head::from_bits(main.front.head.load(Acquire));
        let owner = owner_of(main, head);
        if head.is_locked() {
            match (owner, access) {
                // A thread changes the bucket, which does not take long.
                (None, _) => {
                    spin_loop();
                    continue;
                }
                (Some(_), Access::Committed) => {}
                (Some(owner), Access::Of(me)) if me == Some(owner) => {}
                (Some(_), Access::Of(_)) => return Err(Conflict { owner }),
            }
        }
        let found = read(head);
        fence(Acquire);
        let unchanged = main.front.head.load(Relaxed) == head.bits()
            && (!head.is_locked() || main.front.owner.load(Relaxed) == owner.map_or(0, Owner::get));
        if unchanged {
            return Ok((head, found));
        }
        spin_loop();
    }
    Err(Conflict { owner: None })
}
