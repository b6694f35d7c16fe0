//! Protocol buffers as generated code uses them: `prost`, with other functions for some fields.
//!
//! The derives of `prost` call functions of the crate that the attribute `prost_path` names.
//! Generated code names this module. Its functions write and read the same bytes as those of
//! `prost`, at less cost:
//!
//! * `prost` clones a `Bytes` to encode it, which costs two atomic operations, about 14 ns. Here,
//!   the bytes are copied from the original.
//! * `prost` decodes a `Vec<u8>` into a `Bytes` first, so it allocates twice. Here, the bytes are
//!   copied into the vector.
//! * Numbers below 128, which includes the keys of most fields and the lengths of short values, are
//!   written and read without a call.

pub use prost::{
    DecodeError, EncodeError, Enumeration, Message, Name, Oneof, UnknownEnumValue, alloc, bytes,
};

#[doc(hidden)]
pub mod encoding;

#[cfg(test)]
mod tests;
