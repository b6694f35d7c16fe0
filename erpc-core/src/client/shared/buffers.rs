//! Buffers of calls of shared channels.
//!
//! A small call needs one buffer: the caller encodes the request into it, the endpoint copies the
//! response into it, and the caller decodes the response and keeps the buffer for the thread's next
//! call.

use std::cell::RefCell;

use crate::buf::{MsgBuf, NoMemory};
use crate::protocol::RejectReason;

/// Largest capacity, in bytes, of a buffer that a thread keeps.
pub(super) const SMALL: usize = 4_096;
/// Smallest capacity, in bytes, of a new buffer, so that most small messages fit any kept buffer.
const ROOM: usize = 256;
/// Most buffers that a thread keeps.
const KEPT: usize = 64;

thread_local! {
    static BUFFERS: RefCell<Vec<MsgBuf>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer for at least `len` bytes.
pub(super) fn take_buffer(len: usize) -> Result<MsgBuf, RejectReason> {
    let kept = BUFFERS.try_with(|buffers| buffers.borrow_mut().pop()).ok().flatten();
    if let Some(mut buffer) = kept
        && buffer.capacity() >= len
    {
        buffer.clear();
        return Ok(buffer);
    }
    let no_memory = NoMemory { wanted: len, limit: MsgBuf::MAX_CAPACITY };
    MsgBuf::detached(len.max(ROOM)).ok_or(RejectReason::NoMemory(no_memory))
}

/// Keeps a buffer for the thread's next calls, if it is small and belongs to no pool.
pub(super) fn keep_buffer(buffer: MsgBuf) {
    if buffer.capacity() > SMALL || !buffer.is_detached() || !buffer.is_unique() {
        return;
    }
    let keep = |buffers: &RefCell<Vec<MsgBuf>>| {
        let mut buffers = buffers.borrow_mut();
        if buffers.len() < KEPT {
            buffers.push(buffer);
        }
    };
    // After the thread's locals were dropped, the buffer is freed.
    BUFFERS.try_with(keep).unwrap_or(());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_small_buffers_for_its_next_calls() {
        let first = take_buffer(10).unwrap();
        let place = first.as_slice().as_ptr();
        keep_buffer(first);
        assert_eq!(take_buffer(200).unwrap().as_slice().as_ptr(), place);
        keep_buffer(take_buffer(SMALL + 1).unwrap());
        assert_eq!(BUFFERS.with_borrow(Vec::len), 0, "a large buffer is freed");
        (0..2 * KEPT)
            .map(|_| take_buffer(1).unwrap())
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(keep_buffer);
        assert_eq!(BUFFERS.with_borrow(Vec::len), KEPT);
    }

    #[test]
    fn a_kept_buffer_that_is_too_small_is_replaced() {
        keep_buffer(take_buffer(1).unwrap());
        let large = take_buffer(2_000).unwrap();
        assert!(large.capacity() >= 2_000 && large.is_empty());
    }
}
