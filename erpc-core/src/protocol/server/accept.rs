//! A session opens at its server, stays alive, and ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::slot::Siblings;
use super::*;
use crate::mutants::mutant;
use crate::protocol::config::LEAST_PINGS;
use crate::protocol::cookie::CookieMaker;
use crate::protocol::stats::DropReason;
use crate::transport::{ChargeModel, MIN_DATAGRAM};
use crate::wire::checksum::overhead;
use crate::wire::control::Refusal;
use crate::wire::{Flags, Header, ShortPacket, VERSION};

/// The endpoints that listen at one address, as all of them know it.
#[derive(Debug)]
pub struct ListenGroup {
    secret: [u8; 16],
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    port: u16,
    sessions: AtomicU32,
}

impl ListenGroup {
    /// A group whose member `i` receives at `ports[i]`; all ports are the same where the kernel steers
    /// by connection id. `secret` authenticates cookies and must not be guessable.
    ///
    /// # Panics
    /// If there are no ports or more than 256: a connection id names the member in one byte.
    #[must_use]
    pub fn new(secret: [u8; 16], ports: Vec<u16>) -> Self {
        assert!((1..=256).contains(&ports.len()), "a listening group has 1 to 256 endpoints");
        let member = |port| Member { port, sessions: AtomicU32::new(0) };
        Self { secret, members: ports.into_iter().map(member).collect() }
    }

    /// Sessions that each member holds or has been chosen for.
    #[must_use]
    pub fn sessions(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.sessions.load(Ordering::Relaxed)).collect()
    }
}

/// What makes an endpoint accept sessions: its place in a [`ListenGroup`].
#[derive(Clone, Debug)]
pub struct Acceptor {
    group: Arc<ListenGroup>,
    steer: u8,
}

impl Acceptor {
    /// Member `steer` of `group`.
    ///
    /// # Panics
    /// If the group has no such member.
    #[must_use]
    pub fn new(group: Arc<ListenGroup>, steer: u8) -> Self {
        assert!((steer as usize) < group.members.len(), "the group has no member {steer}");
        Self { group, steer }
    }

    fn cookies(&self) -> CookieMaker {
        CookieMaker::new(self.group.secret)
    }

    /// Of two members that `salt` points to, the one with fewer sessions: the power of two choices
    /// (Mitzenmacher), because a burst of `Hello`s, which leave no trace here, must not all go to the
    /// one that had the fewest when it began.
    fn choose(&self, salt: u64) -> (u8, u16) {
        let members = &self.group.members;
        let load = |at: usize| members[at].sessions.load(Ordering::Relaxed);
        let first = salt as u32 as usize % members.len();
        let step = 1 + (salt >> 32) as usize % (members.len() - 1).max(1);
        let second = (first + step) % members.len();
        let at = if load(second) < load(first) { second } else { first };
        (at as u8, members[at].port)
    }

    fn session_began(&self) {
        self.group.members[self.steer as usize].sessions.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn session_ended(&self) {
        self.group.members[self.steer as usize].sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Spreads the random half of a client's id over 64 bits (Fibonacci hashing).
fn spread(client: ConnectionId) -> u64 {
    u64::from(client.generation()).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32)
}

impl<R: Route> ServerSide<R> {
    /// From now on sessions are accepted, and `capacity` units of the receive queue are granted.
    pub(in crate::protocol) fn listen(&mut self, acceptor: Acceptor, capacity: u32) {
        self.acceptor = Some(acceptor);
        self.grants.set_capacity(capacity);
    }

    /// What a `Hello` in another version of the protocol is told, to be sent in its own version.
    pub(in crate::protocol) fn version_refusal(&self, client: ConnectionId) -> ShortPacket {
        let reason = if self.acceptor.is_some() { Refusal::Version } else { Refusal::NotListening };
        let refused = Control::Refused { reason, low: VERSION.into(), high: VERSION.into() };
        refused.emit(client, 0, ReplyInfo::default())
    }

    /// A `Hello`: answered out of the packet alone.
    pub(in crate::protocol) fn hello<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        route: &R,
        client: ConnectionId,
        version_fits: bool,
        nonce: u32,
    ) {
        let refuse =
            |reason| Control::Refused { reason, low: VERSION.into(), high: VERSION.into() };
        let message = match &self.acceptor {
            None => refuse(Refusal::NotListening),
            Some(_) if !version_fits => refuse(Refusal::Version),
            Some(acceptor) => {
                let (steer, port) = acceptor.choose(spread(client));
                let cookie = acceptor.cookies().issue(turn.now, route, client, steer);
                let port = if port == acceptor.group.members[acceptor.steer as usize].port {
                    0
                } else {
                    port
                };
                Control::Challenge { cookie, port, steer }
            }
        };
        turn.tx.push_bytes(route, message.emit(client, nonce, ReplyInfo::default()).as_bytes());
    }

    /// An `Open`: checked, and if it is new, kept until the path is known.
    pub(in crate::protocol) fn open<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        open: PendingOpen<R>,
        cookie: &Cookie,
    ) -> Result<(), DropReason> {
        let PendingOpen { route, client, parameters, nonce } = open;
        let Some(acceptor) = &self.acceptor else { return Err(DropReason::Handshake) };
        if !acceptor.cookies().check(turn.now, cookie, &route, client, acceptor.steer) {
            return Err(DropReason::Cookie);
        }
        if let Some(&index) = self.by_client.get(&(route, client))
            && !mutant!(OpenedTwice)
        {
            self.send_opened(turn, index, nonce);
            return Ok(());
        }
        let fits = parameters.max_datagram as usize >= MIN_DATAGRAM
            && parameters.eager as usize >= crate::buf::MIN_PAYLOAD
            && parameters.credits >= 1
            && parameters.max_message >= 1
            && ChargeModel::from_u8(parameters.charge_model).is_some();
        let refusal = if !fits {
            Some(Refusal::Parameters)
        } else if self.sessions.len() + self.pending.len()
            >= turn.endpoint.config.max_sessions as usize
        {
            Some(Refusal::Full)
        } else {
            None
        };
        if let Some(reason) = refusal {
            turn.endpoint.stats.refused += 1;
            let refused = Control::Refused { reason, low: VERSION.into(), high: VERSION.into() };
            turn.tx
                .push_bytes(&route, refused.emit(client, nonce, ReplyInfo::default()).as_bytes());
            return Ok(());
        }
        self.pending.push_back(PendingOpen { route, client, parameters, nonce });
        Ok(())
    }

