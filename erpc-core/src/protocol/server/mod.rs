//! The server's half: sessions that this endpoint has accepted, and the requests in their slots.
//!
//! Servers are passive (thesis section 6.4): they have no retransmission timer. Unasked, a server sends only pings and
//! `Close`. It repeats a response only when a repeated request or a request for response asks for it.
//!
//! | file | content |
//! |---|---|
//! | `table` | all sessions: finds them, tells them of packets and of the time |
//! | `accept` | handshakes, until a session opens |
//! | `agreement` | what both sides have agreed on, and how it cuts messages |
//! | `hosts` | limits for each of the hosts that clients are at |
//! | `open_rate` | how fast a host may open sessions |
//! | `listen` | the endpoints that listen at one address |
//! | `session` | one session: its requests, its responses, its life |
//! | `liveness` | whether the client is still there |
//! | `slot` | one request of a session: its state |
//! | `receiving` | a request of several packets on its way in |
//! | `kept_response` | a response, from the first packet until the client confirms it |
//! | `reply` | headers of what goes out |
//! | `credit_returns` | credits that clients get back at the end of a burst |
//! | `grants` | each client's share of the receive queue |
//! | `shares` | how large the shares are |
//! | `siblings` | the sessions of each client endpoint |
//! | `memory` | accounting of a session's memory |

mod accept;
mod agreement;
mod credit_returns;
mod grants;
mod hosts;
mod kept_response;
mod listen;
mod liveness;
mod memory;
mod open_rate;
mod receiving;
mod reply;
mod session;
mod shares;
mod siblings;
mod slot;
mod table;

pub(super) use self::accept::Open;
pub use self::listen::{Acceptor, ListenGroup};
pub use self::slot::KEPT_CAPACITY;
pub(super) use self::table::ServerTable;
