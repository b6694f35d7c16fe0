//! What a handler answers.

use super::{Metadata, MetadataRef};

/// A handler's answer: a message, or word that a [`Responder`](super::Responder) will answer.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Response<M> {
    /// `None` if a responder has the answer.
    message: Option<M>,
    /// Seldom there, so that it is one word that says so.
    metadata: Option<Box<Metadata>>,
}

impl<M> Response<M> {
    /// The answer `message`.
    #[inline]
    pub fn new(message: M) -> Self {
        Self { message: Some(message), metadata: None }
    }

    /// The same with something beside the message. Costs an allocation.
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = Some(Box::new(metadata)).filter(|metadata| !metadata.is_empty());
        self
    }

    /// Made by [`Request::defer`](super::Request::defer) only, so that no handler promises an answer
    /// without holding a responder.
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

    /// What goes beside the message.
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
