//! Opening streams.

use std::rc::{Rc, Weak};
use std::time::Duration;

use super::caller::ClientStream;
use super::pool::StreamLease;
use crate::calling::options::CallOptions;
use crate::calling::plan::NoSession;
use crate::client::channel::Channel;
use crate::client::channel::sessions::ChannelSessions;
use crate::client::session::Session;
use crate::endpoint::parts::EndpointParts;
use crate::executor::sleep::Sleep;
use crate::protocol::{CallError, Cause};
use crate::service::{Codec, Incoming, Method, Outgoing, Upload};
use crate::time::Instant;
use crate::transport::Transport;

/// How often the search for a stream's server tries again, and checks whether the stream was
/// dropped.
const POLL_PERIOD: Duration = Duration::from_millis(50);

fn server_streaming<T: Transport, Req, Resp, C: Codec<Req>, D: Codec<Resp>>(
    stream: Rc<ClientStream<T>>,
    method: &Method<Req, Resp, C, D>,
    request: &Req,
) -> Incoming<Resp> {
    let (len, limit) = (C::encoded_len(request), method.request_limit() as usize);
    stream.put_only(len, limit, &mut |out| C::encode(request, out));
    Incoming::new::<D>(stream, method.response_limit())
}

fn bidi_streaming<T: Transport, Req, Resp, C: Codec<Req>, D: Codec<Resp>>(
    stream: Rc<ClientStream<T>>,
    method: &Method<Req, Resp, C, D>,
) -> (Outgoing<Req>, Incoming<Resp>) {
    let messages = Outgoing::new::<C>(Rc::clone(&stream) as _, method.request_limit());
    (messages, Incoming::new::<D>(stream, method.response_limit()))
}

fn client_streaming<T: Transport, Req, Resp, C: Codec<Req>, D: Codec<Resp>>(
    stream: Rc<ClientStream<T>>,
    method: &Method<Req, Resp, C, D>,
) -> Upload<Req, Resp> {
    let (messages, response) = bidi_streaming(stream, method);
    Upload::new(messages, response)
}

impl<T: Transport> Session<T> {
    /// Calls a method that answers with a stream of messages. The stream runs on its own session to
    /// the same peer, so that it delays no other call. The session comes from a pool that belongs
    /// to this session. The request is encoded now and sent in the endpoint's next turn.
    ///
    /// # Errors
    /// [`Incoming::next`] returns every error.
    pub fn server_streaming<Req, Resp, C: Codec<Req>, D: Codec<Resp>>(
        &self,
        method: &Method<Req, Resp, C, D>,
        request: &Req,
    ) -> Incoming<Resp> {
        server_streaming(self.stream(method, None), method, request)
    }

    /// Calls a method that takes a stream of messages and answers with one message; otherwise like
    /// [`Session::server_streaming`].
    pub fn client_streaming<Req, Resp, C: Codec<Req>, D: Codec<Resp>>(
        &self,
        method: &Method<Req, Resp, C, D>,
    ) -> Upload<Req, Resp> {
        client_streaming(self.stream(method, None), method)
    }

    /// Calls a method that takes and answers with a stream of messages; otherwise like
    /// [`Session::server_streaming`]. Dropping the [`Outgoing`] ends the client's messages;
    /// dropping the [`Incoming`] ends the stream.
    pub fn bidi_streaming<Req, Resp, C: Codec<Req>, D: Codec<Resp>>(
        &self,
        method: &Method<Req, Resp, C, D>,
    ) -> (Outgoing<Req>, Incoming<Resp>) {
        bidi_streaming(self.stream(method, None), method)
    }

    fn stream<Req, Resp, C, D>(
        &self,
        method: &Method<Req, Resp, C, D>,
        options: Option<&CallOptions>,
    ) -> Rc<ClientStream<T>> {
        self.open_stream(&StreamStart::new(method, options))
    }

    fn open_stream(&self, start: &StreamStart) -> Rc<ClientStream<T>> {
        let lease = self.streams().take(self.endpoint(), self.peer());
        start.stream(self.endpoint(), Some(lease))
    }
}

impl<T: Transport> Channel<T> {
    /// Calls a method that answers with a stream of messages, on one of the channel's servers. The
    /// stream has a session to itself, so that it delays no other call; such sessions are reused.
    /// The request is encoded now and sent in the endpoint's next turn, or as soon as there is a
    /// server.
    ///
    /// Streams are not retried: if the server fails, [`Incoming::next`] returns the error.
    ///
    /// # Errors
    /// [`Incoming::next`] returns every error.
    pub fn server_streaming<Req, Resp, C: Codec<Req>, D: Codec<Resp>>(
        &self,
        method: &Method<Req, Resp, C, D>,
        request: &Req,
    ) -> Incoming<Resp> {
        server_streaming(self.stream(method), method, request)
    }

    /// Calls a method that takes a stream of messages and answers with one message; otherwise like
    /// [`Channel::server_streaming`].
    pub fn client_streaming<Req, Resp, C: Codec<Req>, D: Codec<Resp>>(
        &self,
        method: &Method<Req, Resp, C, D>,
    ) -> Upload<Req, Resp> {
        client_streaming(self.stream(method), method)
    }

