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
    /// It is an encoded status.
    pub(super) failure: bool,
    /// It begins with an extension.
    pub(super) extended: bool,
}

/// A response, kept to be sent again or pulled further.
pub(super) struct KeptResponse {
    response: Response,
    layout: PacketLayout,
    /// The first packet has gone out without its body, which the client pulls like any other.
    announced: bool,
    /// The server's time until the response was first sent, in nanoseconds.
    processing: u64,
    /// Response packets that were sent at least once, with their bodies.
    sent: u32,
    /// And before the response was cut again: a queue may still read their headers, which have the same places.
    sent_before: u32,
    repeated: Repeated,
    /// When the last repeated request, or the last request for one packet that was sent before, was answered.
    last_repeat: Instant,
    /// When more repeats were last allowed.
    allowed_more: Instant,
}

/// The packets that a request for response brings.
pub(super) struct Pull {
    pub(super) packets: Range<u32>,
    /// They were sent before.
    pub(super) again: bool,
}

/// The request for response that packets answer: its stamp, and how long it has waited here, in nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct PullEcho {
    pub(super) stamp: Stamp,
    pub(super) waited: u64,
}

impl PullEcho {
    /// Of packets that answer no request for response.
    pub(super) const NONE: Self = Self { stamp: Stamp::NONE, waited: 0 };
}

impl KeptResponse {
    /// A response that was not sent yet, and took `processing` nanoseconds. If `announced`, the first thing to go out is
    /// the announcement, else the first packet.
    #[inline(always)]
    pub(super) fn new(
        response: Response,
        layout: PacketLayout,
        announced: bool,
        processing: u64,
    ) -> Self {
        Self {
            response,
            layout,
            announced,
            processing,
            sent: u32::from(!announced),
            sent_before: 0,
            repeated: Repeated::default(),
            last_repeat: Instant::ZERO,
            allowed_more: Instant::ZERO,
        }
    }

    #[inline(always)]
    pub(super) fn message(&self) -> &MsgBuf {
        &self.response.message
    }

    #[inline(always)]
    pub(super) fn into_message(self) -> MsgBuf {
        self.response.message
    }

    /// Bytes of the message.
    pub(super) fn size(&self) -> u32 {
        self.layout.size()
    }

    /// Packets of another size are to be sent from now on; none was.
    pub(super) fn cut_again(&mut self, layout: PacketLayout) {
        self.layout = layout;
        self.sent_before = self.sent;
        self.sent = u32::from(!self.announced);
        self.repeated = Repeated::default();
    }

    /// Bytes of memory held.
    #[inline(always)]
    pub(super) fn footprint(&self) -> usize {
        self.response.message.footprint()
    }

