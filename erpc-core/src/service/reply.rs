//! Answers that handlers pass to the runtime.

use bytes::BufMut;

use super::codec::encode_sized;
use super::{Codec, MetadataRef, Viewable};
use crate::buf::MsgBuf;
use crate::protocol::RequestHandle;
use crate::status::Status;
use crate::wire::extension::{EXTENSION_HEAD, put_extension};

/// A response in wire format.
#[derive(Debug)]
pub struct Encoded {
    /// The extension, if there is one, followed by the message.
    pub bytes: MsgBuf,
    /// Whether the bytes begin with an [extension](crate::wire::extension).
    pub extended: bool,
}

/// The outcome of a handler.
#[derive(Debug)]
pub enum HandlerOutcome {
    /// The response.
    Reply(Encoded),
    /// The call failed with this status.
    Failed(Status),
    /// A responder answers through the [`ReplySink`], now or later.
    Deferred,
}

/// Receives the answers of deferred calls.
pub trait ReplySink: Send + Sync {
    /// Answers `call`. Any thread may call this function, but only once per `call`.
    fn reply(&self, call: RequestHandle, result: Result<Encoded, Status>);
}

impl HandlerOutcome {
    /// The outcome as interceptors receive it.
    pub(super) fn as_result(&self) -> Result<(), &Status> {
        match self {
            Self::Reply(_) | Self::Deferred => Ok(()),
            Self::Failed(status) => Err(status),
        }
    }
}

impl From<Result<Encoded, Status>> for HandlerOutcome {
    #[inline]
    fn from(result: Result<Encoded, Status>) -> Self {
        result.map_or_else(Self::Failed, Self::Reply)
    }
}

/// Encodes a response of at most `limit` bytes into the buffer that `buffer` allocates for it.
#[inline(always)]
pub(super) fn encode_reply<D: Codec<M>, M>(
    message: &M,
    metadata: MetadataRef<'_>,
    limit: u32,
    buffer: impl FnOnce(usize) -> Result<MsgBuf, Status>,
) -> Result<Encoded, Status> {
    let len = D::encoded_len(message);
    if len > limit as usize {
        return Err(too_large(len, limit));
    }
    if metadata.is_empty() {
        let mut msgbuf = buffer(len)?;
        encode_sized::<D, M>(message, len, &mut msgbuf);
        return Ok(Encoded { bytes: msgbuf, extended: false });
    }
    let mut msgbuf = buffer(EXTENSION_HEAD + metadata.as_bytes().len() + len)?;
    extend::<D, M>(message, len, metadata, &mut msgbuf);
    Ok(Encoded { bytes: msgbuf, extended: true })
}

/// Encodes the message of a view, of at most `limit` bytes, into a buffer from `buffer`.
#[inline(always)]
pub(super) fn encode_view<M: Viewable>(
    view: &M::View<'_>,
    limit: u32,
    buffer: impl FnOnce(usize) -> Result<MsgBuf, Status>,
) -> Result<MsgBuf, Status> {
    let len = M::view_len(view);
    if len > limit as usize {
        return Err(too_large(len, limit));
    }
    let mut msgbuf = buffer(len)?;
    msgbuf.resize(len);
    let mut rest = msgbuf.as_mut_slice();
    M::encode_view(view, &mut rest);
    // As in `encode_sized`: unwritten bytes must not be sent.
    let written = len - rest.len();
    msgbuf.resize(written);
    Ok(msgbuf)
}

/// Adds metadata to an encoded response.
#[cold]
pub(super) fn with_metadata(
    response: &MsgBuf,
    metadata: MetadataRef<'_>,
    buffer: impl FnOnce(usize) -> Result<MsgBuf, Status>,
) -> Result<Encoded, Status> {
    let all = EXTENSION_HEAD + metadata.as_bytes().len() + response.len();
    let mut msgbuf = buffer(all)?;
    msgbuf.resize(all);
    let mut rest = msgbuf.as_mut_slice();
    put_extension(0, metadata.as_bytes(), &mut rest);
    rest.put_slice(response.as_slice());
    Ok(Encoded { bytes: msgbuf, extended: true })
}

#[cold]
fn extend<D: Codec<M>, M>(message: &M, len: usize, metadata: MetadataRef<'_>, msgbuf: &mut MsgBuf) {
    let all = EXTENSION_HEAD + metadata.as_bytes().len() + len;
    msgbuf.resize(all);
    let mut rest = msgbuf.as_mut_slice();
    put_extension(0, metadata.as_bytes(), &mut rest);
    D::encode(message, &mut rest);
    // As in `encode_sized`: unwritten bytes must not be sent.
    let written = all - rest.len();
    msgbuf.resize(written);
}

#[cold]
fn too_large(len: usize, limit: u32) -> Status {
    let message = format!("the response has {len} bytes, the method's limit is {limit}");
    Status::out_of_range(message)
}
