//! Message buffers. The user writes a message into the memory that the NIC reads, without a copy in
//! between.
//!
//! [`MsgBuf`] is the buffer. A [`Pool`] allocates buffers and gets them back from any thread.
//! [`TxPacket`] is one packet of a msgbuf, as transports send it.

mod block;
mod msgbuf;
mod packet;
mod pool;

pub use block::Arena;
pub(crate) use msgbuf::MIN_PAYLOAD;
pub use msgbuf::MsgBuf;
pub(crate) use msgbuf::copy;
pub use packet::TxPacket;
pub use pool::{NoMemory, Pool, PoolStats};
