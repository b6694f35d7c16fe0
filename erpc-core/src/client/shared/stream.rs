//! Streams of a shared channel.

use std::borrow::Borrow;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::pipe::{InPipe, OutPipe};
use crate::protocol::{CallError, Cause, RejectReason};
use crate::service::{BatchItems, Codec, Metadata};

/// The server's messages, in order, for any thread and any runtime. Also a
/// [`Stream`](futures_core::Stream).
///
/// The reader sets the pace: the server pauses when a few batches are unread. A batch has 32 KiB,
/// or one larger message. Dropping a `SharedIncoming` before its end ends the stream and drops the
/// handler.
#[must_use = "dropping it ends the stream"]
pub struct SharedIncoming<M> {
    pipe: Arc<InPipe>,
    items: BatchItems<M>,
    ended: bool,
}

impl<M> SharedIncoming<M> {
    pub(super) fn new<C: Codec<M>>(pipe: Arc<InPipe>, limit: u32) -> Self {
        Self { pipe, items: BatchItems::new::<C>(limit), ended: false }
    }

    /// The next message. `None` at the end, and on every call after it.
    ///
    /// # Errors
    /// One error if the stream failed: the handler's status, or an error that a call can have. An
    /// error if a message cannot be decoded or exceeds the method's limit.
    pub async fn next(&mut self) -> Result<Option<M>, CallError> {
        poll_fn(|cx| self.poll_message(cx)).await.transpose()
    }

    /// Like [`SharedIncoming::next`], for hand-written futures.
    pub fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<M, CallError>>> {
        loop {
            let item = self.items.next();
            if let Some(memory) = self.items.take_read() {
                self.pipe.give_back(memory);
            }
            if let Some(item) = item {
                return Poll::Ready(Some(item.map_err(|_| self.malformed())));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match ready!(self.pipe.poll_batch(cx)) {
                Ok(Some(batch)) => self.items.begin(batch),
                Ok(None) => self.ended = true,
                Err(error) => {
                    self.ended = true;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }

    fn malformed(&mut self) -> CallError {
        self.ended = true;
        self.items.clear();
        self.pipe.drop_reader();
        CallError::ResponseLost(Cause::Malformed)
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
        f.debug_struct("SharedIncoming").field("ended", &self.ended).finish_non_exhaustive()
    }
}

/// The messages to the server, from any thread and any runtime. Dropping it ends the messages.
#[must_use = "dropping it ends the messages"]
pub struct SharedOutgoing<M> {
    pipe: Arc<OutPipe>,
    encode: fn(&M) -> Vec<u8>,
    encoded_len: fn(&M) -> usize,
    limit: u32,
    message: PhantomData<fn(M)>,
}

impl<M> SharedOutgoing<M> {
    pub(super) fn new<C: Codec<M>>(pipe: Arc<OutPipe>, limit: u32) -> Self {
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
        }
    }

    /// Sends a message. Encodes it now, and waits while 32 KiB of earlier messages are unsent.
    ///
    /// # Errors
    /// - [`RejectReason::StreamEnded`] if the server accepts no more messages.
    /// - [`RejectReason::TooLarge`] if this message exceeds the method's limit; the stream goes on.
    /// - Otherwise the error that ended the stream, for example because an earlier message exceeded
    ///   the server's limit.
    pub async fn send(&self, message: impl Borrow<M>) -> Result<(), CallError> {
        let message = message.borrow();
        let (size, limit) = ((self.encoded_len)(message), self.limit as usize);
        if size > limit {
            return Err(CallError::Rejected(RejectReason::TooLarge { size, limit }));
        }
        let mut item = Some((self.encode)(message));
        poll_fn(|cx| self.pipe.poll_put(cx, &mut item)).await
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
    pub(super) fn new(messages: SharedOutgoing<Req>, response: SharedIncoming<Resp>) -> Self {
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
            _ => Err(response.malformed()),
        }
    }
}
