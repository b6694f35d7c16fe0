//! The commands of the program, as a user runs them.

mod bench;
mod cluster;
mod mistakes;
mod program;
mod shell;
