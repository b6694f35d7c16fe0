//! Headers of the packets with which a server session replies.

use crate::wire::{
    ConnectionId, Flags, Header, Kind, PacketNumber, ReplyInfo, RequestNumber, ShortPacket,
};

use super::receiving::CreditReturn;
use crate::mutants::mutant;

/// The common part of all replies to one request.
pub(super) struct ReplyHead<'s, R> {
    pub(super) route: &'s R,
    pub(super) connection: ConnectionId,
    pub(super) flags: Flags,
    pub(super) request: RequestNumber,
    /// The window that replies carry.
    pub(super) window: ReplyInfo,
    /// Whether the next reply must echo a congestion mark. The reply clears it.
    pub(super) marked: &'s mut bool,
}

/// The processing time of `nanos` nanoseconds that a reply tells.
#[inline(always)]
pub(super) fn told(nanos: u64) -> u64 {
    if mutant!(HandlerTimeUntold) { 0 } else { nanos }
}

impl<R> ReplyHead<'_, R> {
    #[inline(always)]
    fn header(&mut self, kind: Kind, packet: u32, nanos: u64, size: u32) -> Header {
        Header {
            connection: self.connection,
            kind,
            packet: PacketNumber::new(packet),
            request: self.request,
            aux: self.window.after(told(nanos)).with_mark(std::mem::take(self.marked)).to_u32(),
            size,
            flags: self.flags,
        }
    }

    /// The header of a response packet. The server needed `nanos` nanoseconds for the response.
    #[inline(always)]
    pub(super) fn response(
        &mut self,
        failure: bool,
        extended: bool,
        packet: u32,
        nanos: u64,
        size: u32,
    ) -> Header {
        let kind = if failure { Kind::Failure } else { Kind::Response };
        let flags = self.flags.and_extended(extended);
        Header { flags, ..self.header(kind, packet, nanos, size) }
    }

    /// Tells the client that the request has been executing for `nanos` nanoseconds. Answers packet
    /// number `packet` of the request.
    pub(super) fn accepted(&mut self, packet: u32, nanos: u64) -> ShortPacket {
        ShortPacket::new(&self.header(Kind::Accepted, packet, nanos, 0), &[])
    }

    /// Returns credits for packets that waited in this endpoint for at most `waited` nanoseconds.
    pub(super) fn credit_return(&mut self, credit: CreditReturn, waited: u64) -> ShortPacket {
        let size = credit.echo.to_u32() | u32::from(credit.gap);
        ShortPacket::new(&self.header(Kind::CreditReturn, credit.next, waited, size), &[])
    }
}
