//! Message buffers: memory that is filled by users and read by NICs without a copy in between.
//!
//! [`MsgBuf`] is the buffer, [`Pool`] where it comes from and returns to, from any thread. [`TxPacket`] is
//! a packet of one, as transports send it.

mod block;
mod msgbuf;
mod packet;
mod pool;

pub use block::Arena;
pub(crate) use msgbuf::MIN_PAYLOAD;
pub use msgbuf::MsgBuf;
pub use packet::TxPacket;
pub use pool::{NoMemory, Pool, PoolStats};
