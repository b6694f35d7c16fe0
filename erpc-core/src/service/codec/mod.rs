//! Encoding and decoding of messages.

use std::fmt;

use bytes::{Buf, BufMut, Bytes};
use prost::encoding::{DecodeContext, WireType, decode_key};

use crate::buf::MsgBuf;

mod borrowed;
mod encodes;
mod field_sink;
mod fixed;

pub use borrowed::{Borrowed, Viewable};
pub use encodes::{Encodes, encode_view, view_len};
pub use field_sink::FieldSink;
pub use fixed::{Fixed, FixedLayout};

/// An encoding of `M`, as functions on a marker type: no value, no dispatch at run time.
///
/// Bytes come from the network. `decode` and `view` must return an error for invalid bytes, must
/// not panic, and must allocate at most in proportion to the bytes.
pub trait Codec<M>: 'static {
    /// The type that handlers and callbacks get: the message itself, or a view of it in the receive
    /// buffer.
    type View<'a>;

    /// Whether the bytes are those of protocol buffers. Then calls and answers can be made with views:
    /// [`Encodes`], [`Request::answer`](super::Request::answer).
    const IS_PROTOBUF: bool = false;

    /// Number of bytes that [`Codec::encode`] will write.
    fn encoded_len(message: &M) -> usize;

    /// Writes the message, exactly [`Codec::encoded_len`] bytes.
    fn encode(message: &M, out: &mut impl BufMut);

    /// Decodes the message that fills `bytes`.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not such a message.
    fn decode(bytes: &[u8]) -> Result<M, DecodeError>;

    /// An empty message for [`Codec::decode_into`], if the codec decodes in place; `None` by
    /// default. A message that is decoded where its receiver wants it is not moved: a move waits
    /// until the fields, which were just written one by one, have been stored.
    #[must_use]
    #[inline]
    fn blank() -> Option<M> {
        None
    }

    /// Like [`Codec::decode`], into a message that [`Codec::blank`] has returned. After an error,
    /// `message` may have some of the fields.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not such a message.
    #[inline]
    fn decode_into(message: &mut M, bytes: &[u8]) -> Result<(), DecodeError> {
        *message = Self::decode(bytes)?;
        Ok(())
    }

    /// Reads the message that fills `bytes`, in place if the codec can.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not such a message.
    fn view(bytes: &[u8]) -> Result<Self::View<'_>, DecodeError>;
}

/// Protocol buffers, by the `prost` crate. The default codec of generated code.
#[derive(Clone, Copy, Debug)]
pub enum Prost {}

impl<M: prost::Message + Default> Codec<M> for Prost {
    type View<'a> = M;

    const IS_PROTOBUF: bool = true;

    #[inline]
    fn encoded_len(message: &M) -> usize {
        message.encoded_len()
    }

    #[inline]
    fn encode(message: &M, out: &mut impl BufMut) {
        // Not `Message::encode`, which would compute the length again to check it.
        message.encode_raw(out);
    }

    #[inline(always)]
    fn decode(bytes: &[u8]) -> Result<M, DecodeError> {
        // Inlined up to the call of `merge`, so that the caller moves the message only once.
        let mut message = M::default();
        match merge(&mut message, bytes) {
            Ok(()) => Ok(message),
            Err(error) => Err(not_prost(&error)),
        }
    }

    #[inline(always)]
    fn blank() -> Option<M> {
        Some(M::default())
    }

    #[inline(always)]
    fn decode_into(message: &mut M, bytes: &[u8]) -> Result<(), DecodeError> {
        merge_fields(message, bytes).map_err(|error| not_prost(&error))
    }

    #[inline(always)]
    fn view(bytes: &[u8]) -> Result<M, DecodeError> {
        <Self as Codec<M>>::decode(bytes)
    }
}

