//! Messages with fixed layouts and views, in memory and over the network.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use erpc::service::{Borrowed, Codec, Fixed, Viewable};
use erpc::zerocopy::little_endian::{F64, U64};
use erpc::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use erpc::{Endpoint, Request, Response, Server, Status};
use erpc_codegen_tests::layouts::{
    LocalMarketClient, Market, Name, Note, NoteView, Numbers, Order, Party, Place, PlacePointView,
    Receipt, Side, place::Point,
};
use erpc_codegen_tests::{odd, old, shared};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;
use prost::Message;

fn order() -> Order {
    Order::new()
        .with_quantity(0x0102_0304_0506_0708)
        .with_price(1.5)
        .with_side(Side::Sell)
        .with_patient(true)
        .with_party(Party::new().with_name(*b"somebody\0\0\0\0"))
        .with_new(-2)
        .with_type(3)
}

fn note() -> Note {
    Note {
        text: "a text".to_owned(),
        picture: vec![1, 2, 3],
        author: Some(String::new()),
        side: Side::Buy.into(),
        delta: -1_000_000,
        place: Some(Place {
            point: Some(Point { latitude: 1.25, longitude: -0.5 }),
            name: Some(Name { r#type: "a name".to_owned() }),
        }),
        other: Some(7),
    }
}

#[test]
fn a_fixed_layout_has_its_fields_in_the_order_of_their_numbers() {
    let mut bytes = Vec::new();
    Fixed::encode(&order(), &mut bytes);
    let mut expected = vec![8, 7, 6, 5, 4, 3, 2, 1];
    expected.extend(1.5_f64.to_le_bytes());
    expected.extend([2, 0, 0, 0, 1]);
    expected.extend(b"somebody\0\0\0\0");
    expected.extend([0xfe, 0xff, 0xff, 0xff, 3, 0, 0, 0]);
    assert_eq!(bytes, expected);
    let read = <Fixed as Codec<Order>>::view(&bytes).unwrap();
    assert_eq!(*read, order());
    assert_eq!((read.quantity(), read.price(), read.patient()), (0x0102_0304_0506_0708, 1.5, true));
    assert_eq!((read.side(), read.new_(), read.r#type()), (Some(Side::Sell), -2, 3));
    assert_eq!(read.party().name(), b"somebody\0\0\0\0");
}

#[test]
fn unset_fields_of_a_fixed_layout_are_zero_also_in_constants() {
    const ZERO: Order = Order::new();
    const SET: Order = ZERO.with_quantity(7).with_side(Side::Buy);
    assert_eq!(ZERO, Order::default());
    assert_eq!((ZERO.quantity(), ZERO.side(), ZERO.patient()), (0, Some(Side::Unspecified), false));
    assert_eq!((SET.quantity(), SET.side()), (7, Some(Side::Buy)));
}

#[test]
fn an_unknown_enum_value_in_a_fixed_layout_is_none() {
    let mut bytes = Vec::new();
    Fixed::encode(&order(), &mut bytes);
    (bytes[16], bytes[20]) = (9, 0xff);
    let read = <Fixed as Codec<Order>>::view(&bytes).unwrap();
    assert_eq!((read.side(), read.patient()), (None, true));
    // This enum of proto2 has no value 0, so the 0 in a new layout is an unknown value.
    assert_eq!(old::Point::new().level(), None);
    assert_eq!(old::Point::new().with_x(-3).with_level(old::Level::High).x(), -3);
}

#[test]
fn fields_of_fixed_layouts_with_used_names_get_an_underscore() {
    let message = odd::keywords::Default::new().with_new(1).with_with_new(2).with_unused(3);
    assert_eq!((message.new_(), message.with_new_(), message.unused_()), (1, 2, 3));
    assert!(message.with_self_(true).self_() && message.with_fn(true).r#fn());
    assert_eq!(shared::Stamp::new().with_at(5).at(), 5);
}

#[test]
fn a_view_has_the_fields_of_the_message() {
    let (note, bytes) = (note(), note().encode_to_vec());
    let view = Note::view(&bytes).unwrap();
    let place = view.place.unwrap();
    assert_eq!(
        view,
        NoteView {
            text: "a text",
            picture: &[1, 2, 3],
            author: Some(""),
            side: note.side,
            delta: note.delta,
            place: Some(place),
            other: Some(7),
        }
    );
    assert_eq!(place.point, Some(PlacePointView { latitude: 1.25, longitude: -0.5 }));
    assert_eq!(place.name.unwrap().r#type, "a name");
    assert!(bytes.as_ptr_range().contains(&view.text.as_ptr()), "the view must borrow");
    assert_eq!(Note::view(&[]).unwrap(), NoteView::default());
    let decoded: Note = <Borrowed as Codec<Note>>::decode(&bytes).unwrap();
    assert_eq!(decoded, note);
}

#[test]
fn in_a_view_the_last_value_counts_and_unknown_fields_are_skipped() {
    let mut bytes = note().encode_to_vec();
    let unknown = old::Reply { answer: Some(old::reply::Answer::Number(1)) };
    bytes.extend([0xfa, 0x3e, 2, 0xff, 0xff]);
    bytes.extend(Note { text: "another".to_owned(), ..Note::default() }.encode_to_vec());
    assert_eq!(Note::view(&bytes).unwrap().text, "another");
    // Bytes with a field of another wire type are not a `Note`.
    assert!(Note::view(&unknown.encode_to_vec()).is_err());
}

#[test]
fn in_a_view_a_message_that_occurs_twice_is_merged() {
    let (mut first, mut second) = (note(), note());
    first.place.as_mut().unwrap().name = None;
    second.place.as_mut().unwrap().point = None;
    let bytes = [first.encode_to_vec(), second.encode_to_vec()].concat();
    let whole = note().encode_to_vec();
    assert_eq!(Note::view(&bytes).unwrap(), Note::view(&whole).unwrap());
}

#[test]
fn a_view_of_proto2_has_required_and_optional_fields() {
    let mut message = old::Required { name: "a".to_owned(), ..old::Required::default() };
    let bytes = message.encode_to_vec();
    let view = old::Required::view(&bytes).unwrap();
    assert_eq!((view.name, view.level, view.weight), ("a", None, None));
    message.set_level(old::Level::Low);
    message.weight = Some(0.0);
    let bytes = message.encode_to_vec();
    let view = old::Required::view(&bytes).unwrap();
    assert_eq!((view.level, view.weight), (Some(1), Some(0.0)));
}

#[test]
fn a_view_of_proto2_is_written_with_its_required_fields() {
    let view = old::RequiredView { weight: Some(0.0), ..old::RequiredView::default() };
    let mut message = old::Required { weight: Some(0.0), ..old::Required::default() };
    // The name and the size, with its width, are there even if they are empty and 0.
    assert_eq!(message.encode_to_vec().len(), 2 + 9 + 2 + 2);
    assert_eq!(written::<old::Required>(&view), message.encode_to_vec());
    message.size.width = 300;
    let view = old::RequiredView { size: Some(old::SizeView { width: 300 }), ..view };
    assert_eq!(written::<old::Required>(&view), message.encode_to_vec());
}

/// The bytes of a view.
fn written<M: Viewable>(view: &M::View<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    M::encode_view(view, &mut bytes);
    assert_eq!(bytes.len(), M::view_len(view));
    bytes
}

/// Answers with values from the request.
#[derive(erpc::Service)]
#[erpc(service = erpc_codegen_tests::layouts::Market, worker(Locate))]
struct Stall;

impl Market for Stall {
    fn place(&self, request: Request<'_, &Order>) -> Result<Response<Receipt>, Status> {
        Ok(Response::new(Receipt::new().with_number(request.message().quantity())))
    }
    fn describe(&self, request: Request<'_, &Order>) -> Result<Response<Note>, Status> {
        let name = String::from_utf8_lossy(request.message().party().name());
        request.answer(&NoteView { text: &name, ..NoteView::default() })
    }
    fn post(&self, request: Request<'_, NoteView<'_>>) -> Result<Response<Receipt>, Status> {
        let len = request.message().text.len() + request.message().picture.len();
        Ok(Response::new(Receipt::new().with_number(len as u64)))
    }
    async fn settle(&self, request: Request<'_, Order>) -> Result<Response<Receipt>, Status> {
        let number = request.into_message().r#type().into();
        Ok(Response::new(Receipt::new().with_number(number)))
    }
    async fn review(&self, request: Request<'_, Note>) -> Result<Response<Note>, Status> {
        let bytes = request.message().encode_to_vec();
        erpc::sleep(Duration::from_millis(1)).await;
        request.answer(&Note::view(&bytes).expect("they are a note"))
    }
    fn locate(&self, request: Request<'_, PlacePointView>) -> Result<Response<Note>, Status> {
        let text = request.message().latitude.to_string();
        request.answer(&NoteView { text: &text, ..NoteView::default() })
    }
}

#[test]
fn a_server_receives_and_answers_every_kind_of_message() {
    let server = Server::builder().add_service(Stall).workers(1).spawn("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::udp().unwrap();
    let market = LocalMarketClient::connect(&endpoint, server.local_addr()).unwrap();
    let receipt = endpoint.block_on(market.place(order())).unwrap();
    assert_eq!(receipt.number(), 0x0102_0304_0506_0708);
    assert_eq!(endpoint.block_on(market.describe(order())).unwrap().text, "somebody\0\0\0\0");
    assert_eq!(endpoint.block_on(market.post(note())).unwrap().number(), 9);
    let view = NoteView { text: "ab", picture: &[1, 2, 3], ..NoteView::default() };
    assert_eq!(endpoint.block_on(market.post(view)).unwrap().number(), 5);
    assert_eq!(endpoint.block_on(market.settle(order())).unwrap().number(), 3);
    assert_eq!(endpoint.block_on(market.review(note())).unwrap(), note());
    let point = Point { latitude: 1.5, longitude: 0.0 };
    assert_eq!(endpoint.block_on(market.locate(point)).unwrap().text, "1.5");
    let (seen, sees) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (seen_too, sees_too) = (Rc::clone(&seen), Rc::clone(&sees));
    market.describe_with(order(), move |reply: Result<NoteView<'_>, _>| {
        seen_too.set(reply.expect("the call succeeds").text.len());
    });
    market.place_with(order(), move |reply: Result<&Receipt, _>| {
        sees_too.set(reply.expect("the call succeeds").number());
    });
    endpoint.run_until(|| seen.get() != 0 && sees.get() != 0);
    assert_eq!((seen.get(), sees.get()), (12, 0x0102_0304_0506_0708));
}

#[test]
fn without_a_network_an_answer_has_the_message_of_the_view() {
    let response = Stall.describe(Request::new(&order())).unwrap();
    assert!(!response.is_deferred());
    assert_eq!(response.into_message().unwrap().text, "somebody\0\0\0\0");
}

/// A fixed layout that is written by hand, not generated.
#[derive(
    FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, erpc::FixedLayout, PartialEq, Debug,
)]
#[zerocopy(crate = "erpc::zerocopy")]
#[repr(C)]
struct Quote {
    number: U64,
    price: F64,
    symbol: [u8; 8],
}

#[test]
fn a_struct_that_is_written_by_hand_can_be_a_message() {
    let quote = Quote { number: 7.into(), price: 0.5.into(), symbol: *b"SYM     " };
    let mut bytes = Vec::new();
    Fixed::encode(&quote, &mut bytes);
    assert_eq!(bytes.len(), 24);
    assert_eq!(<Fixed as Codec<Quote>>::view(&bytes), Ok(&quote));
}

fn any_number() -> impl Strategy<Value = f32> {
    prop_oneof![-1e9_f32..1e9, Just(0.0), Just(-0.0)]
}

prop_compose! {
    fn any_note()(
        text in ".{0,20}",
        picture in vec(any::<u8>(), 0..20),
        author in option::of(".{0,5}"),
        side in any::<i32>(),
        delta in any::<i64>(),
        place in option::of((option::of((any_number(), any_number())), option::of(".{0,5}"))),
        other in option::of(any::<i32>()),
    ) -> Note {
        let place = place.map(|(point, name)| Place {
            point: point.map(|(latitude, longitude)| Point { latitude, longitude }),
            name: name.map(|r#type| Name { r#type }),
        });
        Note { text, picture, author, side, delta, place, other }
    }
}

/// A number, which is often 0.
fn or_zero<T: Arbitrary + Default + Clone>() -> impl Strategy<Value = T> {
    prop_oneof![Just(T::default()), any::<T>()]
}

prop_compose! {
    fn any_numbers()(
        (bool, uint32, uint64) in (any::<bool>(), or_zero(), or_zero()),
        (int32, int64, sint32) in (or_zero(), or_zero(), or_zero()),
        (fixed32, fixed64) in (or_zero(), or_zero()),
        (sfixed32, sfixed64) in (or_zero(), or_zero()),
        double in prop_oneof![-1e99..1e99, Just(0.0), Just(-0.0)],
        last in any::<Option<bool>>(),
    ) -> Numbers {
        Numbers {
            bool, uint32, uint64, int32, int64, sint32, fixed32, fixed64, sfixed32, sfixed64,
            double, last,
        }
    }
}

/// The owned message of a view.
fn owned(view: &NoteView<'_>) -> Note {
    let place = view.place.map(|place| Place {
        point: place
            .point
            .map(|PlacePointView { latitude, longitude }| Point { latitude, longitude }),
        name: place.name.map(|name| Name { r#type: name.r#type.to_owned() }),
    });
    Note {
        text: view.text.to_owned(),
        picture: view.picture.to_vec(),
        author: view.author.map(str::to_owned),
        side: view.side,
        delta: view.delta,
        place,
        other: view.other,
    }
}

proptest! {
    #[test]
    fn a_view_reads_all_messages_that_prost_writes(note in any_note()) {
        let bytes = note.encode_to_vec();
        prop_assert_eq!(Note::view(&bytes).map(|view| owned(&view)), Ok(note));
    }

    #[test]
    fn numbers_are_written_as_by_prost(numbers in any_numbers()) {
        let bytes = numbers.encode_to_vec();
        let view = Numbers::view(&bytes).unwrap();
        prop_assert_eq!(written::<Numbers>(&view), &bytes[..]);
        prop_assert_eq!(Numbers::from_view(&view), numbers);
    }

    #[test]
    fn a_view_is_written_as_prost_writes_its_message(note in any_note()) {
        let bytes = note.encode_to_vec();
        let view = Note::view(&bytes).unwrap();
        prop_assert_eq!(written::<Note>(&view), &bytes[..]);
        prop_assert_eq!(Note::from_view(&view), note);
    }

    #[test]
    fn views_and_prost_refuse_the_same_bytes(
        note in any_note(),
        changes in vec((any::<Index>(), any::<u8>()), 0..4),
        length in any::<Index>(),
    ) {
        let mut bytes = note.encode_to_vec();
        for (at, byte) in changes {
            if !bytes.is_empty() {
                *at.get_mut(&mut bytes) = byte;
            }
        }
        bytes.truncate(length.index(bytes.len() + 1));
        prop_assert_eq!(Note::view(&bytes).is_ok(), Note::decode(&bytes[..]).is_ok());
    }
}
