//! Errors of a build: what is wrong, and what to do.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why the compilation of `.proto` files failed.
///
/// `Debug` prints the same text as `Display`, because a build script prints `Debug` when `main`
/// returns an error or unwraps one.
#[non_exhaustive]
pub enum Error {
    /// A `.proto` file is missing or wrong, `protoc` failed, or a descriptor set is not valid. If
    /// `protox` finds a mistake within a file, the text starts with the file, the line and the
    /// column.
    Proto(String),
    /// A file uses an edition instead of a syntax, and the edition or one of its features is not
    /// supported.
    Edition {
        /// The name of the file, as in an import.
        file: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// Options of erpc, or settings of the builder for a method, are used in a wrong place or in a
    /// wrong way. Lists all such uses.
    Options(Vec<Misuse>),
    /// Two methods have the same id. Packets contain the id instead of the name.
    MethodCollision {
        /// Full name of the first method.
        first: String,
        /// Full name of the second method.
        second: String,
    },
    /// Two items of one package, message or service have the same name in Rust.
    NameCollision {
        /// The first item, with its name in the `.proto` file.
        first: String,
        /// The second item, with its name in the `.proto` file.
        second: String,
        /// The name of both items in Rust.
        rust_name: String,
    },
    /// The value of a setting (an attribute or a path) is not valid Rust.
    Setting {
        /// Name of the setting, a function of [`Builder`](crate::Builder).
        name: &'static str,
        /// Value of the setting.
        value: String,
    },
    /// `prost` could not generate the messages or write a file, or there is no output folder.
    Generate(io::Error),
    /// A file could not be read.
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A file could not be written.
    Write {
        /// Path of the file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
}

/// A wrong use of an option of erpc.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Misuse {
    /// The method, message or field, with its full name, or the setting of the builder.
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
                "{first} and {second} have the same 32-bit method id, so a server cannot tell them apart; rename \
                 one of them"
            ),
            Self::NameCollision { first, second, rust_name } => {
                write!(
                    f,
                    "{first} and {second} are both called `{rust_name}` in Rust; rename one of them"
                )
            }
            Self::Setting { name, value } => {
                write!(
                    f,
                    "{name} is set to `{value}`, which is not valid Rust; correct it in the build script"
                )
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
