//! The server's side of the handshake.

use std::collections::VecDeque;

use super::agreement::Agreement;
use super::listen::Acceptor;
use super::open_rate::OpenRate;
use crate::buf::MIN_PAYLOAD;
use crate::mutants::mutant;
use crate::protocol::config::SlotCount;
use crate::protocol::ids::KeyedHasher;
use crate::protocol::stats::DropReason;
use crate::protocol::turn::Turn;
use crate::time::Instant;
use crate::transport::{ChargeModel, MIN_DATAGRAM, Route, TxQueue};
use crate::wire::control::{Control, Cookie, Parameters, Refusal};
use crate::wire::{ConnectionId, ReplyInfo, ShortPacket, VERSION};

/// An `Open` message of a client.
#[derive(Clone, Copy)]
pub(in crate::protocol) struct Open<R> {
    pub(in crate::protocol) route: R,
    pub(in crate::protocol) client: ConnectionId,
    pub(in crate::protocol) parameters: Parameters,
    pub(in crate::protocol) nonce: u32,
    /// Length of the `Open`'s datagram in bytes if the `Open` was padded, else 0. The answer to a
    /// padded `Open` is padded, too.
    pub(in crate::protocol) proof: u32,
}

/// The state in which an endpoint accepts sessions, and the sessions that are about to open.
pub(in crate::protocol) struct Accepting<R> {
    acceptor: Option<Acceptor>,
    /// The endpoint shuts down and refuses sessions.
    draining: bool,
    /// `Open`s with valid cookies whose paths to the client are not known yet.
    pending: VecDeque<Open<R>>,
    rate: OpenRate,
}

/// Maximum number of `Open`s that wait for their path. Further ones are dropped; clients repeat
/// them.
const MOST_PENDING: usize = 4_096;

impl<R: Route> Accepting<R> {
    /// The state of an endpoint that does not listen.
    pub(super) fn new(hasher: KeyedHasher) -> Self {
        Self {
            acceptor: None,
            draining: false,
            pending: VecDeque::new(),
            rate: OpenRate::new(hasher),
        }
    }

    pub(super) fn listen(&mut self, acceptor: Acceptor) {
        self.acceptor = Some(acceptor);
    }

    /// Refuses sessions from now on.
    pub(super) fn drain(&mut self) {
        self.draining = true;
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining
    }

    pub(super) fn acceptor(&self) -> Option<&Acceptor> {
        self.acceptor.as_ref()
    }

    /// The refusal of a `Hello` in another version of the protocol. The caller sends it in that
    /// version.
    pub(in crate::protocol) fn version_refusal(&self, client: ConnectionId) -> ShortPacket {
        let reason = if self.acceptor.is_some() { Refusal::Version } else { Refusal::NotListening };
        refusal(reason).emit(client, 0, ReplyInfo::default())
    }

    /// Answers a `Hello`. Keeps no state of the client, because its address may be forged.
    pub(in crate::protocol) fn hello<X: TxQueue<Route = R>>(
        &self,
        turn: &mut Turn<'_, X>,
        route: &R,
        client: ConnectionId,
        version_fits: bool,
        nonce: u32,
    ) {
        let message = match &self.acceptor {
            None => refusal(Refusal::NotListening),
            Some(_) if !version_fits => counted_refusal(turn, Refusal::Version),
            Some(_) if self.draining => counted_refusal(turn, Refusal::Draining),
            Some(acceptor) => {
                let proof = turn.endpoint.proof(turn.now, turn.endpoint.local.max_datagram);
                acceptor.challenge(turn.now, route, client, proof)
            }
        };
        turn.tx.push_bytes(route, message.emit(client, nonce, ReplyInfo::default()).as_bytes());
    }

    /// Checks that an endpoint of this group has issued the cookie of an `Open` to its sender.
    pub(super) fn check_cookie(
        &self,
        now: Instant,
        open: &Open<R>,
        cookie: &Cookie,
    ) -> Result<(), DropReason> {
        let acceptor = self.acceptor.as_ref().ok_or(DropReason::Handshake)?;
        match acceptor.accepts(now, cookie, &open.route, open.client) {
            true => Ok(()),
            false => Err(DropReason::Cookie),
        }
    }

