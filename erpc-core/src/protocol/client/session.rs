//! A session as its client sees it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::buf::MsgBuf;
use crate::mutants::mutant;
use crate::protocol::assembly::Assembly;
use crate::protocol::config::EndpointConfig;
use crate::protocol::congestion::Congestion;
use crate::protocol::index::{PeerIndex, SlotIndex, SlotSet, Slots};
use crate::protocol::rtt::RttEstimator;
use crate::protocol::{CallError, Cause, NewCall, WINDOW};
use crate::time::Instant;
use crate::wire::control::Cookie;
use crate::wire::extension::{DEADLINE_AT, EXTENSION_HEAD, remaining};
use crate::wire::{
    ConnectionId, Flags, Header, Kind, PacketLayout, PacketNumber, RequestNumber, Stamp,
};

use super::flow::{Blocked, Charges};
use super::pace::Pace;

/// Where a session is in its life.
///
/// ```text
/// Hello -Challenge-> Routing -path known-> Opening -Opened-> Open -disconnect, drained-> Closing
/// ```
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// `Hello` is out.
    Hello,
    /// Challenged; the transport is being asked what the path to the chosen endpoint carries.
    Routing { cookie: Cookie, steer: u8 },
    /// `Open` is out.
    Opening { cookie: Cookie, steer: u8, max_datagram: u32 },
    /// In use.
    Open,
    /// `Close` is out.
    Closing,
}

/// A request in a slot.
pub(super) struct Call {
    pub(super) request: MsgBuf,
    pub(super) token: u64,
    pub(super) method: u32,
    /// The deadline of an extended request.
    pub(super) extended: Option<Instant>,
    pub(super) layout: PacketLayout,
    /// What the last packet takes of the window and of the room: worked out once.
    pub(super) last_cost: (u32, u32),
    /// Request packets sent since the last roll-back, and before it up to `acked`.
    pub(super) sent: u32,
    /// Request packets whose credit came back.
    pub(super) acked: u32,
    /// Request packets that were ever sent: from here on the server may have it all.
    pub(super) ever_sent: u32,
    pub(super) patience: Patience,
    /// A packet went out twice: no RTT samples, and the transmit queue is flushed before the end.
    pub(super) retransmitted: bool,
    /// What it lacks, and stands in line for.
    pub(super) waiting: Option<Blocked>,
    /// The last roll-back for a gap.
    pub(super) rolled_back: Option<RollBack>,
    /// When the last timeout sent a packet again.
    pub(super) probed_at: Instant,
    /// The response, once it turned out to be more than one packet.
    pub(super) response: Option<Box<Response>>,
}

/// A return to the first packet that was lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct RollBack {
    /// That packet, of the request or of the response.
    to: u32,
    /// What is stamped earlier was on its way before.
    since: Instant,
    /// How often, one after the other.
    times: u8,
}

/// Roll-backs to the same packet before only a timeout sends it again: by then it is not chance that loses it, but
/// a path that swallows packets of its size.
const MOST_ROLL_BACKS: u8 = 4;

/// How long an answer has been waited for.
pub(super) struct Patience {
    /// The last time that a packet went out or progress came in.
    pub(super) active_at: Instant,
    /// Timeouts since the last progress.
    pub(super) retries: u8,
    /// When the first of them was; means nothing while there is none.
    pub(super) stalled_at: Instant,
    /// The server said that the request is executing: nothing is owed, the response is announced unasked.
    pub(super) accepted: bool,
}

/// What is left of a call that has ended here before its server has answered, and may be executing.
///
/// The slot stays taken until the server has said that it is done with the request, or the next one would
/// find it busy there; so does what its packets took, as they and their answers may be on their way.
pub(super) struct Quarantine {
    pub(super) patience: Patience,
    /// What is to be given back: credits, units of the window, units of the room.
    pub(super) taken: (u32, u32, u32),
    /// The server may have the whole request.
    pub(super) whole: bool,
}

/// A response under way.
pub(super) struct Response {
    pub(super) assembly: Assembly,
    /// Response packets asked for, the first included.
    pub(super) asked: u32,
    /// The message is an encoded status.
    pub(super) failure: bool,
    /// The message begins with an extension.
    pub(super) extended: bool,
    /// In the list of responses to be asked on for at the end of the burst.
    pub(super) pull_pending: bool,
    /// The stamp that the last packet has brought back.
    pub(super) echo: Stamp,
}

