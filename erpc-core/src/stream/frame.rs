//! The frame that calls of a stream carry after their extension.
//!
//! ```text
//!  0        4        8        12
//! +--------+--------+--------+------+-------+-- .. --+----------------------
//! | stream | seq    | count  | len  | item  |        | status: replies with
//! | u32    | u32    | u32    | u32  | (len) |        | END only
//! +--------+--------+--------+------+-------+-- .. --+----------------------
//! ```
//!
//! The extension's `op` is the purpose of the call. An `EMPTY` reply has nothing after its
//! extension.

use std::fmt;
use std::ops::Range;

use bytes::BufMut;

use super::BATCH;
use crate::status::{Code, Status};
use crate::wire::decode_status;

/// Bytes of the frame in front of the items.
pub const FRAME_HEAD: usize = 12;

/// Offset in the frame of the batch's number.
pub(super) const SEQ_AT: usize = 4;

/// Bytes in front of each item: its length.
pub(super) const ITEM_HEAD: usize = 4;

/// Flag in `op`: the sender has no more items after those in the message. In an `EMPTY` reply, its
/// meaning is that of [`StreamReply::Empty`].
const END: u8 = 0x80;

/// In a reply's `op`: a batch of the server's items.
const ITEMS: u8 = 1;
/// In a reply's `op`: the call is complete and carries no items.
const EMPTY: u8 = 2;

/// Purpose of a client's call of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StreamOp {
    /// Begins the stream, with the client's first items. Like a pull, OPEN also asks for a batch of
    /// the server.
    Open,
    /// Asks for the server's next batch.
    Pull,
    /// Carries a batch of the client's items.
    Push,
    /// Ends the stream now, in any state.
    Close,
}

impl StreamOp {
    /// The extension's `op` of a call with this purpose. With `end`, the client has no more items
    /// after those in the call.
    #[must_use]
    pub const fn op(self, end: bool) -> u8 {
        let op = match self {
            Self::Open => 1,
            Self::Pull => 2,
            Self::Push => 3,
            Self::Close => 4,
        };
        if end { op | END } else { op }
    }

    fn from_op(op: u8) -> Option<Self> {
        [Self::Open, Self::Pull, Self::Push, Self::Close]
            .into_iter()
            .find(|ask| ask.op(false) == op & !END)
    }

    /// Whether a call with this purpose may carry items of the client.
    #[must_use]
    pub const fn has_items(self) -> bool {
        matches!(self, Self::Open | Self::Push)
    }
}

/// The `op` of a reply with items.
pub(super) const fn items_op(end: bool) -> u8 {
    if end { ITEMS | END } else { ITEMS }
}

/// The `op` of an empty reply. With `end`, the server accepts no more items (reply to a push), or
/// sends none (reply to a pull or OPEN).
pub(super) const fn empty_op(end: bool) -> u8 {
    if end { EMPTY | END } else { EMPTY }
}

/// How the server's handler ended the stream.
pub type StreamResult = Result<(), Status>;

/// Why bytes are not a valid call of a stream, or not a valid reply to one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// The bytes end within the fixed part, an item or the status.
    Truncated,
    /// The `op` is unknown.
    Op(u8),
    /// The call carries items, an end or a batch number where its kind allows none.
    Misplaced,
    /// The number of bytes left after the last item.
    Trailing(usize),
    /// Several items that have this many bytes together, more than [`BATCH`].
    Oversized(usize),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the frame is truncated"),
            Self::Op(op) => write!(f, "the operation code {op:#04x} is unknown"),
            Self::Misplaced => {
                f.write_str("the call has items, an end or a batch number that its kind forbids")
            }
            Self::Trailing(bytes) => write!(f, "{bytes} bytes are left after the items"),
            Self::Oversized(bytes) => write!(
                f,
                "several items have {bytes} bytes together; a batch of several items may have {BATCH}"
            ),
        }
    }
}

impl std::error::Error for FrameError {}

/// Position of the items in a frame. The parser has checked the length of each item.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Items {
    /// Number of items.
    pub count: u32,
    /// Offset in the frame of the first item's length field.
    pub from: usize,
    /// Offset in the frame of the end of the last item.
    pub to: usize,
}

impl Items {
    /// Checks `count` items in `frame` from offset `from`. The cost is bounded by the bytes in the
    /// frame, not by `count`.
    fn walk(count: u32, frame: &[u8], from: usize) -> Result<Self, FrameError> {
        let mut to = from;
        for _ in 0..count {
            to = item(frame, to).ok_or(FrameError::Truncated)?.end;
        }
        if count > 1 && to - from > BATCH {
            return Err(FrameError::Oversized(to - from));
        }
        Ok(Self { count, from, to })
    }
}

