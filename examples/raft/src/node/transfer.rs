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

/// Snapshots that arrive: one from each sender.
#[derive(Default)]
pub(super) struct Arriving {
    from: BTreeMap<NodeId, (u64, Vec<u8>)>,
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
        if piece.offset == 0 {
            // One at a time: a node has one leader, and the memory is bounded.
            self.from.clear();
            self.from.insert(piece.from, (piece.transfer, Vec::new()));
        }
        let Some((transfer, bytes)) = self.from.get_mut(&piece.from) else {
            return Err("the transfer has not begun");
        };
        if *transfer != piece.transfer || bytes.len() as u64 != piece.offset {
            return Err("the piece does not follow the one before");
        }
        bytes.extend_from_slice(&piece.data);
        if bytes.len() as u64 != piece.total {
            return Ok(None);
        }
        let whole = self.from.remove(&piece.from).map(|(_, bytes)| bytes.into());
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
}
