//! Opens a session: the client's side of the handshake.
//!
//! ```text
//! client                                    server
//!   Hello(client id, versions), padded  ->    any endpoint; keeps nothing
//!   <-  Challenge(cookie, port, steer)
//!   Open(client id, cookie, parameters) ->    the endpoint that was named; checks the cookie
//!   <-  Opened(server id, parameters), as long as `Open`
//! ```
//!
//! `Open` takes the same way as data, so it tests the path, the firewall and the steering. The
//! first `Open` also proves the datagram size that the path carries.

use super::common::Common;
use super::followup::{Followup, Terms};
use super::inquiry::PAUSE;
use super::repeat::Repeat;
use super::reservation::Charges;
use crate::buf::MIN_PAYLOAD;
use crate::mutants::mutant;
use crate::protocol::config::LINK_RATES;
use crate::protocol::config::SlotCount;
use crate::protocol::endpoint::EndpointState;
use crate::protocol::stats::DropReason;
use crate::protocol::turn::Turn;
use crate::protocol::{Cause, ConnectError};
use crate::time::Instant;
use crate::transport::{ChargeModel, Link, MIN_DATAGRAM, NetworkError, Path, Route, TxQueue};
use crate::wire::checksum::overhead;
use crate::wire::control::{Control, Cookie, HELLO, OPEN, Parameters, Refusal};
use crate::wire::{ConnectionId, Flags, Header, Kind, ReplyInfo, VERSION};

/// The nonce of the first `Open` after each challenge. If the size of the session's largest
/// datagrams needs a proof and the server has room for it, this `Open` and its answer have that
/// size: together they prove that the path carries it. Later copies of `Open` are short, for a path
/// that drops long datagrams.
const PROOF: u32 = 0;

/// After this many unanswered `Open`s the client asks for a new cookie: the server may have
/// restarted.
const OPENS_PER_COOKIE: u8 = 3;

/// A session that its server has not accepted yet.
#[derive(Debug)]
pub(super) struct Connecting<R> {
    pub(super) common: Common<R>,
    step: Step,
    /// Where `Hello` goes. Later messages go to the address that has answered `Hello`, at the port
    /// that the server names.
    asked: R,
    repeat: Repeat,
    /// The sizes that the `Open`s of this handshake have offered; `None` before the first `Open`.
    offered: Option<Offered>,
    /// When `Open` was sent, if it was sent only once: then its answer gives the round trip.
    open_sent_at: Option<Instant>,
    /// This endpoint's link on the way to the server.
    link: Link,
    /// The first report that the current message was not delivered; `None` if there was none.
    reported: Option<Reported>,
    /// The server is on this host: the path carries the datagrams that its interfaces allow.
    is_local: bool,
}

/// What the client is waiting for.
///
/// ```text
/// Hello -Challenge-> Routing -path known-> Opening -Opened-> an open session
///   ^                                          |
///   +------------- no answer ------------------+
/// ```
#[derive(Clone, Copy, Debug)]
enum Step {
    /// `Hello` is out.
    Hello,
    /// The server has sent a challenge. The transport looks up the path to the chosen endpoint.
    Routing { cookie: Cookie, steer: u8, proof: u32 },
    /// `Open` is out, the first one in a datagram of `proof` bytes.
    Opening { cookie: Cookie, steer: u8, max_datagram: u32, proof: u32 },
}

/// A report that a handshake message was not delivered. It may be forged, or true for a moment
/// only. So the client sends the message again immediately, and believes the report if that copy is
/// not delivered either, and not answered.
#[derive(Clone, Copy, Debug)]
struct Reported {
    at: Instant,
    error: NetworkError,
    /// The nonce of the last copy that was sent before the report.
    nonce: u32,
    /// When the handshake fails if no answer comes. `None` until a report says that a later copy
    /// was not delivered either.
    ends_at: Option<Instant>,
}

/// The sizes, in bytes, that the server may have taken from any `Open` that was sent until now.
#[derive(Clone, Copy, Debug)]
struct Offered {
    /// Same in every `Open`.
    eager: u32,
    /// The largest value in these `Open`s.
    max_datagram: u32,
}

impl<R: Route> Connecting<R> {
    pub(super) fn new(common: Common<R>, now: Instant) -> Self {
        let asked = common.route;
        Self {
            common,
            step: Step::Hello,
            asked,
            repeat: Repeat::new(now),
            offered: None,
            open_sent_at: None,
            link: Link::Unknown,
            reported: None,
            is_local: false,
        }
    }

