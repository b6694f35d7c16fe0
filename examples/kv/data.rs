//! The data to store: files, with their paths as keys.

use std::fs;
use std::path::Path;

use bytes::Bytes;

use crate::failure::Failure;

/// Files, sorted by key.
pub(crate) struct Data {
    files: Vec<File>,
    bytes: u64,
}

/// One file.
pub(crate) struct File {
    /// The path, relative and with slashes.
    pub(crate) key: String,
    pub(crate) value: Bytes,
}

impl Data {
    /// Every file below `folder`. Without a folder, the sources of this project.
    pub(crate) fn read(folder: Option<&Path>) -> Result<Self, Failure> {
        match folder {
            Some(folder) => Self::read_folder(folder, &[]),
            None => {
                let own = Path::new(env!("CARGO_MANIFEST_DIR"));
                Self::read_folder(own.parent().unwrap_or(own), &["target", ".git"])
            }
        }
    }

    /// Skips symbolic links, which may form cycles.
    fn read_folder(root: &Path, skipped: &[&str]) -> Result<Self, Failure> {
        let mut files = Vec::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            let unreadable = |path: &Path| {
                let path = path.to_owned();
                move |error| Failure::Input { path, error }
            };
            for entry in fs::read_dir(&folder).map_err(unreadable(&folder))? {
                let entry = entry.map_err(unreadable(&folder))?;
                let path = entry.path();
                let kind = entry.file_type().map_err(unreadable(&path))?;
                let is_skipped = skipped.iter().any(|name| entry.file_name() == *name);
                if kind.is_dir() && !is_skipped {
                    folders.push(path);
                } else if kind.is_file() {
                    let value = fs::read(&path).map_err(unreadable(&path))?.into();
                    files.push(File { key: key(&path, root)?, value });
                }
            }
        }
        if files.is_empty() {
            return Err(Failure::NoFiles(root.to_owned()));
        }
        files.sort_by(|one, other| one.key.cmp(&other.key));
        let bytes = files.iter().map(|file| file.value.len() as u64).sum();
        Ok(Self { files, bytes })
    }

    /// The files by key.
    pub(crate) fn files(&self) -> &[File] {
        &self.files
    }

    /// Bytes of all values.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The files whose keys start with `prefix` and sort after `start_after`.
    pub(crate) fn range<'a>(
        &'a self,
        prefix: &'a str,
        start_after: &str,
    ) -> impl Iterator<Item = &'a File> {
        let begin = self
            .files
            .partition_point(|file| file.key.as_str() < prefix || file.key.as_str() <= start_after);
        self.files[begin..].iter().take_while(move |file| file.key.starts_with(prefix))
    }
}

fn key(path: &Path, root: &Path) -> Result<String, Failure> {
    let relative = path.strip_prefix(root).unwrap_or(path);
    let parts: Option<Vec<_>> = relative.iter().map(|part| part.to_str()).collect();
    parts.map(|parts| parts.join("/")).ok_or_else(|| Failure::NotText(path.to_owned()))
}
