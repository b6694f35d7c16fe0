//! A client with a single peer connects its socket to this peer.
//!
//! The kernel then remembers the route to the peer, and neither side of a system call needs an
//! address. That saves 70 ns per call that sends and 30 ns per call that receives. In return, the
//! kernel refuses packets of all others. So the socket is connected only if all packets so far went
//! to one address, and never if the endpoint listens. Before the first packet to another address
//! leaves, the socket is disconnected, and it is never connected again.

use super::route::UdpRoute;
use super::socket::UdpSocket;
use crate::mutants::mutant;

/// The socket is connected after this number of doorbells for a single peer. A client that is about
/// to use several peers has used the second one by then.
pub(super) const CONNECT_AFTER: u32 = 256;

/// Whether all packets of a socket went to a single peer.
pub(super) struct OnlyPeer(State);

#[derive(Clone, Copy)]
enum State {
    /// No packet was sent yet.
    None,
    /// All packets went to this peer, in as many doorbells.
    One(UdpRoute, u32),
    /// The same, and the socket is connected.
    Connected(UdpRoute),
    /// There were several peers, or there may be.
    Many,
}

impl OnlyPeer {
    pub(super) fn of(socket: &UdpSocket) -> Self {
        Self(if socket.can_connect() { State::None } else { State::Many })
    }

    /// Called before packets to `routes` are sent. Returns whether the socket is connected to the
    /// only one of them.
    #[inline]
    pub(super) fn connects(
        &mut self,
        socket: &UdpSocket,
        mut routes: impl Iterator<Item = UdpRoute>,
    ) -> bool {
        match self.0 {
            State::Many => false,
            State::Connected(peer) if routes.all(|route| route == peer) => true,
            State::One(peer, count) if count < CONNECT_AFTER => {
                let is_only = routes.all(|route| route == peer);
                self.0 = if is_only { State::One(peer, count + 1) } else { State::Many };
                false
            }
            _ => self.changes(socket, routes),
        }
    }

    #[cold]
    fn changes(&mut self, socket: &UdpSocket, mut routes: impl Iterator<Item = UdpRoute>) -> bool {
        match self.0 {
            State::None => {
                let Some(peer) = routes.next() else { return false };
                let is_only = routes.all(|route| route == peer);
                self.0 = if is_only { State::One(peer, 1) } else { State::Many };
            }
            State::One(peer, _) => {
                let connects = routes.all(|route| route == peer) && socket.connect(peer);
                self.0 = if connects { State::Connected(peer) } else { State::Many };
            }
            State::Connected(_) | State::Many => self.has_many(socket),
        }
        matches!(self.0, State::Connected(_))
    }

    /// From now on, packets of any peer must arrive.
    pub(super) fn has_many(&mut self, socket: &UdpSocket) {
        if matches!(self.0, State::Connected(_)) && !mutant!(StaysConnected) {
            socket.disconnect();
        }
        self.0 = State::Many;
    }
}
