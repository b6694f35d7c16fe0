//! Datagrams in bursts: what the protocol needs from a network, and the networks erpc supports.
//!
//! A [`Transport`] is one queue pair of one endpoint. It splits into a receiving and a sending half
//! that can be borrowed together, because packets are handled in place: while received bytes are
//! lent out of the [`RxQueue`], the packets that they trigger are pushed into the [`TxQueue`].
//!
//! Transports are unreliable by design: they may drop packets, and must count the drops they know
//! of. They have no notion of sessions.

mod bundles;
mod charge;
#[cfg(feature = "dpdk")]
pub mod dpdk;
pub mod fault;
pub mod frame;
mod interface;
pub mod mem;
pub mod udp;
mod undelivered;
pub mod verbs;

pub use charge::ChargeModel;
pub use interface::{
    Capabilities, Link, MAX_BURST, MIN_DATAGRAM, NoMarks, Path, Route, RxPacket, RxQueue,
    Transport, TransportStats, TxQueue, Waker,
};
pub use undelivered::{NetworkError, Obstacle, QUOTE_LEN, Undelivered};

pub use crate::buf::{Arena, TxPacket};