/// Decodes the fields in `bytes` into `message`, as [`prost::Message::merge`] does. Not inlined:
/// the compiler would keep the fields apart, and put the message together at the end by a copy.
#[inline(never)]
fn merge<M: prost::Message>(message: &mut M, bytes: &[u8]) -> Result<(), prost::DecodeError> {
    merge_fields(message, bytes)
}

#[inline(always)]
fn merge_fields<M: prost::Message>(
    message: &mut M,
    bytes: &[u8],
) -> Result<(), prost::DecodeError> {
    let mut rest = Received(bytes);
    while let Some(&first) = rest.0.first() {
        let (number, wire_type) = match first {
            // A key of one byte: the number of the field is 1 to 15. prost decodes all other keys,
            // and finds those that are invalid.
            0x08..=0x7f => {
                rest.advance(1);
                (u32::from(first >> 3), WireType::try_from(u64::from(first & 7))?)
            }
            _ => decode_key(&mut rest)?,
        };
        message.merge_field(number, wire_type, &mut rest, DecodeContext::default())?;
    }
    Ok(())
}

#[cold]
fn not_prost(error: &prost::DecodeError) -> DecodeError {
    DecodeError::new(error.to_string())
}

/// Received bytes as a [`Buf`] for `prost`. A slice would work too, but takes more steps to copy a
/// field into [`Bytes`].
struct Received<'a>(&'a [u8]);

impl Buf for Received<'_> {
    #[inline]
    fn remaining(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn chunk(&self) -> &[u8] {
        self.0
    }

    #[inline]
    fn advance(&mut self, count: usize) {
        self.0 = &self.0[count..];
    }

    #[inline]
    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        Bytes::copy_from_slice(bytes)
    }
}

/// Replaces the content of `msgbuf` by the message.
///
/// # Panics
/// If the message exceeds the buffer's capacity, or the codec writes more than its `encoded_len`.
#[inline]
pub fn encode_into<C: Codec<M>, M>(message: &M, msgbuf: &mut MsgBuf) {
    encode_sized(msgbuf, C::encoded_len(message), |out| C::encode(message, out));
}

/// Replaces the content of `msgbuf` by the `len` bytes that `encode` writes, or by fewer if it leaves
/// some unwritten.
///
/// # Panics
/// If `len` exceeds the buffer's capacity, or `encode` writes more.
#[inline(always)]
pub(crate) fn encode_sized(msgbuf: &mut MsgBuf, len: usize, encode: impl FnOnce(&mut &mut [u8])) {
    msgbuf.resize(len);
    // A slice, not the msgbuf: so the capacity is checked once, not for each field.
    let mut rest = msgbuf.as_mut_slice();
    encode(&mut rest);
    // Unwritten bytes may belong to an older message; they must not be sent.
    let written = len - rest.len();
    msgbuf.resize(written);
}

/// The error for bytes that are not a message of the type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecodeError {
    what: Box<str>,
}

