//! A response that its slot keeps until the client confirms it.

use std::ops::Range;

use super::reply::ReplyHead;
use crate::buf::MsgBuf;
use crate::mutants::mutant;
use crate::protocol::stats::DropReason;
use crate::protocol::turn::Turn;
use crate::time::Instant;
use crate::transport::{Route, TxQueue};
use crate::wire::{ANNOUNCEMENT, PacketLayout, ShortPacket, Stamp};

/// A response or a status, before it is cut into packets.
pub(super) struct Response {
    pub(super) message: MsgBuf,
    /// The message is an encoded status.
    pub(super) failure: bool,
    /// The message begins with an extension.
    pub(super) extended: bool,
}

/// A response that the client may still pull, or need again.
///
/// Most responses are one packet, which the server sends once. They need only the fields of this
/// struct, which fit a cache line with the rest of the slot.
pub(super) struct KeptResponse {
    response: Response,
    /// The response was announced: the server sent its header without a body. The client pulls the
    /// first packet like any other.
    announced: bool,
    /// Time from the arrival of the complete request until the response was first sent, in
    /// nanoseconds.
    processing: u64,
    /// `None` while the response is one packet, of which nothing was sent again or pulled.
    pulls: Option<Box<Pulls>>,
}

/// What was sent of a response that has several packets, was sent again, or was pulled.
struct Pulls {
    layout: PacketLayout,
    /// Number of response packets that were sent at least once, with their bodies.
    sent: u32,
    /// The value of `sent` just before the response was cut into packets of another size; 0 if that
    /// has not happened. The transmit queue may still read the headers of the old packets, and the
    /// headers of the new packets are written to the same memory. So a new packet whose number is
    /// lower than this value may be sent only after a reclaim.
    sent_before: u32,
    repeated: Repeated,
    /// When the server last answered a repeated request, or a pull of one packet that was sent
    /// before.
    last_repeat: Instant,
    /// When the limit on repeats was last raised.
    allowed_more: Instant,
}

/// The packets that answer a request for response.
pub(super) struct Pull {
    pub(super) packets: Range<u32>,
    /// Whether some of `packets` were sent before.
    pub(super) again: bool,
}

/// The request for response that a packet answers: its stamp, and how long it waited in this
/// endpoint, in nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct PullEcho {
    pub(super) stamp: Stamp,
    pub(super) waited: u64,
}

impl PullEcho {
    /// For packets that answer no request for response.
    pub(super) const NONE: Self = Self { stamp: Stamp::NONE, waited: 0 };
}

impl KeptResponse {
    /// A response that was not sent yet, and took `processing` nanoseconds. If `announced`, the
    /// announcement is sent first, otherwise the first packet.
    #[inline]
    pub(super) fn new(
        response: Response,
        layout: PacketLayout,
        announced: bool,
        processing: u64,
    ) -> Self {
        let mut kept = Self { response, announced, processing, pulls: None };
        if layout.packets() > 1 {
            kept.pulls().layout = layout;
        }
        kept
    }

    /// A response of one packet, which took `processing` nanoseconds and has just been sent.
    #[inline(always)]
    pub(super) fn single(message: MsgBuf, processing: u64) -> Self {
        let response = Response { message, failure: false, extended: false };
        Self { response, announced: false, processing, pulls: None }
    }

    /// What was sent of the response.
    fn pulls(&mut self) -> &mut Pulls {
        let (layout, sent) = (self.layout(), self.sent());
        self.pulls.get_or_insert_with(|| {
            Box::new(Pulls {
                layout,
                sent,
                sent_before: 0,
                repeated: Repeated::default(),
                last_repeat: Instant::ZERO,
                allowed_more: Instant::ZERO,
            })
        })
    }

    fn layout(&self) -> PacketLayout {
        match &self.pulls {
            None => PacketLayout::single(self.response.message.len() as u32),
            Some(pulls) => pulls.layout,
        }
    }

    fn sent(&self) -> u32 {
        self.pulls.as_ref().map_or(u32::from(!self.announced), |pulls| pulls.sent)
    }

    #[inline(always)]
    pub(super) fn message(&self) -> &MsgBuf {
        &self.response.message
    }

    /// Whether the response is one packet, of which nothing was sent again or pulled.
    #[inline(always)]
    pub(super) fn is_single(&self) -> bool {
        self.pulls.is_none()
    }

    /// The message of a [single](Self::is_single) response.
    #[inline(always)]
    pub(super) fn into_single(self) -> MsgBuf {
        debug_assert!(self.is_single());
        // Nothing to drop: `forget` saves the check.
        std::mem::forget(self.pulls);
        self.response.message
    }

