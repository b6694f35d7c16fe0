//! Why a build failed, and what to do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// What stopped the compilation of `.proto` files.
///
/// `Debug` prints what `Display` does, because that is what a build script shows when `main` returns an
/// error or unwraps one.
#[non_exhaustive]
pub enum Error {
    /// A `.proto` file is missing or wrong. The text starts with the file, the line and the column.
    Proto(String),
    /// A file uses an edition instead of a syntax, and says what neither is known here nor can be said in
    /// proto3.
    Edition {
        /// The file, as it is imported.
        file: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// Options of erpc are used where, or in a way that, they cannot be.
    Options(Vec<Misuse>),
    /// Two methods have the same id, which goes over the network in place of their names.
    MethodCollision {
        /// Full name of the one.
        first: String,
        /// Full name of the other.
        second: String,
    },
    /// Two things of a `.proto` file have the same name in Rust.
    NameCollision {
        /// The first, as the `.proto` file calls it.
        first: String,
        /// The second, as the `.proto` file calls it.
        second: String,
        /// The name that both have in Rust.
        rust_name: String,
    },
    /// A setting is not Rust: an attribute or a path.
    Setting {
        /// Which setting.
        name: &'static str,
        /// What it was set to.
        value: String,
    },
    /// `prost` could not generate the messages, or a file could not be written by it.
    Generate(io::Error),
    /// A file could not be read.
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file could not be written.
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// An option of erpc that cannot be as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Misuse {
    /// Which method, message or field, by its full name.
    pub at: String,
    /// What is wrong, and what to do.
    pub problem: String,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.problem)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Proto(message) => f.write_str(message),
            Self::Edition { file, problem } => write!(f, "{file} {problem}"),
            Self::Options(misuses) => {
                let lines: Vec<_> = misuses.iter().map(Misuse::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
            Self::MethodCollision { first, second } => write!(
                f,
                "{first} and {second} have the same 32-bit method id, so no server could tell them apart; rename \
                 one of them"
            ),
            Self::NameCollision { first, second, rust_name } => {
                write!(
                    f,
                    "{first} and {second} are both called `{rust_name}` in Rust; rename one of them"
                )
            }
            Self::Setting { name, value } => {
                write!(f, "{name} is set to `{value}`, which is not Rust")
            }
            Self::Generate(error) => write!(f, "could not generate code: {error}"),
            Self::Read { path, source } => write!(f, "could not read {}: {source}", path.display()),
            Self::Write { path, source } => {
                write!(f, "could not write {}: {source}", path.display())
            }
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Generate(source) | Self::Read { source, .. } | Self::Write { source, .. } => {
                Some(source)
            }
            _ => None,
        }
    }
}
