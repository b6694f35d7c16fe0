//! The answer of a handler.

use super::{Metadata, MetadataRef};

/// A handler's answer: a message, or the note that the answer is elsewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Response<M> {
    answer: Answer<M>,
    /// Boxed because metadata is rare: this field takes only one word.
    metadata: Option<Box<Metadata>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Answer<M> {
    Message(M),
    /// The handler has encoded the message: [`Request::answer`](super::Request::answer).
    Encoded,
    /// A [`Responder`](super::Responder) answers.
    Deferred,
}

impl<M> Response<M> {
    /// An answer with `message`.
    #[inline]
    pub fn new(message: M) -> Self {
        Self { answer: Answer::Message(message), metadata: None }
    }

    /// Adds metadata to the answer. Costs an allocation.
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = Some(Box::new(metadata)).filter(|metadata| !metadata.is_empty());
        self
    }

    /// The note that a responder answers later. Made only by
    /// [`Request::defer`](super::Request::defer), so that a handler cannot return a deferred
    /// response without a responder.
    pub(super) fn deferred() -> Self {
        Self { answer: Answer::Deferred, metadata: None }
    }

    /// The note that the call's context has the encoded message.
    #[inline]
    pub(super) fn encoded() -> Self {
        Self { answer: Answer::Encoded, metadata: None }
    }

    /// Whether a responder answers.
    #[must_use]
    pub fn is_deferred(&self) -> bool {
        matches!(self.answer, Answer::Deferred)
    }

    /// The message; `None` if a responder answers, or if the handler has answered a request of the
    /// network with a view.
    #[must_use]
    #[inline]
    pub fn into_message(self) -> Option<M> {
        match self.answer {
            Answer::Message(message) => Some(message),
            Answer::Encoded | Answer::Deferred => None,
        }
    }

    /// The metadata of the answer.
    #[must_use]
    pub fn metadata(&self) -> MetadataRef<'_> {
        self.metadata.as_deref().map_or_else(MetadataRef::default, Metadata::as_ref)
    }

    #[inline]
    pub(super) fn message(&self) -> Option<&M> {
        match &self.answer {
            Answer::Message(message) => Some(message),
            Answer::Encoded | Answer::Deferred => None,
        }
    }
}

impl<M> From<M> for Response<M> {
    #[inline]
    fn from(message: M) -> Self {
        Self::new(message)
    }
}
