//! Streams: many messages in each direction, built on calls. This module does no input or output.
//!
//! A stream has a session to itself, and everything that it sends is a call of that session. The
//! client *pushes* batches of its items and *pulls* the server's batches. A push is answered when
//! the handler takes its batch, and a pull waits at the server until the server has items. So the
//! reader sets the pace in both directions. The calls provide retransmission and integrity, and
//! the numbers of the batches provide the order. There is only one kind of stream: if a method
//! streams in one direction only, the other direction has one item.
//!
//! ```text
//!   client                                server
//!     OPEN 0 [a b c]           ->           starts the handler; waits there as the first pull
//!     PUSH 1 [d e] end         ->           answered EMPTY when the handler takes the batch
//!                              <-           ITEMS 0 [x y], the answer to OPEN
//!     PULL                     ->           waits
//!                              <-           ITEMS 1 [z] end, status
//! ```
//!
//! [`StreamClient`] and [`StreamServer`] are the two ends. The caller passes received calls and
//! replies to its end, and asks the end what to send next ([`StreamClient::poll_call`],
//! [`StreamServer::poll_answer`]). Both ends use no session, thread or clock, and treat items as
//! plain bytes. Items to send are gathered in a [`MsgBuf`](crate::buf::MsgBuf) in wire form.
//! Received items are read in place from the `MsgBuf` that brought them ([`Batch`]).
//!
//! # Bounds
//!
//! The largest number of batches that one stream has in memory. A batch has at most [`BATCH`]
//! bytes, or one larger item:
//!
//! ```text
//!   server's items    3 pulled, or unread at the client ([`MAX_PULLS`])
//!                   + 1 being gathered at the server
//!   client's items    2 in flight, or unread at the server ([`MAX_PUSHES`]), and the one in OPEN
//!                   + 1 being gathered at the client
//! ```
//!
//! A peer that breaks these rules is refused: a batch of several items must not be larger, and a
//! peer must not send more than [`MAX_UNREAD`] batches that are unread. Calls that arrive before
//! their stream is open are limited to the number of the session's slots ([`MAX_HELD`]).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod batch;
mod client;
mod frame;
mod inbox;
mod outbox;
mod server;
#[cfg(test)]
mod tests;

pub use batch::Batch;
pub use client::{ClientNext, StreamClient};
pub use frame::{
    FRAME_HEAD, FrameError, Items, StreamOp, StreamReply, StreamRequest, StreamResult,
};
pub use server::{Effect, ServerNext, StreamAnswer, StreamServer};

/// Bytes of items at which a batch is full. A larger item is sent in a batch of its own.
///
/// The size is large enough that the cost of a call is small compared to copying its bytes. It is
/// small enough that a thousand streams at full speed fit the memory of a server.
pub const BATCH: usize = 32 << 10;

/// Largest number of batches that a client has asked for or holds unread. The client asks for one
/// at a time while batches are smaller than half of [`BATCH`].
pub const MAX_PULLS: usize = 3;

/// Largest number of batches that a client has pushed and the server has not answered.
pub const MAX_PUSHES: usize = 2;

/// Largest number of unread batches that one end holds: the first batch and the pushes after it, or
/// the pulled batches. A peer that keeps to [`MAX_PULLS`] and [`MAX_PUSHES`] never exceeds this
/// limit.
pub const MAX_UNREAD: usize = 1 + MAX_PUSHES;

const _: () = assert!(MAX_PULLS <= MAX_UNREAD, "an end must accept all batches that it has pulled");

/// Largest number of calls that a server holds because their stream is not open yet. Also the
/// largest number of pulls that wait in an open stream.
pub const MAX_HELD: usize = 8;
