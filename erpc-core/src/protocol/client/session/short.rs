//! Calls whose responses are likely to be short reserve less room.
//!
//! A server sends up to `eager` bytes of a response without being asked, so a call reserves room for
//! them. With the default limit, 256 such reservations fill the room, although most responses of
//! most services are much shorter. The answer to a request in small packets begins with a small
//! packet. So while room is scarce, calls are cut into small packets if the session's responses have
//! been short: many times as many calls then fit the room. If a response turns out to be long, the
//! client pulls the rest of it, in small packets. That takes longer, so later calls are cut into
//! large packets again for a while.

use super::OpenSession;
use crate::mutants::mutant;
use crate::protocol::client::lines::Lines;
use crate::time::Instant;
use crate::transport::Route;

/// For this time after a long response, in ns, further long responses are expected. Such a response
/// costs up to 64 times as many packets in small packets as in large ones. A wrong guess costs all
/// calls that were sent before the first long response arrives, at most once per second and session.
const REMEMBERED: u64 = 1_000_000_000;

/// What the responses of a session so far say about the length of the next ones. A response is
/// *short* if it fits a small packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseLengths {
    /// Responses are expected to be long until then; [`Instant::NEVER`] before the first response.
    long_until: Instant,
}

impl ResponseLengths {
    pub(super) const UNKNOWN: Self = Self { long_until: Instant::NEVER };

    /// A short response has arrived.
    #[inline(always)]
    pub(super) fn note_short(&mut self) {
        if self.long_until == Instant::NEVER {
            self.long_until = Instant::ZERO;
        }
    }

    /// A response has arrived.
    pub(super) fn note(&mut self, now: Instant, is_short: bool) {
        if is_short {
            self.note_short();
        } else if !mutant!(LongResponseForgotten) {
            self.long_until = now.plus_nanos(REMEMBERED);
        }
    }

    /// Whether the next responses are likely to be short.
    fn are_short(&self, now: Instant) -> bool {
        self.long_until <= now
    }
}

impl<R: Route> OpenSession<R> {
    /// Whether a new call with a request of `size` bytes is cut into large packets.
    #[inline(always)]
    pub(super) fn cuts_large(&self, now: Instant, lines: &Lines<R>, size: usize) -> bool {
        self.flags.large() && !(lines.is_room_scarce() && self.saves_room(now, size))
    }

    /// Whether a call with a request of `size` bytes reserves less room in small packets, and its
    /// response is likely to be short. New calls are cut into large packets otherwise.
    #[inline(never)]
    fn saves_room(&self, now: Instant, size: usize) -> bool {
        size <= self.other_cut.payload as usize
            && self.other_cut.charges.eager_reply() < self.cut.charges.eager_reply()
            && self.response_lengths.are_short(now)
    }
}