    /// Sends the current handshake message, and arms the timer for its next copy. `room` is this
    /// endpoint's room for replies, in charge units.
    pub(super) fn send<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>, room: u32) {
        let client = self.common.local_id(turn.endpoint);
        let (route, nonce) = (&self.common.route, self.repeat.nonce());
        match (self.step, self.offered) {
            (Step::Hello, _) => {
                let hello = Control::Hello { client, low: VERSION.into(), high: VERSION.into() };
                let packet = hello.emit(ConnectionId::endpoint(0), nonce, ReplyInfo::default());
                turn.tx.push_bytes(route, packet.as_bytes());
            }
            (Step::Opening { cookie, steer, max_datagram, proof }, Some(Offered { eager, .. })) => {
                let parameters = turn.endpoint.parameters(max_datagram, eager, room);
                let open = Control::Open { client, cookie, parameters };
                let datagram = if nonce == PROOF { proof } else { 0 };
                turn.push_padded(route, &open, ConnectionId::endpoint(steer), nonce, datagram);
            }
            (Step::Routing { .. } | Step::Opening { .. }, _) => {}
        }
        self.repeat.arm(turn, &mut self.common);
        // The copy has moved the timer, and the handshake may fail before the next copy is due.
        if let Some(ends_at) = self.reported.and_then(|reported| reported.ends_at) {
            self.common.timer.arm_again(&mut turn.endpoint.timers, ends_at, turn.now);
        }
    }

    /// The session's timer has fired: repeats the message, or ends the session.
    pub(super) fn on_timer<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        room: u32,
    ) -> Followup {
        if let Some(Reported { at, error, ends_at: Some(ends_at), .. }) = self.reported {
            if turn.endpoint.read_until >= ends_at {
                return Followup::Unanswered(error, at);
            }
            self.common.timer.arm_again(&mut turn.endpoint.timers, ends_at, turn.now);
        }
        if !self.repeat.is_due(turn, &mut self.common) {
            return Followup::None;
        }
        if self.repeat.is_over(turn) {
            let error = self.reported.map(|reported| ConnectError::Unreachable(reported.error));
            return Followup::End(Cause::Connect(error.unwrap_or(ConnectError::Timeout)));
        }
        let repeats = self.repeat.count();
        if matches!(self.step, Step::Opening { .. }) && repeats.is_multiple_of(OPENS_PER_COOKIE) {
            self.step = Step::Hello;
            // `Hello` goes to the original address again. An answer to any earlier `Hello` counts,
            // too, even if it comes from another address.
            self.common.route = self.asked;
        }
        self.open_sent_at = None;
        self.send(turn, room);
        Followup::None
    }

    /// The handshake message that begins with this header was not delivered, says a report. `None`
    /// if the report shows nothing: it is not about the message that waits for an answer.
    pub(super) fn on_undelivered<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        room: u32,
        header: &Header,
        error: NetworkError,
    ) -> Option<Followup> {
        let waits_for = match self.step {
            Step::Hello => HELLO,
            Step::Routing { .. } => return None,
            Step::Opening { .. } => OPEN,
        };
        let (nonce, last) = (header.request.to_u32(), self.repeat.nonce());
        if header.kind != Kind::Control || header.packet.get() != waits_for || nonce > last {
            return None;
        }
        if mutant!(ReportBelieved) {
            return Some(Followup::Unanswered(error, turn.now));
        }
        match &mut self.reported {
            // After many copies the nonce does not count any further. Then each report counts as
            // one about a later copy.
            Some(first) if nonce > first.nonce || self.repeat.is_counted_out() => {
                let at = *first.ends_at.get_or_insert(turn.now.plus_nanos(PAUSE));
                self.common.timer.arm(&mut turn.endpoint.timers, at);
            }
            Some(_) => {}
            None => {
                self.reported = Some(Reported { at: turn.now, error, nonce: last, ends_at: None });
                self.repeat.hurry();
                self.open_sent_at = None;
                self.send(turn, room);
            }
        }
        Some(Followup::None)
    }

    /// Whether the client has sent `Hello` to `route` at `since` or before, and nothing has come
    /// from there.
    pub(super) fn is_unanswered_since(&self, route: &R, since: Instant) -> bool {
        let is_first = matches!(self.step, Step::Hello) && self.offered.is_none();
        is_first && self.common.route == *route && self.repeat.since() <= since
    }

    /// Whether the path to the server has to be looked up.
    pub(super) fn wants_route(&self) -> bool {
        matches!(self.step, Step::Routing { .. })
    }

    /// Continues with `Open`, now that the path to the server is known.
    pub(super) fn routed<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        path: Path,
        room: u32,
    ) -> Followup {
        let Step::Routing { cookie, steer, proof } = self.step else {
            return Followup::None;
        };
        let path_datagram = path.datagram.min(u32::MAX as usize) as u32;
        self.is_local = path.link == Link::Local;
        self.link = match (turn.endpoint.config.link_rate, path.link) {
            (Some(rate), _) => Link::Rate(rate),
            (None, Link::Rate(rate)) => Link::Rate(rate.clamp(LINK_RATES.0, LINK_RATES.1)),
            (None, link) => link,
        };
        let max_datagram = path_datagram.min(turn.endpoint.fitting_datagram(room));
        if (max_datagram as usize) < MIN_DATAGRAM {
            return Followup::End(Cause::Connect(ConnectError::Parameters));
        }
        let proof = max_datagram.min(proof);
        // A local path carries the datagrams that its interfaces allow, and every path carries the
        // smallest datagrams. These sizes need no proof.
        let is_known = self.is_local || max_datagram as usize == MIN_DATAGRAM;
        let proof = if is_known { 0 } else { turn.endpoint.proof(turn.now, proof) };
        self.step = Step::Opening { cookie, steer, max_datagram, proof };
        self.open_sent_at = self.offered.is_none().then_some(turn.now);
        self.offered = Some(match self.offered {
            Some(Offered { eager, max_datagram: before }) => {
                Offered { eager, max_datagram: before.max(max_datagram) }
            }
            None => Offered { eager: turn.endpoint.eager(room), max_datagram },
        });
        self.repeat.restart();
        self.reported = None;
        self.send(turn, room);
        Followup::None
    }

    /// A control message with this nonce came from `route`, in a datagram of `datagram` bytes.
    pub(super) fn on_control(
        &mut self,
        now: Instant,
        endpoint: &EndpointState,
        route: &R,
        message: Control,
        (nonce, datagram): (u32, u32),
    ) -> Result<Followup, DropReason> {
        if self.common.route != *route {
            // A server with several addresses answers a `Hello` from the address that its kernel
            // prefers. The session continues with that address, which `Open` then proves. This
            // does not help an attacker: whoever sends a valid answer knows the session's 32
            // random bits, and could have forged the expected address as well.
            let answers_hello = matches!(self.step, Step::Hello)
                && matches!(message, Control::Challenge { .. } | Control::Refused { .. })
                && route.port() != 0
                && route.port() == self.common.route.port();
            if !answers_hello {
                return Err(DropReason::WrongRoute);
            }
            self.common.route = *route;
        }
        match (message, self.step) {
            (Control::Challenge { cookie, port, steer, proof }, Step::Hello) => {
                if port != 0 {
                    self.common.route = self.common.route.with_port(port);
                }
                self.step = Step::Routing { cookie, steer, proof };
                self.reported = None;
                Ok(Followup::Route)
            }
            (Control::Opened { server, parameters }, Step::Opening { steer, proof, .. }) => {
                // If there was no room for a proof of this size, the path is assumed to carry what
                // its interfaces allow.
                let is_unproven = proof < parameters.max_datagram;
                let is_proven = self.is_local
                    || is_unproven
                    || nonce == PROOF && datagram >= parameters.max_datagram;
                let terms = self.terms(now, endpoint, server, steer, &parameters);
                let terms = terms.map(|terms| Terms { is_proven, ..terms });
                Ok(terms.map_or(Followup::Refuse, |terms| Followup::Open(Box::new(terms))))
            }
            (Control::Refused { reason, low, high }, Step::Hello | Step::Opening { .. }) => {
                let error = match reason {
                    Refusal::Version => ConnectError::Version(low, high),
                    Refusal::Full => ConnectError::Full,
                    Refusal::HostFull => ConnectError::HostFull,
                    Refusal::NotListening => ConnectError::NotListening,
                    Refusal::Draining => ConnectError::Draining,
                    Refusal::Parameters => ConnectError::Parameters,
                };
                Ok(Followup::End(Cause::Connect(error)))
            }
            _ => Err(DropReason::Handshake),
        }
    }

    /// Ends the queued calls.
    pub(super) fn end(&mut self, endpoint: &mut EndpointState, cause: Cause) {
        if !mutant!(QueuedCallsForgotten) {
            self.common.queue.fail_all(cause, endpoint);
        }
    }

    /// The accepted terms; `None` if the server has accepted something that was not offered.
    fn terms(
        &self,
        now: Instant,
        endpoint: &EndpointState,
        server: ConnectionId,
        steer: u8,
        parameters: &Parameters,
    ) -> Option<Terms> {
        let offered = self.offered?;
        let model = ChargeModel::from_u8(parameters.charge_model)?;
        let own_slots = endpoint.config.slot_count();
        let slots = SlotCount::new(parameters.slots)?;
        let overhead = overhead(parameters.integrity);
        let max_datagram = parameters.max_datagram;
        // The server has noted this value from the `Open` that reached it. Both sides must cut
        // messages alike.
        let eager = parameters.eager;
        let fits = (MIN_DATAGRAM as u32..=offered.max_datagram).contains(&max_datagram)
            && (1..=endpoint.config.max_credits).contains(&parameters.credits)
            && slots <= own_slots
            && (MIN_PAYLOAD as u32..=max_datagram - overhead as u32).contains(&eager)
            && eager <= offered.eager
            && parameters.max_message >= 1
            && (parameters.integrity || !endpoint.wants_trailer() || mutant!(IntegrityIgnored));
        fits.then(|| Terms {
            server,
            steer,
            flags: Flags::new(parameters.integrity, false),
            bundles: parameters.bundles,
            credits: parameters.credits,
            slots: if mutant!(ClientKeepsItsSlots) { own_slots } else { slots },
            window: parameters.window,
            eager,
            max_datagram,
            is_proven: false,
            max_request: parameters.max_message,
            charges: Charges::new(model, endpoint.local.charge, overhead, eager, max_datagram),
            link: self.link,
            round_trip: self.open_sent_at.map(|sent_at| now.nanos_since(sent_at)),
        })
    }
}