    /// Queues a new `Open` until the path to its sender is known. Refuses invalid parameters, and
    /// limits the rate per host.
    pub(super) fn enqueue<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        open: Open<R>,
    ) -> Result<(), DropReason> {
        if !open.is_valid() {
            open.refuse(turn, Refusal::Parameters);
            return Ok(());
        }
        let per_second = turn.endpoint.config.opens_per_host;
        let host = open.route.host();
        if self.pending.len() >= MOST_PENDING || !self.rate.admits(turn.now, host, per_second) {
            return Err(DropReason::OpenRate);
        }
        self.pending.push_back(open);
        Ok(())
    }

    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The next `Open` whose path must be looked up.
    pub(super) fn next(&self) -> Option<&Open<R>> {
        self.pending.front()
    }

    pub(super) fn pop(&mut self) -> Option<Open<R>> {
        self.pending.pop_front()
    }
}

impl<R: Route> Open<R> {
    /// Agrees on the parameters of the session. The path carries datagrams of `path_datagram`
    /// bytes, and the client endpoint may use `share` units of the receive queue. `None` if no
    /// datagram of the minimum size fits: the `Open` is refused.
    pub(super) fn agree<X: TxQueue<Route = R>>(
        &self,
        turn: &mut Turn<'_, X>,
        path_datagram: u32,
        share: u32,
    ) -> Option<Agreement> {
        let asked = &self.parameters;
        let fitting = turn.endpoint.fitting_datagram(share);
        let datagram = asked.max_datagram.min(path_datagram).min(fitting);
        if (datagram as usize) < MIN_DATAGRAM {
            self.refuse(turn, Refusal::Parameters);
            return None;
        }
        let trailer =
            asked.integrity && !mutant!(IntegrityIgnored) || turn.endpoint.wants_trailer();
        let credits = asked.credits.min(turn.endpoint.config.max_credits);
        let own_slots = turn.endpoint.config.slot_count();
        let slots = SlotCount::new(asked.slots)?.min(own_slots);
        let client_takes = (asked.eager, asked.max_message);
        let max_request = turn.endpoint.config.max_message;
        let agreed = Agreement::new((credits, slots, trailer), datagram, client_takes, max_request);
        Some(agreed.bundles(asked.bundles || mutant!(BundlesUnasked)))
    }

    /// Whether the parameters are within the protocol's bounds.
    fn is_valid(&self) -> bool {
        let Parameters { max_datagram, eager, credits, max_message, charge_model, slots, .. } =
            self.parameters;
        max_datagram as usize >= MIN_DATAGRAM
            && eager as usize >= MIN_PAYLOAD
            && credits >= 1
            && max_message >= 1
            && ChargeModel::from_u8(charge_model).is_some()
            && SlotCount::new(slots).is_some()
    }

    /// Refuses the `Open` and sends the client the reason.
    pub(super) fn refuse<X: TxQueue<Route = R>>(&self, turn: &mut Turn<'_, X>, reason: Refusal) {
        let refused =
            counted_refusal(turn, reason).emit(self.client, self.nonce, ReplyInfo::default());
        turn.tx.push_bytes(&self.route, refused.as_bytes());
    }
}

/// The refusal of a client by an endpoint that listens.
fn counted_refusal<X>(turn: &mut Turn<'_, X>, reason: Refusal) -> Control {
    let stats = &mut turn.endpoint.stats;
    stats.refused += 1;
    match reason {
        Refusal::Full => stats.refused_full += 1,
        Refusal::HostFull => stats.refused_host_full += 1,
        Refusal::Draining => stats.refused_draining += 1,
        Refusal::Version | Refusal::Parameters | Refusal::NotListening => {}
    }
    refusal(reason)
}

fn refusal(reason: Refusal) -> Control {
    Control::Refused { reason, low: VERSION.into(), high: VERSION.into() }
}
