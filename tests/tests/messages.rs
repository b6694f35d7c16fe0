//! Every message arrives unchanged, and bytes that are no message lead to a typed error.

use std::sync::Arc;

use bytes::{BufMut, Bytes};
use erpc::service::{Codec, DecodeError, Method, MethodCollision, Mode, Routes};
use erpc::{
    CallError, Cause, Code, Endpoint, EndpointConfig, Request, Response, Server, ServerHandle,
    Session, Status,
};
use erpc_test_tools::limit::{secs, within};
use erpc_tests::lab::{client, loopback};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use prost::Message;

mod proto {
    erpc::include_proto!("test.kinds");
}

use proto::kinds::Choice;
use proto::mirror_service::methods;
use proto::{Address, Kinds, Letter, LetterView, LocalMirrorClient, Mirror, Scalars, Stamped};

#[derive(erpc::Service)]
#[erpc(service = proto::Mirror)]
struct MirrorService;

impl Mirror for MirrorService {
    fn reflect(&self, request: Request<'_, Kinds>) -> Result<Response<Kinds>, Status> {
        Ok(Response::new(request.into_message()))
    }

    fn reflect_slowly(&self, request: Request<'_, Kinds>) -> Result<Response<Kinds>, Status> {
        Ok(Response::new(request.into_message()))
    }

    async fn reflect_later(&self, request: Request<'_, Kinds>) -> Result<Response<Kinds>, Status> {
        Ok(Response::new(request.into_message()))
    }

    fn copy(&self, request: Request<'_, LetterView<'_>>) -> Result<Response<Letter>, Status> {
        let letter = request.message();
        Ok(Response::new(Letter {
            from: letter.from.to_owned(),
            body: letter.body.to_owned(),
            subject: letter.subject.map(str::to_owned),
            number: letter.number,
            stamp: letter.stamp,
            weight: letter.weight,
            colour: letter.colour,
            to: letter
                .to
                .as_ref()
                .map(|to| Address { street: to.street.to_owned(), house: to.house }),
        }))
    }

    fn stamp(&self, request: Request<'_, &Stamped>) -> Result<Response<Stamped>, Status> {
        Ok(Response::new(**request.message()))
    }
}

/// A codec of plain bytes, with which one side sends any bytes in place of a message.
enum Raw {}

impl Codec<Bytes> for Raw {
    type View<'a> = Bytes;

    fn encoded_len(message: &Bytes) -> usize {
        message.len()
    }

    fn encode(message: &Bytes, out: &mut impl BufMut) {
        out.put_slice(message);
    }

    fn decode(bytes: &[u8]) -> Result<Bytes, DecodeError> {
        Ok(Bytes::copy_from_slice(bytes))
    }

    fn view(bytes: &[u8]) -> Result<Bytes, DecodeError> {
        Self::decode(bytes)
    }
}

const ECHO: &str = "test.kinds.Echo/Echo";

/// Answers with the bytes of the request, so that the caller chooses the bytes of the response.
struct Echo;

impl Echo {
    fn echo(&self, request: Request<'_, Bytes>) -> Result<Response<Bytes>, Status> {
        Ok(Response::new(request.into_message()))
    }
}

impl erpc::Service for Echo {
    const NAME: &'static str = "test.kinds.Echo";

    fn register(self: Arc<Self>, routes: &mut Routes) -> Result<(), MethodCollision> {
        routes.unary(Method::<_, _, Raw>::new(ECHO), Mode::Dispatch, &self, Self::echo)
    }
}

struct Pair {
    endpoint: Endpoint,
    session: Session,
    mirror: LocalMirrorClient,
    _server: ServerHandle,
}

impl Pair {
    fn new() -> Self {
        let builder = Server::builder().add_service(MirrorService).add_service(Echo).workers(1);
        let server = builder.udp(loopback()).spawn("127.0.0.1:0").expect("the server starts");
        let endpoint = client(EndpointConfig::new());
        let session = endpoint.connect(server.local_addr()).expect("the server answers");
        let mirror = LocalMirrorClient::new(session.clone());
        Self { endpoint, session, mirror, _server: server }
    }

    /// Calls a method with a request of these bytes. Returns the bytes of the response.
    fn ask(&self, full_name: &'static str, request: &[u8]) -> Result<Bytes, CallError> {
        let method = Method::<Bytes, Bytes, Raw>::new(full_name);
        self.endpoint.block_on(self.session.call(&method, &Bytes::copy_from_slice(request)))
    }

    /// Makes a call whose response has these bytes. Returns the message that the client decodes.
    fn answer<M: 'static, C: Codec<M>>(
        &self,
        _: &Method<impl Sized, M, impl Sized, C>,
        response: &[u8],
    ) -> Result<M, CallError> {
        let method = Method::<Bytes, M, Raw, C>::new(ECHO);
        self.endpoint.block_on(self.session.call(&method, &Bytes::copy_from_slice(response)))
    }
}

