//! Streams as handlers and callers use them.

use std::borrow::Borrow;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

pub(super) mod handler;
pub(crate) mod pipe;
#[cfg(all(test, loom))]
mod schedules;
pub(crate) mod shared;
#[cfg(test)]
mod testing;

use super::{Codec, DecodeError, Metadata};
use crate::buf::MsgBuf;
use crate::protocol::{CallError, RejectReason};
use crate::stream::Batch;

/// The source of the items of an [`Incoming`] or a [`SharedIncoming`](shared::SharedIncoming).
pub(crate) trait Source {
    /// The next items, at least one. `None` at the end, also after an error.
    fn poll_batch(&self, cx: &Context<'_>) -> Poll<Result<Option<Batch>, CallError>>;

    /// Takes back the memory of a batch after all its items were read.
    fn batch_read(&self, memory: MsgBuf);

    /// Tells the source that the reader was dropped.
    fn drop_reader(&self);

    /// The metadata of the server's first item. Empty before that item has arrived, and at a
    /// server.
    fn metadata(&self) -> Metadata {
        Metadata::new()
    }

    /// The error to report if an item cannot be decoded.
    fn malformed(&self, error: &DecodeError) -> CallError;
}

/// The destination of an [`Outgoing`]'s items.
pub(crate) trait Sink {
    /// Puts an item of `len` bytes, once there is room.
    fn poll_put(
        &self,
        cx: &Context<'_>,
        len: usize,
        encode: &mut dyn FnMut(&mut &mut [u8]),
    ) -> Poll<Result<(), CallError>>;

    /// Whether items are no longer accepted.
    fn is_closed(&self) -> bool;

    /// Tells the sink that the writer was dropped: no more items follow.
    fn drop_writer(&self);
}

/// The other side's messages, in order.
///
/// A handler's `Incoming` returns the client's messages, a caller's `Incoming` those of the server.
/// It is also a [`Stream`](futures_core::Stream).
///
/// The reader sets the pace: the other side pauses when a few batches of 32 KiB, or of one larger
/// message, are unread. Dropping a caller's `Incoming` before its end ends the stream and drops the
/// handler. Dropping a handler's `Incoming` discards the client's further messages.
#[must_use = "dropping it ends the stream"]
pub struct Incoming<M> {
    source: Rc<dyn Source>,
    messages: Messages<M>,
}

impl<M> Incoming<M> {
    pub(crate) fn new<C: Codec<M>>(source: Rc<dyn Source>, limit: u32) -> Self {
        Self { source, messages: Messages::new::<C>(limit) }
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

    /// Like [`Incoming::next`], for hand-written futures.
    #[inline]
    pub fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<M, CallError>>> {
        self.messages.poll_next(&*self.source, cx)
    }
}

/// The messages in the batches of a source, in order.
pub(crate) struct Messages<M> {
    /// The batch whose messages are read.
    batch: Option<Batch>,
    decode: fn(&[u8]) -> Result<M, DecodeError>,
    /// Longest message, in bytes.
    limit: u32,
    /// Whether no batch follows.
    ended: bool,
}

impl<M> Messages<M> {
    fn new<C: Codec<M>>(limit: u32) -> Self {
        Self { batch: None, decode: C::decode, limit, ended: false }
    }

    /// The next message. `None` at the end, and on every call after it.
    #[inline]
    fn poll_next(
        &mut self,
        source: &(impl Source + ?Sized),
        cx: &Context<'_>,
    ) -> Poll<Option<Result<M, CallError>>> {
        loop {
            if let Some(result) = self.of_batch(source) {
                return Poll::Ready(Some(result));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match ready!(source.poll_batch(cx)) {
                Ok(Some(batch)) => self.batch = Some(batch),
                Ok(None) => self.ended = true,
                Err(error) => {
                    self.ended = true;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }

    /// The next message of the current batch.
    #[inline]
    fn of_batch(&mut self, source: &(impl Source + ?Sized)) -> Option<Result<M, CallError>> {
        let batch = self.batch.as_mut()?;
        let item = batch.next_item().map(|item| match item.len() > self.limit as usize {
            true => Err(too_large(item.len(), self.limit)),
            false => (self.decode)(item),
        });
        if batch.left() == 0
            && let Some(read) = self.batch.take()
        {
            source.batch_read(read.into_message());
        }
        Some(item?.map_err(|error| {
            self.ended = true;
            self.batch = None;
            source.malformed(&error)
        }))
    }
}

#[cold]
fn too_large(len: usize, limit: u32) -> DecodeError {
    DecodeError::new(format!("it has {len} bytes, the method's limit is {limit}"))
}

impl<M> futures_core::Stream for Incoming<M> {
    type Item = Result<M, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_message(cx)
    }
}

impl<M> Drop for Incoming<M> {
    fn drop(&mut self) {
        self.source.drop_reader();
    }
}

impl<M> fmt::Debug for Incoming<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming").field("ended", &self.messages.ended).finish_non_exhaustive()
    }
}

/// Sends this side's messages to the other side.
///
/// Messages that wait to be sent share batches of up to 32 KiB. A handler's `Outgoing` ends when
/// the handler returns. A caller's `Outgoing` ends when it is dropped; the handler then gets the
/// end of the messages.
#[must_use = "dropping it ends the messages of this side"]
pub struct Outgoing<M> {
    sink: Rc<dyn Sink>,
    encoded_len: fn(&M) -> usize,
    encode: fn(&M, &mut &mut [u8]),
    limit: u32,
    message: PhantomData<fn(M)>,
}

impl<M> Outgoing<M> {
    pub(crate) fn new<C: Codec<M>>(sink: Rc<dyn Sink>, limit: u32) -> Self {
        Self {
            sink,
            encoded_len: C::encoded_len,
            encode: |message, out| C::encode(message, out),
            limit,
            message: PhantomData,
        }
    }

