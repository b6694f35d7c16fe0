//! Both ends against each other.

mod hostile;
mod model;