impl DecodeError {
    /// An error with a description of the fault in the bytes.
    #[must_use]
    pub fn new(what: impl Into<Box<str>>) -> Self {
        Self { what: what.into() }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for DecodeError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A codec that announces four bytes and writes two.
    enum Short {}

    impl Codec<u16> for Short {
        type View<'a> = u16;
        fn encoded_len(_: &u16) -> usize {
            4
        }
        fn encode(message: &u16, out: &mut impl BufMut) {
            out.put_u16_le(*message);
        }
        fn decode(_: &[u8]) -> Result<u16, DecodeError> {
            Err(DecodeError::new("never"))
        }
        fn view(bytes: &[u8]) -> Result<u16, DecodeError> {
            Self::decode(bytes)
        }
    }

    #[test]
    fn encoding_replaces_an_older_message() {
        let mut msgbuf = MsgBuf::detached(64).unwrap();
        msgbuf.put_slice(b"an older and longer message");
        encode_into::<Prost, _>(&String::from("new"), &mut msgbuf);
        assert_eq!(<Prost as Codec<String>>::decode(msgbuf.as_slice()), Ok(String::from("new")));
    }

    #[test]
    fn a_codec_that_writes_less_than_announced_leaks_nothing() {
        let mut msgbuf = MsgBuf::detached(64).unwrap();
        msgbuf.put_slice(b"secret");
        encode_into::<Short, _>(&0x0201, &mut msgbuf);
        assert_eq!(msgbuf.as_slice(), [1, 2]);
    }

    /// Decodes in place, as futures of calls do.
    fn in_place<C: Codec<M>, M>(bytes: &[u8]) -> Option<Result<M, DecodeError>> {
        let mut message = C::blank()?;
        Some(C::decode_into(&mut message, bytes).map(|()| message))
    }

    #[test]
    fn decoding_in_place_decodes_the_same() {
        let encoded = prost::Message::encode_to_vec(&mixed());
        for end in 0..=encoded.len() {
            let bytes = &encoded[..end];
            let decoded = <Prost as Codec<Mixed>>::decode(bytes);
            assert_eq!(in_place::<Prost, Mixed>(bytes), Some(decoded));
        }
        assert_eq!(in_place::<Short, u16>(&[1, 2]), None, "the codec does not decode in place");
        assert!(Short::decode_into(&mut 0, &[1, 2]).is_err());
    }

    #[test]
    fn bytes_that_are_not_a_message_are_an_error() {
        let error = <Prost as Codec<String>>::decode(&[0x0a, 0xff]).unwrap_err();
        assert!(!error.to_string().is_empty());
    }

    /// Fields whose keys have one, two and three bytes, of all kinds of lengths.
    #[derive(Clone, PartialEq, prost::Message)]
    struct Mixed {
        #[prost(uint64, tag = "1")]
        number: u64,
        #[prost(string, repeated, tag = "2")]
        names: Vec<String>,
        #[prost(fixed32, tag = "15")]
        four: u32,
        #[prost(bytes = "bytes", tag = "16")]
        value: Bytes,
        #[prost(message, optional, boxed, tag = "17")]
        inner: Option<Box<Mixed>>,
        #[prost(fixed64, tag = "3000")]
        eight: u64,
    }

    fn mixed() -> Mixed {
        let leaf = Mixed { number: 1, four: 2, eight: u64::MAX, ..Mixed::default() };
        Mixed {
            number: 300,
            names: vec!["first".into(), String::new()],
            value: Bytes::from_static(&[0; 130]),
            inner: Some(Box::new(leaf)),
            ..Mixed::default()
        }
    }

    #[test]
    fn prost_messages_are_decoded_exactly_as_prost_does() {
        let encoded = prost::Message::encode_to_vec(&mixed());
        assert_eq!(<Prost as Codec<Mixed>>::decode(&encoded), Ok(mixed()));
        let (mut valid, mut invalid) = (0, 0);
        let mut check = |bytes: &[u8]| {
            let decoded = <Prost as Codec<Mixed>>::decode(bytes);
            let expected = <Mixed as prost::Message>::decode(bytes);
            match expected {
                Ok(_) => valid += 1,
                Err(_) => invalid += 1,
            }
            let expected = expected.map_err(|error| DecodeError::new(error.to_string()));
            assert_eq!(decoded, expected, "{bytes:02x?}");
        };
        // All keys of one byte and all values after them, so also unknown fields, groups, field 0
        // and invalid wire types.
        for key in 0..=u8::MAX {
            for next in 0..=u8::MAX {
                check(&[key, next]);
                check(&[key, 4, next, 0, 0, 0, 0x08, 7]);
            }
        }
        for end in 0..encoded.len() {
            check(&encoded[..end]);
            for byte in [0x00, 0x06, 0x0b, 0x0c, 0x7f, 0x80, 0xff] {
                let mut changed = encoded.clone();
                changed[end] = byte;
                check(&changed);
            }
        }
        assert!(valid > 1_000 && invalid > 1_000, "{valid} valid, {invalid} invalid");
    }
}