    #[inline]
    pub(super) fn into_message(self) -> MsgBuf {
        self.response.message
    }

    /// Bytes of the message.
    pub(super) fn size(&self) -> u32 {
        self.response.message.len() as u32
    }

    /// Cuts the response into packets of another size. Of the new packets, only the first counts as
    /// sent, because the client gets it without a pull. If the response was announced, none does.
    pub(super) fn cut_again(&mut self, layout: PacketLayout) {
        let first = u32::from(!self.announced);
        let pulls = self.pulls();
        pulls.layout = layout;
        pulls.sent_before = pulls.sent;
        pulls.sent = first;
        pulls.repeated = Repeated::default();
    }

    /// Bytes of memory held.
    #[inline(always)]
    pub(super) fn footprint(&self) -> usize {
        self.response.message.footprint()
    }

    /// Sends the packet that needs no request for response: the announcement or the first packet.
    /// Before a repeat, the caller must [`reclaim`](Turn::reclaim) the message.
    #[inline]
    pub(super) fn send_first<R: Route, X: TxQueue<Route = R>>(
        &mut self,
        head: &mut ReplyHead<'_, R>,
        tx: &mut X,
    ) {
        if !self.announced {
            return self.send(head, 0..1, PullEcho::NONE, tx);
        }
        let Response { failure, extended, .. } = self.response;
        let header = head.response(failure, extended, ANNOUNCEMENT, self.processing, self.size());
        tx.push_bytes(head.route, ShortPacket::new(&header, &[]).as_bytes());
    }

    /// Sends packets. Before a repeat, the caller must [`reclaim`](Turn::reclaim) the message.
    #[inline]
    pub(super) fn send<R: Route, X: TxQueue<Route = R>>(
        &mut self,
        head: &mut ReplyHead<'_, R>,
        packets: Range<u32>,
        echo: PullEcho,
        tx: &mut X,
    ) {
        let layout = self.layout();
        let Response { message, failure, extended } = &mut self.response;
        for packet in packets {
            let extended = *extended && !(mutant!(ExtendedOnce) && packet > 0);
            let (nanos, size) = match packet {
                0 => (self.processing, layout.size()),
                _ => (echo.waited, echo.stamp.to_u32()),
            };
            let header = head.response(*failure, extended, packet, nanos, size);
            tx.push(head.route, message.packet(packet, &header, &layout));
        }
    }

    /// Whether at least `pause` nanoseconds have passed since the response was last repeated. If
    /// so, a repeat at `now` is recorded.
    fn may_repeat(&mut self, now: Instant, pause: u64) -> bool {
        let pulls = self.pulls();
        let may = now.nanos_since(pulls.last_repeat) >= pause.max(1);
        if may {
            pulls.last_repeat = now;
        }
        may || mutant!(DuplicateAlwaysAnswered)
    }

    /// Answers a repeated packet of the request. The first repeat is answered, because the response
    /// may be lost. A further repeat is answered only if a pause has passed since the last answer,
    /// in case that answer was lost, too. Most repeats need no answer: a client that rolls back
    /// sends many, and the response may have been on its way when the client sent them.
    pub(super) fn send_again<R: Route, X: TxQueue<Route = R>>(
        &mut self,
        head: &mut ReplyHead<'_, R>,
        turn: &mut Turn<'_, X>,
    ) {
        let pause = turn.endpoint.repeat_pause();
        if !self.may_repeat(turn.now, pause) || mutant!(AnnouncedOnce) && self.announced {
            return;
        }
        if !self.announced && !turn.reclaim(self.message()) {
            return;
        }
        turn.endpoint.stats.repeated_responses += 1;
        if mutant!(RepeatAnsweredInFull) {
            return self.send(head, 0..self.layout().packets(), PullEcho::NONE, turn.tx);
        }
        self.send_first(head, turn.tx);
    }

    /// Whether a pull from `packet` on resends a packet number that was sent before.
    pub(super) fn has_sent(&self, packet: u32) -> bool {
        let sent = self.sent();
        let sent_before = self.pulls.as_ref().map_or(0, |pulls| pulls.sent_before);
        packet.min(sent) < sent.max(sent_before)
    }

