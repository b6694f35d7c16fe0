//! The calls by which a [folder](super::Folder) changes what is on the disk, and syncs it.
//!
//! A process does not see what a crash of the machine would lose. So a [test](super::tests) records these
//! calls, and derives what would survive.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Creates a file or a folder. A file that exists is emptied.
    Create,
    /// Changes the bytes of a file.
    Change,
    /// Returns when the bytes of a file, or the names in a folder, survive a crash of the machine.
    Sync,
    /// Gives a file the name without its extension.
    Rename,
    /// Deletes a file.
    Remove,
}

/// A file or folder that is open.
#[derive(Debug)]
pub(super) struct Handle {
    file: File,
    path: PathBuf,
}

impl Handle {
    pub(super) fn of_folder(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?, path: path.to_owned() })
    }

    /// Creates a file, or empties it.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        note(Call::Create, path)?;
        Ok(Self { file: File::create(path)?, path: path.to_owned() })
    }

    /// Opens a file to append to, and creates it if there is none. With whether it is new.
    pub(super) fn append_to(path: &Path) -> io::Result<(Self, bool)> {
        let is_new = !path.exists();
        if is_new {
            note(Call::Create, path)?;
        }
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok((Self { file, path: path.to_owned() }, is_new))
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        note(Call::Change, &self.path)?;
        self.file.write_all(bytes)
    }

    pub(super) fn set_len(&mut self, len: u64) -> io::Result<()> {
        note(Call::Change, &self.path)?;
        self.file.set_len(len)
    }

    /// Its bytes, and as much of what is known of it as they need.
    pub(super) fn sync_data(&self) -> io::Result<()> {
        note(Call::Sync, &self.path)?;
        self.file.sync_data()
    }

    pub(super) fn sync_all(&self) -> io::Result<()> {
        note(Call::Sync, &self.path)?;
        self.file.sync_all()
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Creates a folder, unless there is one.
pub(super) fn create_folder(path: &Path) -> io::Result<()> {
    note(Call::Create, path)?;
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        created => created,
    }
}

/// Gives a file the name without its extension, in the place of a file that has it.
pub(super) fn rename(path: &Path) -> io::Result<()> {
    note(Call::Rename, path)?;
    fs::rename(path, path.with_extension(""))
}

pub(super) fn remove(path: &Path) -> io::Result<()> {
    note(Call::Remove, path)?;
    fs::remove_file(path)
}

#[cfg(not(test))]
fn note(_: Call, _: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
use recorder::note;

/// Records the calls of a thread.
#[cfg(test)]
pub(super) mod recorder {
    use std::cell::RefCell;
    use std::io;
    use std::path::{Path, PathBuf};

    use super::Call;

    struct Recording {
        calls: Vec<(Call, PathBuf)>,
        /// So many calls are made. The others fail.
        left: usize,
    }

    thread_local! {
        static RECORDING: RefCell<Option<Recording>> = const { RefCell::new(None) };
    }

    /// Records the calls of this thread from now on. After `limit` of them, all fail.
    pub(in crate::disk) fn begin(limit: usize) {
        RECORDING.set(Some(Recording { calls: Vec::new(), left: limit }));
    }

    /// The calls since it was asked last.
    pub(in crate::disk) fn calls() -> Vec<(Call, PathBuf)> {
        let take = |recording: &mut Recording| std::mem::take(&mut recording.calls);
        RECORDING.with_borrow_mut(|recording| recording.as_mut().map(take).unwrap_or_default())
    }

    pub(super) fn note(call: Call, path: &Path) -> io::Result<()> {
        RECORDING.with_borrow_mut(|recording| {
            let Some(Recording { calls, left }) = recording else { return Ok(()) };
            *left = left.checked_sub(1).ok_or_else(|| io::Error::other("the process has died"))?;
            calls.push((call, path.to_owned()));
            Ok(())
        })
    }
}