    /// Calls a method that takes and answers with a stream of messages; otherwise like
    /// [`Channel::server_streaming`]. Dropping the [`Outgoing`] ends the client's messages;
    /// dropping the [`Incoming`] ends the stream.
    pub fn bidi_streaming<Req, Resp, C: Codec<Req>, D: Codec<Resp>>(
        &self,
        method: &Method<Req, Resp, C, D>,
    ) -> (Outgoing<Req>, Incoming<Resp>) {
        bidi_streaming(self.stream(method), method)
    }

    fn stream<Req, Resp, C, D>(&self, method: &Method<Req, Resp, C, D>) -> Rc<ClientStream<T>> {
        self.open_stream(&StreamStart::new(method, self.options()))
    }

    /// Opens a stream on one of the channel's servers, or looks for a server for it.
    pub(in crate::client) fn open_stream(&self, start: &StreamStart) -> Rc<ClientStream<T>> {
        let balancer = match self.sessions() {
            ChannelSessions::One(one) => return one.session().open_stream(start),
            ChannelSessions::Balanced(balancer) => balancer,
        };
        let endpoint = balancer.endpoint();
        if let Ok(link) = balancer.pick(None) {
            let lease = balancer.streams().take(endpoint, link.peer);
            return start.stream(endpoint, Some(lease));
        }
        let stream = start.stream(endpoint, None);
        if endpoint.is_closed() {
            // A search task would never run.
            stream.end_unbound(CallError::NotExecuted(Cause::Shutdown));
            return stream;
        }
        let search = ServerSearch {
            stream: Rc::downgrade(&stream),
            channel: self.clone(),
            waits: start.waits,
        };
        endpoint.scheduler().spawn_internal(search.run(stream.deadline()));
        stream
    }
}

/// Method and options of a new stream.
pub(in crate::client) struct StreamStart {
    method: u32,
    /// The method's full name.
    name: &'static str,
    within: Option<Duration>,
    /// Metadata of the first request, in their wire format.
    entries: Vec<u8>,
    waits: bool,
}

impl StreamStart {
    pub(in crate::client) fn new<Req, Resp, C, D>(
        method: &Method<Req, Resp, C, D>,
        options: Option<&CallOptions>,
    ) -> Self {
        Self {
            method: method.id(),
            name: method.full_name(),
            within: CallOptions::time_limit(options, method),
            entries: CallOptions::entries(options).to_vec(),
            waits: options.is_some_and(CallOptions::waits),
        }
    }

    /// The stream, on the session of `lease` or without a session.
    fn stream<T: Transport>(
        &self,
        endpoint: &Rc<EndpointParts<T>>,
        lease: Option<StreamLease<T>>,
    ) -> Rc<ClientStream<T>> {
        let within = |within| endpoint.scheduler().now() + within;
        let deadline = self.within.map_or(Instant::NEVER, within);
        ClientStream::new(endpoint, self.method, self.name, deadline, self.entries.clone(), lease)
    }
}

/// Looks for a server for a stream that has none. Dropping the search before it is done ends the
/// stream. The search keeps the channel alive, but at most one [`POLL_PERIOD`] longer than the
/// stream's last handle exists.
struct ServerSearch<T: Transport> {
    stream: Weak<ClientStream<T>>,
    channel: Channel<T>,
    waits: bool,
}

impl<T: Transport> ServerSearch<T> {
    async fn run(self, deadline: Instant) {
        let endpoint = Rc::clone(self.channel.sessions().endpoint());
        let found = match deadline {
            Instant::NEVER => self.find().await,
            _ => Sleep::new(endpoint.scheduler(), deadline)
                .limit(self.find())
                .await
                .unwrap_or(Err(CallError::NotExecuted(Cause::DeadlineExceeded))),
        };
        let (Some(stream), ChannelSessions::Balanced(balancer)) =
            (self.stream.upgrade(), self.channel.sessions())
        else {
            return;
        };
        match found {
            Ok(peer) => stream.bind(balancer.streams().take(&endpoint, peer)),
            Err(error) => stream.end(error),
        }
    }

    async fn find(&self) -> Result<T::Route, CallError> {
        let scheduler = self.channel.sessions().endpoint().scheduler();
        while self.stream.strong_count() > 0 {
            let no_session = match self.channel.sessions().pick(None) {
                Ok(link) => return Ok(link.peer),
                Err(no_session) => no_session,
            };
            let pause = Sleep::new(scheduler, scheduler.now() + POLL_PERIOD);
            match no_session {
                NoSession::Down(why) if !self.waits || scheduler.is_closed() => {
                    return Err(why.into());
                }
                NoSession::Down(_) => pause.await,
                // The result is not needed: the loop picks again. The pause bounds the wait,
                // because dropping the stream does not wake this task.
                NoSession::Pending => drop(pause.limit(self.channel.ready()).await),
            }
        }
        Err(CallError::NotExecuted(Cause::Cancelled))
    }
}

impl<T: Transport> Drop for ServerSearch<T> {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.upgrade() {
            stream.end_unbound(CallError::NotExecuted(Cause::Shutdown));
        }
    }
}
