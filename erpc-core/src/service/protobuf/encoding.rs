//! The functions that the derives of `prost` call, by the type of the field.

pub use prost::encoding::{
    DecodeContext, btree_map, double, fixed32, fixed64, float, group, hash_map, message, sfixed32,
    sfixed64, skip_field, string, wire_type,
};

use prost::DecodeError;
use prost::bytes::{Buf, BufMut};
use prost::encoding::{WireType, decode_varint, encode_varint};

/// Fields of the type `bytes`.
pub mod bytes {
    use prost::bytes::Bytes;
    use prost::encoding::check_wire_type;

    use super::*;

    pub use prost::encoding::bytes::{encoded_len, encoded_len_repeated};

    /// The Rust types of `bytes` fields.
    pub trait BytesField: AsRef<[u8]> + Default {
        /// Replaces the value by the next `len` bytes of `buf`, which has them.
        fn read(&mut self, buf: &mut impl Buf, len: usize);
    }

    impl BytesField for Bytes {
        #[inline]
        fn read(&mut self, buf: &mut impl Buf, len: usize) {
            *self = buf.copy_to_bytes(len);
        }
    }

    impl BytesField for Vec<u8> {
        #[inline]
        fn read(&mut self, buf: &mut impl Buf, len: usize) {
            self.clear();
            self.reserve(len);
            self.put(buf.take(len));
        }
    }

    /// Writes the field with the key `tag`.
    #[inline]
    pub fn encode(tag: u32, value: &impl BytesField, buf: &mut impl BufMut) {
        let value = value.as_ref();
        put_key(tag, WireType::LengthDelimited, buf);
        put_varint(value.len() as u64, buf);
        buf.put_slice(value);
    }

    /// Writes a field for each value.
    pub fn encode_repeated(tag: u32, values: &[impl BytesField], buf: &mut impl BufMut) {
        values.iter().for_each(|value| encode(tag, value, buf));
    }

    /// Reads a field whose key has been read.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are no such field.
    #[inline]
    pub fn merge(
        wire_type: WireType,
        value: &mut impl BytesField,
        buf: &mut impl Buf,
        _: DecodeContext,
    ) -> Result<(), DecodeError> {
        check_wire_type(WireType::LengthDelimited, wire_type)?;
        let len = read_varint(buf)?;
        if len > buf.remaining() as u64 {
            return Err(too_short());
        }
        value.read(buf, len as usize);
        Ok(())
    }

    /// Reads one of several fields with the same key.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are no such field.
    pub fn merge_repeated<F: BytesField>(
        wire_type: WireType,
        values: &mut Vec<F>,
        buf: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        let mut value = F::default();
        merge(wire_type, &mut value, buf, context)?;
        values.push(value);
        Ok(())
    }

    /// The error of `prost` for a value that is longer than the message. Only `prost` can make it:
    /// here from a length of 1 without a byte.
    #[cold]
    fn too_short() -> DecodeError {
        let (mut value, mut buf) = (Vec::<u8>::new(), [1].as_slice());
        let context = DecodeContext::default();
        let merged =
            prost::encoding::bytes::merge(WireType::LengthDelimited, &mut value, &mut buf, context);
        merged.expect_err("the value lacks a byte")
    }
}

/// Numbers of variable length: a module for each type of the `.proto` language.
macro_rules! numbers {
    ($($name:ident: $number:ty, $value:ident => $encoded:expr, $raw:ident => $decoded:expr;)*) => {
        $(
            /// Fields of the type that the module is named after.
            pub mod $name {
                use super::*;

                pub use prost::encoding::$name::{
                    encode_packed, encode_repeated, encoded_len, encoded_len_packed,
                    encoded_len_repeated, merge_repeated,
                };

                /// Writes the field with the key `tag`.
                #[inline]
                pub fn encode(tag: u32, $value: &$number, buf: &mut impl BufMut) {
                    put_key(tag, WireType::Varint, buf);
                    put_varint($encoded, buf);
                }

                /// Reads a field whose key has been read.
                ///
                /// # Errors
                /// [`DecodeError`] if the bytes are no such field.
                #[inline]
                pub fn merge(
                    wire_type: WireType,
                    value: &mut $number,
                    buf: &mut impl Buf,
                    context: DecodeContext,
                ) -> Result<(), DecodeError> {
                    if wire_type != WireType::Varint {
                        return prost::encoding::$name::merge(wire_type, value, buf, context);
                    }
                    let $raw = read_varint(buf)?;
                    *value = $decoded;
                    Ok(())
                }
            }
        )*
    };
}

numbers! {
    bool: bool, value => u64::from(*value), raw => raw != 0;
    int32: i32, value => *value as u64, raw => raw as i32;
    int64: i64, value => *value as u64, raw => raw as i64;
    uint32: u32, value => u64::from(*value), raw => raw as u32;
    uint64: u64, value => *value, raw => raw;
    sint32: i32, value => u64::from(((*value << 1) ^ (*value >> 31)) as u32),
        raw => ((raw as u32 >> 1) as i32) ^ -((raw & 1) as i32);
    sint64: i64, value => ((*value << 1) ^ (*value >> 63)) as u64,
        raw => ((raw >> 1) as i64) ^ -((raw & 1) as i64);
}

#[inline(always)]
fn put_key(tag: u32, wire_type: WireType, buf: &mut impl BufMut) {
    put_varint(u64::from(tag << 3 | wire_type as u32), buf);
}

#[inline(always)]
fn put_varint(value: u64, buf: &mut impl BufMut) {
    if value < 0x80 { buf.put_u8(value as u8) } else { encode_varint(value, buf) }
}

#[inline(always)]
fn read_varint(buf: &mut impl Buf) -> Result<u64, DecodeError> {
    match buf.chunk() {
        &[byte @ ..0x80, ..] => {
            buf.advance(1);
            Ok(byte.into())
        }
        _ => decode_varint(buf),
    }
}
