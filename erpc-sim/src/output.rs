//! Printing to a pipe whose reader may have closed it, as in `erpc-sim run --packets | head`.

use std::fmt;
use std::io::{ErrorKind, Write};

/// Exit code if the reader closed the output pipe, as after SIGPIPE.
const NOBODY_READS: i32 = 128 + 13;

/// Prints a line. Ends the program silently if the reader has closed the pipe. (`println!` panics
/// then, and a panic in the middle of a run would be a violation.)
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => {
        $crate::print_line(::std::format_args!($($argument)*))
    };
}

/// Implements [`say!`].
///
/// # Panics
/// Panics if writing fails for another reason than a closed pipe.
pub fn print_line(line: fmt::Arguments<'_>) {
    let mut output = std::io::stdout().lock();
    match writeln!(output, "{line}") {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(NOBODY_READS),
        Err(error) => panic!("cannot print: {error}"),
    }
}