/// Runs `check` on `cases` values of the strategy.
fn hold<S: Strategy>(
    cases: u32,
    strategy: &S,
    check: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    // A failure prints its smallest example, and no files are written.
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new(config).run(strategy, check).unwrap_or_else(|error| panic!("{error}"));
}

#[rustfmt::skip]
fn scalars() -> impl Strategy<Value = Scalars> {
    let floating = (any::<f64>(), any::<f32>());
    let varints = (any::<i32>(), any::<i64>(), any::<u32>(), any::<u64>(), any::<i32>(), any::<i64>());
    let fixed = (any::<u32>(), any::<u64>(), any::<i32>(), any::<i64>());
    let others = (any::<bool>(), any::<String>(), vec(any::<u8>(), 0..40));
    (floating, varints, fixed, others).prop_map(|(floating, varints, fixed, others)| {
        let ((double, float), (bool, string, bytes)) = (floating, others);
        let (int32, int64, uint32, uint64, sint32, sint64) = varints;
        let (fixed32, fixed64, sfixed32, sfixed64) = fixed;
        Scalars {
            double, float, int32, int64, uint32, uint64, sint32, sint64, fixed32, fixed64, sfixed32, sfixed64,
            bool, string, bytes,
        }
    })
}

fn choice() -> impl Strategy<Value = Choice> {
    prop_oneof![
        any::<bool>().prop_map(Choice::Flag),
        any::<String>().prop_map(Choice::Text),
        scalars().prop_map(Choice::One),
        any::<i32>().prop_map(Choice::Other),
    ]
}

#[rustfmt::skip]
fn kinds() -> impl Strategy<Value = Kinds> {
    let optional = (any::<Option<f64>>(), any::<Option<String>>(), any::<Option<Vec<u8>>>());
    let lists = (vec(any::<i64>(), 0..9), vec(any::<u32>(), 0..9), vec(any::<String>(), 0..3));
    let messages = (prop::option::of(scalars()), vec(scalars(), 0..3));
    let maps = (
        btree_map(any::<String>(), scalars(), 0..3),
        btree_map(any::<i32>(), vec(any::<u8>(), 0..9), 0..3),
    );
    let enums = (any::<i32>(), vec(-1..2, 0..5), prop::option::of(choice()));
    let flat = (optional, lists, messages, maps, enums, any::<u64>());
    let flat = flat.prop_map(|(optional, lists, (scalars, messages), maps, enums, last)| {
        let (optional_double, optional_string, optional_bytes) = optional;
        let (packed, unpacked, strings) = lists;
        let ((by_name, by_number), (colour, colours, choice)) = (maps, enums);
        Kinds {
            scalars, optional_double, optional_string, optional_bytes, packed, unpacked, strings, messages,
            by_name, by_number, colour, colours, choice, inner: None, last,
        }
    });
    flat.prop_recursive(4, 5, 1, |inner| {
        (inner.clone(), inner).prop_map(|(outer, inner)| Kinds { inner: Some(Box::new(inner)), ..outer })
    })
}

#[rustfmt::skip]
fn letter() -> impl Strategy<Value = Letter> {
    let address = (any::<String>(), any::<Option<u32>>());
    let address = address.prop_map(|(street, house)| Address { street, house });
    let texts = (any::<String>(), vec(any::<u8>(), 0..2_000), any::<Option<String>>());
    let numbers = (any::<i64>(), any::<Option<u64>>(), any::<f64>(), any::<i32>());
    (texts, numbers, prop::option::of(address)).prop_map(|(texts, numbers, to)| {
        let ((from, body, subject), (number, stamp, weight, colour)) = (texts, numbers);
        Letter { from, body, subject, number, stamp, weight, colour, to }
    })
}

fn stamped() -> impl Strategy<Value = Stamped> {
    let fields = (any::<u64>(), any::<f64>(), any::<bool>(), -1..2, any::<[u8; 7]>());
    fields.prop_map(|(number, weight, urgent, colour, seal)| {
        let colour = proto::Colour::try_from(colour).expect("the number is a colour");
        let stamped = Stamped::new().with_number(number).with_weight(weight).with_urgent(urgent);
        stamped.with_colour(colour).with_seal(seal)
    })
}