    /// Sends a message. Encodes it now if there is room; otherwise waits until the other side has
    /// read enough. The message leaves at the end of the loop's turn, or when the other side asks
    /// for more messages.
    ///
    /// # Errors
    /// [`RejectReason::StreamEnded`] if the other side accepts no more messages, otherwise the
    /// error that ended the stream. [`RejectReason::TooLarge`] and [`RejectReason::NoMemory`]
    /// concern only this message. The largest message of a stream is 24 bytes smaller than the
    /// other side's limit for a call; the stream's metadata makes the limit of the first message
    /// smaller still.
    pub async fn send(&self, message: impl Borrow<M>) -> Result<(), CallError> {
        let message = message.borrow();
        poll_fn(|cx| self.poll_send(cx, message)).await
    }

    /// Like [`Outgoing::send`], for hand-written futures: has sent the message when it returns
    /// `Ready(Ok(()))`.
    ///
    /// # Errors
    /// Those of [`Outgoing::send`].
    pub fn poll_send(&self, cx: &mut Context<'_>, message: &M) -> Poll<Result<(), CallError>> {
        let (size, limit) = ((self.encoded_len)(message), self.limit as usize);
        if size > limit {
            return Poll::Ready(Err(CallError::Rejected(RejectReason::TooLarge { size, limit })));
        }
        self.sink.poll_put(cx, size, &mut |out| (self.encode)(message, out))
    }

    /// Whether the other side accepts no more messages.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.sink.is_closed()
    }
}

impl<M> Drop for Outgoing<M> {
    fn drop(&mut self) {
        self.sink.drop_writer();
    }
}

impl<M> fmt::Debug for Outgoing<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}

/// A call that sends a stream of messages and gets one response.
///
/// Dropping the `Upload` before [`Upload::finish`] ends the call and drops the handler.
#[derive(Debug)]
#[must_use = "dropping it ends the call"]
pub struct Upload<Req, Resp> {
    messages: Outgoing<Req>,
    response: Incoming<Resp>,
}

impl<Req, Resp> Upload<Req, Resp> {
    pub(crate) fn new(messages: Outgoing<Req>, response: Incoming<Resp>) -> Self {
        Self { messages, response }
    }

    /// Sends a message; see [`Outgoing::send`]. If the handler has already answered, the message is
    /// dropped, and [`Upload::finish`] returns the answer.
    ///
    /// # Errors
    /// The error that ended the call, or the reason why this message cannot be sent.
    pub async fn send(&self, message: impl Borrow<Req>) -> Result<(), CallError> {
        match self.messages.send(message).await {
            Err(CallError::Rejected(RejectReason::StreamEnded)) => Ok(()),
            sent => sent,
        }
    }

    /// Whether the handler accepts no more messages.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.messages.is_closed()
    }

    /// Ends the messages and waits for the response.
    ///
    /// # Errors
    /// Those of a call.
    pub async fn finish(self) -> Result<Resp, CallError> {
        self.finish_with_metadata().await.map(|(response, _)| response)
    }

    /// Like [`Upload::finish`], and also returns the metadata of the response.
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
            (Some(message), None) => Ok((message, response.source.metadata())),
            _ => Err(response.source.malformed(&DecodeError::new("not exactly one message"))),
        }
    }
}
