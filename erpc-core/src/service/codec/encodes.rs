//! What can be sent as a message.

use bytes::BufMut;

use super::{Codec, Viewable};

/// A value that can be sent as a message of type `M`: an `M`, a reference to one, or a view of one.
///
/// Generated code implements it for the views of messages with `view: true`. So a call can be made with
/// what the caller has, without a message that owns a copy. Views are `Copy`, and are passed by value.
///
/// The functions run while the endpoint is busy with the call, so they must not use the endpoint.
pub trait Encodes<M> {
    /// Number of bytes that [`Encodes::encode`] will write.
    #[must_use]
    fn encoded_len<C: Codec<M>>(&self) -> usize;

    /// Writes the message, exactly [`Encodes::encoded_len`] bytes.
    ///
    /// # Panics
    /// If `out` has less room.
    fn encode<C: Codec<M>>(&self, out: &mut impl BufMut);
}

impl<M> Encodes<M> for M {
    #[inline(always)]
    fn encoded_len<C: Codec<M>>(&self) -> usize {
        C::encoded_len(self)
    }

    #[inline(always)]
    fn encode<C: Codec<M>>(&self, out: &mut impl BufMut) {
        C::encode(self, out);
    }
}

impl<M> Encodes<M> for &M {
    #[inline(always)]
    fn encoded_len<C: Codec<M>>(&self) -> usize {
        C::encoded_len(self)
    }

    #[inline(always)]
    fn encode<C: Codec<M>>(&self, out: &mut impl BufMut) {
        C::encode(self, out);
    }
}

/// [`Encodes::encoded_len`] for a view.
///
/// The build fails if `C` is not an encoding of protocol buffers ([`Codec::IS_PROTOBUF`]).
#[must_use]
#[inline]
pub fn view_len<C: Codec<M>, M: Viewable>(view: &M::View<'_>) -> usize {
    const { assert!(C::IS_PROTOBUF, "views are encoded as protocol buffers") };
    M::view_len(view)
}

/// [`Encodes::encode`] for a view.
///
/// The build fails if `C` is not an encoding of protocol buffers ([`Codec::IS_PROTOBUF`]).
///
/// # Panics
/// If `out` has less room than [`view_len`] bytes.
#[inline]
pub fn encode_view<C: Codec<M>, M: Viewable>(view: &M::View<'_>, out: &mut impl BufMut) {
    const { assert!(C::IS_PROTOBUF, "views are encoded as protocol buffers") };
    M::encode_view(view, out);
}
