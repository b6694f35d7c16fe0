//! Checks that a client's first timeout at a server is not longer than the RTT of the session's
//! handshake allows.

use std::collections::BTreeMap;

use erpc_core::time::Instant;
use erpc_core::wire::control::Control;

use super::unread::Repetition;
use crate::hostile::craft::read_control;
use crate::plan::Plan;
use crate::{Feature, SimRoute};

/// How late a timer may fire and a packet may be read: `SLACK` ns, plus 1/`PART` of the timeout.
const SLACK: u64 = 1_000_000;
const PART: u64 = 8;

/// A handshake that a client has begun with a server.
#[derive(Clone, Copy)]
struct Handshake {
    opens: u32,
    /// The times of the first `Open` sent and of the first `Opened` received.
    sent_at: Instant,
    opened_at: Option<Instant>,
}

/// The handshakes of clients, and whether a client's first timeout at a server is still to come.
#[derive(Default)]
pub(super) struct FirstTimeouts {
    /// No feature of the plan delays reading or sending, so timeouts have their exact length.
    follows: bool,
    /// The key is the client, and the client's id of the session.
    handshakes: BTreeMap<(SimRoute, u64), Handshake>,
    /// The key is the client and the server. True if the client has received more than `Challenge`
    /// and `Opened`, has sent more than `Hello`, `Open` and requests of one packet, or has had its
    /// first timeout.
    heard: BTreeMap<(SimRoute, SimRoute), bool>,
}

impl FirstTimeouts {
    pub(super) fn new(plan: &Plan) -> Self {
        let blurred = [
            Feature::Absence,
            Feature::ClockStall,
            Feature::ClockLeap,
            Feature::Corruption,
            Feature::Truncation,
            Feature::Extension,
            Feature::Pacing,
        ];
        Self { follows: !plan.features.has_any(&blurred), ..Self::default() }
    }

    /// Notes a packet that `from` sends to `to` now; `is_plain` if it is a request of one packet.
    pub(super) fn sent(
        &mut self,
        from: SimRoute,
        to: SimRoute,
        bytes: &[u8],
        is_plain: bool,
        now: Instant,
    ) {
        if !self.follows || is_plain {
            return;
        }
        match read_control(bytes) {
            Some((_, Control::Open { client, .. })) => {
                // The client may have sent an `Open` to another endpoint of the server before. Both
                // count.
                let new = Handshake { opens: 0, sent_at: now, opened_at: None };
                let handshake = self.handshakes.entry((from, client.to_u64())).or_insert(new);
                handshake.opens += 1;
                self.heard.entry((from, to)).or_insert(false);
            }
            Some((_, Control::Hello { .. })) => {}
            _ => {
                self.heard.entry((from, to)).and_modify(|heard| *heard = true);
            }
        }
    }

    /// Notes a packet of `from` that `to` receives now.
    pub(super) fn arrived(&mut self, from: SimRoute, to: SimRoute, bytes: &[u8], now: Instant) {
        if self.heard.get(&(to, from)).is_none_or(|heard| *heard) {
            return;
        }
        match read_control(bytes) {
            Some((header, Control::Opened { .. })) => {
                let place = (to, header.connection.to_u64());
                if let Some(handshake) = self.handshakes.get_mut(&place) {
                    handshake.opened_at.get_or_insert(now);
                }
            }
            Some((_, Control::Challenge { .. })) => {}
            _ => {
                self.heard.entry((to, from)).and_modify(|heard| *heard = true);
            }
        }
    }

    /// Notes that a client retransmits a request to `to` now. If this is the first timeout and it
    /// is too late, returns how long the client waited, and the RTT of the handshake, in ns.
    /// `floor` is the minimum timeout in ns.
    pub(super) fn repeated(
        &mut self,
        from: SimRoute,
        to: SimRoute,
        again: &Repetition,
        now: Instant,
        floor: u64,
    ) -> Option<(u64, u64)> {
        let heard = self.heard.get_mut(&(from, to))?;
        if std::mem::replace(heard, true) {
            return None;
        }
        let handshake = self.handshakes.get(&(from, again.connection))?;
        let trip = handshake.opened_at?.nanos_since(handshake.sent_at) + SLACK / 4;
        let most = (3 * trip).max(trip + floor);
        let waited = now.nanos_since(again.before);
        // After a second `Open` the client does not know which one the server answered. So the
        // client's RTT may differ from `trip`.
        (handshake.opens == 1 && waited > most + most / PART + SLACK).then_some((waited, trip))
    }
}

