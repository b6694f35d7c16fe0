//! Protobuf fields, written one at a time. The encoding of generated views is built on this module.

use bytes::BufMut;

use super::Viewable;

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LEN: u32 = 2;
const FIXED32: u32 = 5;

/// Takes the fields of a message, one at a time: to count their bytes, or to write them.
///
/// [`Viewable::write_view`] passes the fields to it. The caller leaves out fields that are absent, and
/// those with the default value if the field does not distinguish that from absence.
pub trait FieldSink: Sized {
    /// Takes a number in the encoding of protobuf's *varint*, without a tag.
    fn varint(&mut self, value: u64);

    /// Takes bytes as they are, without a tag.
    fn raw(&mut self, bytes: &[u8]);

    /// Takes an embedded message.
    #[inline]
    fn message<M: Viewable>(&mut self, tag: u32, view: &M::View<'_>) {
        self.key(tag, LEN);
        self.varint(M::view_len(view) as u64);
        M::write_view(view, self);
    }

    /// Takes a `bytes` field.
    #[inline]
    fn bytes(&mut self, tag: u32, value: &[u8]) {
        self.key(tag, LEN);
        self.varint(value.len() as u64);
        self.raw(value);
    }

    /// Takes a `string`.
    #[inline]
    fn string(&mut self, tag: u32, value: &str) {
        self.bytes(tag, value.as_bytes());
    }

    /// Takes a `uint64`.
    #[inline]
    fn uint64(&mut self, tag: u32, value: u64) {
        self.key(tag, VARINT);
        self.varint(value);
    }

    /// Takes a `uint32`.
    #[inline]
    fn uint32(&mut self, tag: u32, value: u32) {
        self.uint64(tag, value.into());
    }

    /// Takes an `int64`.
    #[inline]
    fn int64(&mut self, tag: u32, value: i64) {
        self.uint64(tag, value.cast_unsigned());
    }

    /// Takes an `int32`, or the number of an enum.
    #[inline]
    fn int32(&mut self, tag: u32, value: i32) {
        self.int64(tag, value.into());
    }

    /// Takes a `sint64`.
    #[inline]
    fn sint64(&mut self, tag: u32, value: i64) {
        self.int64(tag, value << 1 ^ value >> 63);
    }

    /// Takes a `sint32`.
    #[inline]
    fn sint32(&mut self, tag: u32, value: i32) {
        self.uint32(tag, (value << 1 ^ value >> 31).cast_unsigned());
    }

    /// Takes a `bool`.
    #[inline]
    fn bool(&mut self, tag: u32, value: bool) {
        self.uint64(tag, value.into());
    }

    /// Takes a `fixed64`.
    #[inline]
    fn fixed64(&mut self, tag: u32, value: u64) {
        self.key(tag, FIXED64);
        self.raw(&value.to_le_bytes());
    }

    /// Takes a `fixed32`.
    #[inline]
    fn fixed32(&mut self, tag: u32, value: u32) {
        self.key(tag, FIXED32);
        self.raw(&value.to_le_bytes());
    }

    /// Takes an `sfixed64`.
    #[inline]
    fn sfixed64(&mut self, tag: u32, value: i64) {
        self.fixed64(tag, value.cast_unsigned());
    }

    /// Takes an `sfixed32`.
    #[inline]
    fn sfixed32(&mut self, tag: u32, value: i32) {
        self.fixed32(tag, value.cast_unsigned());
    }

    /// Takes a `double`.
    #[inline]
    fn double(&mut self, tag: u32, value: f64) {
        self.fixed64(tag, value.to_bits());
    }

    /// Takes a `float`.
    #[inline]
    fn float(&mut self, tag: u32, value: f32) {
        self.fixed32(tag, value.to_bits());
    }

    /// Takes the key of a field, in front of its value: the tag, 1 to 2^29 - 1, and the wire type.
    #[inline]
    fn key(&mut self, tag: u32, wire_type: u32) {
        debug_assert!((1..1 << 29).contains(&tag), "protobuf has no tag {tag}");
        self.varint((tag << 3 | wire_type).into());
    }
}

/// Counts bytes.
pub(super) struct Length(pub(super) usize);

impl FieldSink for Length {
    #[inline]
    fn varint(&mut self, value: u64) {
        // A byte for each 7 bits that are begun.
        self.0 += ((value | 1).ilog2() / 7 + 1) as usize;
    }

    #[inline]
    fn raw(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }

    /// Counts the message once, not for its length and again for its fields.
    #[inline]
    fn message<M: Viewable>(&mut self, tag: u32, view: &M::View<'_>) {
        let len = M::view_len(view);
        self.key(tag, LEN);
        self.varint(len as u64);
        self.0 += len;
    }
}

/// Writes bytes.
pub(super) struct Writer<'b, B>(pub(super) &'b mut B);

impl<B: BufMut> FieldSink for Writer<'_, B> {
    #[inline]
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.put_u8(value as u8);
    }

    #[inline]
    fn raw(&mut self, bytes: &[u8]) {
        self.0.put_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::service::fields::tests::{All, any_message};

    fn write(all: &All, fields: &mut impl FieldSink) {
        fields.int32(1, all.int32);
        fields.int64(2, all.int64);
        fields.uint32(3, all.uint32);
        fields.uint64(4, all.uint64);
        fields.sint32(5, all.sint32);
        fields.sint64(6, all.sint64);
        fields.bool(7, all.bool);
        fields.fixed32(8, all.fixed32);
        fields.fixed64(9, all.fixed64);
        fields.sfixed32(10, all.sfixed32);
        fields.sfixed64(11, all.sfixed64);
        fields.float(12, all.float);
        fields.double(13, all.double);
        fields.bytes(14, &all.bytes);
        fields.string(5000, &all.string);
    }

    proptest! {
        #[test]
        fn prost_reads_what_is_written(all in any_message()) {
            let mut bytes = Vec::new();
            write(&all, &mut Writer(&mut bytes));
            let mut length = Length(0);
            write(&all, &mut length);
            prop_assert_eq!(length.0, bytes.len());
            prop_assert_eq!(All::decode(&bytes[..]), Ok(all));
        }

        #[test]
        fn numbers_are_written_as_by_prost(number in any::<u64>(), shift in 0..64_u32) {
            let number = number >> shift;
            let mut bytes = Vec::new();
            Writer(&mut bytes).varint(number);
            let mut expected = Vec::new();
            prost::encoding::encode_varint(number, &mut expected);
            prop_assert_eq!(&bytes, &expected);
            let mut length = Length(0);
            length.varint(number);
            prop_assert_eq!(length.0, bytes.len());
        }
    }

    #[test]
    fn a_number_takes_a_byte_for_each_seven_bits() {
        for (number, len) in
            [(0, 1), (0x7f, 1), (0x80, 2), (0x3fff, 2), (0x4000, 3), (u64::MAX, 10)]
        {
            let mut length = Length(0);
            length.varint(number);
            assert_eq!(length.0, len, "{number:#x}");
        }
    }
}
