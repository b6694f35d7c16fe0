//! Protobuf fields, read in place. Generated views are built on this module.

use super::DecodeError;

/// The fields of an encoded protobuf message, one at a time.
///
/// Never panics on any bytes. Allocates only for errors and for skipped groups. [`Fields::next`]
/// reads each byte once, and skips the contents of strings and bytes.
///
/// ```
/// use erpc_core::service::Fields;
///
/// let mut fields = Fields::new(b"\x08\x2a\x12\x02hi");
/// let (mut number, mut text) = (0, "");
/// while let Some(field) = fields.next()? {
///     match field.tag() {
///         1 => number = field.uint64()?,
///         2 => text = field.string()?,
///         _ => {}
///     }
/// }
/// assert_eq!((number, text), (42, "hi"));
/// # Ok::<(), erpc_core::service::DecodeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

/// One field: its tag, and its value in wire format.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    tag: u32,
    value: Value<'a>,
}

/// A value in wire format.
#[derive(Clone, Copy, Debug)]
enum Value<'a> {
    Varint(u64),
    Fixed32(u32),
    Fixed64(u64),
    Bytes(&'a [u8]),
    /// A group, which was skipped.
    Group,
}

/// Deepest nesting of groups that are skipped, the same as in `prost`.
const MAX_DEPTH: u32 = 100;

const START_GROUP: u64 = 3;
const END_GROUP: u64 = 4;

impl<'a> Fields<'a> {
    /// The fields of the message that fills `bytes`.
    #[must_use]
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next field, `None` at the end of the message.
    ///
    /// # Errors
    /// [`DecodeError`] if the next bytes are not a field.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator of results cannot use `?` within"
    )]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Field<'a>>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (tag, wire) = self.key()?;
        let value = match wire {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => Value::Bytes(self.bytes()?),
            START_GROUP => {
                self.skip_group(tag)?;
                Value::Group
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.array()?)),
            _ => return Err(error("a field has an unknown wire type")),
        };
        Ok(Some(Field { tag, value }))
    }

    #[inline]
    fn key(&mut self) -> Result<(u32, u64), DecodeError> {
        let key = self.varint()?;
        match u32::try_from(key >> 3) {
            Ok(tag) if tag != 0 && key <= u64::from(u32::MAX) => Ok((tag, key & 7)),
            _ => Err(error("a field has an invalid tag")),
        }
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, DecodeError> {
        match self.rest {
            [low @ ..0x80, rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(*low))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for (at, &byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                // Only one bit of the tenth byte fits into 64 bits.
                if at == 9 && byte > 1 {
                    break;
                }
                self.rest = &self.rest[at + 1..];
                return Ok(value);
            }
        }
        Err(error("a varint is too long or cut short"))
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or_else(cut_short)?;
        self.rest = rest;
        Ok(*array)
    }

    #[inline]
    fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = usize::try_from(self.varint()?).map_err(|_| cut_short())?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or_else(cut_short)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Skips the rest of a group, including nested groups.
    #[cold]
    fn skip_group(&mut self, tag: u32) -> Result<(), DecodeError> {
        let mut open = vec![tag];
        while let Some(&innermost) = open.last() {
            let (tag, wire) = self.key()?;
            match wire {
                START_GROUP if open.len() as u32 >= MAX_DEPTH => {
                    return Err(error("groups are nested too deep"));
                }
                START_GROUP => open.push(tag),
                END_GROUP if tag == innermost => drop(open.pop()),
                0 => drop(self.varint()?),
                1 => drop(self.array::<8>()?),
                2 => drop(self.bytes()?),
                5 => drop(self.array::<4>()?),
                _ => return Err(error("a group has a wrong end tag or an unknown wire type")),
            }
        }
        Ok(())
    }
}

/// One function per scalar type of protobuf.
macro_rules! scalars {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $variant:ident($value:ident) => $read:expr;)*) => {
        impl<'a> Field<'a> {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// [`DecodeError`] if the field has another wire type.
                #[inline]
                pub fn $name(&self) -> Result<$type, DecodeError> {
                    match self.value {
                        Value::$variant($value) => $read,
                        _ => Err(self.of_another_type()),
                    }
                }
            )*
        }
    };
}

scalars! {
    /// An `int32`, or the number of an enum.
    int32: i32 = Varint(value) => Ok(value as i32);
    /// An `int64`.
    int64: i64 = Varint(value) => Ok(value as i64);
    /// A `uint32`.
    uint32: u32 = Varint(value) => Ok(value as u32);
    /// A `uint64`.
    uint64: u64 = Varint(value) => Ok(value);
    /// A `sint32`.
    sint32: i32 = Varint(value) => Ok(((value as u32 >> 1) as i32) ^ -((value as u32 & 1) as i32));
    /// A `sint64`.
    sint64: i64 = Varint(value) => Ok(((value >> 1) as i64) ^ -((value & 1) as i64));
    /// A `bool`.
    bool: bool = Varint(value) => Ok(value != 0);
    /// A `fixed32`.
    fixed32: u32 = Fixed32(value) => Ok(value);
    /// A `fixed64`.
    fixed64: u64 = Fixed64(value) => Ok(value);
    /// An `sfixed32`.
    sfixed32: i32 = Fixed32(value) => Ok(value as i32);
    /// An `sfixed64`.
    sfixed64: i64 = Fixed64(value) => Ok(value as i64);
    /// A `float`.
    float: f32 = Fixed32(value) => Ok(f32::from_bits(value));
    /// A `double`.
    double: f64 = Fixed64(value) => Ok(f64::from_bits(value));
    /// The content of a `bytes` field, or the bytes of an embedded message.
    bytes: &'a [u8] = Bytes(value) => Ok(value);
    /// A `string`, which must be UTF-8.
    string: &'a str = Bytes(value) =>
        std::str::from_utf8(value).map_err(|_| error("a string is not UTF-8"));
}