    /// The address of the `Open` whose path is to be looked up next.
    pub(in crate::protocol) fn next_pending(&self) -> Option<R> {
        self.pending.front().map(|open| open.route)
    }

    /// The path to the client carries datagrams of `path_datagram` bytes: the session opens.
    pub(in crate::protocol) fn accept<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        path_datagram: u32,
    ) {
        let Some(open) = self.pending.pop_front() else { return };
        let PendingOpen { route, client, parameters, nonce } = open;
        if self.by_client.contains_key(&(route, client)) && !mutant!(OpenedTwice) {
            return;
        }
        let fitting =
            turn.endpoint.fitting_datagram(self.grants.share_with(&route, client.steer()));
        let max_datagram = parameters.max_datagram.min(path_datagram).min(fitting);
        if (max_datagram as usize) < MIN_DATAGRAM {
            turn.endpoint.stats.refused += 1;
            let refused = Control::Refused {
                reason: Refusal::Parameters,
                low: VERSION.into(),
                high: VERSION.into(),
            };
            turn.tx
                .push_bytes(&route, refused.emit(client, nonce, ReplyInfo::default()).as_bytes());
            return;
        }
        let asked = parameters.integrity && !mutant!(IntegrityIgnored);
        let trailer = asked || turn.endpoint.wants_trailer();
        let payload = max_datagram - overhead(trailer) as u32;
        let generation = turn.endpoint.ids.draw();
        let slots = Slots::from_fn(|at| ServerSlot {
            number: at.number_before_first(),
            state: SlotState::Idle,
            buffer: None,
        });
        let index = self.sessions.insert(ServerSession {
            generation,
            credits: parameters.credits.min(turn.endpoint.config.credits),
            unanswered: 0,
            marked: false,
            flags: Flags::new(trailer, false),
            route,
            remote: client,
            payload,
            eager: parameters.eager.min(payload),
            max_response: parameters.max_message,
            last_heard: turn.now,
            last_ping: turn.now,
            timer_at: Instant::NEVER,
            siblings: Siblings::NONE,
            held: 0,
            kept: 0,
            requests: 0,
            slots,
        });
        self.by_client.insert((route, client), index);
        let (shrunk, after) = self.grants.join(route, client.steer(), index);
        self.sessions[index].siblings.after = after;
        if let Some(sibling) = self.sessions.get_mut(after) {
            sibling.siblings.before = index;
        }
        if let Some(acceptor) = &self.acceptor {
            acceptor.session_began();
        }
        let session = &mut self.sessions[index];
        let deadline = turn.now + turn.endpoint.config.server_ping_interval();
        Self::arm(turn.endpoint, index, session, deadline);
        self.send_opened(turn, index, nonce);
        if shrunk {
            self.announce_window(turn);
        }
    }

    fn send_opened<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
        nonce: u32,
    ) {
        let session = &self.sessions[index];
        let server = Self::local_id(turn.endpoint, index, session.generation);
        let parameters = Parameters {
            credits: session.credits,
            integrity: session.flags.trailer(),
            ..turn.endpoint.parameters(
                session.payload + overhead(session.flags.trailer()) as u32,
                session.eager,
                self.grants.share(),
            )
        };
        let packet = Control::Opened { server, parameters }.emit(
            session.remote,
            nonce,
            ReplyInfo::default(),
        );
        turn.tx.push_bytes(&session.route, packet.as_bytes());
    }

    /// A control message to a session of ours.
    pub(in crate::protocol) fn control<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        route: &R,
        header: &Header,
        message: Control,
    ) -> Result<(), DropReason> {
        let index = SessionIndex::of(header.connection);
        let share = self.grants.share();
        let session = self.sessions.get_mut(index).ok_or(DropReason::UnknownConnection)?;
        if session.generation != header.connection.generation() {
            return Err(DropReason::UnknownConnection);
        }
        if session.route != *route {
            return Err(DropReason::WrongRoute);
        }
        let nonce = header.request.to_u32();
        let remote = session.remote;
        match message {
            Control::Ping { .. } if mutant!(PingUnanswered) => session.last_heard = turn.now,
            Control::Ping { sender } if sender == remote => {
                session.last_heard = turn.now;
                let pong = Control::Pong.emit(remote, nonce, ReplyInfo::new(0, share));
                turn.tx.push_bytes(route, pong.as_bytes());
            }
            Control::Pong => session.last_heard = turn.now,
            Control::Close { sender } if sender == remote => {
                let closed = Control::Closed.emit(remote, nonce, ReplyInfo::default());
                turn.tx.push_bytes(route, closed.as_bytes());
                self.remove(turn.endpoint, index);
            }
            Control::Reset { unknown } if unknown == remote => {
                self.remove(turn.endpoint, index);
            }
            // The answer to the `Close` of a shutdown finds no session any more.
            _ => return Err(DropReason::Handshake),
        }
        Ok(())
    }

    /// The session's timer has fired: has the client gone?
    pub(in crate::protocol) fn on_timer<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
    ) {
        let Some(session) = self.sessions.get_mut(index) else { return };
        if let Some(since) = turn.endpoint.config.back_since(turn.now, session.timer_at) {
            session.last_heard = session.last_heard.max(since);
            session.unanswered = 0;
        }
        session.timer_at = Instant::NEVER;
        if session.last_heard >= session.last_ping {
            session.unanswered = 0;
        }
        let silent_for = turn.now - session.last_heard;
        if silent_for >= turn.endpoint.config.liveness_timeout && session.unanswered >= LEAST_PINGS
        {
            self.remove(turn.endpoint, index);
            return;
        }
        if turn.now >= session.ping_at(&turn.endpoint.config) {
            session.unanswered = session.unanswered.saturating_add(1);
            session.last_ping = turn.now;
            Self::ping(turn, index, session, self.grants.share());
        }
        let deadline = session.ping_at(&turn.endpoint.config);
        Self::arm(turn.endpoint, index, session, deadline);
    }

    fn ping<X: TxQueue<Route = R>>(
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
        session: &ServerSession<R>,
        share: u32,
    ) {
        let sender = Self::local_id(turn.endpoint, index, session.generation);
        let packet = Control::Ping { sender }.emit(session.remote, 0, ReplyInfo::new(0, share));
        turn.tx.push_bytes(&session.route, packet.as_bytes());
    }

    /// Tells one session of each client endpoint that the window has shrunk. Takes time in proportion to
    /// the client endpoints; once per doubling of their number, or while they are few.
    #[cold]
    fn announce_window<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>) {
        let share = self.grants.share();
        for index in self.grants.tell() {
            if let Some(session) = self.sessions.get(index) {
                Self::ping(turn, index, session, share);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn salts() -> impl Iterator<Item = u64> {
        (0..1_000u64).map(|at| at.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17))
    }

    #[test]
    fn of_two_different_members_the_one_with_fewer_sessions_is_chosen() {
        for count in 2..9u16 {
            let group = Arc::new(ListenGroup::new([1; 16], (100..100 + count).collect()));
            let acceptor = Acceptor::new(Arc::clone(&group), 0);
            (0..5).for_each(|_| acceptor.session_began());
            assert_eq!(group.sessions()[..2], [5, 0]);
            let mut chosen = vec![0; count.into()];
            for (steer, port) in salts().map(|salt| acceptor.choose(salt)) {
                assert_eq!(port, 100 + u16::from(steer));
                chosen[usize::from(steer)] += 1;
            }
            assert_eq!(chosen[0], 0, "every other member has fewer: {chosen:?}");
            let fair = 1_000 / (i32::from(count) - 1);
            assert!(chosen[1..].iter().all(|times| *times > fair / 2), "{chosen:?}");
            (0..5).for_each(|_| acceptor.session_ended());
            assert_eq!(group.sessions()[0], 0);
        }
    }

    #[test]
    fn a_group_of_one_has_one_choice() {
        let acceptor = Acceptor::new(Arc::new(ListenGroup::new([1; 16], vec![7])), 0);
        assert!(salts().all(|salt| acceptor.choose(salt) == (0, 7)));
    }
}
