//! Adds up the counters of several endpoints.

use std::ops::AddAssign;

use crate::event_loop::{EndpointStats, LoopGaps};
use crate::transport::TransportStats;

impl AddAssign for EndpointStats {
    fn add_assign(&mut self, other: Self) {
        // Destructured, so that a new counter cannot be forgotten here.
        let Self {
            protocol,
            transport,
            pool,
            client_sessions,
            server_sessions,
            late_requests,
            loop_gaps: LoopGaps { count, longest },
        } = other;
        self.protocol += protocol;
        self.client_sessions += client_sessions;
        self.server_sessions += server_sessions;
        self.late_requests += late_requests;
        self.loop_gaps.count += count;
        self.loop_gaps.longest = self.loop_gaps.longest.max(longest);

        let TransportStats {
            rx_packets,
            rx_bytes,
            tx_packets,
            tx_bytes,
            rx_overflow,
            tx_dropped,
            rx_truncated,
            link_downs,
            link_ups,
        } = transport;
        self.transport.rx_packets += rx_packets;
        self.transport.rx_bytes += rx_bytes;
        self.transport.tx_packets += tx_packets;
        self.transport.tx_bytes += tx_bytes;
        self.transport.rx_overflow += rx_overflow;
        self.transport.tx_dropped += tx_dropped;
        self.transport.rx_truncated += rx_truncated;
        self.transport.link_downs += link_downs;
        self.transport.link_ups += link_ups;

        self.pool += pool;
    }
}
