//! Streams whose handles may be on any thread: those of shared channels, and of handlers in tokio.

use std::borrow::Borrow;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::pipe::{InPipe, OutPipe};
use super::{Messages, Source};
use crate::protocol::{CallError, RejectReason};
use crate::service::{Codec, DecodeError, Metadata};

/// Keeps the threads alive that run a caller's stream.
pub(crate) type Keeper = Arc<dyn Send + Sync>;

/// The other side's messages, in order, for any thread and any runtime. Also a
/// [`Stream`](futures_core::Stream).
///
/// A handler in tokio reads the client's messages from it, a caller with a shared client those of
/// the server. The reader sets the pace: the other side pauses when a few batches are unread. A
/// batch has 32 KiB, or one larger message. Dropping a caller's `SharedIncoming` before its end ends
/// the stream and drops the handler. Dropping a handler's `SharedIncoming` discards the client's
/// further messages.
#[must_use = "dropping it ends the stream"]
pub struct SharedIncoming<M> {
    pipe: Arc<InPipe>,
    messages: Messages<M>,
    _keeper: Option<Keeper>,
}

impl<M> SharedIncoming<M> {
    pub(crate) fn new<C: Codec<M>>(pipe: Arc<InPipe>, limit: u32, keeper: Option<Keeper>) -> Self {
        Self { pipe, messages: Messages::new::<C>(limit), _keeper: keeper }
    }

    /// The next message. `None` at the end, and on every call after it.
    ///
    /// # Errors
    /// A caller gets one error if the stream failed: the handler's status, or an error that a call
    /// can have. Either side gets an error if a message cannot be decoded or exceeds the method's
    /// limit.
    pub async fn next(&mut self) -> Result<Option<M>, CallError> {
        poll_fn(|cx| self.poll_message(cx)).await.transpose()
    }

    /// Like [`SharedIncoming::next`], for hand-written futures.
    pub fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<M, CallError>>> {
        self.messages.poll_next(&*self.pipe, cx)
    }
}

impl<M> futures_core::Stream for SharedIncoming<M> {
    type Item = Result<M, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_message(cx)
    }
}

impl<M> Drop for SharedIncoming<M> {
    fn drop(&mut self) {
        self.pipe.drop_reader();
    }
}

impl<M> fmt::Debug for SharedIncoming<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedIncoming")
            .field("ended", &self.messages.ended)
            .finish_non_exhaustive()
    }
}

/// The messages of this side to the other side, from any thread and any runtime.
///
/// A caller's `SharedOutgoing` ends when it is dropped; the handler then gets the end of the
/// messages. A handler's ends when the handler returns.
#[must_use = "dropping it ends the messages"]
pub struct SharedOutgoing<M> {
    pipe: Arc<OutPipe>,
    encode: fn(&M) -> Vec<u8>,
    encoded_len: fn(&M) -> usize,
    limit: u32,
    message: PhantomData<fn(M)>,
    _keeper: Option<Keeper>,
}

impl<M> SharedOutgoing<M> {
    pub(crate) fn new<C: Codec<M>>(pipe: Arc<OutPipe>, limit: u32, keeper: Option<Keeper>) -> Self {
        Self {
            pipe,
            encode: |message| {
                let mut bytes = Vec::with_capacity(C::encoded_len(message));
                C::encode(message, &mut bytes);
                bytes
            },
            encoded_len: C::encoded_len,
            limit,
            message: PhantomData,
            _keeper: keeper,
        }
    }

    /// Sends a message. Encodes it now, and waits while 32 KiB of earlier messages are unsent.
    ///
    /// # Errors
    /// - [`RejectReason::StreamEnded`] if the other side accepts no more messages.
    /// - [`RejectReason::TooLarge`] if this message exceeds the method's limit; the stream goes on.
    /// - Otherwise the error that ended the stream, for example because an earlier message exceeded
    ///   the other side's limit.
    pub async fn send(&self, message: impl Borrow<M>) -> Result<(), CallError> {
        let mut item = Some(self.encoded(message.borrow())?);
        poll_fn(|cx| self.pipe.poll_put(cx, &mut item)).await
    }

    /// Encodes a message, unless it exceeds the method's limit.
    pub(crate) fn encoded(&self, message: &M) -> Result<Vec<u8>, CallError> {
        let (size, limit) = ((self.encoded_len)(message), self.limit as usize);
        if size > limit {
            return Err(CallError::Rejected(RejectReason::TooLarge { size, limit }));
        }
        Ok((self.encode)(message))
    }

    /// Whether no more messages are accepted. Becomes true when the endpoint could not pass on an
    /// earlier message, or has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.pipe.is_closed()
    }
}

impl<M> Drop for SharedOutgoing<M> {
    fn drop(&mut self) {
        self.pipe.drop_writer();
    }
}

impl<M> fmt::Debug for SharedOutgoing<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedOutgoing").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}

/// A call that sends a stream of messages and gets one response, for any thread and any runtime.
///
/// Dropping it before [`SharedUpload::finish`] ends the call and drops the handler.
#[derive(Debug)]
#[must_use = "dropping it ends the call"]
pub struct SharedUpload<Req, Resp> {
    messages: SharedOutgoing<Req>,
    response: SharedIncoming<Resp>,
}

impl<Req, Resp> SharedUpload<Req, Resp> {
    pub(crate) fn new(messages: SharedOutgoing<Req>, response: SharedIncoming<Resp>) -> Self {
        Self { messages, response }
    }

    /// Sends a message; see [`SharedOutgoing::send`]. If the handler has already answered, the
    /// message is dropped, and [`SharedUpload::finish`] returns the answer.
    ///
    /// # Errors
    /// The error that ended the call, or the reason why this message cannot be sent.
    pub async fn send(&self, message: impl Borrow<Req>) -> Result<(), CallError> {
        match self.messages.send(message).await {
            Err(CallError::Rejected(RejectReason::StreamEnded)) => Ok(()),
            sent => sent,
        }
    }

    /// Ends the messages and waits for the response.
    ///
    /// # Errors
    /// Those of a call.
    pub async fn finish(self) -> Result<Resp, CallError> {
        self.finish_with_metadata().await.map(|(response, _)| response)
    }

    /// Like [`SharedUpload::finish`], and also returns the metadata of the response.
    ///
    /// # Errors
    /// Those of a call.
    pub async fn finish_with_metadata(self) -> Result<(Resp, Metadata), CallError> {
        let Self { messages, mut response } = self;
        drop(messages);
        let message = response.next().await?;
        // The end of the stream arrives with the message. Only a successful end makes the message
        // valid.
        let end = response.next().await?;
        match (message, end) {
            (Some(message), None) => Ok((message, response.pipe.metadata())),
            _ => Err(response.pipe.malformed(&DecodeError::new("not exactly one message"))),
        }
    }
}
