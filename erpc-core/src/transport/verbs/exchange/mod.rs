//! How endpoints learn each other's verbs addresses.
//!
//! A datagram needs the destination's GID or LID, its queue pair's number and its Q_Key. An
//! endpoint has a UDP socket, whose address stands for the endpoint everywhere above the transport.
//! Before the first datagram:
//!
//! ```text
//!   client                                                        server
//!      Ask(nonce), as long as the answer        ------ UDP ----->
//!      <----- UDP ------   Answer(nonce, the server's verbs address,
//!                                 a token for the client's UDP address)
//!      Present(token, the client's Q_Key)      --- datagram ---->   checks the token,
//!      the packet                              --- datagram ---->   and learns the client's address
//!                                                                   from the datagram
//!      <----- datagram -----   packets: from now on, the client omits `Present`
//! ```
//!
//! The server keeps nothing for a client that has not sent back a token. The token proves that the
//! client receives at its UDP address, and arrives from the queue pair that it then belongs to. So
//! neither address can be claimed by another host. An answer is not longer than its question.
//!
//! Whatever is lost or forgotten, one rule repairs it: an endpoint that sends to a peer and hears
//! nothing asks again (`peers`).

mod message;
mod socket;
mod token;

pub use message::{Answer, Ask, MESSAGE_LEN, Malformed, Message, Present};
pub(super) use socket::{Received, Socket};
pub use token::Token;
pub(super) use token::TokenMaker;