    /// Handles a pull of `count` packets from packet `from` on, in a session with `credits`
    /// credits. `pause` is the minimum time between two repeats of one packet that do not count
    /// against the limit, in nanoseconds.
    pub(super) fn pull(
        &mut self,
        from: u32,
        count: u32,
        credits: u16,
        now: Instant,
        pause: u64,
    ) -> Result<Pull, DropReason> {
        let packets = self.layout().packets();
        let Some(mut to) = from.checked_add(count) else { return Err(DropReason::Overrun) };
        if from == 1 {
            // The client may have asked before it knew the length.
            to = to.min(packets);
        }
        if to > packets {
            return Err(DropReason::Overrun);
        }
        let credits = credits.min(MOST_AT_ONCE);
        let is_first = from == 0 && !self.announced;
        if is_first || count == 0 || count > u32::from(credits) {
            return Err(DropReason::Overrun);
        }
        if to <= from {
            return Ok(Pull { packets: to..to, again: false });
        }
        // The previous pull may have been lost: then this pull covers the packets of both. The
        // client accounts for the credits of both.
        let sent = self.sent();
        let from = from.min(sent);
        let count = to - from;
        if count > u32::from(credits) {
            return Err(DropReason::OutOfOrder);
        }
        let again = from < sent;
        let credits = credits.min(MOST_REPEATED);
        let is_probe = again && count == 1 && self.may_repeat(now, pause);
        let pulls = self.pulls();
        if is_probe && now.nanos_since(pulls.allowed_more) >= TIMEOUT * pause.max(1) {
            pulls.allowed_more = now;
            pulls.repeated.allow_more(credits);
        }
        if again && !is_probe && !pulls.repeated.admits(count, packets, credits) {
            return Err(DropReason::Duplicate);
        }
        pulls.sent = to.max(sent);
        Ok(Pull { packets: from..to, again })
    }

    /// # Panics
    /// If an invariant does not hold.
    pub(super) fn check_invariants(&self) {
        assert_eq!(self.layout().size(), self.size(), "the layout has the size of the message");
        assert!(self.sent() <= self.layout().packets(), "only packets of the response were sent");
        assert!(
            self.announced || self.sent() > 0,
            "the first packet was sent unless it was announced"
        );
    }
}

/// Maximum number of packets that answer one request for response, however many credits the session
/// has.
pub(super) const MOST_AT_ONCE: u16 = 1_024;

/// Cap on the credits from which the limit on repeats is computed.
const MOST_REPEATED: u16 = 64;

/// The number of response packets that were sent again and count against a limit.
///
/// A client rolls back once per lost packet, seldom several times. If other calls use the session's
/// credits, it pulls the packets again in several parts. After a timeout it asks for one packet.
/// This packet does not count against the limit, unless the server repeated another packet less
/// than a pause before. Without a limit, a pull of 24 bytes could make the server send a full
/// packet per credit of the session, again and again.
///
/// If loss or reordering exhausts the limit, the client asks for one packet after each timeout.
/// Then the server allows a quarter of the session's credits again, at most once per minimum client
/// timeout.
#[derive(Clone, Copy, Default)]
struct Repeated(u32);

/// A client's minimum timeout, in pauses (see `EndpointState::repeat_pause`).
const TIMEOUT: u64 = 4;

impl Repeated {
    /// Whether `count` packets may be sent again, of a response of `packets` packets, in a session
    /// with `credits` credits. Counts them if so. A roll-back repeats half the credits on average.
    /// The limit allows one roll-back per two packets, each packet once more, and twice the
    /// credits.
    fn admits(&mut self, count: u32, packets: u32, credits: u16) -> bool {
        let sum = self.0.saturating_add(count);
        let credits = u32::from(credits);
        let limit = packets.saturating_mul(1 + credits / 4).saturating_add(2 * credits);
        let admitted = sum <= limit;
        if admitted {
            self.0 = sum;
        }
        admitted
    }

    /// Raises the limit by a quarter of a session's `credits`.
    fn allow_more(&mut self, credits: u16) {
        self.0 = self.0.saturating_sub(u32::from(credits).div_ceil(4));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_limited_by_packets_and_credits() {
        // 10 packets, 8 credits: 10 * (1 + 8 / 4) + 2 * 8.
        let mut repeated = Repeated::default();
        assert!(repeated.admits(40, 10, 8));
        assert!(!repeated.admits(7, 10, 8), "a refused repeat is not counted");
        assert!(repeated.admits(6, 10, 8));
        assert!(!repeated.admits(1, 10, 8));
        assert!(Repeated(u32::MAX).admits(1, u32::MAX, 1_024), "no overflow");
    }

    #[test]
    fn each_timeout_allows_a_quarter_of_the_credits_again() {
        let mut repeated = Repeated::default();
        assert!(repeated.admits(46, 10, 8));
        for _ in 0..3 {
            repeated.allow_more(8);
            assert!(repeated.admits(2, 10, 8));
            assert!(!repeated.admits(1, 10, 8));
        }
    }
}
