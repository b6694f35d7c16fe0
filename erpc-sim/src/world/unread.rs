//! Checks that a client does not miss an answer that lies in its receive queue.

use std::collections::BTreeMap;

use erpc_core::protocol::MAX_SLOTS;
use erpc_core::time::Instant;
use erpc_core::wire::control::Control;
use erpc_core::wire::{ANNOUNCEMENT, Header, Kind, checksum};

use crate::SimRoute;
use crate::hostile::craft::read_control;

/// The largest number of slots. Two requests of a session that have the same remainder are of the
/// same slot, whatever the session's number of slots.
const SLOTS: u32 = MAX_SLOTS as u32;

/// The last one-packet request of each slot.
#[derive(Default)]
pub(super) struct LastRequests {
    /// The client's id of each session. The key is the server, and the server's id.
    sessions: BTreeMap<(SimRoute, u64), u64>,
    /// The server's id of each session. The key is the client, and the client's id.
    servers: BTreeMap<(SimRoute, u64), u64>,
    /// The last request. The key is the client, the server, the server's id, and the slot.
    requests: BTreeMap<(SimRoute, SimRoute, u64, u32), Request>,
    /// The latest send time of anything that the server has answered, by client and server.
    answered: BTreeMap<(SimRoute, SimRoute), Instant>,
}

/// A request of one packet.
#[derive(Clone, Copy)]
struct Request {
    number: u32,
    sent_at: Instant,
    /// The request is cut into large packets.
    is_large: bool,
}

/// A request that is sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Repetition {
    /// The client's id of the session.
    pub(super) connection: u64,
    pub(super) number: u32,
    /// When the previous copy of the request was sent.
    pub(super) before: Instant,
}

impl Repetition {
    /// Whether a packet answers the request.
    pub(super) fn is_answered_by(&self, packet: &[u8]) -> bool {
        Header::parse(packet).is_ok_and(|header| {
            matches!(header.kind, Kind::Response | Kind::Failure | Kind::Accepted)
                && header.connection.to_u64() == self.connection
                && header.request.to_u32() == self.number
        })
    }
}

impl LastRequests {
    /// Notes a packet that `from` sends to `to` now. Returns the request that the packet repeats,
    /// if any. Counts only requests of one packet that are cut as before, because a client repeats
    /// such a request only after a timeout.
    pub(super) fn sent(
        &mut self,
        from: SimRoute,
        to: SimRoute,
        header: &Header,
        bytes: &[u8],
        now: Instant,
    ) -> Option<Repetition> {
        let session = header.connection.to_u64();
        if let Some((_, Control::Opened { server, .. })) = read_control(bytes) {
            self.sessions.insert((from, server.to_u64()), session);
            self.servers.insert((to, session), server.to_u64());
        }
        let size = bytes.len() - checksum::overhead(header.flags.trailer());
        if header.kind != Kind::Request || header.packet.get() != 0 || header.size as usize != size
        {
            return None;
        }
        let number = header.request.to_u32();
        let place = (from, to, session, number % SLOTS);
        let request = Request { number, sent_at: now, is_large: header.flags.large() };
        let Request { number: known, sent_at: before, is_large } =
            self.requests.insert(place, request)?;
        let connection = *self.sessions.get(&(to, session))?;
        let is_same = known == number && is_large == header.flags.large();
        is_same.then_some(Repetition { connection, number, before })
    }

    /// Notes a packet of a session that `from` has sent and `to` receives now.
    pub(super) fn answered(&mut self, from: SimRoute, to: SimRoute, header: &Header, now: Instant) {
        let Some(session) = self.servers.get(&(to, header.connection.to_u64())) else { return };
        let number = header.request.to_u32();
        let begins = matches!(header.kind, Kind::Response | Kind::Failure | Kind::Accepted)
            && matches!(header.packet.get(), 0 | ANNOUNCEMENT);
        let request = self.requests.get(&(to, from, *session, number % SLOTS));
        let sent_at = match request {
            Some(request) if begins && request.number == number => request.sent_at,
            // The answer to a pull or a ping: assume the latest send time.
            _ => now,
        };
        let answered = self.answered.entry((to, from)).or_insert(sent_at);
        *answered = sent_at.max(*answered);
    }

    /// Whether the server may have answered something that `from` sent to `to` after the previous
    /// copy of a request.
    pub(super) fn is_passed(&self, from: SimRoute, to: SimRoute, again: Repetition) -> bool {
        self.answered.get(&(from, to)).is_some_and(|answered| *answered > again.before)
    }
}
