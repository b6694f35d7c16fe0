//! Protocol buffers that handlers read in the receive buffer.

use bytes::BufMut;

use super::{Codec, DecodeError, Prost};

/// A protobuf message that can be read in place. Implemented by generated code for messages with
/// `view: true`.
pub trait Viewable: prost::Message + Default {
    /// The view type: a struct of numbers and of slices of the received bytes.
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
}

/// Protocol buffers in the encoding of [`Prost`]. Handlers get a view of the received bytes,
/// without copies or allocations.
#[derive(Clone, Copy, Debug)]
pub enum Borrowed {}

impl<M: Viewable> Codec<M> for Borrowed {
    type View<'a> = M::View<'a>;

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
