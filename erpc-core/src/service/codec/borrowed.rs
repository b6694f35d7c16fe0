//! Protocol buffers that are read in the receive buffer, and written from borrowed memory.

use bytes::BufMut;

use super::field_sink::{FieldSink, Length, Writer};
use super::{Codec, DecodeError, Prost};

/// A protobuf message that can be read in place, and written from memory that it does not own.
/// Implemented by generated code for messages with `view: true`.
pub trait Viewable: prost::Message + Default {
    /// The view type: a struct of numbers and of slices.
    type View<'a>: Default;

    /// Reads the message that fills `bytes` into a view that may already hold another message.
    /// Fields in `bytes` replace those of the view, but embedded messages are merged: protobuf
    /// defines repeated occurrences of a field this way.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not such a message.
    fn merge_view<'a>(view: &mut Self::View<'a>, bytes: &'a [u8]) -> Result<(), DecodeError>;

    /// Reads the message that fills `bytes`.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not such a message.
    #[inline]
    fn view(bytes: &[u8]) -> Result<Self::View<'_>, DecodeError> {
        let mut view = Self::View::default();
        Self::merge_view(&mut view, bytes)?;
        Ok(view)
    }

    /// Passes the fields of a view to `fields`, in the order of their tags.
    fn write_view(view: &Self::View<'_>, fields: &mut impl FieldSink);

    /// Number of bytes that [`Viewable::encode_view`] will write.
    #[must_use]
    #[inline]
    fn view_len(view: &Self::View<'_>) -> usize {
        let mut length = Length(0);
        Self::write_view(view, &mut length);
        length.0
    }

    /// Writes the message of a view, exactly [`Viewable::view_len`] bytes.
    ///
    /// # Panics
    /// If `out` has less room.
    #[inline]
    fn encode_view(view: &Self::View<'_>, out: &mut impl BufMut) {
        Self::write_view(view, &mut Writer(out));
    }

    /// The message of a view: a copy that owns its text and bytes.
    ///
    /// # Panics
    /// If [`Viewable::write_view`] passes fields on that are not those of such a message. Generated
    /// code does not.
    #[must_use]
    fn from_view(view: &Self::View<'_>) -> Self {
        let mut bytes = Vec::with_capacity(Self::view_len(view));
        Self::encode_view(view, &mut bytes);
        <Prost as Codec<Self>>::decode(&bytes).expect("a view is written as its message")
    }
}

/// Protocol buffers in the encoding of [`Prost`]. Handlers and callbacks get a view of the received
/// bytes, without copies or allocations.
#[derive(Clone, Copy, Debug)]
pub enum Borrowed {}

impl<M: Viewable> Codec<M> for Borrowed {
    type View<'a> = M::View<'a>;

    const IS_PROTOBUF: bool = true;

    #[inline]
    fn encoded_len(message: &M) -> usize {
        <Prost as Codec<M>>::encoded_len(message)
    }

    #[inline]
    fn encode(message: &M, out: &mut impl BufMut) {
        <Prost as Codec<M>>::encode(message, out);
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<M, DecodeError> {
        <Prost as Codec<M>>::decode(bytes)
    }

    #[inline(always)]
    fn blank() -> Option<M> {
        <Prost as Codec<M>>::blank()
    }

    #[inline(always)]
    fn decode_into(message: &mut M, bytes: &[u8]) -> Result<(), DecodeError> {
        <Prost as Codec<M>>::decode_into(message, bytes)
    }

    #[inline]
    fn view(bytes: &[u8]) -> Result<M::View<'_>, DecodeError> {
        M::view(bytes)
    }
}
