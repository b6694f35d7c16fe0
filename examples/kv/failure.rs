//! The errors that end the program. Each prints as one line.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use erpc::{CallError, ConnectFailed, OpenError, ServeError};

/// Why the program failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is wrong.
    Usage(String),
    /// A file or folder could not be read.
    Input { path: PathBuf, error: io::Error },
    /// The folder has no files to store.
    NoFiles(PathBuf),
    /// A path is not UTF-8, so it cannot be a key.
    NotText(PathBuf),
    /// The server could not start, or it stopped with an error.
    Serve(ServeError),
    /// The client's endpoint could not be opened.
    Open(OpenError),
    /// The server could not be reached.
    Connect(ConnectFailed),
    /// A call failed.
    Call { what: String, error: CallError },
    /// The answer of a call is not what the client expects.
    WrongAnswer(String),
    /// The store does not have the requested key.
    NoSuchKey(String),
    /// Standard output cannot be written.
    Output(io::Error),
    /// A client thread panicked. The panic hook has already printed where.
    Panicked,
}

impl Failure {
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(if matches!(self, Self::Usage(_)) { 2 } else { 1 })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(what) => write!(f, "{what}; see `kv --help`"),
            Self::Input { path, error } => write!(f, "cannot read {}: {error}", path.display()),
            Self::NoFiles(path) => write!(f, "there are no files in {}", path.display()),
            Self::NotText(path) => {
                write!(f, "the path {} is not UTF-8, so it cannot be a key", path.display())
            }
            Self::Serve(error) => error.fmt(f),
            Self::Open(error) => error.fmt(f),
            Self::Connect(error) => error.fmt(f),
            Self::Call { what, error } => write!(f, "{what}: {error}"),
            Self::WrongAnswer(what) => write!(f, "wrong answer: {what}"),
            Self::NoSuchKey(key) => write!(f, "there is no key {key}"),
            Self::Output(error) => write!(f, "cannot write to standard output: {error}"),
            Self::Panicked => f.write_str("a client thread panicked"),
        }
    }
}
