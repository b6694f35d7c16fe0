//! Messages with the functions of this module, beside the same messages with those of `prost`.

use std::collections::HashMap;

use proptest::prelude::*;
use prost::bytes::Bytes;

/// Declares the same message twice.
macro_rules! message {
    ($($field:ident: $kind:ty $(, #[$attribute:meta])?;)*) => {
        mod ours {
            use super::*;
            #[derive(Clone, PartialEq, prost::Message)]
            #[prost(prost_path = "crate::service::protobuf")]
            pub(super) struct Mixed { $($(#[$attribute])? pub(super) $field: $kind),* }
        }
        mod theirs {
            use super::*;
            #[derive(Clone, PartialEq, prost::Message)]
            pub(super) struct Mixed { $($(#[$attribute])? pub(super) $field: $kind),* }
        }
        impl From<&ours::Mixed> for theirs::Mixed {
            fn from(mixed: &ours::Mixed) -> Self {
                let ours::Mixed { $($field),* } = mixed.clone();
                Self { $($field),* }
            }
        }
    };
}

message! {
    flag: bool, #[prost(bool, tag = "1")];
    int: i32, #[prost(int32, tag = "2")];
    long: i64, #[prost(int64, tag = "3")];
    unsigned: u32, #[prost(uint32, tag = "4")];
    number: u64, #[prost(uint64, tag = "300")];
    signed: i32, #[prost(sint32, tag = "6")];
    signed_long: Option<i64>, #[prost(sint64, optional, tag = "7")];
    shared: Bytes, #[prost(bytes = "bytes", tag = "8")];
    owned: Vec<u8>, #[prost(bytes = "vec", tag = "9")];
    maybe: Option<Bytes>, #[prost(bytes = "bytes", optional, tag = "10")];
    several: Vec<Vec<u8>>, #[prost(bytes = "vec", repeated, tag = "11")];
    packed: Vec<u32>, #[prost(uint32, repeated, tag = "12")];
    by_key: HashMap<u32, Vec<u8>>, #[prost(map = "uint32, bytes", tag = "13")];
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![prop::collection::vec(any::<u8>(), 0..8), prop::collection::vec(any::<u8>(), 300)]
}

prop_compose! {
    fn mixed()(
        (flag, int, long, unsigned, number) in any::<(bool, i32, i64, u32, u64)>(),
        (signed, signed_long, small, packed) in any::<(i32, Option<i64>, u8, Vec<u32>)>(),
        (shared, owned) in (bytes(), bytes()),
        maybe in prop::option::of(bytes()),
        several in prop::collection::vec(bytes(), 0..3),
        by_key in prop::collection::hash_map(any::<u32>(), bytes(), 0..2),
        is_small in any::<bool>(),
    ) -> ours::Mixed {
        let number = if is_small { small.into() } else { number };
        let (shared, maybe) = (shared.into(), maybe.map(Bytes::from));
        ours::Mixed {
            flag, int, long, unsigned, number, signed, signed_long, shared, owned, maybe, several,
            packed, by_key,
        }
    }
}

/// Checks that both kinds of functions read the same from `bytes`, or report the same error.
fn check(bytes: &[u8]) {
    let ours = <ours::Mixed as prost::Message>::decode(bytes);
    let theirs = <theirs::Mixed as prost::Message>::decode(bytes);
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => assert_eq!(theirs::Mixed::from(&ours), theirs),
        (ours, theirs) => {
            assert_eq!(ours.err().map(|e| e.to_string()), theirs.err().map(|e| e.to_string()));
        }
    }
}

proptest! {
    #[test]
    fn messages_have_the_bytes_of_prost(message in mixed()) {
        let ours = prost::Message::encode_to_vec(&message);
        let theirs = prost::Message::encode_to_vec(&theirs::Mixed::from(&message));
        prop_assert_eq!(&ours, &theirs);
        prop_assert_eq!(<ours::Mixed as prost::Message>::decode(&*ours), Ok(message));
    }

    #[test]
    fn changed_bytes_are_decoded_as_by_prost(
        message in mixed(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = prost::Message::encode_to_vec(&message);
        for (at, byte) in changes {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        check(&bytes);
        check(&bytes[..end.index(bytes.len() + 1)]);
    }
}

#[test]
fn short_bytes_are_decoded_as_by_prost() {
    for key in 0..=u8::MAX {
        for next in 0..=u8::MAX {
            check(&[key, next]);
            check(&[key, next, 1, 0, 0x08, 7]);
        }
    }
}
