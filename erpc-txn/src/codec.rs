//! Tables with types: how keys and values are stored.

use std::convert::Infallible;
use std::error::Error;
use std::marker::PhantomData;

use crate::participant::Place;

/// A table that a program knows by its number, with the types of its keys and values.
///
/// ```
/// use erpc_txn::codec::TypedTable;
///
/// const BALANCES: TypedTable<u64, u64> = TypedTable::new(1);
/// assert_eq!(BALANCES.id(), 1);
/// ```
#[derive(Debug)]
pub struct TypedTable<K, V> {
    id: u16,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> TypedTable<K, V> {
    /// The table with this number in [`Settings::tables`](crate::participant::Settings::tables).
    #[must_use]
    pub const fn new(id: u16) -> Self {
        Self { id, types: PhantomData }
    }

    /// The number.
    #[must_use]
    pub const fn id(self) -> u16 {
        self.id
    }
}

impl<K: Key, V> TypedTable<K, V> {
    /// A key of the table.
    #[must_use]
    pub fn place(self, key: K) -> Place {
        Place { table: self.id, key: key.number() }
    }
}

impl<K, V> Clone for TypedTable<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for TypedTable<K, V> {}

/// A type of keys. Different keys must have different numbers.
pub trait Key {
    /// The number under which the key is stored. All numbers are valid.
    fn number(&self) -> u64;
}

/// A type of values.
pub trait Value: Sized {
    /// Why bytes are no value.
    type Error: Error + Send + Sync + 'static;

    /// Appends the value's bytes to `out`.
    fn encode(&self, out: &mut Vec<u8>);

    /// The value with these bytes.
    ///
    /// # Errors
    ///
    /// If no value has these bytes.
    fn decode(bytes: &[u8]) -> Result<Self, Self::Error>;
}

impl Key for u64 {
    fn number(&self) -> u64 {
        *self
    }
}

impl Key for u32 {
    fn number(&self) -> u64 {
        u64::from(*self)
    }
}

/// The bytes themselves.
impl Value for Vec<u8> {
    type Error = Infallible;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn decode(bytes: &[u8]) -> Result<Self, Infallible> {
        Ok(bytes.to_vec())
    }
}

/// The bytes themselves.
impl<const N: usize> Value for [u8; N] {
    type Error = std::array::TryFromSliceError;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn decode(bytes: &[u8]) -> Result<Self, Self::Error> {
        bytes.try_into()
    }
}

/// Eight bytes, little-endian.
impl Value for u64 {
    type Error = std::array::TryFromSliceError;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<Self, Self::Error> {
        bytes.try_into().map(Self::from_le_bytes)
    }
}

/// Eight bytes, little-endian.
impl Value for i64 {
    type Error = std::array::TryFromSliceError;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<Self, Self::Error> {
        bytes.try_into().map(Self::from_le_bytes)
    }
}

/// UTF-8.
impl Value for String {
    type Error = std::str::Utf8Error;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<Self, Self::Error> {
        std::str::from_utf8(bytes).map(Self::from)
    }
}

/// A protobuf message as a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protobuf<M>(pub M);

impl<M: prost::Message + Default> Value for Protobuf<M> {
    type Error = prost::DecodeError;

    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode_raw(out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, Self::Error> {
        M::decode(bytes).map(Self)
    }
}
