//! The phases of a session's life.

use super::closing::Closing;
use super::common::Common;
use super::connecting::Connecting;
use super::session::OpenSession;
use crate::time::Instant;
use crate::transport::Route;

/// A session in one of the phases of its life.
#[expect(
    clippy::large_enum_variant,
    reason = "most sessions are open, and need no pointer indirection"
)]
pub(super) enum ClientSession<R> {
    Connecting(Connecting<R>),
    Open(OpenSession<R>),
    Closing(Closing<R>),
}

impl<R: Route> ClientSession<R> {
    pub(super) fn common(&self) -> &Common<R> {
        match self {
            Self::Connecting(connecting) => &connecting.common,
            Self::Open(session) => session.common(),
            Self::Closing(closing) => closing.session.common(),
        }
    }

    pub(super) fn common_mut(&mut self) -> &mut Common<R> {
        match self {
            Self::Connecting(connecting) => &mut connecting.common,
            Self::Open(session) => session.common_mut(),
            Self::Closing(closing) => closing.session.common_mut(),
        }
    }

    /// The session, if it is open or closing.
    pub(super) fn opened(&self) -> Option<&OpenSession<R>> {
        match self {
            Self::Connecting(_) => None,
            Self::Open(session) => Some(session),
            Self::Closing(closing) => Some(&closing.session),
        }
    }

    /// The session, if it is open and not closing.
    #[inline(always)]
    pub(super) fn open_mut(&mut self) -> Option<&mut OpenSession<R>> {
        match self {
            Self::Open(session) => Some(session),
            _ => None,
        }
    }

    /// Whether the session is open, not closing, and its server is at `route`.
    pub(super) fn is_open_to(&self, route: &R) -> bool {
        matches!(self, Self::Open(session) if session.route() == route)
    }

    pub(super) fn is_drained(&self) -> bool {
        match self {
            Self::Connecting(connecting) => connecting.common.queue.is_empty(),
            Self::Open(session) => session.is_drained(),
            Self::Closing(_) => true,
        }
    }

    /// Replaces the session by its next phase.
    pub(super) fn advance(&mut self, now: Instant, next: impl FnOnce(Self) -> Self) {
        let Common { id, route, .. } = *self.common();
        // A placeholder while `next` owns the session.
        let blank = Self::Connecting(Connecting::new(Common::new(id, route), now));
        *self = next(std::mem::replace(self, blank));
    }
}
