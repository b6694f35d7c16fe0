//! The start of a stream.

use std::rc::Rc;

use super::caller::ClientStream;
use super::pool::{StreamLease, StreamPool};
use crate::calling::options::{CallOptions, TimeLeft};
use crate::calling::retry::RetryPolicy;
use crate::endpoint::parts::EndpointParts;
use crate::health::{HealthCheckRequest, HealthCheckResponse, WATCH};
use crate::service::{Codec, Encodes, Incoming, Method};
use crate::transport::Transport;

/// Method and options of a new stream.
pub(in crate::client) struct StreamStart {
    method: u32,
    /// The method's full name.
    name: &'static str,
    time: TimeLeft,
    /// Metadata of the first request, in their wire format.
    entries: Vec<u8>,
    /// Whether the stream waits even while no server can be reached.
    pub(super) waits: bool,
    /// Whether the stream stays on the server where it began.
    pub(super) is_final: bool,
}

impl StreamStart {
    pub(in crate::client) fn new<Req, Resp, C, D>(
        method: &Method<Req, Resp, C, D>,
        options: Option<&CallOptions>,
    ) -> Self {
        let policy = options.and_then(CallOptions::policy);
        Self {
            method: method.id(),
            name: method.full_name(),
            time: TimeLeft::here(CallOptions::time_limit(options, method)),
            entries: CallOptions::entries(options).to_vec(),
            waits: options.is_some_and(CallOptions::waits),
            is_final: policy.is_some_and(RetryPolicy::is_never),
        }
    }

    /// The start of a stream that is made now for an endpoint on another thread.
    pub(in crate::client) fn posted<Req, Resp, C, D>(
        method: &Method<Req, Resp, C, D>,
        options: Option<&CallOptions>,
    ) -> Self {
        let time = TimeLeft::from_now(CallOptions::time_limit(options, method));
        Self { time, ..Self::new(method, options) }
    }

    /// The stream, on the session of `lease` or without a session.
    pub(super) fn stream<T: Transport>(
        &self,
        endpoint: &Rc<EndpointParts<T>>,
        lease: Option<StreamLease<T>>,
    ) -> Rc<ClientStream<T>> {
        let deadline = self.time.deadline(endpoint.scheduler());
        ClientStream::new(endpoint, self.method, self.name, deadline, self.entries.clone(), lease)
    }
}

/// Sends the request of a call that the server answers with a stream of messages. Returns the
/// reader of these messages.
pub(super) fn server_streaming<T: Transport, Req, Resp, C: Codec<Req>, D: Codec<Resp>>(
    stream: Rc<ClientStream<T>>,
    method: &Method<Req, Resp, C, D>,
    request: &impl Encodes<Req>,
) -> Incoming<Resp> {
    let (len, limit) = (request.encoded_len::<C>(), method.request_limit() as usize);
    stream.put_only(len, limit, &mut |out| request.encode::<C>(out));
    Incoming::new::<D>(stream, method.response_limit())
}

/// Watches the health of a server, on a session of `pool`.
pub(in crate::client) fn watch_peer<T: Transport>(
    pool: &Rc<StreamPool<T>>,
    endpoint: &Rc<EndpointParts<T>>,
    peer: T::Route,
    request: &HealthCheckRequest,
) -> Incoming<HealthCheckResponse> {
    let lease = pool.take(endpoint, peer);
    let stream = StreamStart::new(&WATCH, None).stream(endpoint, Some(lease));
    server_streaming(stream, &WATCH, request)
}
