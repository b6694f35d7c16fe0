//! The server's half: sessions this endpoint accepted, and the requests in their slots.
//!
//! Servers are passive (thesis section 6.4): no retransmission timer, every packet answers one.
//!
//! | file | what happens there |
//! |---|---|
//! | `accept` | a session opens, stays alive, ends |
//! | `session` | a session's requests and responses |
//! | `grants` | what clients may have on their way to us |
//! | `table` | all sessions |
//! | `slot` | the state they work on |

mod accept;
mod grants;
mod session;
mod slot;
mod table;

pub use self::accept::{Acceptor, ListenGroup};
pub use self::session::KEPT_CAPACITY;
use self::slot::{ServerSession, ServerSlot, SlotState};
use self::table::OwedCredit;
pub(super) use self::table::{PendingOpen, ServerSide};
use crate::protocol::endpoint::EndpointState;
use crate::protocol::index::{SessionIndex, SlotIndex, Slots};
use crate::protocol::turn::Turn;
use crate::protocol::{RequestHandle, WINDOW};
use crate::time::Instant;
use crate::transport::{Route, TxQueue};
use crate::wire::control::{Control, Cookie, Parameters};
use crate::wire::{ConnectionId, ReplyInfo, RequestNumber};
