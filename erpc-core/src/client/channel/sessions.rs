//! The sessions that a channel calls on.

use std::rc::Rc;

use super::balancer::Balancer;
use crate::calling::link::Link;
use crate::calling::plan::{NoSession, SessionSource};
use crate::calling::retry::RetryBudgets;
use crate::client::session::Session;
use crate::endpoint::parts::EndpointParts;
use crate::transport::Transport;

/// A channel's sessions: a single one, or those of a balancer.
pub(in crate::client) enum ChannelSessions<T: Transport> {
    /// A single session.
    One(Rc<OneSession<T>>),
    /// Sessions to many servers.
    Balanced(Rc<Balancer<T>>),
}

impl<T: Transport> ChannelSessions<T> {
    #[inline]
    pub(in crate::client) fn endpoint(&self) -> &Rc<EndpointParts<T>> {
        match self {
            Self::One(one) => one.session.endpoint(),
            Self::Balanced(balancer) => balancer.endpoint(),
        }
    }

    /// A session to call on. A balancer avoids the server of the session `avoid` if another server
    /// has an open session. Allocates nothing if a session is open.
    #[inline]
    pub(in crate::client) fn pick(
        &self,
        avoid: Option<&Rc<Link<T::Route>>>,
    ) -> Result<Rc<Link<T::Route>>, NoSession> {
        match self {
            Self::One(one) => Ok(Rc::clone(one.session.link())),
            Self::Balanced(balancer) => balancer.pick(avoid),
        }
    }

    /// The sessions as a source for planned calls.
    pub(super) fn source(&self) -> Rc<dyn SessionSource<T::Route>> {
        match self {
            Self::One(one) => Rc::clone(one) as _,
            Self::Balanced(balancer) => Rc::clone(balancer) as _,
        }
    }

    pub(super) fn budgets(&self) -> &RetryBudgets {
        match self {
            Self::One(one) => &one.budgets,
            Self::Balanced(balancer) => balancer.budgets(),
        }
    }
}

impl<T: Transport> Clone for ChannelSessions<T> {
    fn clone(&self) -> Self {
        match self {
            Self::One(one) => Self::One(Rc::clone(one)),
            Self::Balanced(balancer) => Self::Balanced(Rc::clone(balancer)),
        }
    }
}

/// The session of a channel over a single session.
pub(in crate::client) struct OneSession<T: Transport> {
    session: Session<T>,
    budgets: RetryBudgets,
}

impl<T: Transport> OneSession<T> {
    pub(super) fn new(session: Session<T>) -> Self {
        Self { session, budgets: RetryBudgets::default() }
    }

    pub(in crate::client) fn session(&self) -> &Session<T> {
        &self.session
    }
}

impl<T: Transport> SessionSource<T::Route> for OneSession<T> {
    fn pick(&self, _: Option<&Rc<Link<T::Route>>>) -> Result<Rc<Link<T::Route>>, NoSession> {
        Ok(Rc::clone(self.session.link()))
    }

    /// `pick` always returns a session, so no call queues.
    fn join_line(&self, _: usize) -> Option<u64> {
        None
    }

    fn leave_line(&self, _: u64) {}

    fn budgets(&self) -> &RetryBudgets {
        &self.budgets
    }
}