impl Field<'_> {
    /// The field's tag, never 0.
    #[must_use]
    #[inline]
    pub fn tag(&self) -> u32 {
        self.tag
    }

    #[cold]
    fn of_another_type(&self) -> DecodeError {
        DecodeError::new(format!("field {} has another wire type", self.tag))
    }
}

#[cold]
fn error(what: &str) -> DecodeError {
    DecodeError::new(what)
}

#[cold]
fn cut_short() -> DecodeError {
    error("the message is cut short")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    #[derive(Clone, PartialEq, Message)]
    struct All {
        #[prost(int32, tag = "1")]
        int32: i32,
        #[prost(int64, tag = "2")]
        int64: i64,
        #[prost(uint32, tag = "3")]
        uint32: u32,
        #[prost(uint64, tag = "4")]
        uint64: u64,
        #[prost(sint32, tag = "5")]
        sint32: i32,
        #[prost(sint64, tag = "6")]
        sint64: i64,
        #[prost(bool, tag = "7")]
        bool: bool,
        #[prost(fixed32, tag = "8")]
        fixed32: u32,
        #[prost(fixed64, tag = "9")]
        fixed64: u64,
        #[prost(sfixed32, tag = "10")]
        sfixed32: i32,
        #[prost(sfixed64, tag = "11")]
        sfixed64: i64,
        #[prost(float, tag = "12")]
        float: f32,
        #[prost(double, tag = "13")]
        double: f64,
        #[prost(bytes = "vec", tag = "14")]
        bytes: Vec<u8>,
        #[prost(string, tag = "5000")]
        string: String,
    }

    fn read(bytes: &[u8]) -> Result<All, DecodeError> {
        let (mut fields, mut all) = (Fields::new(bytes), All::default());
        while let Some(field) = fields.next()? {
            match field.tag() {
                1 => all.int32 = field.int32()?,
                2 => all.int64 = field.int64()?,
                3 => all.uint32 = field.uint32()?,
                4 => all.uint64 = field.uint64()?,
                5 => all.sint32 = field.sint32()?,
                6 => all.sint64 = field.sint64()?,
                7 => all.bool = field.bool()?,
                8 => all.fixed32 = field.fixed32()?,
                9 => all.fixed64 = field.fixed64()?,
                10 => all.sfixed32 = field.sfixed32()?,
                11 => all.sfixed64 = field.sfixed64()?,
                12 => all.float = field.float()?,
                13 => all.double = field.double()?,
                14 => all.bytes = field.bytes()?.to_vec(),
                5000 => all.string = field.string()?.to_owned(),
                _ => {}
            }
        }
        Ok(all)
    }

    prop_compose! {
        fn any_message()(
            ints in any::<(i32, i64, u32, u64, i32, i64, bool)>(),
            fixed in any::<(u32, u64, i32, i64)>(),
            (float, double) in (-1e9f32..1e9, -1e99f64..1e99),
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
            string in ".{0,40}",
        ) -> All {
            let (int32, int64, uint32, uint64, sint32, sint64, bool) = ints;
            let (fixed32, fixed64, sfixed32, sfixed64) = fixed;
            All {
                int32, int64, uint32, uint64, sint32, sint64, bool, fixed32, fixed64, sfixed32,
                sfixed64, float, double, bytes, string,
            }
        }
    }

    proptest! {
        #[test]
        fn a_view_reads_what_prost_writes(message in any_message()) {
            prop_assert_eq!(read(&message.encode_to_vec()), Ok(message));
        }

        #[test]
        fn prost_and_views_agree_about_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            // Compared as bytes, because NaN is not equal to itself.
            let ours = read(&bytes).map(|all| all.encode_to_vec());
            let theirs = All::decode(&bytes[..]).map(|all| all.encode_to_vec());
            prop_assert_eq!(ours.is_ok(), theirs.is_ok());
            if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
                prop_assert_eq!(ours, theirs);
            }
        }
    }

    #[test]
    fn the_last_of_several_values_counts_and_unknown_fields_are_skipped() {
        let bytes = [0x18, 1, 0xfa, 0x01, 2, 9, 9, 0xfb, 0x01, 8, 7, 0xfc, 0x01, 0x18, 3];
        assert_eq!(read(&bytes), Ok(All { uint32: 3, ..All::default() }));
    }

    #[test]
    fn groups_are_skipped_to_a_limit() {
        let nested = |depth: usize| {
            let mut bytes = [0xfb, 0x01].repeat(depth);
            bytes.extend([0xfc, 0x01].repeat(depth));
            bytes
        };
        assert_eq!(read(&nested(MAX_DEPTH as usize)), Ok(All::default()));
        assert!(read(&nested(MAX_DEPTH as usize + 1)).is_err());
    }

    #[test]
    fn bytes_that_are_not_a_field_are_an_error() {
        let bad: [&[u8]; 9] = [
            &[0x08],
            &[0x00, 1],
            &[0x72, 5, 1, 2],
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],
            &[0x49, 1, 2, 3],
            &[0x45, 1],
            &[0x0f],
            &[0x0c],
            &[0x0a, 1, 1],
        ];
        for bytes in bad {
            assert!(read(bytes).is_err(), "{bytes:x?}");
        }
        assert!(read(&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]).is_ok());
    }
}
