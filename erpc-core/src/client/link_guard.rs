//! The owner of a session that this endpoint has opened.

use std::rc::Rc;

use crate::calling::link::{Link, LinkPhase};
use crate::calling::submissions::Submission;
use crate::endpoint::parts::EndpointParts;
use crate::transport::Transport;

/// Owns a session. Dropping the guard disconnects the session.
pub(super) struct LinkGuard<T: Transport> {
    link: Rc<Link<T::Route>>,
    endpoint: Rc<EndpointParts<T>>,
}

impl<T: Transport> LinkGuard<T> {
    /// Starts to open a session, which is usable immediately.
    pub(super) fn open(endpoint: &Rc<EndpointParts<T>>, peer: T::Route) -> Self {
        let link = Rc::new(Link::new(peer));
        endpoint.submit(Submission::Connect(Rc::clone(&link)));
        Self { link, endpoint: Rc::clone(endpoint) }
    }

    #[inline]
    pub(super) fn link(&self) -> &Rc<Link<T::Route>> {
        &self.link
    }

    #[inline]
    pub(super) fn endpoint(&self) -> &Rc<EndpointParts<T>> {
        &self.endpoint
    }

    /// Whether the session has ended.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.link.phase(), LinkPhase::Closed(_))
    }
}

impl<T: Transport> Drop for LinkGuard<T> {
    fn drop(&mut self) {
        if !self.is_closed() {
            self.endpoint.submit(Submission::Disconnect(Rc::clone(&self.link)));
        }
    }
}