/// A damage to the bytes of a message.
#[derive(Clone, Debug)]
enum Damage {
    Cut(prop::sample::Index),
    Flip(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Replace(Vec<u8>),
}

fn harm() -> impl Strategy<Value = Damage> {
    let at = any::<prop::sample::Index>();
    prop_oneof![
        3 => at.clone().prop_map(Damage::Cut),
        3 => (at.clone(), 0..8_u8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        1 => (at, vec(any::<u8>(), 1..12)).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        1 => vec(any::<u8>(), 0..60).prop_map(Damage::Replace),
    ]
}

fn harmed(mut bytes: Vec<u8>, harm: &Damage) -> Vec<u8> {
    match harm {
        Damage::Cut(at) => bytes.truncate(at.index(bytes.len() + 1)),
        Damage::Flip(..) if bytes.is_empty() => {}
        Damage::Flip(at, bit) => {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        Damage::Insert(at, inserted) => {
            let at = at.index(bytes.len() + 1);
            bytes.splice(at..at, inserted.iter().copied());
        }
        Damage::Replace(others) => bytes.clone_from(others),
    }
    bytes
}

/// Asserts that the answer is the message `understood`, or `INVALID_ARGUMENT` if the bytes are no
/// message.
fn as_understood(
    answer: Result<Bytes, CallError>,
    understood: Option<Vec<u8>>,
) -> Result<(), TestCaseError> {
    match (answer, understood) {
        (Ok(answer), Some(understood)) => prop_assert_eq!(answer, understood),
        (Err(CallError::Status(status)), None) => {
            prop_assert_eq!(status.code(), Code::InvalidArgument);
        }
        (answer, understood) => prop_assert!(false, "{answer:?} to {understood:?}"),
    }
    Ok(())
}

#[test]
fn every_message_arrives_unchanged() {
    within(secs(60), || {
        let pair = Pair::new();
        hold(64, &kinds(), |sent| {
            let bytes = sent.encode_to_vec();
            let (endpoint, mirror) = (&pair.endpoint, &pair.mirror);
            for call in
                [mirror.reflect(&sent), mirror.reflect_slowly(&sent), mirror.reflect_later(&sent)]
            {
                let got = endpoint.block_on(call).map(|message| message.encode_to_vec());
                // Compares bytes, because NaN does not equal itself.
                prop_assert_eq!(got, Ok(bytes.clone()));
            }
            Ok(())
        });
        hold(64, &letter(), |sent| {
            let got = pair.endpoint.block_on(pair.mirror.copy(&sent));
            prop_assert_eq!(got.map(|letter| letter.encode_to_vec()), Ok(sent.encode_to_vec()));
            Ok(())
        });
        // Two encoded messages in sequence decode as one message, merged field by field.
        hold(64, &(letter(), letter()), |(first, second)| {
            let bytes = [first.encode_to_vec(), second.encode_to_vec()].concat();
            let understood = Letter::decode(&bytes[..]).ok().map(|merged| merged.encode_to_vec());
            prop_assert!(understood.is_some());
            as_understood(pair.ask(methods::COPY.full_name(), &bytes), understood)
        });
        hold(64, &stamped(), |sent| {
            prop_assert_eq!(pair.endpoint.block_on(pair.mirror.stamp(sent)), Ok(sent));
            Ok(())
        });
    });
}

#[test]
fn servers_answer_damaged_requests_with_a_status() {
    within(secs(60), || {
        let pair = Pair::new();
        hold(100, &(kinds(), harm()), |(message, harm)| {
            let bytes = harmed(message.encode_to_vec(), &harm);
            let understood = Kinds::decode(&bytes[..]).ok().map(|message| message.encode_to_vec());
            for method in [methods::REFLECT, methods::REFLECT_SLOWLY, methods::REFLECT_LATER] {
                as_understood(pair.ask(method.full_name(), &bytes), understood.clone())?;
            }
            Ok(())
        });
        hold(200, &(letter(), harm()), |(message, harm)| {
            let bytes = harmed(message.encode_to_vec(), &harm);
            let understood = Letter::decode(&bytes[..]).ok().map(|message| message.encode_to_vec());
            as_understood(pair.ask(methods::COPY.full_name(), &bytes), understood)
        });
        hold(50, &(stamped(), harm()), |(message, harm)| {
            let len = size_of::<Stamped>();
            let whole = erpc::zerocopy::IntoBytes::as_bytes(&message).to_vec();
            let bytes = harmed(whole, &harm);
            let understood = (bytes.len() == len).then(|| bytes.clone());
            as_understood(pair.ask(methods::STAMP.full_name(), &bytes), understood)
        });
    });
}

#[test]
fn clients_detect_damaged_responses() {
    within(secs(60), || {
        let pair = Pair::new();
        let malformed = CallError::ResponseLost(Cause::Malformed);
        hold(100, &(kinds(), harm()), |(message, harm)| {
            let bytes = harmed(message.encode_to_vec(), &harm);
            let understood = Kinds::decode(&bytes[..]).map(|message| message.encode_to_vec());
            let got = pair.answer(&methods::REFLECT, &bytes).map(|message| message.encode_to_vec());
            prop_assert_eq!(got, understood.map_err(|_| malformed.clone()));
            Ok(())
        });
        hold(50, &(stamped(), harm()), |(message, harm)| {
            let whole = erpc::zerocopy::IntoBytes::as_bytes(&message).to_vec();
            let bytes = harmed(whole, &harm);
            match pair.answer(&methods::STAMP, &bytes) {
                Ok(got) => prop_assert_eq!(erpc::zerocopy::IntoBytes::as_bytes(&got), &bytes[..]),
                Err(error) => {
                    prop_assert_eq!(error, malformed.clone());
                    prop_assert_ne!(bytes.len(), size_of::<Stamped>());
                }
            }
            Ok(())
        });
    });
}
