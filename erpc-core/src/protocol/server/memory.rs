//! Memory accounting of a server session.

/// Bytes of memory that a session holds.
#[derive(Default)]
pub(super) struct SessionMemory {
    slots: usize,
    /// Bytes of requests that the endpoint's owner keeps, as the owner reports them.
    kept_by_owner: usize,
}

impl SessionMemory {
    /// Bytes that the slots hold.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    pub(super) fn total(&self) -> usize {
        self.slots + self.kept_by_owner
    }

    pub(super) fn set_kept_by_owner(&mut self, bytes: usize) {
        self.kept_by_owner = bytes;
    }

    #[inline]
    pub(super) fn add(&mut self, bytes: usize) {
        self.slots += bytes;
    }

    #[inline]
    pub(super) fn remove(&mut self, bytes: usize) {
        debug_assert!(self.slots >= bytes, "{bytes} of {} bytes", self.slots);
        self.slots -= bytes;
    }
}
