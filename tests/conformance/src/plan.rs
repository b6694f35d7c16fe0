//! The messages of each call. Both sides compute them from the method's name and a seed.

use std::fmt::Debug;

use erpc::{Code, Status};
use erpc_test_tools::random::Random;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, MethodDescriptor};

use crate::random::{Shape, message};

/// On average, one in this many calls ends with a status other than OK.
const FAILURES: u64 = 6;
/// Makes the seeds of responses different from those of requests.
const RESPONSE: u64 = 0x5245_5350;

/// A message of a generated type.
pub trait Typed: Message + Default + PartialEq + Debug + 'static {}

impl<M: Message + Default + PartialEq + Debug + 'static> Typed for M {}

/// The messages of all calls.
#[derive(Debug)]
pub struct Plan {
    pool: DescriptorPool,
}

impl Plan {
    /// A plan for the services in `descriptors`.
    ///
    /// # Panics
    /// If `descriptors` is not an encoded `FileDescriptorSet`.
    pub fn new(descriptors: &[u8]) -> Self {
        let pool = DescriptorPool::decode(descriptors)
            .expect("the build script must write valid descriptors");
        Self { pool }
    }

    /// The descriptors of all files, messages and services.
    pub fn pool(&self) -> &DescriptorPool {
        &self.pool
    }

    fn method(&self, full_name: &str) -> MethodDescriptor {
        let (service, name) =
            full_name.split_once('/').expect("the full name of a method must contain a slash");
        let service = self.pool.get_service_by_name(service).expect("the service must exist");
        service.methods().find(|method| method.name() == name).expect("the method must exist")
    }

    /// The request with the number `at` of the call.
    pub fn request<M: Typed>(&self, method: &str, seed: u64, at: u64) -> Result<M, String> {
        typed(&self.method(method).input(), seed, at)
    }

    /// The response with the number `at` of the call.
    pub fn response<M: Typed>(&self, method: &str, seed: u64, at: u64) -> Result<M, String> {
        typed(&self.method(method).output(), seed ^ RESPONSE << 8, at)
    }
}

/// The number of items in a stream of the call.
pub fn items(seed: u64, response: bool) -> u64 {
    let mut random = Random::new(seed ^ if response { RESPONSE } else { 0 });
    match random.below(8) {
        0 => 0,
        1 => 50,
        _ => 1 + random.below(6),
    }
}

/// One step of a call with two streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// The client sends the item with this number.
    Request(u64),
    /// The server sends the item with this number.
    Response(u64),
}

/// The order of the items of both streams of a call: one stream after the other, alternating, or
/// random.
pub fn turns(seed: u64) -> Vec<Turn> {
    let (requests, responses) = (items(seed, false), items(seed, true));
    let mut turns: Vec<_> = (0..requests).map(Turn::Request).collect();
    turns.extend((0..responses).map(Turn::Response));
    let mut random = Random::new(!seed);
    match random.below(4) {
        0 => {}
        1 => turns.rotate_left(requests as usize),
        2 => turns.sort_by_key(|turn| match turn {
            Turn::Request(at) => 2 * at,
            Turn::Response(at) => 2 * at + 1,
        }),
        _ => {
            let mut left = [requests, responses];
            for turn in &mut turns {
                let response = random.below(left[0] + left[1]) >= left[0];
                let at = [requests, responses][usize::from(response)] - left[usize::from(response)];
                left[usize::from(response)] -= 1;
                *turn = if response { Turn::Response(at) } else { Turn::Request(at) };
            }
        }
    }
    turns
}

/// The status with which the call fails; `None` if it succeeds.
pub fn failure(seed: u64) -> Option<Status> {
    let mut random = Random::new(seed);
    if random.below(FAILURES) > 0 {
        return None;
    }
    let code = Code::from_u32(1 + random.below(16) as u32);
    let details: Vec<u8> = (0..random.below(100)).map(|_| random.word() as u8).collect();
    Some(Status::new(code, format!("as planned: {seed:x} \u{2713}")).with_details(&details))
}

