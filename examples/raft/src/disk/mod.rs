//! What a node keeps on disk: its log, its votes, and snapshots of its state.
//!
//! ```text
//!   node ── Job ──> DiskThread ── groups of jobs ──> Log ── bytes ──> Files
//!        <─ Done ──  one fsync per group             frames           a folder, or a simulation
//! ```
//!
//! * [`Log`] knows which bytes are in which file, and reads them after a restart.
//! * [`Files`] is the little that it needs of a file system. [`Folder`] is a real one.
//! * [`DiskThread`] writes while the node goes on. All jobs that wait are written together.
//! * [`Volatile`] keeps nothing.

mod errors;
mod folder;
mod frame;
mod log;
mod snapshot;
mod system;
#[cfg(test)]
mod tests;
mod thread;

pub use errors::{DiskError, OpenError};
pub use folder::Folder;
pub use log::{Identity, Log, Opened};
pub use thread::DiskThread;

use std::io;

use crate::consensus::{Snapshot, Write};

/// Something to write.
#[derive(Clone, Debug)]
pub enum Job {
    /// Entries and hard state.
    Write(Write),
    /// A snapshot of the node's own state. The log that it makes obsolete is deleted.
    Snapshot(Snapshot),
}

/// Where a node keeps its data.
pub trait Disk {
    /// Begins to write. Jobs are written in their order.
    fn submit(&mut self, job: Job);

    /// The ticket of the last [`Job::Write`] that is on disk, with all before it; 0 if there is none.
    ///
    /// # Errors
    /// [`DiskError`] if something could not be written. Nothing is written after that: what the disk
    /// has is not known, so the node must not go on.
    fn written(&mut self) -> Result<u64, DiskError>;
}

/// The little that a [`Log`] needs of a file system. Names have no folders.
pub trait Files {
    /// The names of all files.
    ///
    /// # Errors
    /// As the system says.
    fn list(&self) -> io::Result<Vec<String>>;

    /// All bytes of a file.
    ///
    /// # Errors
    /// As the system says.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// Appends bytes to a file, and creates it if there is none. After a crash, the file may have any
    /// part of what was not synced, and there may be anything in its place.
    ///
    /// # Errors
    /// As the system says.
    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Returns when all that was appended to a file survives a crash.
    ///
    /// # Errors
    /// As the system says. What survives is not known then.
    fn sync(&mut self, name: &str) -> io::Result<()>;

    /// Creates or replaces a file. After a crash, it has the old bytes or the new ones; when this
    /// returns, the new ones.
    ///
    /// # Errors
    /// As the system says.
    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Shortens a file, and syncs it.
    ///
    /// # Errors
    /// As the system says.
    fn truncate(&mut self, name: &str, len: u64) -> io::Result<()>;

    /// Deletes a file. After a crash it may come back, unless a file was replaced or created meanwhile.
    ///
    /// # Errors
    /// As the system says.
    fn remove(&mut self, name: &str) -> io::Result<()>;
}

/// Keeps nothing: everything is written at once. A node that stops must not come back under its id.
#[derive(Debug, Default)]
pub struct Volatile {
    ticket: u64,
}

impl Disk for Volatile {
    fn submit(&mut self, job: Job) {
        if let Job::Write(write) = job {
            self.ticket = write.ticket;
        }
    }

    fn written(&mut self) -> Result<u64, DiskError> {
        Ok(self.ticket)
    }
}
