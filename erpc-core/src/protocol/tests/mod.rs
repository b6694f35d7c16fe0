//! The protocol's specification, as tests: two cores, a wire that the test holds in its hands, and a
//! clock that stands still until it is moved.
//!
//! | file | what it specifies |
//! |---|---|
//! | `requests` | what a server does with a request packet |
//! | `replies`, `responses` | what a client does with a reply |
//! | `pulls` | how large responses are asked on for, and dropped |
//! | `handshake`, `negotiation` | how a session opens, and what both sides agree on |
//! | `strangers` | that nobody else can touch it |
//! | `flow`, `turns` | credits, windows, room; who waits is served in turn |
//! | `memory` | what messages may take |
//! | `retransmission`, `liveness`, `endings` | loss, silence, death, and good-byes |
//! | `originals_holes` | what the C++ implementation leaves open |
//! | `lossy` | all of it under seeded faults |
//!
//! `pair` is the harness, `wire` its transmit queue, `craft` makes packets by hand.

mod craft;
mod pair;
mod wire;

mod endings;
mod flow;
mod handshake;
mod liveness;
mod lossy;
mod memory;
mod negotiation;
mod originals_holes;
mod pulls;
mod replies;
mod requests;
mod responses;
mod retransmission;
mod strangers;
mod turns;

pub(super) use pair::TestRoute;
