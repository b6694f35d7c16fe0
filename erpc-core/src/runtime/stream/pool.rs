//! Sessions for streams.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use crate::runtime::link::{Link, Phase};
use crate::runtime::session::Session;
use crate::runtime::shared::Shared;
use crate::transport::Transport;

/// Sessions that a pool keeps for streams to come; those beyond are closed when their stream ends.
/// An idle session costs both sides a ping now and then, a new one a handshake.
const MAX_IDLE: usize = 16;

/// Sessions to one peer, each for one stream at a time.
pub(in crate::runtime) struct StreamPool<T: Transport> {
    peer: T::Route,
    idle: RefCell<Vec<Idle<T>>>,
}

struct Idle<T: Transport> {
    session: Session<T>,
    /// Streams that the session has had.
    streams: u32,
}

impl<T: Transport> StreamPool<T> {
    pub(in crate::runtime) fn new(peer: T::Route) -> Rc<Self> {
        Rc::new(Self { peer, idle: RefCell::default() })
    }

    /// A session for one stream: the one used last, or a new one.
    pub(super) fn take(self: &Rc<Self>, shared: &Rc<Shared<T>>) -> Lease<T> {
        let mut idle = self.idle.borrow_mut();
        let mut dead = Vec::new();
        let usable = loop {
            match idle.pop() {
                Some(idle) if matches!(idle.session.link().phase(), Phase::Closed(_)) => {
                    dead.push(idle);
                }
                other => break other,
            }
        };
        drop(idle);
        let Idle { session, streams } = usable
            .unwrap_or_else(|| Idle { session: Session::open(shared, self.peer), streams: 0 });
        Lease { session, number: streams + 1, pool: Rc::downgrade(self) }
    }
}

/// The right to one stream on a session.
pub(super) struct Lease<T: Transport> {
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
        let alive = !matches!(self.session.link().phase(), Phase::Closed(_));
        if alive && !spoilt && self.number < u32::MAX && idle.len() < MAX_IDLE {
            idle.push(Idle { session: self.session, streams: self.number });
        }
    }
}