#[cfg(test)]
mod tests {
    use erpc_core::wire::ConnectionId;

    use super::*;
    use crate::Scenario;
    use crate::hostile::craft::{self, PARAMETERS};
    use crate::plan::Cut;

    const MS: u64 = 1_000_000;
    const CLIENT: SimRoute = SimRoute::new(1, 1);
    const SERVER: SimRoute = SimRoute::new(0, 1);

    fn client() -> ConnectionId {
        ConnectionId::new(0, false, 0, 7)
    }

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(1_000 * MS + millis * MS)
    }

    fn control(message: Control) -> Vec<u8> {
        craft::control(client(), 0, message)
    }

    /// A client that sends `opens` `Open`s at time 0, and receives `Opened` 2 ms later.
    fn opened(opens: usize) -> FirstTimeouts {
        let mut plan = Plan::draw(1, Scenario::Calm, &Cut::default());
        plan.features = crate::Features::none();
        let mut first_timeouts = FirstTimeouts::new(&plan);
        let open = Control::Open { client: client(), cookie: [0; 16], parameters: PARAMETERS };
        for _ in 0..opens {
            first_timeouts.sent(CLIENT, SERVER, &control(open), false, at(0));
        }
        let opened = Control::Opened { server: client(), parameters: PARAMETERS };
        first_timeouts.arrived(SERVER, CLIENT, &control(opened), at(2));
        first_timeouts
    }

    /// Whether the timeout is too late if a client sends a request of one packet at 10 ms and
    /// retransmits it `waited` ms later. The minimum timeout is 1 ms.
    fn is_late(first_timeouts: &mut FirstTimeouts, waited: u64) -> bool {
        let again = Repetition { connection: client().to_u64(), number: 1, before: at(10) };
        first_timeouts.repeated(CLIENT, SERVER, &again, at(10 + waited), MS).is_some()
    }

    #[test]
    fn the_first_timeout_is_at_most_three_handshake_rtts() {
        assert!(!is_late(&mut opened(1), 7));
        assert!(is_late(&mut opened(1), 9));
        assert!(!is_late(&mut opened(2), 20), "the client does not know which `Open` was answered");
    }

    #[test]
    fn an_open_to_a_known_endpoint_of_the_server_counts() {
        const OTHER: SimRoute = SimRoute::new(0, 2);
        let mut plan = Plan::draw(1, Scenario::Calm, &Cut::default());
        plan.features = crate::Features::none();
        let mut first_timeouts = FirstTimeouts::new(&plan);
        let ping = Control::Ping { sender: client() };
        let other = ConnectionId::new(0, false, 0, 9);
        let open = |client| Control::Open { client, cookie: [0; 16], parameters: PARAMETERS };
        first_timeouts.sent(CLIENT, OTHER, &control(open(other)), false, at(0));
        first_timeouts.sent(CLIENT, OTHER, &control(ping), false, at(0));
        first_timeouts.sent(CLIENT, OTHER, &control(open(client())), false, at(0));
        first_timeouts.sent(CLIENT, SERVER, &control(open(client())), false, at(1));
        let opened = Control::Opened { server: client(), parameters: PARAMETERS };
        first_timeouts.arrived(SERVER, CLIENT, &control(opened), at(2));
        assert!(!is_late(&mut first_timeouts, 20));
    }

    #[test]
    fn later_timeouts_and_timeouts_of_known_servers_may_be_longer() {
        let mut first_timeouts = opened(1);
        assert!(!is_late(&mut first_timeouts, 7) && !is_late(&mut first_timeouts, 20));
        let mut first_timeouts = opened(1);
        first_timeouts.arrived(SERVER, CLIENT, &control(Control::Pong), at(5));
        assert!(!is_late(&mut first_timeouts, 20));
        let mut first_timeouts = opened(1);
        first_timeouts.sent(
            CLIENT,
            SERVER,
            &control(Control::Ping { sender: client() }),
            false,
            at(5),
        );
        assert!(!is_late(&mut first_timeouts, 20));
    }
}
