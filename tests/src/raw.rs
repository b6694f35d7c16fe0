//! Servers and clients that use `erpc::raw`, the layer below generated code.

use std::sync::Arc;

use erpc::Cause;
use erpc::raw::ListenGroup;
use erpc::raw::{
    Acceptor, App, Body, Context, MsgBuf, Reply, Request, Rpc, SessionEvent, SessionId,
};
use erpc::{CallError, EndpointConfig, Transport};

use erpc_test_tools::data::{digest, fill};

/// The method whose response has the bytes of the request.
pub const ECHO: u32 = 1;
/// The method whose response is the digest of the request: 8 bytes.
pub const DIGEST: u32 = 2;
/// The method that produces bytes. The request is an id and a length, 8 bytes each. The response
/// has this length and the bytes of the id.
pub const PRODUCE: u32 = 3;

/// Answers [`ECHO`], [`DIGEST`] and [`PRODUCE`].
#[derive(Debug, Default)]
pub struct Answers {
    /// Requests answered.
    pub answered: u64,
}

impl<T: Transport> App<T> for Answers {
    fn on_request(&mut self, cx: &mut Context<'_, T>, request: Request<'_, T::Route>) {
        self.answered += 1;
        let body = request.body.as_slice();
        let word = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().expect("8 bytes"));
        let (len, produced) = match request.method {
            ECHO => (body.len(), None),
            DIGEST => (8, None),
            PRODUCE => (word(8) as usize, Some(word(0))),
            method => panic!("method {method} does not exist"),
        };
        let mut response =
            cx.response_buffer(request.buffer, len).expect("the response fits in memory");
        response.resize(len);
        match (request.method, produced) {
            (_, Some(id)) => fill(id, response.as_mut_slice()),
            (DIGEST, _) => response.as_mut_slice().copy_from_slice(&digest(body).to_le_bytes()),
            _ => response.as_mut_slice().copy_from_slice(body),
        }
        if let Body::Message(message) = request.body {
            cx.recycle(message);
        }
        cx.respond(request.handle, response, false);
    }

    fn on_reply(
        &mut self,
        _: &mut Context<'_, T>,
        token: u64,
        _: Result<Reply<'_>, CallError>,
        _: MsgBuf,
    ) {
        panic!("the server makes no calls, but received a reply with token {token}");
    }
}

/// An endpoint over `transport` that accepts sessions.
///
/// # Panics
/// If the configuration is wrong.
pub fn listening<T: Transport>(transport: T, config: EndpointConfig) -> Rpc<T> {
    use erpc::transport::Route;
    let port = transport.local_route().port();
    let mut rpc = Rpc::new(transport, config).expect("the configuration is within bounds");
    rpc.listen(Acceptor::new(Arc::new(ListenGroup::new([7; 16], vec![port])), 0));
    rpc
}

/// A client that passes replies to a closure.
#[derive(Debug)]
pub struct Caller<F> {
    /// Called with each reply.
    pub on_reply: F,
    /// Number of sessions that have opened.
    pub opened: usize,
    /// Sessions that have closed, with the cause.
    pub closed: Vec<(SessionId, Cause)>,
}

impl<F> Caller<F> {
    /// A client without sessions.
    pub fn new(on_reply: F) -> Self {
        Self { on_reply, opened: 0, closed: Vec::new() }
    }
}

impl<T, F> App<T> for Caller<F>
where
    T: Transport,
    F: FnMut(&mut Context<'_, T>, u64, Result<Reply<'_>, CallError>, MsgBuf),
{
    fn on_request(&mut self, _: &mut Context<'_, T>, request: Request<'_, T::Route>) {
        panic!("a client received a request for method {}", request.method);
    }

    fn on_reply(
        &mut self,
        cx: &mut Context<'_, T>,
        token: u64,
        reply: Result<Reply<'_>, CallError>,
        request: MsgBuf,
    ) {
        (self.on_reply)(cx, token, reply, request);
    }

    fn on_session(&mut self, _: &mut Context<'_, T>, session: SessionId, event: SessionEvent) {
        match event {
            SessionEvent::Opened => self.opened += 1,
            SessionEvent::Draining => {}
            SessionEvent::Closed(cause) => self.closed.push((session, cause)),
        }
    }
}

/// A request of `len` bytes, with the bytes of `id`.
///
/// # Panics
/// If there is no memory for it.
pub fn request_of<T: Transport>(cx: &mut Context<'_, T>, id: u64, len: usize) -> MsgBuf {
    let mut request = cx.alloc(len).expect("memory for the request");
    request.resize(len);
    fill(id, request.as_mut_slice());
    request
}

/// A request for [`PRODUCE`]: the response will have `len` bytes, those of `id`.
///
/// # Panics
/// If there is no memory for it.
pub fn produce_request<T: Transport>(cx: &mut Context<'_, T>, id: u64, len: usize) -> MsgBuf {
    let mut request = cx.alloc(16).expect("memory for the request");
    request.resize(16);
    request.as_mut_slice()[..8].copy_from_slice(&id.to_le_bytes());
    request.as_mut_slice()[8..].copy_from_slice(&(len as u64).to_le_bytes());
    request
}
