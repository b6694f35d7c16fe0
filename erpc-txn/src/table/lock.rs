//! Locks of transactions.

use super::errors::{Conflict, LockError};
use super::ids::{Bucket, Owner, Version};
use super::memory::{Access, Exclusive};
use super::{Full, Read, Table};

impl Table {
    /// Locks the bucket of a key that is to be updated or deleted, and reads the key. The read needs
    /// no validation.
    ///
    /// # Errors
    ///
    /// If another transaction holds the lock, or the key is absent. Then the bucket stays locked
    /// only if `me` held its lock before.
    #[inline]
    pub fn lock_for_update(&self, key: u64, me: Owner) -> Result<Read, LockError> {
        let index = self.hash.bucket(key);
        let bucket = match self.memory.lock(index) {
            Ok(bucket) => bucket,
            Err(Conflict { owner }) if owner == Some(me) => {
                let (version, value) = self.memory.read(index, key, Access::Of(Some(me)))?;
                if value.is_none() {
                    return Err(LockError::Absent(version));
                }
                return Ok(Read { version, value });
            }
            Err(conflict) => return Err(conflict.into()),
        };
        let version = bucket.version();
        if version == Version::MAX {
            bucket.release();
            return Err(Full::Versions.into());
        }
        let value = bucket.value(key);
        if value.is_none() {
            bucket.release();
            return Err(LockError::Absent(version));
        }
        bucket.keep(me);
        Ok(Read { version, value })
    }

    /// Locks the bucket of a key that is to be inserted, and reserves room for it, so that the
    /// commit cannot fail. Returns the version at which the key is absent.
    ///
    /// # Errors
    ///
    /// If another transaction holds the lock, the key is present, or there is no room. Then the
    /// bucket stays locked only if `me` held its lock before.
    pub fn lock_for_insert(&self, key: u64, me: Owner) -> Result<Version, LockError> {
        let index = self.hash.bucket(key);
        let (mut bucket, held) = match self.memory.lock(index) {
            Ok(bucket) => (bucket, false),
            Err(Conflict { owner }) if owner == Some(me) => match self.memory.claim(index, me) {
                Ok(bucket) => (bucket, true),
                Err(owner) => return Err(Conflict { owner }.into()),
            },
            Err(conflict) => return Err(conflict.into()),
        };
        let version = bucket.version();
        let reserved = reserve(&mut bucket, key);
        if held || reserved.is_ok() {
            bucket.keep(me);
        } else {
            bucket.release();
        }
        reserved.map(|()| version)
    }

    /// Gives up the lock of `me`, its reservations, and nothing else. False if `me` does not hold
    /// the lock, or the table has no such bucket.
    #[inline]
    pub fn unlock(&self, bucket: Bucket, me: Owner) -> bool {
        let Some(index) = self.index(bucket) else { return false };
        let claimed = self.memory.claim(index, me);
        let held = claimed.is_ok();
        if let Ok(bucket) = claimed {
            bucket.release();
        }
        held
    }

    /// The locks that transactions hold. Looks at every bucket, one cache line each.
    pub fn locks(&self) -> impl Iterator<Item = (Bucket, Owner)> {
        (0..self.buckets()).filter_map(|index| {
            let (_, owner) = self.memory.status(index).ok()?;
            Some((Bucket::new(index), owner?))
        })
    }

    /// Gives up all locks of owners for which `is_gone` is true, and returns how many. For recovery:
    /// nobody commits under these locks any more.
    pub fn unlock_all(&self, mut is_gone: impl FnMut(Owner) -> bool) -> usize {
        self.locks().filter(|&(bucket, owner)| is_gone(owner) && self.unlock(bucket, owner)).count()
    }
}

fn reserve(bucket: &mut Exclusive<'_>, key: u64) -> Result<(), LockError> {
    let version = bucket.version();
    if version == Version::MAX {
        return Err(Full::Versions.into());
    }
    if bucket.contains(key) {
        return Err(LockError::Present(version));
    }
    Ok(bucket.reserve()?)
}
