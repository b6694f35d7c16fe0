//! Sessions for streams.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};

use crate::runtime::link::{Link, Phase};
use crate::runtime::session::Session;
use crate::runtime::shared::Shared;
use crate::transport::Transport;

/// Sessions to one peer that a pool keeps for streams to come; those beyond are closed when their stream
/// ends. An idle session costs both sides a ping now and then, a new one a handshake.
const MAX_IDLE: usize = 16;

/// Sessions, each for one stream at a time. Belongs to a session or a channel, and ends with it; streams
/// that run then go on.
pub(in crate::runtime) struct StreamPool<T: Transport> {
    idle: RefCell<HashMap<T::Route, Vec<Idle<T>>>>,
}

struct Idle<T: Transport> {
    session: Session<T>,
    /// Streams that the session has had.
    streams: u32,
}

impl<T: Transport> StreamPool<T> {
    pub(in crate::runtime) fn new() -> Rc<Self> {
        Rc::new(Self { idle: RefCell::default() })
    }

    /// A session to `peer` for one stream: the one used last, or a new one.
    pub(in crate::runtime) fn take(
        self: &Rc<Self>,
        shared: &Rc<Shared<T>>,
        peer: T::Route,
    ) -> Lease<T> {
        let next = || self.idle.borrow_mut().get_mut(&peer).and_then(Vec::pop);
        let usable = |idle: &Idle<T>| !matches!(idle.session.link().phase(), Phase::Closed(_));
        // Those that have died are dropped on the way.
        let found = std::iter::from_fn(next).find(usable);
        let fresh = || Idle { session: Session::open(shared, peer), streams: 0 };
        let Idle { session, streams } = found.unwrap_or_else(fresh);
        Lease { session, number: streams + 1, pool: Rc::downgrade(self) }
    }

    /// There will be no more streams to `peer`.
    pub(in crate::runtime) fn forget(&self, peer: &T::Route) {
        let idle = self.idle.borrow_mut().remove(peer);
        drop(idle);
    }
}

/// The right to one stream on a session.
pub(in crate::runtime) struct Lease<T: Transport> {
    session: Session<T>,
    /// The stream's number.
    number: u32,
    pool: Weak<StreamPool<T>>,
}

impl<T: Transport> Lease<T> {
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn link(&self) -> &Link<T::Route> {
        self.session.link()
    }

    /// The stream is over, and all its calls have ended. A `spoilt` session is closed.
    pub(super) fn give_back(self, spoilt: bool) {
        let Some(pool) = self.pool.upgrade() else { return };
        let mut idle = pool.idle.borrow_mut();
        let idle = idle.entry(self.session.peer()).or_default();
        let alive = !matches!(self.session.link().phase(), Phase::Closed(_));
        if alive && !spoilt && self.number < u32::MAX && idle.len() < MAX_IDLE {
            idle.push(Idle { session: self.session, streams: self.number });
        }
    }
}
