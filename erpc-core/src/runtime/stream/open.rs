//! Beginning streams.

use std::rc::Rc;

use super::client::ClientStream;
use super::pool::StreamPool;
use crate::runtime::session::Session;
use crate::runtime::shared::Shared;
use crate::service::{Codec, Incoming, Method, Outgoing, Upload};
use crate::time::Instant;
use crate::transport::Transport;

/// A stream as it is to begin, besides its method.
pub(in crate::runtime) struct Opening<'a, T: Transport> {
    pub(in crate::runtime) shared: &'a Rc<Shared<T>>,
    pub(in crate::runtime) pool: &'a Rc<StreamPool<T>>,
    pub(in crate::runtime) deadline: Instant,
    /// The metadata, as it travels.
    pub(in crate::runtime) entries: Vec<u8>,
}

impl<T: Transport> Opening<'_, T> {
    fn open<Req, Resp, C, D>(self, method: &Method<Req, Resp, C, D>) -> Rc<ClientStream<T>> {
        let Self { shared, pool, deadline, entries } = self;
        let lease = pool.take(shared);
        ClientStream::new(shared, method.id(), deadline, entries, lease)
    }

    pub(in crate::runtime) fn server_streaming<Req, Resp, C: Codec<Req>, D: Codec<Resp>>(
        self,
        method: &Method<Req, Resp, C, D>,
        request: &Req,
    ) -> Incoming<Resp> {
        let stream = self.open(method);
        let (len, limit) = (C::encoded_len(request), method.request_limit() as usize);
        stream.put_only(len, limit, &mut |out| C::encode(request, out));
        Incoming::new::<D>(stream, method.response_limit())
    }

    pub(in crate::runtime) fn client_streaming<Req, Resp, C: Codec<Req>, D: Codec<Resp>>(
        self,
        method: &Method<Req, Resp, C, D>,
    ) -> Upload<Req, Resp> {
        let (messages, response) = self.bidi_streaming(method);
        Upload::new(messages, response)
    }

    pub(in crate::runtime) fn bidi_streaming<Req, Resp, C: Codec<Req>, D: Codec<Resp>>(
        self,
        method: &Method<Req, Resp, C, D>,
    ) -> (Outgoing<Req>, Incoming<Resp>) {
        let stream = self.open(method);
        let messages = Outgoing::new::<C>(Rc::clone(&stream) as _, method.request_limit());
        (messages, Incoming::new::<D>(stream, method.response_limit()))
    }
}

impl<T: Transport> Session<T> {
    /// Calls a method that answers with many messages. The stream runs on a session of its own to the same
    /// peer, taken from a pool that belongs to this one, so that it delays no other call. The request is
    /// encoded now and sent with the endpoint's next turn.
    ///
    /// # Errors
    /// Everything that can go wrong is told by [`Incoming::next`].
    pub fn server_streaming<Req, Resp, C: Codec<Req>, D: Codec<Resp>>(
        &self,
        method: &Method<Req, Resp, C, D>,
        request: &Req,
    ) -> Incoming<Resp> {
        self.opening(method.default_deadline()).server_streaming(method, request)
    }

    /// Calls a method that takes many messages and answers with one; otherwise as
    /// [`Session::server_streaming`].
    pub fn client_streaming<Req, Resp, C: Codec<Req>, D: Codec<Resp>>(
        &self,
        method: &Method<Req, Resp, C, D>,
    ) -> Upload<Req, Resp> {
        self.opening(method.default_deadline()).client_streaming(method)
    }

    /// Calls a method that takes and sends many messages; otherwise as [`Session::server_streaming`].
    /// Dropping the [`Outgoing`] says that no more messages come, dropping the [`Incoming`] ends the
    /// stream.
    pub fn bidi_streaming<Req, Resp, C: Codec<Req>, D: Codec<Resp>>(
        &self,
        method: &Method<Req, Resp, C, D>,
    ) -> (Outgoing<Req>, Incoming<Resp>) {
        self.opening(method.default_deadline()).bidi_streaming(method)
    }
}
