//! Whether a client misses an answer that lies in its receive queue.

use std::collections::BTreeMap;

use erpc_core::time::Instant;
use erpc_core::wire::control::Control;
use erpc_core::wire::{Header, Kind, checksum};

use crate::SimRoute;
use crate::hostile::craft::read_control;

/// Slots of a session.
const SLOTS: u32 = 8;

/// The last request of one packet in each slot.
#[derive(Default)]
pub(super) struct LastRequests {
    /// The client's id of each session, by the server and its own id.
    sessions: BTreeMap<(SimRoute, u64), u64>,
    /// The request's number, and when it was sent last: by client, server, the server's id and the slot.
    requests: BTreeMap<(SimRoute, SimRoute, u64, u32), (u32, Instant)>,
}

/// A request that is sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Repetition {
    /// The client's id of the session.
    connection: u64,
    number: u32,
    /// When it was sent before.
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
    /// Notes a packet that `from` sends to `to` now. Returns what it repeats, if it does: a request of one packet, which only
    /// a timeout sends again.
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
        }
        let size = bytes.len() - checksum::overhead(header.flags.trailer());
        if header.kind != Kind::Request || header.packet.get() != 0 || header.size as usize != size
        {
            return None;
        }
        let number = header.request.to_u32();
        let place = (from, to, session, number % SLOTS);
        let (known, before) = self.requests.insert(place, (number, now))?;
        let connection = *self.sessions.get(&(to, session))?;
        (known == number).then_some(Repetition { connection, number, before })
    }
}
