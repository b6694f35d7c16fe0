//! Tests of both ends against each other and against hostile peers.

mod hostile;
mod model;
