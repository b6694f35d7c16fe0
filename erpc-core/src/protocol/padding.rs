//! Control messages that prove the size of a path: padded with zeros.

use super::turn::Turn;
use crate::transport::TxQueue;
use crate::wire::checksum::overhead;
use crate::wire::control::Control;
use crate::wire::{ConnectionId, ReplyInfo};

impl<X: TxQueue> Turn<'_, X> {
    /// Sends a message in a datagram of `datagram` bytes. Sends the message without padding if it
    /// is not shorter than `datagram`, or if the pool has no memory.
    pub(super) fn push_padded(
        &mut self,
        route: &X::Route,
        message: &Control,
        connection: ConnectionId,
        nonce: u32,
        datagram: u32,
    ) {
        let len = (datagram as usize).saturating_sub(overhead(true));
        let is_padded = datagram as usize > message.datagram_len();
        let padded = is_padded.then(|| self.endpoint.pool.alloc(len).ok()).flatten();
        let Some(mut padded) = padded else {
            let packet = message.emit(connection, nonce, ReplyInfo::default());
            return self.tx.push_bytes(route, packet.as_bytes());
        };
        padded.resize(len);
        let header = message.emit_padded(connection, nonce, padded.as_mut_slice());
        self.tx.push(route, padded.single_packet(header.to_words()));
    }
}
