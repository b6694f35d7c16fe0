//! Message buffers: memory that is filled by users and read by NICs without a copy in between.
//!
//! [`MsgBuf`] is the buffer, [`Pool`] where it comes from and returns to, from any thread.

mod block;
mod msgbuf;
mod pool;

pub use block::Arena;
pub(crate) use msgbuf::MIN_PAYLOAD;
pub use msgbuf::MsgBuf;
pub use pool::{NoMemory, Pool, PoolStats};
