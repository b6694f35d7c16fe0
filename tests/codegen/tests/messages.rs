//! Messages of proto2, types from other crates, and `bytes` and `map` fields with other Rust types.

use erpc_codegen_tests::known::Everything;
use erpc_codegen_tests::old::{Level, Reply, Request, reply, request};
use erpc_codegen_tests::shared::{Thing, thing};
use prost::Message;

#[test]
fn proto2_has_required_fields_defaults_and_groups() {
    let mut request = Request { name: "a name".to_owned(), ..Request::default() };
    assert_eq!((request.limit(), request.text()), (10, "none \"at\" all"));
    assert_eq!(request.level(), Level::High);
    request.count = Some(0);
    request.list = vec![1, 2];
    request.packed = vec![3, 4];
    request.part = Some(request::Part { size: 5 });
    request.item = vec![request::Item { data: None }, request::Item { data: Some(vec![6]) }];
    assert_eq!(request.item[0].data(), b"\x01\\");
    let bytes = request.encode_to_vec();
    assert_eq!(Request::decode(&bytes[..]), Ok(request));
    // `list` is not packed, `packed` is packed, and the group has an end tag.
    assert!(bytes.windows(4).any(|window| window == [0x30, 1, 0x30, 2]));
    assert!(bytes.windows(4).any(|window| window == [0x3a, 2, 3, 4]));
    assert!(bytes.windows(4).any(|window| window == [0x43, 8, 5, 0x44]));
}

#[test]
fn proto2_has_oneofs() {
    let reply = Reply { answer: Some(reply::Answer::Text("yes".to_owned())) };
    assert_eq!(Reply::decode(&reply.encode_to_vec()[..]), Ok(reply));
}

#[test]
fn existing_types_are_used_instead_of_generated_ones() {
    let everything = Everything {
        any: Some(erpc::prost_types::Any::default()),
        at: Some(erpc::prost_types::Timestamp { seconds: 1, nanos: 2 }),
        length: Some(erpc::prost_types::Duration { seconds: 3, nanos: 4 }),
        mask: Some(erpc::prost_types::FieldMask { paths: vec!["a.b".to_owned()] }),
        value: Some(erpc::prost_types::Value::from(5.0)),
        text: Some("a text".to_owned()),
        thing: Some(Thing { part: Some(thing::Part { size: 6 }) }),
        cheap: prost::bytes::Bytes::from_static(b"shared"),
        dear: b"owned".to_vec(),
        sorted: [("b".to_owned(), Thing::default()), ("a".to_owned(), Thing::default())].into(),
    };
    let copy = everything.clone();
    assert_eq!(copy.cheap.as_ptr(), everything.cheap.as_ptr(), "clone must not copy the bytes");
    assert_eq!(copy.sorted.keys().collect::<Vec<_>>(), ["a", "b"], "keys must be in order");
    assert_eq!(Everything::decode(&everything.encode_to_vec()[..]), Ok(copy));
}