/// The range of the item whose length field is at `at`; `None` if the bytes are too short.
pub(super) fn item(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let len = u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize;
    let from = at + ITEM_HEAD;
    (bytes.len() - from >= len).then(|| from..from + len)
}

/// A call of a stream, as the server parses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamRequest {
    /// Purpose of the call.
    pub ask: StreamOp,
    /// True if the client has no more items after those in this call.
    pub end: bool,
    /// Number of the stream on its session, counted from 1.
    pub stream: u32,
    /// Number of the client's batch, counted from 0; 0 in calls without a batch.
    pub seq: u32,
    /// The items of the batch.
    pub items: Items,
}

impl StreamRequest {
    /// Parses the frame after the extension of a request.
    ///
    /// # Errors
    /// [`FrameError`] if the bytes are invalid. No input makes it panic.
    pub fn parse(op: u8, frame: &[u8]) -> Result<Self, FrameError> {
        let ask = StreamOp::from_op(op).ok_or(FrameError::Op(op))?;
        let end = op & END != 0;
        let (stream, seq, items) = batch(frame)?;
        if items.to < frame.len() {
            return Err(FrameError::Trailing(frame.len() - items.to));
        }
        if !ask.has_items() && (end || seq != 0 || items.count != 0)
            || ask == StreamOp::Open && seq != 0
        {
            return Err(FrameError::Misplaced);
        }
        Ok(Self { ask, end, stream, seq, items })
    }
}

/// A reply to a call of a stream, as the client parses it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StreamReply {
    /// A batch of the server's items.
    Items {
        /// Number of the stream on its session.
        stream: u32,
        /// Number of the batch, counted from 0.
        seq: u32,
        /// The items of the batch.
        items: Items,
        /// The stream's final status, if this is the last batch.
        end: Option<StreamResult>,
    },
    /// The call is complete and carries no items.
    Empty {
        /// For a push: the server accepts no more items. For a pull or OPEN: the server sends no
        /// more items.
        end: bool,
    },
}

impl StreamReply {
    /// Parses the frame after the extension of a reply.
    ///
    /// # Errors
    /// [`FrameError`] if the bytes are invalid. No input makes it panic.
    pub fn parse(op: u8, frame: &[u8]) -> Result<Self, FrameError> {
        let end = op & END != 0;
        match op & !END {
            EMPTY if frame.is_empty() => Ok(Self::Empty { end }),
            EMPTY => Err(FrameError::Trailing(frame.len())),
            ITEMS => {
                let (stream, seq, items) = batch(frame)?;
                let rest = &frame[items.to..];
                let end = match (end, rest.is_empty()) {
                    (false, true) => None,
                    (false, false) => return Err(FrameError::Trailing(rest.len())),
                    (true, _) => Some(parse_end(rest)?),
                };
                Ok(Self::Items { stream, seq, items, end })
            }
            _ => Err(FrameError::Op(op)),
        }
    }
}

/// Parses the fixed part and the items: stream, number of the batch, items.
fn batch(frame: &[u8]) -> Result<(u32, u32, Items), FrameError> {
    let head: &[u8; FRAME_HEAD] = frame.first_chunk().ok_or(FrameError::Truncated)?;
    let [s0, s1, s2, s3, q0, q1, q2, q3, c0, c1, c2, c3] = *head;
    let stream = u32::from_le_bytes([s0, s1, s2, s3]);
    let seq = u32::from_le_bytes([q0, q1, q2, q3]);
    let count = u32::from_le_bytes([c0, c1, c2, c3]);
    Ok((stream, seq, Items::walk(count, frame, FRAME_HEAD)?))
}

/// The fixed part of a frame.
pub(super) fn frame_head(stream: u32, seq: u32, count: u32) -> [u8; FRAME_HEAD] {
    let mut head = [0; FRAME_HEAD];
    let mut rest = &mut head[..];
    rest.put_u32_le(stream);
    rest.put_u32_le(seq);
    rest.put_u32_le(count);
    head
}

