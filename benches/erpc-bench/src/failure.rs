//! Why a run has no result.

use std::fmt;

/// A reason, in one line.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }

    /// Turns an error into a failure that says what was tried.
    pub(crate) fn of<E: fmt::Display>(what: &'static str) -> impl Fn(E) -> Self {
        move |error| Self(format!("{what}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One line, whatever the cause brought along.
        f.write_str(&self.0.replace('\n', " "))
    }
}
