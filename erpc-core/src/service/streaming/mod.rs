//! Streams as handlers and callers meet them.

use std::borrow::Borrow;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

pub(super) mod handler;

use super::{Codec, DecodeError, Metadata};
use crate::buf::MsgBuf;
use crate::protocol::{CallError, RejectReason};
use crate::stream::Batch;

/// Where an [`Incoming`] gets its items.
pub(crate) trait Source {
    /// The next items, at least one; `None` at the end, also after an error.
    fn poll_batch(&self, cx: &Context<'_>) -> Poll<Result<Option<Batch>, CallError>>;

    /// Takes a batch back whose items were all read.
    fn batch_read(&self, memory: MsgBuf);

    /// The reader is gone.
    fn drop_reader(&self);

    /// What came beside the first item of a server's; empty before that has come, and at a server.
    fn metadata(&self) -> Metadata {
        Metadata::new()
    }

    /// What it means that an item does not decode.
    fn malformed(&self, error: &DecodeError) -> CallError;
}

/// Where an [`Outgoing`] puts its items.
pub(crate) trait Sink {
    /// Puts an item of `len` bytes in when there is room.
    fn poll_put(
        &self,
        cx: &Context<'_>,
        len: usize,
        encode: &mut dyn FnMut(&mut &mut [u8]),
    ) -> Poll<Result<(), CallError>>;

    /// Whether items are of no use any more.
    fn is_closed(&self) -> bool;

    /// No more items come.
    fn drop_writer(&self);
}

/// The other side's messages, one after the other.
///
/// A handler's `Incoming` brings what the client sends, a caller's what the server does. It is a
/// [`Stream`](futures_core::Stream), too.
///
/// The reader sets the pace: the other side is stopped when a few batches of 32 KiB, or of one larger
/// message, are unread. Dropped before its end, a caller's `Incoming` ends the stream, and the handler with
/// it; a handler's lets the client's messages go unread.
pub struct Incoming<M> {
    source: Rc<dyn Source>,
    batch: Option<Batch>,
    decode: fn(&[u8]) -> Result<M, DecodeError>,
    limit: u32,
    ended: bool,
}

impl<M> Incoming<M> {
    pub(crate) fn new<C: Codec<M>>(source: Rc<dyn Source>, limit: u32) -> Self {
        Self { source, batch: None, decode: C::decode, limit, ended: false }
    }

    /// The next message; `None` at the end, and from then on.
    ///
    /// # Errors
    /// A caller learns how the stream ended if it did not end well, once: by the handler's status, or as a
    /// call ends. A handler learns that a message does not decode.
    pub async fn next(&mut self) -> Result<Option<M>, CallError> {
        poll_fn(|cx| self.poll_message(cx)).await.transpose()
    }

    /// As [`Incoming::next`], for hand-written futures.
    #[inline]
    pub fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<M, CallError>>> {
        loop {
            if let Some(result) = self.message() {
                return Poll::Ready(Some(result));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match ready!(self.source.poll_batch(cx)) {
                Ok(Some(batch)) => self.batch = Some(batch),
                Ok(None) => self.ended = true,
                Err(error) => {
                    self.ended = true;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }

    /// The next message of the batch that is here.
    #[inline]
    fn message(&mut self) -> Option<Result<M, CallError>> {
        let batch = self.batch.as_mut()?;
        let decoded = batch.next_item().map(|item| match item.len() > self.limit as usize {
            true => Err(too_large(item.len(), self.limit)),
            false => (self.decode)(item),
        });
        if batch.left() == 0
            && let Some(batch) = self.batch.take()
        {
            self.source.batch_read(batch.into_message());
        }
        Some(decoded?.map_err(|error| {
            (self.ended, self.batch) = (true, None);
            self.source.malformed(&error)
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
        f.debug_struct("Incoming").field("ended", &self.ended).finish_non_exhaustive()
    }
}

/// This side's messages, on their way to the other.
///
/// Messages that are sent in one go travel together. A handler's `Outgoing` ends when the handler does; a
/// caller's when it is dropped, which tells the handler that no more messages come.
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

    /// Sends a message: encodes it now if there is room, and otherwise waits until the other side has
    /// read enough. It goes out at the end of the loop's turn, or when the other side asks.
    ///
    /// # Errors
    /// [`RejectReason::StreamEnded`] if the other side takes no more, otherwise how the stream ended;
    /// [`RejectReason::TooLarge`] and [`RejectReason::NoMemory`] concern this message only. A stream's
    /// largest message is 24 bytes smaller than what the other side takes in a call, and the metadata
    /// less in the first.
    pub async fn send(&self, message: impl Borrow<M>) -> Result<(), CallError> {
        let message = message.borrow();
        poll_fn(|cx| self.poll_send(cx, message)).await
    }

    /// As [`Outgoing::send`], for hand-written futures: sends the message when it is ready.
    ///
    /// # Errors
    /// As [`Outgoing::send`].
    pub fn poll_send(&self, cx: &mut Context<'_>, message: &M) -> Poll<Result<(), CallError>> {
        let (size, limit) = ((self.encoded_len)(message), self.limit as usize);
        if size > limit {
            return Poll::Ready(Err(CallError::Rejected(RejectReason::TooLarge { size, limit })));
        }
        self.sink.poll_put(cx, size, &mut |out| (self.encode)(message, out))
    }

    /// Whether the other side takes no more messages.
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

/// A call that sends many messages and brings one response.
///
/// Dropped before [`Upload::finish`], it ends the call, and the handler with it.
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

    /// Sends a message; see [`Outgoing::send`]. If the handler wants no more, because it has answered
    /// already, the message is dropped: [`Upload::finish`] brings the answer.
    ///
    /// # Errors
    /// How the call failed, or why this message cannot be sent.
    pub async fn send(&self, message: impl Borrow<Req>) -> Result<(), CallError> {
        match self.messages.send(message).await {
            Err(CallError::Rejected(RejectReason::StreamEnded)) => Ok(()),
            sent => sent,
        }
    }

    /// Whether the handler wants no more messages.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.messages.is_closed()
    }

    /// Says that no more messages come, and waits for the response.
    ///
    /// # Errors
    /// As those of a call.
    pub async fn finish(self) -> Result<Resp, CallError> {
        self.finish_with_metadata().await.map(|(response, _)| response)
    }

    /// As [`Upload::finish`], and also brings the metadata that came with the response.
    ///
    /// # Errors
    /// As those of a call.
    pub async fn finish_with_metadata(self) -> Result<(Resp, Metadata), CallError> {
        let Self { messages, mut response } = self;
        drop(messages);
        let message = response.next().await?;
        // The end comes with it, and says whether it counts.
        let end = response.next().await?;
        match (message, end) {
            (Some(message), None) => Ok((message, response.source.metadata())),
            _ => Err(response.source.malformed(&DecodeError::new("it is not one message"))),
        }
    }
}
