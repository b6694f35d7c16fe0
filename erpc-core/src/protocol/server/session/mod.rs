//! A session's requests and responses.
//!
//! | file | what happens there |
//! |---|---|
//! | `receive` | request packets in order, credit returns, requests for response |
//! | `respond` | a response's way out |
//! | `plain` | the common case of both, alone |

mod plain;
mod receive;
mod respond;

pub use self::respond::KEPT_CAPACITY;
use super::*;
