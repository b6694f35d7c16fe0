//! Streams, without input or output: many messages each way, out of calls.
//!
//! A stream runs alone on a session, and all that it sends are calls of that session. The client *pushes*
//! batches of its items, and *pulls* the server's: a pull waits at the server until there is something
//! to bring. So the reader sets the pace in both directions, and loss, order and integrity are the
//! calls' own business. There is one kind of stream; where a method takes or returns one message, that is a
//! stream of one item.
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
//! [`StreamClient`] and [`StreamServer`] are the two ends. They are told what came in and are asked what to send
//! ([`StreamClient::poll_call`], [`StreamServer::poll_answer`]); they know no session, thread or clock, and nothing of
//! the items but their bytes. What is sent is gathered in a [`MsgBuf`](crate::buf::MsgBuf) in the form in
//! which it travels, and what comes in is read out of the one that it came in ([`Batch`]).
//!
//! # Bounds
//!
//! Batches at most, each of [`BATCH`] bytes or of one larger item:
//!
//! ```text
//!   server's items    3 at the client, asked for or unread ([`MAX_PULLS`])
//!                   + 1 gathering at the server
//!   client's items    2 on their way or unread at the server ([`MAX_PUSHES`]), and the one in OPEN
//!                   + 1 gathering at the client
//! ```
//!
//! A peer that breaks these rules is refused: batches of several items that are larger, and more unread
//! ones ([`MAX_UNREAD`]). What comes before its stream was opened has the session's slots ([`MAX_HELD`]).

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

/// Bytes of items after which a batch is full. A larger item is a batch of its own.
///
/// Large enough that what a call costs is little against what copying its bytes costs, small enough that
/// a thousand streams in full flow fit a server's memory.
pub const BATCH: usize = 32 << 10;

/// Batches that a client has asked for or holds unread, at most. One while they come partly empty.
pub const MAX_PULLS: usize = 3;

/// Batches that a client has pushed and that are not answered, at most.
pub const MAX_PUSHES: usize = 2;

/// Batches that one end holds unread for the other, at most: the first, and what may be pushed behind it,
/// or what may be pulled. An end that keeps to the two limits above never meets this one.
pub const MAX_UNREAD: usize = 1 + MAX_PUSHES;

const _: () = assert!(MAX_PULLS <= MAX_UNREAD, "what was asked for is taken");

/// Calls that a server holds because their stream has not been opened yet, at most.
pub const MAX_HELD: usize = 8;
