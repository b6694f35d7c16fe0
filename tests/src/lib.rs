//! Tests of whole systems; see `tests/`.