impl Call {
    /// Whether the request is one packet that was sent once and is owed its response.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.layout.packets() == 1
            && self.sent == 1
            && self.acked == 0
            && !self.patience.accepted
            && !self.retransmitted
            && self.response.is_none()
    }

    /// The header of a packet of the request, sent now.
    #[inline]
    pub(super) fn header(
        &self,
        to: (ConnectionId, RequestNumber, Flags),
        packet: u32,
        now: Instant,
    ) -> Header {
        let (connection, request, flags) = to;
        Header {
            connection,
            kind: Kind::Request,
            packet: PacketNumber::new(packet),
            request,
            aux: if packet == 0 { self.method } else { self.stamp_at(now).to_u32() },
            size: self.layout.size(),
            flags: flags.and_extended(self.extended.is_some()),
        }
    }

    /// Before the request's first packet is sent, for the first time or again: writes into its extension
    /// how much time is left.
    #[inline]
    pub(super) fn write_deadline(&mut self, packet: u32, now: Instant) {
        let stale = mutant!(StampedOnce) && self.ever_sent > 0;
        if packet == 0
            && !stale
            && self.deadline() != Instant::NEVER
            && self.request.len() >= EXTENSION_HEAD
        {
            self.request.write_at(DEADLINE_AT, &remaining(self.deadline(), now).to_le_bytes());
        }
    }

    /// Whether packet `lost` has to be sent from, or asked for from, once more, since a packet behind it has
    /// come whose stamp is `echo`: once, unless that packet has followed the last time. Then `lost` was lost
    /// again, and no timeout is needed to see it. Of another packet, too, what was on its way before the last return
    /// says nothing.
    pub(super) fn is_news(&self, lost: u32, echo: Stamp, now: Instant) -> bool {
        /// Stamps are compared with times that are not longer ago, in nanoseconds.
        const LONG_AGO: u64 = 1_000_000_000;
        match self.rolled_back {
            Some(back) if back.to == lost => {
                echo.is_since(back.since) && back.times < MOST_ROLL_BACKS
            }
            Some(back) if now.nanos_since(back.since) < LONG_AGO => {
                echo == Stamp::NONE || echo.is_since(back.since)
            }
            _ => true,
        }
    }

    /// Goes back to `lost`. What is sent from now on is told apart from what was sent in the same turn
    /// before by a stamp of the next tick.
    pub(super) fn roll_back(&mut self, lost: u32, now: Instant) {
        let before = self.rolled_back.filter(|back| back.to == lost).map_or(0, |back| back.times);
        self.rolled_back =
            Some(RollBack { to: lost, since: now.plus_nanos(2), times: before.saturating_add(1) });
        self.retransmitted = true;
    }

    /// The stamp of what is sent now.
    #[inline]
    pub(super) fn stamp_at(&self, now: Instant) -> Stamp {
        Stamp::at(self.rolled_back.map_or(now, |back| back.since.max(now)))
    }

    /// A timeout sends a packet again.
    pub(super) fn probe(&mut self, now: Instant) {
        self.rolled_back = None;
        self.probed_at = now;
        self.retransmitted = true;
    }

    /// Whether what has come after a timeout is an answer to the packet that the timeout has sent, as far as the
    /// stamp tells. If it answers an earlier packet, the timeout was too early, and nothing is lost.
    pub(super) fn answers_probe(&self, echo: Stamp) -> bool {
        echo == Stamp::NONE || echo.is_since(self.probed_at)
    }

    /// When it ends without a response.
    pub(super) fn deadline(&self) -> Instant {
        self.extended.unwrap_or(Instant::NEVER)
    }

    /// Whether the server may have the whole request.
    pub(super) fn maybe_executed(&self) -> bool {
        let sent = if mutant!(NotExecutedLie) { self.acked } else { self.ever_sent };
        sent == self.layout.packets() || mutant!(MaybeExecutedLie)
    }

    /// How the call ends if it ends now, with this cause.
    pub(super) fn error(&self, cause: Cause) -> CallError {
        match &self.response {
            // A failure does not say that the handler ran.
            Some(response) if !response.failure => CallError::ResponseLost(cause),
            _ if self.maybe_executed() => CallError::MaybeExecuted(cause),
            _ => CallError::NotExecuted(cause),
        }
    }

    /// Whether a timeout would mean something: packets are out that owe an answer, or the response is.
    pub(super) fn awaits_packets(&self) -> bool {
        match &self.response {
            Some(response) => response.asked > response.assembly.next(),
            None => self.sent > self.acked || self.patience.accepted,
        }
    }

    /// Packets of it that are to be sent, or asked for.
    pub(super) fn left(&self) -> u32 {
        match &self.response {
            Some(response) => response.assembly.layout().packets() - response.asked,
            None => self.layout.packets() - self.sent,
        }
    }

    /// Whether nothing is missing but the handler's answer, as far as one can tell.
    pub(super) fn awaits_handler(&self) -> bool {
        self.response.is_none() && self.acked + 1 >= self.layout.packets()
    }
}

/// A request slot (`SSlot` in the original).
pub(super) struct Slot {
    /// The current request's number, or the last one's.
    pub(super) number: RequestNumber,
    pub(super) call: Option<Call>,
    /// Of a call that has ended before its answer came.
    pub(super) quarantine: Option<Box<Quarantine>>,
}

impl Slot {
    pub(super) fn new(at: SlotIndex) -> Self {
        Self { number: at.number_before_first(), call: None, quarantine: None }
    }

    /// Of whatever waits for an answer in it.
    pub(super) fn patience(&mut self) -> Option<&mut Patience> {
        match (&mut self.call, &mut self.quarantine) {
            (Some(call), _) => Some(&mut call.patience),
            (None, Some(quarantine)) => Some(&mut quarantine.patience),
            (None, None) => None,
        }
    }
}

