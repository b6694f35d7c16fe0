//! The owner of a session that this endpoint has opened.

use std::rc::{Rc, Weak};

use crate::calling::link::{Link, LinkPhase};
use crate::calling::plan::SessionSource;
use crate::calling::submissions::Submission;
use crate::endpoint::parts::EndpointParts;
use crate::mutants::mutant;
use crate::transport::Transport;

/// Owns a session. Dropping the guard disconnects the session.
pub(super) struct LinkGuard<T: Transport> {
    link: Rc<Link<T::Route>>,
    endpoint: Rc<EndpointParts<T>>,
}

impl<T: Transport> LinkGuard<T> {
    /// Starts to open a session, which is usable immediately.
    pub(super) fn open(endpoint: &Rc<EndpointParts<T>>, peer: T::Route) -> Self {
        Self::start(endpoint, Link::new(peer, None))
    }

    /// As [`Self::open`], for a session that a channel keeps open. A call that is not executed when
    /// the session ends goes back to the channel.
    pub(super) fn open_for(
        endpoint: &Rc<EndpointParts<T>>,
        peer: T::Route,
        channel: Weak<dyn SessionSource<T::Route>>,
    ) -> Self {
        Self::start(endpoint, Link::new(peer, Some(channel)))
    }

    fn start(endpoint: &Rc<EndpointParts<T>>, link: Link<T::Route>) -> Self {
        let link = Rc::new(link);
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
        if !self.is_closed() && !mutant!(SessionNotClosed) {
            self.endpoint.submit(Submission::Disconnect(Rc::clone(&self.link)));
        }
    }
}
