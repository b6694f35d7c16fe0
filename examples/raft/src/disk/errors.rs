//! How the disk fails.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Something could not be read or written.
#[derive(Clone, Debug)]
pub struct DiskError {
    what: &'static str,
    file: String,
    why: Arc<io::Error>,
}

impl DiskError {
    pub(super) fn of(what: &'static str, file: &str) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |why| Self { what, file, why: Arc::new(why) }
    }

    /// What the system says.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.why.kind()
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, file, why } = self;
        write!(f, "cannot {what} {file}: {why}")?;
        match why.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => f.write_str(
                "; make room and start the node again: what it has acknowledged is on the disk",
            ),
            _ => Ok(()),
        }
    }
}

impl Error for DiskError {}

/// A node's data cannot be used.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The disk fails.
    Disk(DiskError),
    /// The data are of another node or cluster.
    Foreign {
        /// The cluster and node that the data belong to.
        found: String,
        /// The cluster and node that were asked for.
        wanted: String,
    },
    /// A file is damaged: it was changed after it was written.
    Damaged {
        /// The file.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// Another process uses the folder.
    InUse(String),
}

impl OpenError {
    pub(super) fn damaged(file: &str, why: impl Into<String>) -> Self {
        Self::Damaged { file: file.into(), why: why.into() }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(error) => error.fmt(f),
            Self::Foreign { found, wanted } => {
                write!(
                    f,
                    "the folder has the data of {found}, not of {wanted}; choose another --dir"
                )
            }
            Self::Damaged { file, why } => write!(
                f,
                "{file} is damaged: {why}. Do not start this node with a part of its data: remove it \
                 from the cluster, and add a new node with another id and an empty folder"
            ),
            Self::InUse(folder) => write!(f, "another process uses {folder}"),
        }
    }
}

impl Error for OpenError {}

impl From<DiskError> for OpenError {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}
