//! | file | subject |
//! |---|---|
//! | `injector` | decisions: chances, bursts, outages, copies, delays, independence |
//! | `damage` | changes to the bytes |
//! | `faulty` | that a transport applies the decisions of its injectors |

mod damage;
mod faulty;
mod injector;

use std::time::Duration;

use super::*;
use crate::transport::{RxQueue, Transport, TxPacket, TxQueue};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
