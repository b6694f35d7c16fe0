//! A folder of the system.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::Files;
use super::errors::{DiskError, OpenError};
use super::system::{self, Handle};

/// The files of a folder. No other process can open it meanwhile.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The folder itself, to sync it. Holds its lock.
    folder: Handle,
    /// The file that was appended to last.
    open: Option<(String, Handle)>,
}

impl Folder {
    /// Opens a folder, and creates it if there is none, with those above it.
    ///
    /// # Errors
    /// [`OpenError::Disk`] or [`OpenError::InUse`]
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let name = path.display().to_string();
        create(path).map_err(DiskError::of("create", &name))?;
        let folder = Handle::of_folder(path).map_err(DiskError::of("open", &name))?;
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(OpenError::InUse(name)),
            Err(error) => return Err(DiskError::of("lock", &name)(error.into()).into()),
        }
        // A process that died may have created or renamed files, and not synced the folder.
        folder.sync_all().map_err(DiskError::of("sync", &name))?;
        Ok(Self { path: path.to_owned(), folder, open: None })
    }

    fn file(&mut self, name: &str) -> io::Result<&mut Handle> {
        if self.open.as_ref().is_none_or(|(open, _)| open != name) {
            let (file, is_new) = Handle::append_to(&self.path.join(name))?;
            if is_new {
                self.folder.sync_all()?;
            }
            self.open = Some((name.to_owned(), file));
        }
        match &mut self.open {
            Some((_, file)) => Ok(file),
            None => unreachable!("it was opened"),
        }
    }
}

/// Creates a folder, and those above it, one after another. Each survives a crash of the machine before
/// there is something in it. Otherwise the crash could take the folder. Then the node would begin anew,
/// without its votes.
fn create(path: &Path) -> io::Result<()> {
    let mut missing = Vec::new();
    let mut at = path;
    while !at.is_dir() && above(at) != at {
        missing.push(at);
        at = above(at);
    }
    // A process that died may have created this one, and not synced its name.
    if let Some(parent) = fs::canonicalize(at)?.parent() {
        match Handle::of_folder(parent).and_then(|parent| parent.sync_all()) {
            Ok(()) => {}
            // This process may not read the parent, so it has not made the folder; or the folder is the
            // root of another file system, whose parent cannot be synced and loses nothing.
            Err(error) if is_foreign(&error) => {}
            Err(error) => return Err(error),
        }
    }
    for folder in missing.into_iter().rev() {
        let parent = Handle::of_folder(above(folder))?;
        system::create_folder(folder)?;
        parent.sync_all()?;
    }
    Ok(())
}

fn is_foreign(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput)
}

/// The folder that a path is in.
fn above(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        // The root, which always exists.
        None => path,
    }
}

impl Files for Folder {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name().into_string();
            // Files with other names are not ours. Those of `replace` that are left over neither.
            names.extend(name.ok().filter(|name| !name.ends_with(".new")));
        }
        Ok(names)
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path.join(name))
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.file(name)?.write(bytes)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.file(name)?.sync_data()
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = self.path.join(format!("{name}.new"));
        let mut file = Handle::create(&new)?;
        file.write(bytes)?;
        file.sync_all()?;
        system::rename(&new)?;
        self.folder.sync_all()
    }

    fn truncate(&mut self, name: &str, len: u64) -> io::Result<()> {
        let file = self.file(name)?;
        file.set_len(len)?;
        file.sync_all()
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.open.take_if(|(open, _)| open == name);
        system::remove(&self.path.join(name))
    }
}
