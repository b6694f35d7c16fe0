//! Answers on their way from a handler to the runtime.

use super::codec::encode_sized;
use super::{Codec, MetadataRef, Status};
use crate::buf::MsgBuf;
use crate::protocol::RequestHandle;

/// An encoded response.
#[derive(Debug)]
pub struct Reply {
    /// Extension, if there is one, and message.
    pub message: MsgBuf,
    /// Whether the message begins with an extension.
    pub extended: bool,
}

/// What came of a handler.
#[derive(Debug)]
pub enum Outcome {
    /// The response.
    Reply(Reply),
    /// The call failed.
    Failed(Status),
    /// The [`ReplySink`] gets the answer, now or later.
    Deferred,
}

/// Where a runtime takes answers that come from outside of the handler's call.
pub trait ReplySink: Send + Sync {
    /// Answers `call`, from any thread. At most once per call.
    fn reply(&self, call: RequestHandle, result: Result<Reply, Status>);
}

impl Outcome {
    /// The outcome as interceptors are told of it.
    pub(super) fn as_result(&self) -> Result<(), &Status> {
        match self {
            Self::Reply(_) | Self::Deferred => Ok(()),
            Self::Failed(status) => Err(status),
        }
    }
}

impl From<Result<Reply, Status>> for Outcome {
    #[inline]
    fn from(result: Result<Reply, Status>) -> Self {
        result.map_or_else(Self::Failed, Self::Reply)
    }
}

/// Encodes a response of at most `limit` bytes into what `buffer` gives for that many bytes.
#[inline]
pub(super) fn encode_reply<D: Codec<M>, M>(
    message: &M,
    metadata: MetadataRef<'_>,
    limit: u32,
    buffer: impl FnOnce(usize) -> Result<MsgBuf, Status>,
) -> Result<Reply, Status> {
    let len = D::encoded_len(message);
    if len > limit as usize {
        return Err(too_large(len, limit));
    }
    if metadata.is_empty() {
        let mut msgbuf = buffer(len)?;
        encode_sized::<D, M>(message, len, &mut msgbuf);
        return Ok(Reply { message: msgbuf, extended: false });
    }
    let mut msgbuf = buffer(EXTENSION + metadata.as_bytes().len() + len)?;
    extend::<D, M>(message, len, metadata, &mut msgbuf);
    Ok(Reply { message: msgbuf, extended: true })
}

/// Bytes of an extension without entries.
const EXTENSION: usize = 8;

#[cold]
fn extend<D: Codec<M>, M>(message: &M, len: usize, metadata: MetadataRef<'_>, msgbuf: &mut MsgBuf) {
    let entries = metadata.as_bytes();
    let front = EXTENSION + entries.len();
    msgbuf.resize(front + len);
    let (extension, mut rest) = msgbuf.as_mut_slice().split_at_mut(front);
    extension[..2].copy_from_slice(&(front as u16).to_le_bytes());
    extension[2..EXTENSION].fill(0);
    extension[EXTENSION..].copy_from_slice(entries);
    D::encode(message, &mut rest);
    let unwritten = rest.len();
    msgbuf.resize(front + len - unwritten);
}

#[cold]
fn too_large(len: usize, limit: u32) -> Status {
    let message = format!("the response has {len} bytes, the method's limit is {limit}");
    Status::out_of_range(message)
}
