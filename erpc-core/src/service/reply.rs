//! Answers that handlers pass to the runtime.

use super::MetadataRef;
use super::codec::encode_sized;
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

/// Encodes a response of `len` bytes, at most `limit`, into the buffer that `buffer` allocates for it.
#[inline(always)]
pub(super) fn encode_reply(
    len: usize,
    metadata: MetadataRef<'_>,
    limit: u32,
    buffer: impl FnOnce(usize) -> Result<MsgBuf, Status>,
    encode: impl FnOnce(&mut &mut [u8]),
) -> Result<Encoded, Status> {
    if len > limit as usize {
        return Err(too_large(len, limit));
    }
    if metadata.is_empty() {
        let mut bytes = buffer(len)?;
        encode_sized(&mut bytes, len, encode);
        return Ok(Encoded { bytes, extended: false });
    }
    encode_extended(len, metadata, buffer, encode)
}

#[cold]
fn encode_extended(
    len: usize,
    metadata: MetadataRef<'_>,
    buffer: impl FnOnce(usize) -> Result<MsgBuf, Status>,
    encode: impl FnOnce(&mut &mut [u8]),
) -> Result<Encoded, Status> {
    let all = EXTENSION_HEAD + metadata.as_bytes().len() + len;
    let mut bytes = buffer(all)?;
    encode_sized(&mut bytes, all, |out| {
        put_extension(0, metadata.as_bytes(), out);
        encode(out);
    });
    Ok(Encoded { bytes, extended: true })
}

/// Allocates a buffer outside of the endpoint's pool, which only the endpoint's thread may use.
pub(super) fn detached(len: usize) -> Result<MsgBuf, Status> {
    MsgBuf::detached(len).ok_or_else(|| Status::resource_exhausted("no memory for the response"))
}

#[cold]
pub(super) fn of_another_kind() -> Status {
    Status::internal(
        "the handler answers with a view of another type, or the responses are not protocol buffers",
    )
}

#[cold]
fn too_large(len: usize, limit: u32) -> Status {
    let message = format!("the response has {len} bytes, the method's limit is {limit}");
    Status::out_of_range(message)
}
