//! The error of a command: one line that says what to do.

use std::fmt;

#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }

    /// Returns a function that puts `what` in front of an error's text.
    pub(crate) fn of<E: fmt::Display>(what: &str) -> impl Fn(E) -> Self {
        move |error| Self(format!("{what}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text of a cause may have several lines.
        let lines: Vec<_> = self.0.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        f.write_str(&lines.join("; "))
    }
}
