//! A folder of the system.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::Files;
use super::errors::{DiskError, OpenError};

/// The files of a folder. No other process can open it meanwhile.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The folder itself, to sync it. Holds its lock.
    folder: File,
    /// The file that was appended to last.
    open: Option<(String, File)>,
}

impl Folder {
    /// Opens a folder, and creates it if there is none.
    ///
    /// # Errors
    /// [`OpenError::Disk`] or [`OpenError::InUse`]
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let name = path.display().to_string();
        fs::create_dir_all(path).map_err(DiskError::of("create", &name))?;
        let folder = File::open(path).map_err(DiskError::of("open", &name))?;
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(OpenError::InUse(name)),
            Err(error) => return Err(DiskError::of("lock", &name)(error.into()).into()),
        }
        // A process that died may have created or renamed files, and not synced the folder.
        folder.sync_all().map_err(DiskError::of("sync", &name))?;
        Ok(Self { path: path.to_owned(), folder, open: None })
    }

    fn file(&mut self, name: &str) -> io::Result<&mut File> {
        if self.open.as_ref().is_none_or(|(open, _)| open != name) {
            let path = self.path.join(name);
            let is_new = !path.exists();
            let file = OpenOptions::new().append(true).create(true).open(path)?;
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
        self.file(name)?.write_all(bytes)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.file(name)?.sync_data()
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = self.path.join(format!("{name}.new"));
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, self.path.join(name))?;
        self.folder.sync_all()
    }

    fn truncate(&mut self, name: &str, len: u64) -> io::Result<()> {
        let file = self.file(name)?;
        file.set_len(len)?;
        file.sync_all()
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.open.take_if(|(open, _)| open == name);
        fs::remove_file(self.path.join(name))
    }
}
