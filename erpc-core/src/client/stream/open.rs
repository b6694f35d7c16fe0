//! Streams of sessions and channels.

use std::rc::Rc;

use super::caller::ClientStream;
use super::search::SearchHome;
use super::start::{StreamStart, server_streaming};
use crate::calling::options::CallOptions;
use crate::client::channel::Channel;
use crate::client::channel::balancer::Balancer;
use crate::client::channel::sessions::ChannelSessions;
use crate::client::session::Session;
use crate::service::{Codec, Encodes, Incoming, Method, Outgoing, Upload};
use crate::transport::Transport;

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
    /// to this session. The request is encoded now and sent in this turn or the next.
    ///
    /// # Errors
    /// [`Incoming::next`] returns every error.
    pub fn server_streaming<Req, Resp, C: Codec<Req>, D: Codec<Resp>>(
        &self,
        method: &Method<Req, Resp, C, D>,
        request: &impl Encodes<Req>,
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
    /// The request is encoded now and sent in this turn or the next, or as soon as there is a
    /// server.
    ///
    /// A stream whose handler has certainly not started, because the server shuts down or cannot be
    /// reached, begins on another server, unless
    /// [`RetryPolicy::never`](crate::calling::RetryPolicy::never) is set. Otherwise streams are not
    /// retried: if the server fails, [`Incoming::next`] returns the error.
    ///
    /// # Errors
    /// [`Incoming::next`] returns every error.
    pub fn server_streaming<Req, Resp, C: Codec<Req>, D: Codec<Resp>>(
        &self,
        method: &Method<Req, Resp, C, D>,
        request: &impl Encodes<Req>,
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
            let stream = start.stream(endpoint, Some(lease));
            stream.set_home(home(balancer, start));
            return stream;
        }
        let stream = start.stream(endpoint, None);
        stream.set_home(home(balancer, start));
        stream.search(None);
        stream
    }
}

/// Where a stream of a channel may look for another server.
fn home<T: Transport>(balancer: &Rc<Balancer<T>>, start: &StreamStart) -> Box<SearchHome<T>> {
    Box::new(SearchHome {
        balancer: Rc::downgrade(balancer),
        waits: start.waits,
        is_final: start.is_final,
    })
}