/// Makes a random message, as a value of the generated type.
///
/// # Errors
/// If the type does not keep all fields of the message.
fn typed<M: Typed>(descriptor: &MessageDescriptor, seed: u64, at: u64) -> Result<M, String> {
    // The lowest byte of a seed is the number of the round.
    let shape = match (seed as u8, at) {
        (0, _) => Shape::Empty,
        (1, _) => Shape::Full,
        (2, 0) => Shape::Large,
        _ => Shape::Some,
    };
    let dynamic = message(descriptor, shape, seed ^ at << 48);
    let name = descriptor.full_name();
    let bytes = dynamic.encode_to_vec();
    let typed =
        M::decode(&bytes[..]).map_err(|error| format!("{name} cannot be decoded: {error}"))?;
    // `whole` and `again` are decoded from bytes, so that a field set to its default equals an
    // unset field.
    let whole = DynamicMessage::decode(descriptor.clone(), &bytes[..]);
    let again = DynamicMessage::decode(descriptor.clone(), &typed.encode_to_vec()[..]);
    match (whole, again) {
        (Ok(whole), Ok(again)) if whole == again => Ok(typed),
        (whole, again) => {
            Err(format!("the type of {name} loses fields: {whole:?} becomes {again:?}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use prost_types::field_descriptor_proto::Type;
    use prost_types::{
        DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
        MethodDescriptorProto, ServiceDescriptorProto,
    };

    use super::*;

    #[derive(Clone, PartialEq, Message)]
    struct M {
        #[prost(string, tag = "1")]
        a: String,
        #[prost(uint32, tag = "2")]
        b: u32,
    }

    /// `message M { string a = 1; uint32 b = 2; }`, and a service that uses it.
    fn plan() -> Plan {
        let field = |name: &str, number, kind: Type| FieldDescriptorProto {
            name: Some(name.to_owned()),
            number: Some(number),
            r#type: Some(kind.into()),
            ..FieldDescriptorProto::default()
        };
        let message = DescriptorProto {
            name: Some("M".to_owned()),
            field: vec![field("a", 1, Type::String), field("b", 2, Type::Uint32)],
            ..DescriptorProto::default()
        };
        let method = MethodDescriptorProto {
            name: Some("Do".to_owned()),
            input_type: Some(".M".to_owned()),
            output_type: Some(".M".to_owned()),
            ..MethodDescriptorProto::default()
        };
        let service = ServiceDescriptorProto {
            name: Some("S".to_owned()),
            method: vec![method],
            ..ServiceDescriptorProto::default()
        };
        let file = FileDescriptorProto {
            name: Some("s.proto".to_owned()),
            syntax: Some("proto3".to_owned()),
            message_type: vec![message],
            service: vec![service],
            ..FileDescriptorProto::default()
        };
        Plan::new(&FileDescriptorSet { file: vec![file] }.encode_to_vec())
    }

    #[test]
    fn a_type_without_one_of_the_fields_is_an_error() {
        // `prost` encodes a `String` like a message with only the field `a`.
        let full = plan().request::<String>("S/Do", 1, 0);
        assert!(full.unwrap_err().contains("loses fields"));
        assert_eq!(plan().request::<String>("S/Do", 0, 0), Ok(String::new()));
    }

    #[test]
    fn different_seeds_make_different_messages_and_equal_seeds_equal_ones() {
        let of = |seed, at| plan().request::<M>("S/Do", seed, at).unwrap();
        let seeds = (0..100).map(|n| of(n << 8 | 3, 0));
        let items = (1..=100).map(|at| of(3, at));
        let distinct: HashSet<_> =
            seeds.chain(items).map(|message| format!("{message:?}")).collect();
        assert!(distinct.len() > 100, "only {} of 200 messages are distinct", distinct.len());
        assert_eq!(of(0x203, 5), of(0x203, 5));
    }

    #[test]
    fn turns_contain_all_items_of_each_stream_in_order() {
        for seed in 0..200 {
            let turns = turns(seed);
            let of = |request: bool| {
                let of = |turn: &Turn| match (turn, request) {
                    (Turn::Request(at), true) | (Turn::Response(at), false) => Some(*at),
                    _ => None,
                };
                turns.iter().filter_map(of).collect::<Vec<_>>()
            };
            assert_eq!(of(true), (0..items(seed, false)).collect::<Vec<_>>(), "seed {seed}");
            assert_eq!(of(false), (0..items(seed, true)).collect::<Vec<_>>(), "seed {seed}");
        }
    }
}
