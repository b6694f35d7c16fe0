//! Protobuf fields, read in place. Generated views are built on this module.

use super::DecodeError;

/// The fields of an encoded protobuf message, one at a time.
///
/// [`Fields::next`] returns the key of the next field: eight times its tag, plus its wire type. Then the
/// caller reads the value with the function for the type that it expects at this key, or passes the
/// key to [`Fields::other`], which skips the value.
///
/// Never panics on any bytes. If the function does not fit the key, the values and keys are wrong.
/// Allocates only for errors and for skipped groups. Reads each byte once,
/// and skips the contents of strings and bytes.
///
/// ```
/// use erpc_core::service::Fields;
///
/// let mut fields = Fields::new(b"\x08\x2a\x12\x02hi");
/// let (mut number, mut text) = (0, "");
/// while let Some(key) = fields.next()? {
///     match key {
///         0x08 => number = fields.uint64()?,
///         0x12 => text = fields.string()?,
///         key => fields.other(key, &[1, 2])?,
///     }
/// }
/// assert_eq!((number, text), (42, "hi"));
/// # Ok::<(), erpc_core::service::DecodeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

/// Deepest nesting of groups that are skipped, the same as in `prost`.
const MAX_DEPTH: u32 = 100;

const START_GROUP: u32 = 3;
const END_GROUP: u32 = 4;

impl<'a> Fields<'a> {
    /// The fields of the message that fills `bytes`.
    #[must_use]
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The key of the next field, `None` at the end of the message.
    ///
    /// # Errors
    /// [`DecodeError`] if the next bytes are not a key.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator of results cannot use `?` within"
    )]
    #[inline(always)]
    pub fn next(&mut self) -> Result<Option<u32>, DecodeError> {
        match self.rest {
            [] => Ok(None),
            // The tag is 1 to 15.
            [key @ 0x08..=0x7f, rest @ ..] => {
                self.rest = rest;
                Ok(Some(u32::from(*key)))
            }
            _ => self.long_key().map(Some),
        }
    }

    /// Skips the value of a field whose key is none of those that the caller reads. `known` has the
    /// tags that it reads.
    ///
    /// # Errors
    /// [`DecodeError`] if the field's tag is known, so its wire type is wrong, or if the bytes are not a
    /// value.
    #[inline(never)]
    pub fn other(&mut self, key: u32, known: &[u32]) -> Result<(), DecodeError> {
        let tag = key >> 3;
        if known.contains(&tag) {
            return Err(of_another_type(tag));
        }
        match key & 7 {
            START_GROUP => self.skip_group(tag),
            END_GROUP => Err(error("a group ends that has not begun")),
            wire => self.skip(wire),
        }
    }

    /// Skips a value that is no group.
    fn skip(&mut self, wire: u32) -> Result<(), DecodeError> {
        match wire {
            0 => self.uint64().map(drop),
            1 => self.array::<8>().map(drop),
            2 => self.bytes().map(drop),
            5 => self.array::<4>().map(drop),
            _ => Err(error("a field has an unknown wire type")),
        }
    }

    /// Skips the rest of a group, including nested groups.
    #[cold]
    fn skip_group(&mut self, tag: u32) -> Result<(), DecodeError> {
        let mut open = vec![tag];
        while let Some(&innermost) = open.last() {
            let key = self.next()?.ok_or_else(cut_short)?;
            match (key & 7, key >> 3) {
                (START_GROUP, _) if open.len() as u32 >= MAX_DEPTH => {
                    return Err(error("groups are nested too deep"));
                }
                (START_GROUP, tag) => open.push(tag),
                (END_GROUP, tag) if tag == innermost => drop(open.pop()),
                (END_GROUP, _) => return Err(error("a group has a wrong end tag")),
                (wire, _) => self.skip(wire)?,
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn long_key(&mut self) -> Result<u32, DecodeError> {
        match u32::try_from(self.uint64()?) {
            Ok(key @ 0x08..) => Ok(key),
            _ => Err(error("a field has an invalid tag")),
        }
    }

    #[inline(never)]
    fn long_varint(&mut self) -> Result<u64, DecodeError> {
        let (mut value, mut shift, mut rest) = (0, 0, self.rest);
        while let [byte, after @ ..] = rest
            && shift <= 63
        {
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                // Only one bit of the tenth byte fits into 64 bits.
                if shift == 63 && *byte > 1 {
                    break;
                }
                self.rest = after;
                return Ok(value);
            }
            (shift, rest) = (shift + 7, after);
        }
        Err(error("a varint is too long or cut short"))
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or_else(cut_short)?;
        self.rest = rest;
        Ok(*array)
    }
}

/// Values of keys whose wire type is that of the function's type.
impl<'a> Fields<'a> {
    /// A `uint64`. Wire type 0.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not a *varint* of at most 64 bits. The other functions of wire
    /// type 0 have the same errors.
    #[inline(always)]
    pub fn uint64(&mut self) -> Result<u64, DecodeError> {
        match self.rest {
            [low @ ..0x80, rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(*low))
            }
            _ => self.long_varint(),
        }
    }

    /// The content of a `bytes` field, or the bytes of an embedded message. Wire type 2.
    ///
    /// # Errors
    /// [`DecodeError`] if the message is cut short.
    #[inline(always)]
    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = usize::try_from(self.uint64()?).map_err(|_| cut_short())?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or_else(cut_short)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// A `string`. Wire type 2.
    ///
    /// # Errors
    /// [`DecodeError`] if the message is cut short, or the string is not UTF-8.
    #[inline]
    pub fn string(&mut self) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| error("a string is not UTF-8"))
    }
}

