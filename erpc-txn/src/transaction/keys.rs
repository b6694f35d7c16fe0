//! What an attempt knows of its keys, and whether it can still commit.

use std::cell::{Cell, RefCell};

use super::Wanted;
use super::accesses::{Accesses, Entry};
use super::bytes::ValueBytes;
use super::errors::{Abort, Reason};
use crate::mutants::mutant;
use crate::participant::{Kind, Place};
use crate::table::{Bucket, Read, Version};

/// The keys of an attempt.
#[derive(Debug, Default)]
pub struct Keys {
    accesses: RefCell<Accesses>,
    /// Why the attempt cannot commit.
    doomed: RefCell<Option<Reason>>,
    /// Accesses that have begun and not ended.
    running: Cell<usize>,
    /// The commit has begun, so the keys stay as they are.
    is_closed: Cell<bool>,
    is_over: Cell<bool>,
}

/// An access that has begun. If it is dropped before it has ended, the attempt cannot commit: its
/// requests may lock keys of which the attempt will not know.
#[derive(Debug)]
pub(crate) struct Running<'k>(&'k Keys);

/// What an access found.
pub(crate) struct Answer {
    pub(crate) bucket: Bucket,
    pub(crate) read: Result<(Version, Option<ValueBytes>), Failure>,
}

/// Why an access found nothing.
pub(crate) enum Failure {
    Conflict,
    Absent(Version),
    Present,
    Full,
}

impl Keys {
    /// Fails if the attempt cannot commit any more.
    pub(crate) fn check(&self) -> Result<(), Abort> {
        if self.is_closed.get() || self.is_over.get() {
            return Err(Abort::new(Reason::Ended));
        }
        match &*self.doomed.borrow() {
            Some(reason) => Err(Abort::new(reason.clone())),
            None => Ok(()),
        }
    }

    /// The attempt cannot commit any more.
    pub(crate) fn doom(&self, reason: Reason) -> Abort {
        self.doomed.borrow_mut().get_or_insert_with(|| reason.clone());
        Abort::new(reason)
    }

    /// Begins an access.
    pub(crate) fn begin_access(&self) -> Result<Running<'_>, Abort> {
        self.check()?;
        self.running.set(self.running.get() + 1);
        Ok(Running(self))
    }

    /// Adds a key that was read and not locked, and of which the attempt knew nothing.
    #[inline]
    pub(crate) fn add_read(&self, place: Place, partition: u16, bucket: Bucket, read: Read) {
        let Read { version, value } = read;
        let value = value.map(ValueBytes::Local);
        let (is_locked, change) = (false, None);
        let entry = Entry { place, partition, bucket, version, is_locked, value, change };
        self.accesses.borrow_mut().add(entry);
    }

    /// Ends an attempt that can commit, has at most one key and holds no lock: its read held when it was
    /// made, so there is nothing to validate. False if there is more to do. The caller knows that no
    /// lock is left at another node.
    #[inline]
    pub(crate) fn end_single_read(&self) -> bool {
        let is_alone = match self.accesses.borrow().entries() {
            [] => true,
            [one] => !one.is_locked,
            _ => false,
        };
        let can_end = is_alone && self.running.get() == 0 && self.check().is_ok();
        if can_end {
            self.is_over.set(true);
        }
        can_end
    }

    /// Begins the commit: no access and no change comes any more.
    pub(crate) fn close(&self) -> Result<(), Abort> {
        self.check()?;
        if self.running.get() > 0 {
            return Err(self.doom(Reason::Unfinished));
        }
        self.is_closed.set(true);
        Ok(())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Ends the attempt, whether it commits or not. False if it has ended before.
    pub(crate) fn end(&self) -> bool {
        !self.is_over.replace(true)
    }

    pub(crate) fn with<O>(&self, look: impl FnOnce(&[Entry]) -> O) -> O {
        look(self.accesses.borrow().entries())
    }

    /// What the transaction sees of a key that it has read.
    pub(crate) fn current<O>(&self, place: Place, look: impl FnOnce(Option<&[u8]>) -> O) -> O {
        look(self.accesses.borrow().find(place).and_then(Entry::current))
    }

    pub(crate) fn knows(&self, place: Place) -> bool {
        self.accesses.borrow().find(place).is_some()
    }

    pub(crate) fn is_locked(&self, place: Place) -> bool {
        self.accesses.borrow().find(place).is_some_and(|entry| entry.is_locked)
    }

    pub(crate) fn write(&self, place: Place, value: Vec<u8>) -> Result<(), Abort> {
        self.change(place, |entry| entry.write(value))
    }

    pub(crate) fn delete(&self, place: Place) -> Result<(), Abort> {
        self.change(place, Entry::delete)
    }

    fn change(&self, place: Place, change: impl FnOnce(&mut Entry) -> bool) -> Result<(), Abort> {
        self.check()?;
        if self.accesses.borrow_mut().find_mut(place).is_some_and(change) {
            return Ok(());
        }
        Err(self.doom(Reason::NotLocked(place)))
    }

    /// Whether an access must be made, because what the attempt knows is not enough.
    pub(crate) fn needs(&self, wanted: &mut Wanted) -> Result<bool, Abort> {
        let place = wanted.place;
        let mut accesses = self.accesses.borrow_mut();
        let Some(entry) = accesses.find_mut(place) else { return Ok(true) };
        let is_enough = match wanted.kind {
            Kind::Read => true,
            // The commit checks that an absent key is still absent.
            Kind::Update => entry.is_locked || entry.value.is_none(),
            Kind::Insert => {
                if entry.current().is_some() {
                    return Err(self.doom(Reason::Present(place)));
                }
                if entry.is_locked {
                    entry.put(wanted.value.take().unwrap_or_default());
                }
                entry.is_locked
            }
        };
        Ok(!is_enough)
    }

    /// Takes over the answer to an access of a key in this partition.
    pub(crate) fn take_over(
        &self,
        wanted: &mut Wanted,
        partition: u16,
        answer: Answer,
    ) -> Result<(), Reason> {
        let place = wanted.place;
        let mut accesses = self.accesses.borrow_mut();
        let known = accesses.find_mut(place);
        if wanted.kind == Kind::Insert && known.as_ref().is_some_and(|of| of.current().is_some()) {
            // Another access of the same closure was faster.
            return Err(Reason::Present(place));
        }
        let (version, value, is_locked) = match answer.read {
            Ok((version, value)) => (version, value, wanted.kind != Kind::Read),
            Err(Failure::Absent(version)) => (version, None, false),
            Err(Failure::Conflict) => return Err(Reason::Conflict(place)),
            // The transaction has read that the key is absent.
            Err(Failure::Present) if known.is_some() => return Err(Reason::Changed(place)),
            Err(Failure::Present) => return Err(Reason::Present(place)),
            Err(Failure::Full) => return Err(Reason::Full(place)),
        };
        match known {
            Some(entry) if entry.version != version && !mutant!(UpgradeUnchecked) => {
                return Err(Reason::Changed(place));
            }
            Some(entry) => entry.is_locked |= is_locked,
            None => {
                let (bucket, change) = (answer.bucket, None);
                accesses.add(Entry { place, partition, bucket, version, is_locked, value, change });
            }
        }
        if let (Some(value), Some(entry)) = (wanted.value.take(), accesses.find_mut(place)) {
            entry.put(value);
        }
        Ok(())
    }
}

impl Running<'_> {
    /// The access has its result.
    pub(crate) fn end(self) {
        self.0.running.set(self.0.running.get() - 1);
        std::mem::forget(self);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get() - 1);
        self.0.doom(Reason::Unfinished);
    }
}
