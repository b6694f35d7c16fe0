//! The error of a run without a result.

use std::fmt;

/// A reason, in one line.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }

    /// Returns a function that puts `what` in front of an error's text.
    pub(crate) fn of<E: fmt::Display>(what: &'static str) -> impl Fn(E) -> Self {
        move |error| Self(format!("{what}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text of the cause may have several lines.
        f.write_str(&self.0.replace('\n', " "))
    }
}
