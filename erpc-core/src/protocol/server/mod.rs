//! The server's half: the sessions that this endpoint has accepted, and the requests in their
//! slots.
//!
//! Servers are passive (thesis section 6.4): they have no retransmission timer. Unasked, a server
//! sends only pings, and `GoAway` and `Close` when it shuts down. It repeats a response only when a
//! repeated request or a request for response asks for it.
//!
//! | file | content |
//! |---|---|
//! | `table` | all sessions: routes packets and timers to them |
//! | `accept` | handshakes, until a session opens |
//! | `agreement` | the values agreed in the handshake, and how they cut messages into packets |
//! | `hosts` | limits per client host |
//! | `open_rate` | the rate at which a host may open sessions |
//! | `listen` | the endpoints that listen at one address |
//! | `session` | one session: requests, responses, control messages |
//! | `liveness` | whether the client is still alive |
//! | `farewell` | how often a client is told that the server shuts down |
//! | `slot` | the state of one request of a session |
//! | `receiving` | a request of several packets, while it arrives |
//! | `kept_response` | a response, from its first packet until the client confirms it |
//! | `reply` | headers of reply packets |
//! | `credit_returns` | credits that clients get back at the end of a burst |
//! | `grants` | each client's share of the receive queue |
//! | `shares` | the size of the shares |
//! | `siblings` | the sessions of each client endpoint |
//! | `memory` | accounting of a session's memory |

mod accept;
mod agreement;
mod credit_returns;
mod farewell;
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
