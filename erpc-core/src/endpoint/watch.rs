//! Reports when the receive queue loses packets.

use std::any::TypeId;
use std::cell::Cell;
use std::time::Duration;

use super::parts::EndpointParts;
use crate::time::Instant;
use crate::transport::Transport;
use crate::transport::udp::{OVERFLOW_HINT, UdpTransport};

/// Checks at most once a second whether the receive queue of a UDP endpoint has overflowed. Prints
/// the first overflow that it finds, and no later one.
#[derive(Default)]
pub(crate) struct OverflowWatch {
    looked: Cell<Instant>,
    reported: Cell<bool>,
}

impl OverflowWatch {
    const INTERVAL: Duration = Duration::from_secs(1);

    /// Called after each turn; `turns` is the number of turns so far.
    #[inline]
    pub(crate) fn look<T: Transport>(&self, endpoint: &EndpointParts<T>, turns: u64) {
        if turns.is_multiple_of(1_024) && !self.reported.get() {
            self.look_slow(endpoint);
        }
    }

    #[cold]
    fn look_slow<T: Transport>(&self, endpoint: &EndpointParts<T>) {
        let now = endpoint.scheduler().now();
        if now - self.looked.get() < Self::INTERVAL {
            return;
        }
        self.looked.set(now);
        let Some(mut rpc) = endpoint.rpc() else { return };
        let overflow = rpc.stats().transport.rx_overflow;
        let is_udp = TypeId::of::<T>() == TypeId::of::<UdpTransport>();
        if overflow > 0 && is_udp {
            self.reported.set(true);
            eprintln!(
                "erpc: {}: {overflow} packets lost: {OVERFLOW_HINT}; not reported again",
                rpc.local_route()
            );
        }
    }
}
