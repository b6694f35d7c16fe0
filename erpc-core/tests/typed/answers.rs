//! Answers that handlers give with views, in all modes, and callbacks that get views.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::BufMut;
use erpc_core::endpoint::Endpoint;
use erpc_core::protocol::{CallError, EndpointConfig};
use erpc_core::service::{
    Borrowed, CallContext, Codec, DecodeError, FieldSink, Fields, Interceptor, Metadata, Method,
    Mode, Prost, Request, Response, Routes, Viewable,
};
use erpc_core::serving::WorkerPool;
use erpc_core::status::{Code, Status};
use erpc_core::transport::mem::{MemConfig, MemHub};
use prost::Message;

use crate::plain::{Outcome, mem_pair};
use crate::support::{Number, number};

type Result<T> = std::result::Result<T, Status>;

#[derive(Clone, PartialEq, Eq, Message)]
struct Text {
    #[prost(string, tag = "1")]
    text: String,
}

#[derive(Clone, Copy, PartialEq, Default, Debug)]
struct TextView<'a> {
    text: &'a str,
}

impl Viewable for Text {
    type View<'a> = TextView<'a>;

    fn merge_view<'a>(
        view: &mut TextView<'a>,
        bytes: &'a [u8],
    ) -> std::result::Result<(), DecodeError> {
        let mut fields = Fields::new(bytes);
        while let Some(key) = fields.next()? {
            match key {
                0x0a => view.text = fields.string()?,
                _ => fields.other(key, &[1])?,
            }
        }
        Ok(())
    }

    fn write_view(view: &TextView<'_>, fields: &mut impl FieldSink) {
        if !view.text.is_empty() {
            fields.string(1, view.text);
        }
    }
}

/// Protocol buffers with all bits inverted.
enum Inverted {}

impl Codec<Text> for Inverted {
    type View<'a> = Text;

    fn encoded_len(message: &Text) -> usize {
        message.encoded_len()
    }

    fn encode(message: &Text, out: &mut impl BufMut) {
        message.encode_to_vec().iter().for_each(|byte| out.put_u8(!byte));
    }

    fn decode(bytes: &[u8]) -> std::result::Result<Text, DecodeError> {
        let bytes: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
        <Prost as Codec<Text>>::decode(&bytes)
    }

    fn view(bytes: &[u8]) -> std::result::Result<Text, DecodeError> {
        Self::decode(bytes)
    }
}

/// The longest response, in bytes.
const LIMIT: u32 = 100;

const DISPATCH: Method<Number, Text, Prost, Borrowed> =
    Method::new("test.Answers/Dispatch").max_response(LIMIT);
const WORKER: Method<Number, Text> = Method::new("test.Answers/Worker").max_response(LIMIT);
const ASYNC: Method<Number, Text> = Method::new("test.Answers/Async").max_response(LIMIT);
const INVERTED: Method<Number, Text, Prost, Inverted> = Method::new("test.Answers/Inverted");

/// A service with the text that its answers begin.
struct Book(String);

