//! Datagrams in bursts: what the protocol needs of a network, and the networks we have.
//!
//! A [`Transport`] is one queue pair of one endpoint. It splits into a receiving and a sending half
//! that can be borrowed at once, because packets are handled in place: while received bytes are lent
//! out of the [`RxQueue`], their consequences are pushed into the [`TxQueue`].
//!
//! Transports are unreliable on purpose: they may drop, and must count what they know they dropped.
//! They have no notion of sessions.

mod charge;
pub mod fault;
mod interface;
pub mod mem;
pub mod udp;

pub use charge::ChargeModel;
pub use interface::{
    Capabilities, Link, MAX_BURST, MIN_DATAGRAM, NoMarks, Path, Route, RxPacket, RxQueue,
    Transport, TransportStats, TxQueue, Waker,
};

pub use crate::buf::{Arena, TxPacket};