/// One function per scalar type of protobuf.
macro_rules! scalars {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $self:ident => $read:expr;)*) => {
        impl Fields<'_> {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// [`DecodeError`] if the bytes are not such a value.
                #[inline(always)]
                pub fn $name(&mut $self) -> Result<$type, DecodeError> {
                    Ok($read)
                }
            )*
        }
    };
}

scalars! {
    /// An `int32`, or the number of an enum. Wire type 0.
    int32: i32 = self => self.uint64()? as i32;
    /// An `int64`. Wire type 0.
    int64: i64 = self => self.uint64()? as i64;
    /// A `uint32`. Wire type 0.
    uint32: u32 = self => self.uint64()? as u32;
    /// A `sint32`. Wire type 0.
    sint32: i32 = self => {
        let value = self.uint64()? as u32;
        ((value >> 1) as i32) ^ -((value & 1) as i32)
    };
    /// A `sint64`. Wire type 0.
    sint64: i64 = self => {
        let value = self.uint64()?;
        ((value >> 1) as i64) ^ -((value & 1) as i64)
    };
    /// A `bool`. Wire type 0.
    bool: bool = self => self.uint64()? != 0;
    /// A `fixed32`. Wire type 5.
    fixed32: u32 = self => u32::from_le_bytes(self.array()?);
    /// A `fixed64`. Wire type 1.
    fixed64: u64 = self => u64::from_le_bytes(self.array()?);
    /// An `sfixed32`. Wire type 5.
    sfixed32: i32 = self => i32::from_le_bytes(self.array()?);
    /// An `sfixed64`. Wire type 1.
    sfixed64: i64 = self => i64::from_le_bytes(self.array()?);
    /// A `float`. Wire type 5.
    float: f32 = self => f32::from_le_bytes(self.array()?);
    /// A `double`. Wire type 1.
    double: f64 = self => f64::from_le_bytes(self.array()?);
}

#[cold]
fn of_another_type(tag: u32) -> DecodeError {
    DecodeError::new(format!("field {tag} has another wire type"))
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
pub(super) mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    #[derive(Clone, PartialEq, Message)]
    pub(in crate::service) struct All {
        #[prost(int32, tag = "1")]
        pub(in crate::service) int32: i32,
        #[prost(int64, tag = "2")]
        pub(in crate::service) int64: i64,
        #[prost(uint32, tag = "3")]
        pub(in crate::service) uint32: u32,
        #[prost(uint64, tag = "4")]
        pub(in crate::service) uint64: u64,
        #[prost(sint32, tag = "5")]
        pub(in crate::service) sint32: i32,
        #[prost(sint64, tag = "6")]
        pub(in crate::service) sint64: i64,
        #[prost(bool, tag = "7")]
        pub(in crate::service) bool: bool,
        #[prost(fixed32, tag = "8")]
        pub(in crate::service) fixed32: u32,
        #[prost(fixed64, tag = "9")]
        pub(in crate::service) fixed64: u64,
        #[prost(sfixed32, tag = "10")]
        pub(in crate::service) sfixed32: i32,
        #[prost(sfixed64, tag = "11")]
        pub(in crate::service) sfixed64: i64,
        #[prost(float, tag = "12")]
        pub(in crate::service) float: f32,
        #[prost(double, tag = "13")]
        pub(in crate::service) double: f64,
        #[prost(bytes = "vec", tag = "14")]
        pub(in crate::service) bytes: Vec<u8>,
        #[prost(string, tag = "5000")]
        pub(in crate::service) string: String,
    }

    const TAGS: [u32; 15] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 5000];

    fn read(bytes: &[u8]) -> Result<All, DecodeError> {
        let (mut fields, mut all) = (Fields::new(bytes), All::default());
        while let Some(key) = fields.next()? {
            match (key >> 3, key & 7) {
                (1, 0) => all.int32 = fields.int32()?,
                (2, 0) => all.int64 = fields.int64()?,
                (3, 0) => all.uint32 = fields.uint32()?,
                (4, 0) => all.uint64 = fields.uint64()?,
                (5, 0) => all.sint32 = fields.sint32()?,
                (6, 0) => all.sint64 = fields.sint64()?,
                (7, 0) => all.bool = fields.bool()?,
                (8, 5) => all.fixed32 = fields.fixed32()?,
                (9, 1) => all.fixed64 = fields.fixed64()?,
                (10, 5) => all.sfixed32 = fields.sfixed32()?,
                (11, 1) => all.sfixed64 = fields.sfixed64()?,
                (12, 5) => all.float = fields.float()?,
                (13, 1) => all.double = fields.double()?,
                (14, 2) => all.bytes = fields.bytes()?.to_vec(),
                (5000, 2) => all.string = fields.string()?.to_owned(),
                _ => fields.other(key, &TAGS)?,
            }
        }
        Ok(all)
    }

    prop_compose! {
        pub(in crate::service) fn any_message()(
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