type Handler = fn(&Book, Request<'_, Number>) -> Result<Response<Text>>;

fn routes(handler: Handler) -> Routes {
    let (mut routes, book) = (Routes::new(), Arc::new(Book("abc".repeat(100))));
    routes.unary(DISPATCH, Mode::Dispatch, &book, handler).unwrap();
    routes.unary(WORKER, Mode::Worker, &book, handler).unwrap();
    let later = async move |book: &Book, request: Request<'_, Number>| handler(book, request);
    routes.unary_async(ASYNC, &book, later).unwrap();
    routes.unary(INVERTED, Mode::Dispatch, &book, handler).unwrap();
    routes
}

/// The outcomes of calls of all modes for so many bytes of text.
fn outcomes(handler: Handler, len: u64) -> [Outcome; 3] {
    let workers = WorkerPool::new(1, 16).unwrap();
    let mut pair = mem_pair(routes(handler), &workers);
    [DISPATCH.id(), WORKER.id(), ASYNC.id()]
        .map(|method| pair.call(method, &number(len).encode_to_vec()))
}

fn beginning(book: &Book, request: Request<'_, Number>) -> Result<Response<Text>> {
    request.answer(&TextView { text: &book.0[..request.message().value as usize] })
}

fn text(len: usize) -> Text {
    Text { text: "abc".repeat(100)[..len].to_owned() }
}

#[test]
fn an_answer_with_a_view_is_the_message() {
    for len in [0, 1, 98] {
        for outcome in outcomes(beginning, len) {
            assert_eq!(outcome.unwrap(), (None, text(len as usize).encode_to_vec()));
        }
    }
}

#[test]
fn an_answer_beyond_the_limit_is_refused() {
    for outcome in outcomes(beginning, 99) {
        assert_eq!(outcome.unwrap_err().code(), Code::OutOfRange);
    }
}

#[test]
fn an_answer_with_a_view_can_have_metadata() {
    fn with_metadata(book: &Book, request: Request<'_, Number>) -> Result<Response<Text>> {
        let mut metadata = Metadata::default();
        metadata.insert("k", "v").unwrap();
        Ok(beginning(book, request)?.with_metadata(metadata))
    }
    for outcome in outcomes(with_metadata, 5) {
        let (metadata, reply) = outcome.unwrap();
        assert_eq!(metadata.unwrap().get("k"), Some(&b"v"[..]));
        assert_eq!(reply, text(5).encode_to_vec());
    }
}

#[test]
fn a_handler_that_returns_something_else_has_not_answered() {
    fn message(book: &Book, request: Request<'_, Number>) -> Result<Response<Text>> {
        let _ = beginning(book, request)?;
        Ok(Response::new(text(7)))
    }
    fn error(book: &Book, request: Request<'_, Number>) -> Result<Response<Text>> {
        let _ = beginning(book, request)?;
        Err(Status::not_found("no such text"))
    }
    fn twice(book: &Book, request: Request<'_, Number>) -> Result<Response<Text>> {
        let _ = request.answer::<Text>(&TextView { text: "first" })?;
        beginning(book, request)
    }
    for outcome in outcomes(message, 5) {
        assert_eq!(outcome.unwrap().1, text(7).encode_to_vec());
    }
    for outcome in outcomes(error, 5) {
        assert_eq!(outcome.unwrap_err().code(), Code::NotFound);
    }
    for outcome in outcomes(twice, 5) {
        assert_eq!(outcome.unwrap().1, text(5).encode_to_vec());
    }
}

#[test]
fn a_view_of_another_encoding_is_refused() {
    let workers = WorkerPool::new(1, 16).unwrap();
    let mut pair = mem_pair(routes(beginning), &workers);
    let outcome = pair.call(INVERTED.id(), &number(5).encode_to_vec());
    assert_eq!(outcome.unwrap_err().code(), Code::Internal);
}

#[test]
fn a_view_of_another_type_is_refused() {
    #[derive(Clone, PartialEq, Eq, Message)]
    struct Other {}
    impl Viewable for Other {
        type View<'a> = TextView<'a>;
        fn merge_view<'a>(
            _: &mut TextView<'a>,
            _: &'a [u8],
        ) -> std::result::Result<(), DecodeError> {
            Ok(())
        }
        fn write_view(_: &TextView<'_>, _: &mut impl FieldSink) {}
    }
    fn other(book: &Book, request: Request<'_, Number>) -> Result<Response<Text>> {
        let refused = request.answer::<Other>(&TextView { text: "other" });
        assert_eq!(refused.unwrap_err().code(), Code::Internal);
        beginning(book, request)
    }
    for outcome in outcomes(other, 5) {
        assert_eq!(outcome.unwrap().1, text(5).encode_to_vec());
    }
}

#[test]
fn an_answer_that_belongs_to_another_call_is_refused() {
    thread_local! {
        static KEPT: RefCell<Option<Response<Text>>> = const { RefCell::new(None) };
    }
    fn late(book: &Book, request: Request<'_, Number>) -> Result<Response<Text>> {
        match KEPT.take() {
            Some(response) => Ok(response),
            None => {
                KEPT.set(Some(beginning(book, request)?));
                Err(Status::unavailable("the next call gets it"))
            }
        }
    }
    let workers = WorkerPool::new(1, 16).unwrap();
    let mut pair = mem_pair(routes(late), &workers);
    let mut call = || pair.call(DISPATCH.id(), &number(5).encode_to_vec()).unwrap_err().code();
    assert_eq!((call(), call()), (Code::Unavailable, Code::Internal));
}

#[test]
fn a_callback_gets_a_view() {
    let hub = MemHub::new();
    let endpoint = || Endpoint::new(hub.port(MemConfig::default()), EndpointConfig::new()).unwrap();
    let (server, client) = (endpoint(), endpoint());
    server.serve(Arc::new(routes(beginning)), None);
    server.listen();
    let session = client.open(server.local_route().unwrap());
    let seen = Rc::new(RefCell::new(Vec::new()));
    let done = Rc::new(Cell::new(0));
    for len in [3, 99] {
        let (seen, done) = (Rc::clone(&seen), Rc::clone(&done));
        let told = move |reply: std::result::Result<TextView<'_>, CallError>| {
            seen.borrow_mut().push(reply.map(|view| view.text.to_owned()).map_err(|it| it.code()));
            done.set(done.get() + 1);
        };
        session.call_with(&DISPATCH, &number(len), told);
    }
    let limit = std::time::Instant::now() + Duration::from_secs(20);
    while done.get() < 2 && std::time::Instant::now() < limit {
        client.run_once();
        server.run_once();
    }
    assert_eq!(*seen.borrow(), [Ok("abc".to_owned()), Err(Code::OutOfRange)]);
}

