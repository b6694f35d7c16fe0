//! Printing to whoever may have stopped to listen, as in `erpc-sim run --packets | head`.

use std::fmt;
use std::io::{ErrorKind, Write};

/// How a program ends that writes into a pipe which nobody reads: as if by SIGPIPE.
const NOBODY_READS: i32 = 128 + 13;

/// Prints a line, and ends the program without a word if nobody reads it. (`println!` panics then, and
/// a panic in the middle of a run is a violation.)
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => {
        $crate::print_line(::std::format_args!($($argument)*))
    };
}

/// What [`say!`] does.
///
/// # Panics
/// If the output is broken otherwise.
pub fn print_line(line: fmt::Arguments<'_>) {
    let mut output = std::io::stdout().lock();
    match writeln!(output, "{line}") {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(NOBODY_READS),
        Err(error) => panic!("cannot print: {error}"),
    }
}
