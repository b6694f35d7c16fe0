//! The protocol's specification as tests. A test runs two cores, delivers their packets by hand,
//! and moves the clock itself.
//!
//! | file | what it specifies |
//! |---|---|
//! | `requests` | how a server handles request packets |
//! | `replies`, `responses` | how a client handles replies |
//! | `extensions`, `deadlines` | extensions in front of messages, and calls with deadlines |
//! | `cancels` | calls that end before their answer arrives, on both sides |
//! | `announcements` | responses to accepted requests |
//! | `pulls`, `early_pulls` | how a client pulls and releases large responses |
//! | `handshake`, `negotiation` | how a session opens, and what both sides agree on |
//! | `integrity` | sessions with checksums drop every damaged packet |
//! | `strangers` | packets of third parties have no effect |
//! | `flow`, `turns` | credits, windows, room; waiting calls are served in turn |
//! | `slots` | sessions with 1, 8 and 64 slots |
//! | `padded_messages` | padding behind whole messages |
//! | `pacing` | when packets are sent, and what slows them down |
//! | `path_sizes` | paths that drop large packets, or rewrite addresses |
//! | `memory` | memory limits of messages |
//! | `retransmission`, `recovery` | loss, and what is sent again |
//! | `drain` | a server that shuts down |
//! | `undelivered` | reports that packets did not reach the server, true and forged |
//! | `liveness`, `endings` | silent or dead peers, and the end of sessions |
//! | `absence` | calls of a client whose loop was away |
//! | `probes` | one probe for all calls to a silent server, and its timeout |
//! | `transcript` | every kind of packet, byte by byte |
//! | `originals_holes` | cases that the C++ implementation leaves open |
//! | `lossy` | calls, sessions and restarts under seeded faults |
//!
//! `pair` is the harness, `wire` its transmit queue, `craft` builds packets by hand.

mod craft;
mod pair;
mod wire;

mod absence;
mod announcements;
mod cancels;
mod deadlines;
mod drain;
mod early_pulls;
mod endings;
mod extensions;
mod flow;
mod handshake;
mod integrity;
mod liveness;
mod lossy;
mod memory;
mod negotiation;
mod originals_holes;
mod pacing;
mod padded_messages;
mod path_sizes;
mod probes;
mod pulls;
mod recovery;
mod replies;
mod requests;
mod responses;
mod retransmission;
mod slots;
mod strangers;
mod transcript;
mod turns;
mod undelivered;

pub(super) use pair::TestRoute;

/// Number of repetitions of a randomized test: `many`, or a 25th of it under Miri (`.ci/miri`),
/// which is a thousand times slower.
const fn times(many: u32) -> u32 {
    if cfg!(miri) { many.div_ceil(25) } else { many }
}
