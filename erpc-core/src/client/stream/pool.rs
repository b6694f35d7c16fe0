//! Pool of sessions for streams.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};

use crate::calling::link::{Link, LinkPhase};
use crate::client::link_guard::LinkGuard;
use crate::endpoint::parts::EndpointParts;
use crate::transport::Transport;

/// Most idle sessions per peer that a pool keeps for future streams. If this number is reached, a
/// session is closed when its stream ends. An idle session costs both sides a ping now and then; a
/// new one costs a handshake.
const MAX_IDLE: usize = 16;

/// Sessions, each used by one stream at a time. A pool belongs to a session or a channel and ends
/// with it; running streams continue.
pub(crate) struct StreamPool<T: Transport> {
    peers: RefCell<HashMap<T::Route, PeerSessions<T>>>,
}

/// A peer's idle sessions and stream count.
struct PeerSessions<T: Transport> {
    idle: Vec<IdleSession<T>>,
    load: StreamLoad,
}

impl<T: Transport> Default for PeerSessions<T> {
    fn default() -> Self {
        Self { idle: Vec::new(), load: StreamLoad::default() }
    }
}

struct IdleSession<T: Transport> {
    session: LinkGuard<T>,
    /// Number of streams that the session has carried.
    streams: u32,
}

impl<T: Transport> IdleSession<T> {
    /// Whether the session can carry no further stream.
    fn is_dead(&self) -> bool {
        self.session.is_closed() || self.session.link().phase() == LinkPhase::Draining
    }
}

/// The number of running streams to a peer.
#[derive(Clone, Default)]
pub(crate) struct StreamLoad(Rc<Cell<u32>>);

impl StreamLoad {
    #[inline]
    pub(crate) fn streams(&self) -> u32 {
        self.0.get()
    }

    fn more(&self) -> RunningStream {
        self.0.set(self.0.get() + 1);
        RunningStream(self.clone())
    }
}

/// Counts as one running stream until it is dropped.
struct RunningStream(StreamLoad);

impl Drop for RunningStream {
    fn drop(&mut self) {
        let Self(StreamLoad(count)) = self;
        count.set(count.get() - 1);
    }
}

impl<T: Transport> StreamPool<T> {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self { peers: RefCell::default() })
    }

    /// A session to `peer` for one stream: the most recently used idle one, or a new one.
    pub(crate) fn take(
        self: &Rc<Self>,
        endpoint: &Rc<EndpointParts<T>>,
        peer: T::Route,
    ) -> StreamLease<T> {
        let running = self.load(peer).more();
        let next = || self.peers.borrow_mut().get_mut(&peer)?.idle.pop();
        // Closed sessions met in the search are dropped.
        let found = std::iter::from_fn(next).find(|idle| !idle.is_dead());
        let fresh = || IdleSession { session: LinkGuard::open(endpoint, peer), streams: 0 };
        let IdleSession { session, streams } = found.unwrap_or_else(fresh);
        session.link().set_has_stream(true);
        StreamLease { session, number: streams + 1, pool: Rc::downgrade(self), _running: running }
    }

    /// The stream count of `peer`, valid until the peer is forgotten.
    pub(crate) fn load(&self, peer: T::Route) -> StreamLoad {
        self.peers.borrow_mut().entry(peer).or_default().load.clone()
    }

    /// Closes the idle sessions of `peer`, which gets no more streams.
    pub(crate) fn forget(&self, peer: &T::Route) {
        let gone = self.peers.borrow_mut().remove(peer);
        drop(gone);
    }

    /// Drops idle sessions that have closed.
    pub(crate) fn sweep(&self) {
        let mut peers = self.peers.borrow_mut();
        let dead =
            |peer: &mut PeerSessions<T>| peer.idle.extract_if(.., |idle| idle.is_dead()).collect();
        let dead: Vec<Vec<_>> = peers.values_mut().map(dead).collect();
        drop((peers, dead));
    }
}

/// A session taken from a pool for one stream.
pub(crate) struct StreamLease<T: Transport> {
    session: LinkGuard<T>,
    /// The stream's number on its session, counted from 1.
    number: u32,
    pool: Weak<StreamPool<T>>,
    _running: RunningStream,
}

impl<T: Transport> StreamLease<T> {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn link(&self) -> &Link<T::Route> {
        self.session.link()
    }

    /// Returns the session to the pool, after the stream and all its calls have ended. Closes the
    /// session instead if it is `spoilt`, or if the pool has no room for it.
    pub(crate) fn give_back(self, spoilt: bool) {
        let Some(pool) = self.pool.upgrade() else { return };
        let mut peers = pool.peers.borrow_mut();
        // A forgotten peer has no entry; its session is closed as well.
        let Some(PeerSessions { idle, .. }) = peers.get_mut(&self.session.link().peer) else {
            return;
        };
        self.session.link().set_has_stream(false);
        let given = IdleSession { session: self.session, streams: self.number };
        let useful = !given.is_dead() && !spoilt && given.streams < u32::MAX;
        let rest = if useful && idle.len() < MAX_IDLE {
            idle.push(given);
            None
        } else {
            Some(given)
        };
        // Dropping a session may run arbitrary code; the pool is no longer borrowed.
        drop((peers, rest));
    }
}