    /// Sends what leaves without a request for it: the announcement, or the first packet. To send it again, reclaim before.
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
        let header =
            head.response(failure, extended, ANNOUNCEMENT, self.processing, self.layout.size());
        tx.push_bytes(head.route, ShortPacket::new(&header, &[]).as_bytes());
    }

    /// Sends packets. To send them again, reclaim before.
    #[inline]
    pub(super) fn send<R: Route, X: TxQueue<Route = R>>(
        &mut self,
        head: &mut ReplyHead<'_, R>,
        packets: Range<u32>,
        echo: PullEcho,
        tx: &mut X,
    ) {
        let Response { message, failure, extended } = &mut self.response;
        for packet in packets {
            let extended = *extended && !(mutant!(ExtendedOnce) && packet > 0);
            let (nanos, size) = match packet {
                0 => (self.processing, self.layout.size()),
                _ => (echo.waited, echo.stamp.to_u32()),
            };
            let header = head.response(*failure, extended, packet, nanos, size);
            tx.push(head.route, message.packet(packet, &header, &self.layout));
        }
    }

    /// Whether `pause` nanoseconds have passed since the response was last repeated; then it is repeated now.
    fn may_repeat(&mut self, now: Instant, pause: u64) -> bool {
        let may = now.nanos_since(self.last_repeat) >= pause.max(1);
        if may {
            self.last_repeat = now;
        }
        may || mutant!(DuplicateAlwaysAnswered)
    }

    /// Answers a packet of the request, which was answered before: the first one at once, as the response may be lost, and
    /// others when a client may have missed that answer, too. A client that goes back, which may have crossed the response,
    /// sends many.
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
            return self.send(head, 0..self.layout.packets(), PullEcho::NONE, turn.tx);
        }
        self.send_first(head, turn.tx);
    }

    /// Whether a request for this packet and later ones brings one with a number that was sent before.
    pub(super) fn has_sent(&self, packet: u32) -> bool {
        packet.min(self.sent) < self.sent.max(self.sent_before)
    }

    /// Takes a request for `count` packets from packet `from` on, in a session with so many `credits`. `pause` is the
    /// least time between two repeats that do not count.
    pub(super) fn pull(
        &mut self,
        from: u32,
        count: u32,
        credits: u16,
        now: Instant,
        pause: u64,
    ) -> Result<Pull, DropReason> {
        let Some(to) = from.checked_add(count).filter(|to| *to <= self.layout.packets()) else {
            return Err(DropReason::Overrun);
        };
        let credits = credits.min(MOST_AT_ONCE);
        let is_first = from == 0 && !self.announced;
        if is_first || count == 0 || count > u32::from(credits) {
            return Err(DropReason::Overrun);
        }
        // If the request for response before this one was lost, this one stands for both. Its credits are the client's.
        let from = from.min(self.sent);
        let count = to - from;
        if count > u32::from(credits) {
            return Err(DropReason::OutOfOrder);
        }
        let again = from < self.sent;
        let credits = credits.min(MOST_REPEATED);
        let is_probe = again && count == 1 && self.may_repeat(now, pause);
        if is_probe && now.nanos_since(self.allowed_more) >= TIMEOUT * pause.max(1) {
            self.allowed_more = now;
            self.repeated.allow_more(credits);
        }
        if again && !is_probe && !self.repeated.admits(count, self.layout.packets(), credits) {
            return Err(DropReason::Duplicate);
        }
        self.sent = to.max(self.sent);
        Ok(Pull { packets: from..to, again })
    }

    /// # Panics
    /// If something does not add up.
    pub(super) fn check_invariants(&self) {
        assert_eq!(self.layout.size() as usize, self.response.message.len(), "the layout fits");
        assert!(self.sent <= self.layout.packets(), "no packet was sent that does not exist");
        assert!(self.announced || self.sent > 0, "the first packet goes out at once");
    }
}

/// Packets that one request for response brings at most, however many credits the session has.
const MOST_AT_ONCE: u16 = 1_024;

/// Credits that count for how much of a response may be sent again.
const MOST_REPEATED: u16 = 64;

/// How many response packets the client has had sent again.
///
/// A client goes back once per position, seldom a few times, and perhaps in pieces if its credits are contended; after a
/// timeout it asks for one packet, which costs nothing here unless another one was asked for just before. Without a
/// limit, 24 bytes would bring a session's credits of full packets over and over.
///
/// If so much was lost or overtaken that the limit is reached, the client asks for one packet after each timeout. With that,
/// at most once in a client's least timeout, it may have a quarter of its session's credits once more.
#[derive(Clone, Copy, Default)]
struct Repeated(u32);

/// A client's least timeout, in pauses between two repeats that do not count.
const TIMEOUT: u64 = 4;

impl Repeated {
    /// Whether `count` packets may be sent again, of a response of so many `packets`, in a session with
    /// so many `credits`. A roll-back repeats half the credits on average; the limit has one for every
    /// second packet, and two whole ones.
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

    /// A quarter of a session's `credits` more may be sent again.
    fn allow_more(&mut self, credits: u16) {
        self.0 = self.0.saturating_sub(u32::from(credits).div_ceil(4));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_packets_are_repeated_as_half_the_credits_for_every_second_packet_and_two_whole_ones()
    {
        // 10 packets, 8 credits: 10 * (1 + 8 / 4) + 2 * 8.
        let mut repeated = Repeated::default();
        assert!(repeated.admits(40, 10, 8));
        assert!(!repeated.admits(7, 10, 8), "one too many is not counted");
        assert!(repeated.admits(6, 10, 8));
        assert!(!repeated.admits(1, 10, 8));
        assert!(Repeated(u32::MAX).admits(1, u32::MAX, 1_024), "no overflow");
    }

    #[test]
    fn each_timeout_allows_a_quarter_of_a_sessions_credits_once_more() {
        let mut repeated = Repeated::default();
        assert!(repeated.admits(46, 10, 8));
        for _ in 0..3 {
            repeated.allow_more(8);
            assert!(repeated.admits(2, 10, 8));
            assert!(!repeated.admits(1, 10, 8));
        }
    }
}