/// A session this endpoint opened.
///
/// Aligned to cache lines, so that its speed does not depend on where it happens to lie.
#[repr(align(64))]
pub(super) struct ClientSession<R> {
    pub(super) generation: u32,
    /// Packets that may be sent before one comes back.
    pub(super) credits: u16,
    /// Slots without a call or a quarantine.
    pub(super) free: SlotSet,
    /// Slots that wait for a credit.
    pub(super) starved: SlotSet,
    /// The slot whose turn it is for the next credit.
    pub(super) starved_turn: SlotIndex,
    /// How many short calls have gone before that one.
    pub(super) overtaken: u8,
    /// Slots that wait for the session's next departure.
    pub(super) paced: SlotSet,
    /// The slot whose turn it is then.
    pub(super) paced_turn: SlotIndex,
    /// Slots whose last response was large and the server is to be told that it may drop it.
    pub(super) owes_done: SlotSet,
    /// Slots of which that was told, and may have been lost.
    pub(super) told_done: SlotSet,
    /// When it was told.
    pub(super) told_at: Instant,
    /// `disconnect` was called: no new calls, `Close` when drained.
    pub(super) draining: bool,
    /// Of every packet: whether there is a trailer. None until the session is open.
    pub(super) flags: Flags,
    pub(super) state: State,
    pub(super) route: R,
    /// Where `Hello` goes. The rest goes where it was answered from, and to the port that the server names.
    pub(super) asked: R,
    /// The server's id for the session.
    pub(super) remote: ConnectionId,
    pub(super) peer: PeerIndex,
    pub(super) charges: Charges,
    pub(super) granted: u16,
    pub(super) payload: u32,
    pub(super) eager: u32,
    /// The largest datagram that an `Open` has named: the server may have noted any of them.
    pub(super) offered: u32,
    pub(super) max_request: u32,
    pub(super) rtt: RttEstimator,
    /// What this endpoint's link carries on the way to the server, in bytes per second, if it is known.
    pub(super) link_rate: Option<u64>,
    pub(super) congestion: Congestion,
    pub(super) pace: Pace,
    pub(super) last_heard: Instant,
    pub(super) last_ping: Instant,
    /// When the handshake or the closing began.
    pub(super) since: Instant,
    /// When the next handshake message or `Close` is due.
    pub(super) repeat_at: Instant,
    /// How often the current handshake message, `Close` or `Ping` went unanswered.
    pub(super) repeats: u8,
    /// What the timer is armed for; it may be armed earlier than needed, never later.
    pub(super) timer_at: Instant,
    pub(super) queue: VecDeque<NewCall>,
    /// No call that waits for a slot has an earlier deadline.
    pub(super) queue_deadline: Instant,
    pub(super) slots: Slots<Slot>,
}

impl<R> ClientSession<R> {
    /// The slot of the call that gets the next credits: each in turn what there is, which may be a burst's. Calls that need
    /// but few packets do not wait for all of those before them to have had their bursts, and go first, up to eight of them.
    pub(super) fn next_starved(&mut self) -> SlotIndex {
        /// In packets.
        const SHORT: u32 = 2;
        let head = self.starved.first_from(self.starved_turn);
        let is_short = |at: &SlotIndex| {
            let call = self.slots[*at].call.as_ref();
            self.starved.contains(*at) && call.is_some_and(|call| call.left() <= SHORT)
        };
        let next = match usize::from(self.overtaken) < WINDOW {
            true => head.circle().find(is_short).unwrap_or(head),
            false => head,
        };
        self.starved.remove(next);
        if next == head {
            self.starved_turn = head.next();
            self.overtaken = 0;
        } else {
            self.overtaken += 1;
        }
        next
    }

    /// Whether the end of a call makes no difference to others.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.starved.is_empty() && self.queue.is_empty() && !self.draining
    }

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// Whether no call is on its way or waits. Of those that have ended early, the end of the session says
    /// all that there is to say.
    pub(super) fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.slots.iter().all(|(_, slot)| slot.call.is_none())
    }

    /// After how long a silence it asks, its own part of an eighth later than configured: sessions that were opened
    /// in one instant, and calls that were accepted in one, must not ask in step.
    pub(super) fn ping_interval(&self, config: &EndpointConfig) -> Duration {
        config.ping_interval + config.ping_interval / 2_048 * (self.generation & 0xFF)
    }

    /// When the session next needs looking at, calls aside.
    pub(super) fn liveness_deadline(&self, config: &EndpointConfig) -> Instant {
        if self.last_ping > self.last_heard {
            self.last_ping + config.ping_again()
        } else {
            self.last_heard + self.ping_interval(config)
        }
    }

    /// When the silence so far will have lasted for the liveness timeout.
    pub(super) fn death(&self, config: &EndpointConfig) -> Instant {
        let halves = if mutant!(LivenessHalved) { 2 } else { 1 };
        self.last_heard + config.liveness_timeout / halves
    }
}
