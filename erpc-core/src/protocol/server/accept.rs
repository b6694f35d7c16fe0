//! A session opens at its server.

use std::collections::VecDeque;

use super::agreement::Agreement;
use super::listen::Acceptor;
use super::open_rate::OpenRate;
use crate::buf::MIN_PAYLOAD;
use crate::mutants::mutant;
use crate::protocol::ids::KeyedHasher;
use crate::protocol::stats::DropReason;
use crate::protocol::turn::Turn;
use crate::time::Instant;
use crate::transport::{ChargeModel, MIN_DATAGRAM, Route, TxQueue};
use crate::wire::control::{Control, Cookie, Parameters, Refusal};
use crate::wire::{ConnectionId, ReplyInfo, ShortPacket, VERSION};

/// An `Open`, as the client has sent it.
#[derive(Clone, Copy)]
pub(in crate::protocol) struct Open<R> {
    pub(in crate::protocol) route: R,
    pub(in crate::protocol) client: ConnectionId,
    pub(in crate::protocol) parameters: Parameters,
    pub(in crate::protocol) nonce: u32,
    /// Bytes of its datagram, if it was padded. Its answer has as many.
    pub(in crate::protocol) proof: u32,
}

/// What an endpoint needs to accept sessions, and the sessions that are about to open.
pub(in crate::protocol) struct Accepting<R> {
    acceptor: Option<Acceptor>,
    /// Their cookies are good; the paths to their senders are not known yet.
    pending: VecDeque<Open<R>>,
    rate: OpenRate,
}

/// `Open`s that may wait to be looked at. Others are dropped, and come again.
const MOST_PENDING: usize = 4_096;

impl<R: Route> Accepting<R> {
    /// Of an endpoint that does not listen.
    pub(super) fn new(hasher: KeyedHasher) -> Self {
        Self { acceptor: None, pending: VecDeque::new(), rate: OpenRate::new(hasher) }
    }

    pub(super) fn listen(&mut self, acceptor: Acceptor) {
        self.acceptor = Some(acceptor);
    }

    pub(super) fn acceptor(&self) -> Option<&Acceptor> {
        self.acceptor.as_ref()
    }

    /// The refusal of a `Hello` in another version of the protocol, to be sent in that version.
    pub(in crate::protocol) fn version_refusal(&self, client: ConnectionId) -> ShortPacket {
        let reason = if self.acceptor.is_some() { Refusal::Version } else { Refusal::NotListening };
        refusal(reason).emit(client, 0, ReplyInfo::default())
    }

    /// Answers a `Hello` from the packet alone: it leaves no state here.
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
            Some(_) if !version_fits => refusal(Refusal::Version),
            Some(acceptor) => {
                let proof = turn.endpoint.proof(turn.now, turn.endpoint.local.max_datagram);
                acceptor.challenge(turn.now, route, client, proof)
            }
        };
        turn.tx.push_bytes(route, message.emit(client, nonce, ReplyInfo::default()).as_bytes());
    }

    /// Whether the sender of an `Open` has its cookie from this group of endpoints.
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

    /// Lets a new `Open` wait until the path to its sender is known.
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

    /// The next `Open` whose path is to be looked up.
    pub(super) fn next(&self) -> Option<&Open<R>> {
        self.pending.front()
    }

    pub(super) fn pop(&mut self) -> Option<Open<R>> {
        self.pending.pop_front()
    }
}

impl<R: Route> Open<R> {
    /// The parameters of the session, on a path for datagrams of `path_datagram` bytes, whose client endpoint may use
    /// `share` of the receive queue. `None` if there is no room for datagrams of the least size: the `Open` is refused.
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
        let client_takes = (asked.eager, asked.max_message);
        Some(Agreement::new((credits, trailer), datagram, client_takes))
    }

    /// Whether the parameters are within the protocol's bounds.
    fn is_valid(&self) -> bool {
        let Parameters { max_datagram, eager, credits, max_message, charge_model, .. } =
            self.parameters;
        max_datagram as usize >= MIN_DATAGRAM
            && eager as usize >= MIN_PAYLOAD
            && credits >= 1
            && max_message >= 1
            && ChargeModel::from_u8(charge_model).is_some()
    }

    /// Says why no session opens.
    pub(super) fn refuse<X: TxQueue<Route = R>>(&self, turn: &mut Turn<'_, X>, reason: Refusal) {
        turn.endpoint.stats.refused += 1;
        let refused = refusal(reason).emit(self.client, self.nonce, ReplyInfo::default());
        turn.tx.push_bytes(&self.route, refused.as_bytes());
    }
}

fn refusal(reason: Refusal) -> Control {
    Control::Refused { reason, low: VERSION.into(), high: VERSION.into() }
}
