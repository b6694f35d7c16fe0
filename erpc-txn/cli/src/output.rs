//! Standard output, and its words.

use std::fmt::Display;
use std::io::{self, Write};

use crate::failure::Failure;

/// Prints a line. Fails if the reader is gone, where `println!` would panic.
pub(crate) fn line(text: impl Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let done = writeln!(out, "{text}").and_then(|()| out.flush());
    done.map_err(Failure::of("cannot write to standard output"))
}

/// A number of things: `1 node`, `3 nodes`.
pub(crate) fn count(number: usize, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}
