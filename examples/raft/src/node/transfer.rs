//! Snapshots to and from other nodes, piece by piece.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use erpc::{CallOptions, RetryPolicy, Transport};

use crate::consensus::NodeId;
use crate::proto::{LocalPeerClient, Piece};

/// Bytes of a piece.
const PIECE: usize = 256 << 10;
/// The time for a piece.
const DEADLINE: Duration = Duration::from_secs(2);
/// The longest snapshot that is received.
const LONGEST: u64 = 16 << 30;
/// Senders at a time. The one that has sent nothing for the longest time makes room.
const SENDERS: usize = 8;

/// Sends a snapshot. Returns whether it has arrived.
pub(super) async fn send<T: Transport>(
    client: LocalPeerClient<T>,
    head: Piece,
    data: Bytes,
    letter: Bytes,
) -> bool {
    let client = client.with(CallOptions::new().deadline(DEADLINE).retry(RetryPolicy::never()));
    let total = data.len();
    let mut offset = 0;
    loop {
        let end = total.min(offset + PIECE);
        let mut piece = head.clone();
        (piece.offset, piece.total) = (offset as u64, total as u64);
        piece.data = data.slice(offset..end);
        if end == total {
            piece.letter = letter.clone();
        }
        if client.install(piece).await.is_err() {
            return false;
        }
        if end == total {
            return true;
        }
        offset = end;
    }
}

/// Snapshots that arrive: one from each sender, and only from a few senders. With Raft it is the leader;
/// with Omni-Paxos, all others may send their logs to a candidate.
#[derive(Default)]
pub(super) struct Arriving {
    from: BTreeMap<NodeId, Transfer>,
    /// Pieces so far.
    pieces: u64,
}

struct Transfer {
    number: u64,
    bytes: Vec<u8>,
    /// The number of its last piece, among all pieces.
    last: u64,
}

impl Arriving {
    /// A piece has arrived. Returns the whole snapshot and its message if it was the last one.
    ///
    /// # Errors
    /// If the piece does not fit; the text says why.
    pub(super) fn piece(&mut self, piece: &Piece) -> Result<Option<(Bytes, Bytes)>, &'static str> {
        let end = piece.offset.checked_add(piece.data.len() as u64);
        if piece.total > LONGEST || end.is_none_or(|end| end > piece.total) {
            return Err("the piece is not within its snapshot");
        }
        self.pieces += 1;
        let last = self.pieces;
        if piece.offset == 0 {
            self.from.remove(&piece.from);
            while self.from.len() >= SENDERS {
                let idle = self.from.iter().min_by_key(|(_, transfer)| transfer.last);
                let Some(idle) = idle.map(|(sender, _)| *sender) else { break };
                self.from.remove(&idle);
            }
            let begun = Transfer { number: piece.transfer, bytes: Vec::new(), last };
            self.from.insert(piece.from, begun);
        }
        let Some(transfer) = self.from.get_mut(&piece.from) else {
            return Err("the transfer has not begun");
        };
        if transfer.number != piece.transfer || transfer.bytes.len() as u64 != piece.offset {
            return Err("the piece does not follow the one before");
        }
        transfer.bytes.extend_from_slice(&piece.data);
        transfer.last = last;
        if transfer.bytes.len() as u64 != piece.total {
            return Ok(None);
        }
        let whole = self.from.remove(&piece.from).map(|transfer| transfer.bytes.into());
        Ok(whole.map(|data| (data, piece.letter.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::{Arriving, Piece};

    fn piece(transfer: u64, offset: u64, data: &'static [u8]) -> Piece {
        let (data, letter) = (data.into(), "letter".into());
        Piece { from: 1, transfer, offset, total: 6, data, letter, ..Piece::default() }
    }

    #[test]
    fn pieces_in_order_make_a_snapshot() {
        let mut arriving = Arriving::default();
        assert_eq!(arriving.piece(&piece(7, 0, b"abc")), Ok(None));
        assert!(arriving.piece(&piece(7, 0, b"abc")).is_ok(), "it begins anew");
        assert!(arriving.piece(&piece(8, 3, b"xyz")).is_err(), "of another transfer");
        assert!(arriving.piece(&piece(7, 4, b"xy")).is_err(), "one byte is missing");
        assert!(arriving.piece(&piece(7, 3, b"defg")).is_err(), "too long");
        assert_eq!(
            arriving.piece(&piece(7, 3, b"def")),
            Ok(Some(("abcdef".into(), "letter".into())))
        );
        assert!(arriving.piece(&piece(7, 3, b"def")).is_err(), "it is complete");
    }

    #[test]
    fn transfers_of_several_senders_do_not_disturb_each_other() {
        let mut arriving = Arriving::default();
        let from = |from, offset, data| Piece { from, ..piece(7, offset, data) };
        for sender in 1..=8 {
            assert_eq!(arriving.piece(&from(sender, 0, b"abc")), Ok(None));
        }
        assert!(arriving.piece(&from(1, 3, b"def")).is_ok_and(|whole| whole.is_some()));
        for sender in [9, 10] {
            assert_eq!(arriving.piece(&from(sender, 0, b"abc")), Ok(None));
        }
        assert!(arriving.piece(&from(2, 3, b"def")).is_err(), "it was idle, and made room");
        assert!(arriving.piece(&from(3, 3, b"def")).is_ok_and(|whole| whole.is_some()));
    }
}