/// Parses the status after the last items. The encoding is that of `Failure`, but the code may be
/// OK.
fn parse_end(bytes: &[u8]) -> Result<StreamResult, FrameError> {
    let [c0, c1, c2, c3, l0, l1, l2, l3] = *bytes.first_chunk().ok_or(FrameError::Truncated)?;
    let message = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if bytes.len() - 8 < message {
        return Err(FrameError::Truncated);
    }
    Ok(match u32::from_le_bytes([c0, c1, c2, c3]) == Code::Ok as u32 {
        true => Ok(()),
        false => Err(decode_status(bytes)),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DEGENERATE: [u8; 12] = [0; 12];

    fn frame(stream: u32, seq: u32, items: &[&[u8]], tail: &[u8]) -> Vec<u8> {
        let mut bytes = frame_head(stream, seq, items.len() as u32).to_vec();
        for item in items {
            bytes.put_u32_le(item.len() as u32);
            bytes.put_slice(item);
        }
        bytes.put_slice(tail);
        bytes
    }

    #[test]
    fn several_items_have_at_most_a_batchs_bytes_and_one_item_may_be_larger() {
        let frame = |items: &[usize]| {
            let mut frame = frame_head(1, 0, items.len() as u32).to_vec();
            for &len in items {
                frame.put_u32_le(len as u32);
                frame.resize(frame.len() + len, 0);
            }
            StreamRequest::parse(StreamOp::Push.op(false), &frame)
                .map(|request| request.items.count)
        };
        assert_eq!(frame(&[2 * BATCH]), Ok(1));
        assert_eq!(frame(&[BATCH - 8, 0]), Ok(2));
        assert_eq!(frame(&[BATCH - 8, 1]), Err(FrameError::Oversized(BATCH + 1)));
        assert_eq!(frame(&[1, 2 * BATCH, 1]), Err(FrameError::Oversized(2 * BATCH + 14)));
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let bytes = frame(1, 2, &[b"abc", b""], b"");
        assert_eq!(bytes, b"\x01\0\0\0\x02\0\0\0\x02\0\0\0\x03\0\0\0abc\0\0\0\0");
        let items = Items { count: 2, from: 12, to: bytes.len() };
        let request = StreamRequest { ask: StreamOp::Push, end: true, stream: 1, seq: 2, items };
        assert_eq!(StreamRequest::parse(0x83, &bytes), Ok(request));
        let reply = StreamReply::Items { stream: 1, seq: 2, items, end: None };
        assert_eq!(StreamReply::parse(1, &bytes), Ok(reply));
        assert_eq!(StreamReply::parse(0x82, b""), Ok(StreamReply::Empty { end: true }));
    }

    #[test]
    fn an_end_has_a_status() {
        let parsed = |tail: &[u8]| match StreamReply::parse(0x81, &frame(1, 0, &[b"x"], tail)) {
            Ok(StreamReply::Items { end, items, .. }) => (items.count == 1).then_some(end.unwrap()),
            _ => None,
        };
        assert_eq!(parsed(&[0; 8]), Some(Ok(())));
        let failed = Status::not_found("no").with_details(b"d");
        assert_eq!(parsed(b"\x05\0\0\0\x02\0\0\0nod"), Some(Err(failed)));
        assert_eq!(parsed(&[0; 7]), None);
        assert_eq!(parsed(b"\x05\0\0\0\x03\0\0\0no"), None);
    }

    #[test]
    fn each_fault_has_its_own_error() {
        let fault = |op, bytes: &[u8]| StreamRequest::parse(op, bytes).unwrap_err();
        for op in [0, 5, 0x7F, 0x80, 0xFF] {
            assert_eq!(fault(op, &DEGENERATE), FrameError::Op(op));
        }
        let push = frame(1, 0, &[b"abc"], b"");
        for len in 0..push.len() {
            assert_eq!(fault(3, &push[..len]), FrameError::Truncated, "{len}");
        }
        assert_eq!(fault(3, &frame(1, 0, &[], b"12")), FrameError::Trailing(2));
        for op in [2, 4] {
            assert_eq!(fault(op, &push), FrameError::Misplaced);
            assert_eq!(fault(op | 0x80, &DEGENERATE), FrameError::Misplaced);
            assert_eq!(fault(op, &frame(1, 1, &[], b"")), FrameError::Misplaced);
        }
        assert_eq!(fault(1, &frame(1, 1, &[], b"")), FrameError::Misplaced, "OPEN has batch 0");
        assert_eq!(StreamReply::parse(3, b""), Err(FrameError::Op(3)));
        assert_eq!(StreamReply::parse(2, b"1"), Err(FrameError::Trailing(1)));
        assert_eq!(StreamReply::parse(1, &frame(1, 0, &[], b"1")), Err(FrameError::Trailing(1)));
    }

    #[test]
    fn a_huge_item_count_costs_no_more_than_the_bytes_of_the_frame() {
        // The count claims 4,000,000,000 items; the frame has 1,000 empty ones.
        let mut bytes = frame_head(1, 0, 4_000_000_000).to_vec();
        bytes.resize(FRAME_HEAD + 4_000, 0);
        assert_eq!(StreamRequest::parse(3, &bytes), Err(FrameError::Truncated));
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_parser_panic(op: u8, bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _request = StreamRequest::parse(op, &bytes);
            let _reply = StreamReply::parse(op, &bytes);
            let _end = StreamReply::parse(0x81, &bytes);
        }
    }
}
