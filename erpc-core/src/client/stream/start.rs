//! The start of a stream.

use std::rc::Rc;

use super::caller::ClientStream;
use super::pool::{StreamLease, StreamPool};
use crate::calling::options::CallOptions;
use crate::endpoint::parts::EndpointParts;
use crate::health::{HealthCheckRequest, HealthCheckResponse, WATCH};
use crate::service::{Codec, Incoming, Method};
use crate::time::Instant;
use crate::transport::Transport;

/// A stream on the session of `lease`, or without a session.
pub(super) fn new<T: Transport, Req, Resp, C, D>(
    endpoint: &Rc<EndpointParts<T>>,
    method: &Method<Req, Resp, C, D>,
    options: Option<&CallOptions>,
    lease: Option<StreamLease<T>>,
) -> Rc<ClientStream<T>> {
    let time = CallOptions::time_limit(options, method);
    let deadline = time.map_or(Instant::NEVER, |time| endpoint.scheduler().now() + time);
    let entries = CallOptions::entries(options).to_vec();
    ClientStream::new(endpoint, method.id(), method.full_name(), deadline, entries, lease)
}

/// Sends the request of a stream of the server's messages.
pub(super) fn server_streaming<T: Transport, Req, Resp, C: Codec<Req>, D: Codec<Resp>>(
    stream: Rc<ClientStream<T>>,
    method: &Method<Req, Resp, C, D>,
    request: &Req,
) -> Incoming<Resp> {
    let (len, limit) = (C::encoded_len(request), method.request_limit() as usize);
    stream.put_only(len, limit, &mut |out| C::encode(request, out));
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
    server_streaming(new(endpoint, &WATCH, None, Some(lease)), &WATCH, request)
}
