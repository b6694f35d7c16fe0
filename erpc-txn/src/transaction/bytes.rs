//! Values that a transaction has read.

use std::ops::Deref;

use bytes::Bytes;

use crate::table::Value;

/// The bytes of a value: from this node's table, or from a message.
#[derive(Clone, Debug)]
pub(crate) enum ValueBytes {
    Local(Value),
    Remote(Bytes),
}

impl Deref for ValueBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Local(value) => value,
            Self::Remote(bytes) => bytes,
        }
    }
}
