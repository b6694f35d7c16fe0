//! Messages with a fixed layout, which need no decoding.

use bytes::BufMut;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Codec, DecodeError};

/// A message whose memory is its encoding: a `#[repr(C)]` struct of fixed-size fields without
/// padding. Every byte pattern is valid, and field order and byte order are the same on all
/// machines.
///
/// Generated code implements it for messages with `layout: FIXED`, and
/// `#[derive(erpc::FixedLayout)]` for hand-written structs. Fields with numbers have the types of
/// [`zerocopy::little_endian`], so that machines of either byte order are compatible. Fields cannot
/// be added later: peers refuse messages of another size.
pub trait FixedLayout:
    FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + 'static
{
}

/// Messages in their memory layout. Encoding is one copy, and handlers get a reference to the
/// received bytes.
#[derive(Clone, Copy, Debug)]
pub enum Fixed {}

impl<M: FixedLayout> Codec<M> for Fixed {
    type View<'a> = &'a M;

    #[inline]
    fn encoded_len(_: &M) -> usize {
        size_of::<M>()
    }

    #[inline]
    fn encode(message: &M, out: &mut impl BufMut) {
        out.put_slice(message.as_bytes());
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<M, DecodeError> {
        if bytes.len() != size_of::<M>() {
            return Err(wrong_size::<M>(bytes.len()));
        }
        // One copy. `read_from_bytes` makes two, the second of which waits for the first.
        let mut message = M::new_zeroed();
        message.as_mut_bytes().copy_from_slice(bytes);
        Ok(message)
    }

    #[inline]
    fn blank() -> Option<M> {
        Some(M::new_zeroed())
    }

    #[inline]
    fn decode_into(message: &mut M, bytes: &[u8]) -> Result<(), DecodeError> {
        if bytes.len() != size_of::<M>() {
            return Err(wrong_size::<M>(bytes.len()));
        }
        message.as_mut_bytes().copy_from_slice(bytes);
        Ok(())
    }

    #[inline]
    fn view(bytes: &[u8]) -> Result<&M, DecodeError> {
        M::ref_from_bytes(bytes).map_err(|_| wrong_size::<M>(bytes.len()))
    }
}

#[cold]
fn wrong_size<M>(len: usize) -> DecodeError {
    DecodeError::new(format!(
        "{len} bytes, where the fixed layout has {}; are both sides built from the same definition?",
        size_of::<M>()
    ))
}

#[cfg(test)]
mod tests {
    use zerocopy::little_endian::{U16, U64};

    use super::*;

    #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, PartialEq, Debug)]
    #[repr(C)]
    struct Point {
        x: U64,
        y: U16,
        tag: [u8; 3],
    }

    impl FixedLayout for Point {}

    fn point() -> Point {
        Point { x: U64::new(0x0807_0605_0403_0201), y: U16::new(0x0a09), tag: *b"abc" }
    }

    #[test]
    fn the_bytes_are_the_fields_in_order() {
        let mut bytes = Vec::new();
        Fixed::encode(&point(), &mut bytes);
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, b'a', b'b', b'c']);
        assert_eq!(Fixed::encoded_len(&point()), bytes.len());
        assert_eq!(<Fixed as Codec<Point>>::decode(&bytes), Ok(point()));
        let mut decoded = <Fixed as Codec<Point>>::blank().unwrap();
        assert_eq!(Fixed::decode_into(&mut decoded, &bytes), Ok(()));
        assert_eq!(decoded, point());
    }

    #[test]
    fn a_view_refers_to_the_bytes_at_any_address() {
        let mut bytes = vec![0];
        Fixed::encode(&point(), &mut bytes);
        // The view also works at an odd address, because a fixed layout has alignment 1.
        let view = <Fixed as Codec<Point>>::view(&bytes[1..]).unwrap();
        assert_eq!(*view, point());
        assert!(std::ptr::eq(std::ptr::from_ref(view).cast::<u8>(), &raw const bytes[1]));
    }

    #[test]
    fn bytes_of_another_size_are_an_error_with_both_sizes() {
        for len in [0, 12, 14] {
            let error = <Fixed as Codec<Point>>::view(&vec![0; len]).unwrap_err().to_string();
            assert!(error.contains(&len.to_string()) && error.contains("13"), "{error}");
            assert!(<Fixed as Codec<Point>>::decode(&vec![0; len]).is_err());
            assert!(Fixed::decode_into(&mut point(), &vec![0; len]).is_err());
        }
    }
}
