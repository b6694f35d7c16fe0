//! The error of a command: one line that says what to do.

use std::fmt;

#[derive(Debug)]
pub(super) struct Failure(String);

impl Failure {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }

    /// Returns a function that puts `what` in front of an error's text.
    pub(super) fn of<E: fmt::Display>(what: &str) -> impl Fn(E) -> Self {
        move |error| Self(format!("{what}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Prints a line. Fails if the reader is gone, where `println!` would panic.
pub(super) fn say(text: impl fmt::Display) -> Result<(), Failure> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    let done = writeln!(out, "{text}").and_then(|()| out.flush());
    done.map_err(Failure::of("cannot write to standard output"))
}
