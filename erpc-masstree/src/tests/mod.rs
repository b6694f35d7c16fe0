//! Tests of whole trees.

mod basics;
mod model;
mod stress;

use crate::check::check;
