//! Protocol buffers that handlers read where they were received.

use bytes::BufMut;

use super::{Codec, DecodeError, Prost};

/// A protobuf message that can be read in place. Implemented by generated code for messages with
/// `view: true`.
pub trait Viewable: prost::Message + Default {
    /// What reads it: a struct of numbers and of slices of the received bytes.
    type View<'a>: Default;

    /// Reads a message that is all of `bytes` into a view that may have read another before. What `bytes`
    /// has is replaced, but messages within are merged in turn: that is what it means in protobuf that a
    /// field is there twice.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are no such message.
    fn merge_view<'a>(view: &mut Self::View<'a>, bytes: &'a [u8]) -> Result<(), DecodeError>;

    /// Reads a message that is all of `bytes`.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are no such message.
    #[inline]
    fn view(bytes: &[u8]) -> Result<Self::View<'_>, DecodeError> {
        let mut view = Self::View::default();
        Self::merge_view(&mut view, bytes)?;
        Ok(view)
    }
}

/// Protocol buffers as [`Prost`] writes them; handlers get a view of the received bytes, with
/// neither copies nor allocations.
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

    #[inline]
    fn view(bytes: &[u8]) -> Result<M::View<'_>, DecodeError> {
        M::view(bytes)
    }
}
