//! The example `masstree`; see `main.rs`.