#[test]
fn a_responder_answers_with_a_view() {
    fn later(book: &Book, request: Request<'_, Number>) -> Result<Response<Text>> {
        let text = book.0.clone();
        Ok(request.defer(|number, responder| {
            std::thread::spawn(move || {
                responder.send_view(&TextView { text: &text[..number.value as usize] });
            });
        }))
    }
    let workers = WorkerPool::new(1, 16).unwrap();
    let mut pair = mem_pair(routes(later), &workers);
    let mut call = |method: u32, len| pair.call(method, &number(len).encode_to_vec());
    for method in [DISPATCH.id(), WORKER.id(), ASYNC.id()] {
        assert_eq!(call(method, 98).unwrap().1, text(98).encode_to_vec());
        assert_eq!(call(method, 99).unwrap_err().code(), Code::OutOfRange);
    }
    assert_eq!(call(INVERTED.id(), 5).unwrap_err().code(), Code::Internal);
}

#[test]
fn a_deferred_call_forgets_a_view() {
    fn both(book: &Book, request: Request<'_, Number>) -> Result<Response<Text>> {
        let _ = request.answer::<Text>(&TextView { text: &book.0[..9] })?;
        Ok(request.defer(|_, responder| responder.send(&text(4))))
    }
    for outcome in outcomes(both, 5) {
        assert_eq!(outcome.unwrap().1, text(4).encode_to_vec());
    }
}

#[test]
fn views_that_are_forgotten_give_their_memory_back() {
    fn message(book: &Book, request: Request<'_, Number>) -> Result<Response<Text>> {
        let _ = beginning(book, request)?;
        Ok(Response::new(text(7)))
    }
    let workers = WorkerPool::new(1, 16).unwrap();
    let mut pair = mem_pair(routes(message), &workers);
    let mut bytes_after = |calls| {
        for _ in 0..calls {
            pair.call(DISPATCH.id(), &number(98).encode_to_vec()).unwrap();
        }
        let pool = pair.server.stats().unwrap().pool;
        pool.in_use_bytes + pool.idle_bytes
    };
    let first = bytes_after(100);
    assert_eq!(bytes_after(1_000), first);
}

#[test]
fn interceptors_see_whether_a_view_is_the_answer() {
    struct Watch(Arc<Mutex<Vec<Code>>>);
    impl Interceptor for Watch {
        fn after(&self, _: &CallContext<'_>, outcome: std::result::Result<(), &Status>) {
            self.0.lock().unwrap().push(outcome.map_or_else(Status::code, |()| Code::Ok));
        }
    }
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut routes = routes(beginning);
    routes.intercept(Watch(Arc::clone(&seen)));
    let workers = WorkerPool::new(1, 16).unwrap();
    let mut pair = mem_pair(routes, &workers);
    for (len, code) in [(98, Code::Ok), (99, Code::OutOfRange)] {
        let _ = pair.call(DISPATCH.id(), &number(len).encode_to_vec());
        assert_eq!(seen.lock().unwrap().pop(), Some(code));
    }
}
