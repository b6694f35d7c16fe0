//! The protocol's specification, as tests: two cores, a wire that the test holds in its hands, and a
//! clock that stands still until it is moved.
//!
//! | file | what it specifies |
//! |---|---|
//! | `requests` | what a server does with a request packet |
//! | `replies`, `responses` | what a client does with a reply |
//! | `extensions`, `deadlines` | what travels in front of a message, and what becomes of late calls |
//! | `cancels` | calls that end before their answer comes, on both sides |
//! | `announcements` | responses to requests that were accepted |
//! | `pulls` | how large responses are asked on for, and dropped |
//! | `handshake`, `negotiation` | how a session opens, and what both sides agree on |
//! | `integrity` | that no damaged packet gets through where packets carry checksums |
//! | `strangers` | packets of third parties change nothing |
//! | `flow`, `turns` | credits, windows, room; calls that wait are served in turn |
//! | `pacing` | what leaves when, and what slows it down |
//! | `path_sizes` | paths that swallow large packets, or rewrite addresses |
//! | `memory` | what messages may take |
//! | `retransmission`, `recovery`, `liveness`, `endings` | loss, silence, death, and good-byes |
//! | `probes` | one probe for all calls of a silent server, and how long it is waited for |
//! | `transcript` | every kind of packet, to the last byte |
//! | `originals_holes` | what the C++ implementation leaves open |
//! | `lossy` | all of it under seeded faults |
//!
//! `pair` is the harness, `wire` its transmit queue, `craft` makes packets by hand.

mod craft;
mod pair;
mod wire;

mod announcements;
mod cancels;
mod deadlines;
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
mod path_sizes;
mod probes;
mod pulls;
mod recovery;
mod replies;
mod requests;
mod responses;
mod retransmission;
mod strangers;
mod transcript;
mod turns;

pub(super) use pair::TestRoute;

/// How often a test repeats what it does with other numbers: `many` times, or a few where an interpreter
/// runs it, a thousand times slower (`.ci/miri`).
const fn times(many: u32) -> u32 {
    if cfg!(miri) { many.div_ceil(25) } else { many }
}
