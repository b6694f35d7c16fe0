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
    /// Methods stream, which is not supported yet: their full names.
    Streaming(Vec<String>),
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
    /// A file could not be written.
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Proto(message) => f.write_str(message),
            Self::Streaming(methods) => write!(
                f,
                "streaming is not supported yet, and these methods stream: {}; make them unary, or move them to a \
                 service in a file that is not compiled",
                methods.join(", ")
            ),
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
            Self::Generate(source) | Self::Write { source, .. } => Some(source),
            _ => None,
        }
    }
}
