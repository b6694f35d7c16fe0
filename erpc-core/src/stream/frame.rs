//! What the calls of a stream carry behind their extension.
//!
//! ```text
//!  0        4        8        12
//! +--------+--------+--------+------+-------+-- .. --+----------------------
//! | stream | seq    | count  | len  | item  |        | status: replies with
//! | u32    | u32    | u32    | u32  | (len) |        | END only
//! +--------+--------+--------+------+-------+-- .. --+----------------------
//! ```
//!
//! What the call is for stands in the extension's `op`. An `EMPTY` reply has nothing behind its extension.

use std::fmt;
use std::ops::Range;

use bytes::BufMut;

use super::BATCH;
use crate::status::{Code, Status};
use crate::wire::decode_status;

/// Bytes in front of the items.
pub const FRAME_HEAD: usize = 12;

/// Bytes in front of each item.
pub(super) const ITEM_HEAD: usize = 4;

/// In `op`: no items of this side come after these.
const END: u8 = 0x80;

/// In a reply's `op`: a batch of the server's items.
const ITEMS: u8 = 1;
/// In a reply's `op`: the call is done with and brings nothing.
const EMPTY: u8 = 2;

/// What a client's call of a stream asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StreamOp {
    /// To begin the stream, with the client's first items. Waits for the server's first, as a pull does.
    Open,
    /// The server's next batch.
    Pull,
    /// To take a batch of the client's.
    Push,
    /// To end the stream now, wherever it is.
    Close,
}

impl StreamOp {
    /// The extension's `op` of such a call; with `end`, no items come after these.
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

    /// Whether such a call brings items of the client's.
    #[must_use]
    pub const fn has_items(self) -> bool {
        matches!(self, Self::Open | Self::Push)
    }
}

/// The `op` of a reply with items.
pub(super) const fn items_op(end: bool) -> u8 {
    if end { ITEMS | END } else { ITEMS }
}

/// The `op` of an empty reply; with `end`, the server takes no more items.
pub(super) const fn empty_op(end: bool) -> u8 {
    if end { EMPTY | END } else { EMPTY }
}

/// How the server's half of a stream ended.
pub type StreamResult = Result<(), Status>;

/// Why bytes are no call of a stream, or no reply to one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// The bytes end within the fixed part, an item or the status.
    Truncated,
    /// Nothing is known by that `op`.
    Op(u8),
    /// The call has no place for items, or for an end, and brings them.
    Misplaced,
    /// So many bytes are left behind the last item.
    Trailing(usize),
    /// Several items that take so many bytes, more than [`BATCH`].
    Oversized(usize),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("it is cut short"),
            Self::Op(op) => write!(f, "nothing has the code {op:#04x}"),
            Self::Misplaced => {
                f.write_str("it brings items or an end where there is no place for them")
            }
            Self::Trailing(bytes) => write!(f, "{bytes} bytes are left behind the items"),
            Self::Oversized(bytes) => write!(
                f,
                "several items have {bytes} bytes together; one may have as many, a batch of them {BATCH}"
            ),
        }
    }
}

impl std::error::Error for FrameError {}

/// Items within a frame: how many, and the bytes that they take. Their lengths add up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Items {
    /// How many there are.
    pub count: u32,
    /// Bytes of the frame in front of the first.
    pub from: usize,
    /// Bytes of the frame up to the end of the last.
    pub to: usize,
}

impl Items {
    /// Walks over `count` items in `frame`, from `from` on. A count that is not covered by bytes costs no
    /// more than the bytes do.
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

/// The item whose length stands at `at`.
pub(super) fn item(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let len = u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize;
    let from = at + ITEM_HEAD;
    (bytes.len() - from >= len).then(|| from..from + len)
}

/// A call of a stream, as its server reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamRequest {
    /// What it asks for.
    pub ask: StreamOp,
    /// No items of the client's come after these.
    pub end: bool,
    /// Which stream of the session, counted from 1.
    pub stream: u32,
    /// Which batch of the client's, counted from 0; 0 in calls that bring none.
    pub seq: u32,
    /// The batch.
    pub items: Items,
}

impl StreamRequest {
    /// Reads the frame behind the extension of a request.
    ///
    /// # Errors
    /// [`FrameError`]; no bytes make it panic.
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

/// A reply to a call of a stream, as its client reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StreamReply {
    /// A batch of the server's items.
    Items {
        /// Which stream of the session.
        stream: u32,
        /// Which batch, counted from 0.
        seq: u32,
        /// The batch.
        items: Items,
        /// How the stream ends with it, if it does.
        end: Option<StreamResult>,
    },
    /// The call is done with and brings nothing.
    Empty {
        /// The server takes no more items, or sends no more, whichever the call was about.
        end: bool,
    },
}

impl StreamReply {
    /// Reads the frame behind the extension of a reply.
    ///
    /// # Errors
    /// [`FrameError`]; no bytes make it panic.
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

/// The fixed part and the items.
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

/// The status behind the last items, as `Failure`s carry it, but that it may be OK.
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
    fn several_items_are_a_batch_at_most_and_one_may_be_larger() {
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
    fn each_fault_has_its_name() {
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
    fn an_absurd_count_costs_no_more_than_the_bytes_do() {
        // 4,000,000,000 items claimed, 1,000 empty ones there.
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
