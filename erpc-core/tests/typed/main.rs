//! The typed layer end to end, over the memory transport and over UDP, without generated code.

#![expect(clippy::disallowed_methods, reason = "tests use threads and read the clock")]

mod answers;
mod bursts;
mod calls;
mod channels;
mod deferred;
mod doorbells;
mod drain;
mod edges;
mod ending;
mod endpoints;
mod foreign;
mod handlers;
mod health;
mod panics;
mod placement;
mod plain;
mod running;
mod served;
mod stream_memory;
mod streams;
mod support;
mod tasks;
mod test_bed;
mod timers;
mod udp;
mod unexecuted;
mod workers;
mod world;
