//! Reads and their validation.

use super::errors::{Conflict, Invalid};
use super::ids::{Bucket, Owner, Version};
use super::memory::Access;
use super::{Table, Value};

/// What a read found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The version of the key's bucket.
    pub version: Version,
    /// The key's value; none if the key is absent.
    pub value: Option<Value>,
}

impl Table {
    /// Reads a key on behalf of transaction `me`, or of nobody in particular. A short value is
    /// copied; a long one costs about 30 ns more, whatever its length.
    ///
    /// # Errors
    ///
    /// If another transaction holds the lock. The old value is still there, but must not be read: if
    /// the other transaction commits, its success may be reported before its lock is released.
    #[inline]
    pub fn get(&self, key: u64, me: Option<Owner>) -> Result<Read, Conflict> {
        let (version, value) = self.memory.read(self.hash.bucket(key), key, Access::Of(me))?;
        Ok(Read { version, value })
    }

    /// Checks that what `me` has read from a bucket at `version` still holds, and that no other
    /// transaction is about to change it.
    ///
    /// # Errors
    ///
    /// If the bucket is locked by another transaction or has another version. A bucket that the
    /// table does not have has version 0.
    #[inline]
    pub fn validate(
        &self,
        bucket: Bucket,
        version: Version,
        me: Option<Owner>,
    ) -> Result<(), Invalid> {
        let (now, owner) = match self.index(bucket) {
            Some(index) => self.memory.status(index).map_err(Invalid::Conflict)?,
            None => (Version::ZERO, None),
        };
        if owner.is_some() && owner != me {
            return Err(Invalid::Conflict(Conflict { owner }));
        }
        if now != version {
            return Err(Invalid::Changed(now));
        }
        Ok(())
    }
}
