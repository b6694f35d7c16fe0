//! The keys of a transaction: what it has read, locked and will write.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::bytes::ValueBytes;
use crate::mutants::mutant;
use crate::participant::Place;
use crate::table::{Bucket, Version};

/// A key that the transaction has read or locked.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) place: Place,
    pub(crate) partition: u16,
    pub(crate) bucket: Bucket,
    /// At which it was read, and locked if it is locked.
    pub(crate) version: Version,
    pub(crate) is_locked: bool,
    /// The committed value that was read.
    pub(crate) value: Option<ValueBytes>,
    pub(crate) change: Option<Change>,
}

/// What becomes of a locked key.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// The key was absent.
    Insert(Vec<u8>),
    /// The key was present.
    Update(Vec<u8>),
    /// The key was present.
    Delete,
}

impl Entry {
    /// The value as the transaction sees it, after its own changes.
    pub(crate) fn current(&self) -> Option<&[u8]> {
        if mutant!(OwnWritesUnseen) && self.value.is_some() {
            return self.value.as_deref();
        }
        match &self.change {
            Some(Change::Insert(value) | Change::Update(value)) => Some(value),
            Some(Change::Delete) => None,
            None => self.value.as_deref(),
        }
    }

    /// Writes a value to a locked key that is present. False if it is not.
    pub(crate) fn write(&mut self, value: Vec<u8>) -> bool {
        if !self.is_locked || self.current().is_none() {
            return false;
        }
        self.put(value);
        true
    }

    /// Gives a locked key a value, whether it is present or not.
    pub(crate) fn put(&mut self, value: Vec<u8>) {
        let was_present = self.value.is_some();
        self.change = Some(if was_present { Change::Update(value) } else { Change::Insert(value) });
    }

    /// Deletes a locked key that is present. False if it is not.
    pub(crate) fn delete(&mut self) -> bool {
        if !self.is_locked || self.current().is_none() {
            return false;
        }
        // A key that this transaction has inserted is as if it had never been there.
        self.change = self.value.is_some().then_some(Change::Delete);
        true
    }
}

/// The keys of a transaction, each once. Few as a rule, so a search looks at all of them.
#[derive(Debug, Default)]
pub(crate) struct Accesses {
    entries: SmallVec<[Entry; 2]>,
    /// From [`MANY`] entries on.
    index: Option<HashMap<Place, usize>>,
}

/// So many keys that a search must not look at all of them.
pub(super) const MANY: usize = 16;

impl Accesses {
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(crate) fn find(&self, place: Place) -> Option<&Entry> {
        self.position(place).map(|at| &self.entries[at])
    }

    pub(crate) fn find_mut(&mut self, place: Place) -> Option<&mut Entry> {
        self.position(place).map(|at| &mut self.entries[at])
    }

    fn position(&self, place: Place) -> Option<usize> {
        match &self.index {
            Some(index) => index.get(&place).copied(),
            None => self.entries.iter().position(|entry| entry.place == place),
        }
    }

    /// Adds a key that is not there yet.
    pub(crate) fn add(&mut self, entry: Entry) {
        debug_assert!(self.position(entry.place).is_none());
        if let Some(index) = &mut self.index {
            index.insert(entry.place, self.entries.len());
        }
        self.entries.push(entry);
        if self.index.is_none() && self.entries.len() >= MANY {
            let all = self.entries.iter().enumerate();
            self.index = Some(all.map(|(at, entry)| (entry.place, at)).collect());
        }
    }
}
