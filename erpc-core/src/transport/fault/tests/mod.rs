//! | file | what it looks at |
//! |---|---|
//! | `injector` | decisions: chances, bursts, outages, copies, lateness, and that they are independent |
//! | `damage` | what becomes of bytes |
//! | `faulty` | that a transport does what its injectors decide |

mod damage;
mod faulty;
mod injector;

use std::time::Duration;

use super::*;
use crate::transport::{RxQueue, Transport, TxPacket, TxQueue};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
