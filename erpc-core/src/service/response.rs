//! The answer of a handler.

use super::{Metadata, MetadataRef};

/// A handler's answer: a message, or the note that a [`Responder`](super::Responder) answers later.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Response<M> {
    /// `None` if a responder answers.
    message: Option<M>,
    /// Boxed because metadata is rare: this field takes only one word.
    metadata: Option<Box<Metadata>>,
}

impl<M> Response<M> {
    /// An answer with `message`.
    #[inline]
    pub fn new(message: M) -> Self {
        Self { message: Some(message), metadata: None }
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
        Self { message: None, metadata: None }
    }

    /// Whether a responder answers.
    #[must_use]
    pub fn is_deferred(&self) -> bool {
        self.message.is_none()
    }

    /// The message; `None` if a responder answers.
    #[must_use]
    #[inline]
    pub fn into_message(self) -> Option<M> {
        self.message
    }

    /// The metadata of the answer.
    #[must_use]
    pub fn metadata(&self) -> MetadataRef<'_> {
        self.metadata.as_deref().map_or_else(MetadataRef::default, Metadata::as_ref)
    }

    #[inline]
    pub(super) fn message(&self) -> Option<&M> {
        self.message.as_ref()
    }
}

impl<M> From<M> for Response<M> {
    #[inline]
    fn from(message: M) -> Self {
        Self::new(message)
    }
}
