//! Conversations, step by step: the first inputs of `hostile_client`, `hostile_server` and
//! `hostile_streams`, the fuzz targets that play a peer.

use super::steps::client::{ANSWER, CANCEL, DONE, HELLO, OPEN, PULL};
use super::steps::server::{ACCEPTED, CALL, CONNECT, HANDSHAKE, LEAVE, RETURN};
use super::steps::streams as s;
use super::steps::{
    AGAIN, ANY, CHANGED, CONTROL, CRAFTED, NEXT, OLDER, PASS, RAW, TURN, WHOLE, slot,
};

/// The name of a conversation, and its steps. A step is the byte that selects the action, followed
/// by the bytes that the action reads. If a byte that an action reads is 0, it usually means the
/// true value.
///
/// A conversation of a client or a server begins with one byte that selects the setup. Bit 0 of
/// this byte means that the device reads msgbufs late. The other bits depend on the role
/// (`Side::config` and `Side::begin`). A conversation of streams has no such byte.
pub(super) type Conversation = (&'static str, &'static [&'static [u8]]);

pub(super) const CLIENTS: [Conversation; 18] = [
    ("small-calls", SMALL_CALLS),
    ("large-request", LARGE_REQUEST),
    ("packet-by-packet", PACKET_BY_PACKET),
    ("pulled-response", PULLED_RESPONSE),
    ("repeated-pulls", REPEATED_PULLS),
    ("duplicates", DUPLICATES),
    ("leaps", LEAPS),
    ("declared-sizes", DECLARED_SIZES),
    ("gap", GAP),
    ("worker", WORKER),
    ("controls", CONTROLS),
    ("reopened", REOPENED),
    ("out-of-memory", OUT_OF_MEMORY),
    ("silence", SILENCE),
    ("slow-device", SLOW_SERVER),
    ("raw", ANY_BYTES),
    ("cancels", CANCELS),
    ("announced-responses", ANNOUNCED_RESPONSES),
];

pub(super) const STREAMS: [Conversation; 8] = [
    ("echo", STREAM_ECHO),
    ("count", STREAM_COUNT),
    ("hold", STREAM_HOLD),
    ("out-of-order", STREAM_OUT_OF_ORDER),
    ("many-opens", STREAM_MANY_OPENS),
    ("cancelled", STREAM_CANCELLED),
    ("reconnected", STREAM_RECONNECTED),
    ("raw", STREAM_RAW),
];

pub(super) const SERVERS: [Conversation; 19] = [
    ("small-responses", SMALL_RESPONSES),
    ("credit-returns", CREDIT_RETURNS),
    ("gaps", GAPS),
    ("large-responses", LARGE_RESPONSES),
    ("accepted", SAID_TO_BE_ACCEPTED),
    ("failures", FAILURES),
    ("too-large", TOO_LARGE),
    ("unanswered", UNANSWERED),
    ("handshake-by-hand", HANDSHAKE_BY_HAND),
    ("refused", REFUSED),
    ("terms-that-lie", TERMS_THAT_LIE),
    ("other-address", OTHER_ADDRESS),
    ("closed-by-server", CLOSED_BY_SERVER),
    ("disconnected", DISCONNECTED),
    ("small-windows", SMALL_WINDOWS),
    ("slow-device", SLOW_CLIENT),
    ("announcements", ANNOUNCEMENTS),
    ("cancelled-calls", CANCELLED_CALLS),
    ("late-calls", LATE_CALLS),
];

const SMALL_CALLS: &[&[u8]] = &[
    &[0],
    &[WHOLE, 1],
    &[ANSWER, 1],
    &[TURN],
    &[WHOLE, 2],
    &[ANSWER, 2],
    &[TURN],
    &[WHOLE | slot(1), 1],
    &[WHOLE | slot(2), 1],
    &[ANSWER, 1],
    &[ANSWER, 1],
    &[TURN],
];

const LARGE_REQUEST: &[&[u8]] = &[
    &[0],
    &[WHOLE, 7],
    &[TURN],
    &[ANSWER, 1],
    &[TURN],
    &[WHOLE, 8],
    &[TURN],
    &[ANSWER, 1],
    &[TURN],
];

const PACKET_BY_PACKET: &[&[u8]] = &[
    &[0],
    &[NEXT, 5],
    &[NEXT],
    &[TURN],
    &[NEXT],
    &[TURN],
    &[NEXT, 0],
    &[NEXT, 0],
    &[TURN],
    &[ANSWER, 1],
    &[TURN],
];

const PULLED_RESPONSE: &[&[u8]] = &[
    &[0],
    &[WHOLE, 1],
    &[ANSWER, 8],
    &[TURN],
    &[PULL, 7, 0, 0, 0, 0],
    &[TURN],
    &[PULL, 5, 244, 9, 0, 0, 0, 0, 0, 0],
    &[TURN],
    &[DONE, 1, 0, 0],
    &[TURN],
];

const REPEATED_PULLS: &[&[u8]] = &[
    &[1],
    &[WHOLE, 1],
    &[ANSWER, 7],
    &[TURN],
    &[PULL, 2, 0, 0, 0, 0],
    &[PULL, 2, 0, 0, 0, 0],
    &[PULL, 2, 0, 0, 0, 0],
    &[TURN],
];

const DUPLICATES: &[&[u8]] = &[
    &[0],
    &[WHOLE, 2],
    &[AGAIN, 2],
    &[ANSWER, 2],
    &[AGAIN, 2],
    &[TURN],
    &[AGAIN, 0],
    &[AGAIN, 1],
    &[AGAIN, 0x82],
    &[TURN],
];

const LEAPS: &[&[u8]] = &[
    &[0],
    &[CRAFTED, 0, 220, 0, 0, 0, 0],
    &[CRAFTED, 0, 192, 0, 0, 0, 0],
    &[CRAFTED, 0, 244, 0, 0, 0, 128, 0, 0, 0, 0],
];

const DECLARED_SIZES: &[&[u8]] = &[
    &[0],
    &[CRAFTED, 0, 220, 0, 240, 0, 0],
    &[CRAFTED, 0, 220, 0, 244, 0, 0, 1, 0, 0, 0],
    &[TURN],
];

const GAP: &[&[u8]] = &[
    &[0],
    &[NEXT, 6],
    &[CRAFTED, 192, 0, 0, 0, 0, 0],
    &[TURN],
    &[NEXT],
    &[TURN],
    &[NEXT],
    &[NEXT],
    &[TURN],
    &[PASS, 3],
];

/// Two sessions, and handlers that answer late.
const WORKER: &[&[u8]] = &[
    &[2],
    &[WHOLE, 8],
    &[WHOLE | slot(1), 7],
    &[WHOLE | OLDER, 3],
    &[TURN],
    &[ANSWER, 0x2A],
    &[ANSWER, 0x6A],
    &[TURN],
    &[ANSWER, 0x20],
    &[TURN],
];

const CONTROLS: &[&[u8]] = &[
    &[0],
    &[CONTROL, 0, 0, 0, 0, 0],
    &[CONTROL, 0, 0, 1, 0, 0],
    &[CONTROL, 0, 0, 2, 0, 0],
    &[CONTROL, 0, 0, 3, 9, 0, 0, 0],
    &[CONTROL, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    &[CONTROL, 0, 0, 5, 0, 0],
    &[CONTROL, 0, 200, 6, 1, 0, 0],
    &[CONTROL, 0, 200, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    &[CONTROL, 1, 0, 8, 0, 0],
    &[CONTROL, 0, 0, 9, 0, 0],
    &[TURN],
    &[WHOLE, 1],
    &[TURN],
];

const REOPENED: &[&[u8]] = &[
    &[0],
    &[HELLO, 2],
    &[OPEN, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    &[TURN],
    &[WHOLE, 1],
    &[TURN],
    &[ANSWER, 1],
    &[TURN],
    &[OPEN, 0, 0, 0, 0, 0, 0, 0, 0, 8],
];

const OUT_OF_MEMORY: &[&[u8]] = &[
    &[2],
    &[WHOLE, 8],
    &[WHOLE | slot(1), 8],
    &[WHOLE | slot(2), 8],
    &[WHOLE | slot(3), 8],
    &[WHOLE | slot(4), 8],
    &[WHOLE | OLDER, 8],
    &[WHOLE | OLDER | slot(1), 8],
    &[WHOLE | OLDER | slot(2), 8],
    &[WHOLE | OLDER | slot(3), 8],
    &[TURN],
    &[ANSWER, 9],
];

const SILENCE: &[&[u8]] = &[
    &[0],
    &[WHOLE, 7],
    &[PASS, 5],
    &[PASS, 6],
    &[PASS, 6],
    &[PASS, 6],
    &[PASS, 7],
    &[PASS, 7],
    &[PASS, 7],
    &[WHOLE, 1],
];

const SLOW_SERVER: &[&[u8]] = &[
    &[1],
    &[WHOLE, 1],
    &[ANSWER, 6],
    &[AGAIN, 2],
    &[TURN],
    &[PULL, 0, 0, 0, 0, 0],
    &[AGAIN, 3],
    &[TURN],
    &[WHOLE, 1],
    &[ANSWER, 250, 0],
    &[TURN],
];

const ANY_BYTES: &[&[u8]] = &[
    &[0],
    &[RAW, 0, 16, 1, 2, 3, 4, 5, 6, 7, 8, 0x1D, 3, 0, 0, 0, 0, 0, 0],
    &[TURN],
    &[WHOLE, 1],
    &[CHANGED, 2, 0, 8, 1],
    &[ANY, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0],
];

const SMALL_RESPONSES: &[&[u8]] =
    &[&[0], &[CALL, 2], &[WHOLE, 0], &[WHOLE | slot(1), 0], &[WHOLE | slot(2), 0], &[TURN]];

const CREDIT_RETURNS: &[&[u8]] = &[
    &[0],
    &[CALL, 6],
    &[RETURN, 0, 0, 0, 0, 0],
    &[RETURN | slot(1), 0, 0, 0, 0, 0],
    &[RETURN | slot(2), 0, 0, 0, 0, 0],
    &[TURN],
    &[RETURN | slot(2), 0, 0, 0, 0, 0],
    &[TURN],
    &[WHOLE | slot(2), 3],
];

const GAPS: &[&[u8]] = &[
    &[0],
    &[CALL, 6],
    &[RETURN | slot(2), 208, 0, 0, 1, 0],
    &[TURN],
    &[RETURN | slot(2), 208, 0, 0, 1, 0],
    &[TURN],
    &[PASS, 3],
    &[RETURN | slot(2), 236, 0, 0, 1, 0],
];

const LARGE_RESPONSES: &[&[u8]] = &[
    &[0],
    &[WHOLE, 8],
    &[WHOLE | slot(1), 7],
    &[CALL, 5],
    &[WHOLE, 6],
    &[TURN],
    &[PASS, 3],
    &[CALL, 0],
    &[WHOLE, 0],
];

const SAID_TO_BE_ACCEPTED: &[&[u8]] =
    &[&[0], &[ACCEPTED, 0, 0, 0, 0], &[TURN], &[PASS, 4], &[PASS, 5], &[WHOLE, 0], &[TURN]];

const FAILURES: &[&[u8]] = &[
    &[0],
    &[CRAFTED, 0, 0, 0, 0, 1, 0, 0],
    &[CRAFTED | slot(1), 0, 0, 0, 244, 9, 0, 0, 0, 1, 244, 9, 0, 0, 0, 0],
];

const TOO_LARGE: &[&[u8]] =
    &[&[0], &[WHOLE, 9], &[CRAFTED | slot(1), 0, 0, 0, 240, 0, 244, 0, 4, 0, 0, 0]];

const UNANSWERED: &[&[u8]] =
    &[&[0], &[PASS, 3], &[PASS, 3], &[PASS, 4], &[PASS, 5], &[PASS, 6], &[PASS, 6], &[PASS, 6]];

const HANDSHAKE_BY_HAND: &[&[u8]] = &[
    &[2],
    &[HANDSHAKE, 1, 0, 0, 0],
    &[HANDSHAKE, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    &[WHOLE, 0],
    &[TURN],
];

const REFUSED: &[&[u8]] =
    &[&[2], &[HANDSHAKE, 0, 1, 0], &[CONNECT], &[HANDSHAKE, 1, 0, 0, 0], &[HANDSHAKE, 0, 3, 0]];

const TERMS_THAT_LIE: &[&[u8]] = &[
    &[2],
    &[HANDSHAKE, 1, 0, 0, 0],
    &[HANDSHAKE, 1, 192, 0, 0, 0, 0, 0, 0, 0, 0],
    &[CONNECT],
    &[HANDSHAKE, 1, 0, 0, 0],
    &[HANDSHAKE, 1, 0, 0, 244, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0],
];

const OTHER_ADDRESS: &[&[u8]] =
    &[&[2], &[HANDSHAKE, 1, 0, 0, 240], &[HANDSHAKE, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]];

const CLOSED_BY_SERVER: &[&[u8]] =
    &[&[4], &[CONTROL, 0, 0, 9, 0, 0], &[TURN], &[CALL, 0], &[CONTROL, 0, 0, 8, 0, 0], &[TURN]];

const DISCONNECTED: &[&[u8]] = &[
    &[0],
    &[LEAVE, 255],
    &[WHOLE, 0],
    &[WHOLE | slot(1), 0],
    &[WHOLE | slot(2), 0],
    &[TURN],
    &[CONTROL, 0, 0, 2, 0, 0],
];

const SMALL_WINDOWS: &[&[u8]] = &[
    &[4],
    &[ACCEPTED, 0, 0, 244, 1, 0, 0, 0, 0],
    &[CALL, 6],
    &[CALL, 7],
    &[WHOLE, 0],
    &[TURN],
    &[WHOLE | slot(1), 0],
    &[PASS, 3],
];

const SLOW_CLIENT: &[&[u8]] = &[
    &[1],
    &[CALL, 6],
    &[PASS, 3],
    &[PASS, 3],
    &[WHOLE, 0],
    &[WHOLE | slot(1), 0],
    &[RETURN | slot(2), 0, 0, 0, 1, 0],
    &[PASS, 3],
    &[WHOLE | slot(2), 7],
    &[AGAIN, 3],
    &[TURN],
];

/// The bytes of a `CALL`: the method, the operation, stream and batch number (0 for the true
/// values), the number of items if the operation has items, the announced number (0 for the true
/// value), and the lengths of the items in units of 41 bytes.
const STREAM_ECHO: &[&[u8]] = &[
    &[s::CALL, 0, 0, 0, 0, 2, 0, 1, 9],
    &[s::TURN, s::TURN, s::TURN],
    &[s::CALL, 0, 1, 0, 0, 1, 0, 250],
    &[s::CALL, 0, 2, 0, 0, 0],
    &[s::TURN, s::TURN, s::TURN],
    &[s::CALL, 0, 0x81, 0, 0, 0, 0],
    &[s::CALL, 0, 2, 0, 0, 0],
    &[s::LEAP, 20],
];

const STREAM_COUNT: &[&[u8]] = &[
    &[s::CALL, 1, 0x80, 0, 0, 1, 0, 30],
    &[s::LEAP, 1],
    &[s::CALL, 1, 2, 0, 0, 0],
    &[s::CALL, 1, 2, 0, 0, 0],
    &[s::LEAP, 1],
    &[s::CALL, 1, 3, 0, 0, 0],
];

const STREAM_HOLD: &[&[u8]] = &[
    &[s::CALL, 2, 0, 0, 0, 1, 0, 200],
    &[s::CALL, 2, 1, 0, 0, 1, 0, 200],
    &[s::CALL, 2, 1, 0, 0, 1, 0, 200],
    &[s::CALL, 2, 1, 0, 0, 1, 0, 200],
    &[s::LEAP, 200],
    &[s::LEAP, 200],
    &[s::CALL, 2, 3, 0, 0, 0],
];

/// Pushes with gaps between their batch numbers, and pushes for future and past streams.
const STREAM_OUT_OF_ORDER: &[&[u8]] = &[
    &[s::CALL, 0, 0, 0, 0, 0, 0],
    &[s::CALL, 0, 1, 0, 200, 1, 0, 3],
    &[s::CALL, 0, 1, 200, 0, 1, 0, 3],
    &[s::CALL, 0, 1, 210, 0, 1, 0, 3],
    &[s::CALL, 0, 1, 0, 224, 1, 0, 3],
    &[s::CALL, 0, 2, 0, 0, 0],
    &[s::LEAP, 5],
];

const STREAM_MANY_OPENS: &[&[u8]] = &[
    &[s::CALL, 0, 0, 0, 0, 0, 0],
    &[s::CALL, 2, 0, 0, 0, 0, 0],
    &[s::CALL, 1, 0, 0, 0, 0, 0],
    &[s::CALL, 2, 0, 224, 0, 0, 0],
    &[s::CALL, 0, 0, 210, 0, 0, 0],
    &[s::LEAP, 5],
];

const STREAM_CANCELLED: &[&[u8]] = &[
    &[s::CALL, 2, 0, 0, 0, 1, 0, 9],
    &[s::CALL, 2, 1, 0, 0, 1, 0, 9],
    &[s::TURN, s::TURN, s::CANCEL, 1, s::TURN, s::TURN],
    &[s::CALL, 0, 0, 0, 0, 1, 0, 9],
    &[s::CANCEL, 0, s::LEAP, 9],
];

const STREAM_RECONNECTED: &[&[u8]] = &[
    &[s::CALL, 2, 0, 0, 0, 1, 0, 9],
    &[s::TURN, s::TURN, s::RECONNECT],
    &[s::CALL, 0, 0, 0, 0, 1, 0, 9],
    &[s::RECONNECT, s::LEAP, 255],
];

const STREAM_RAW: &[&[u8]] = &[
    &[s::RAW, 0, 1, 3, 1, 2, 3],
    &[s::RAW, 0, 0, 0],
    &[s::RAW, 1, 0x81, 19, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 0x0A, 9, 9],
    &[s::RAW, 3, 1, 0, s::TURN],
];

/// Requests that are cancelled: an executing one, an incoming one, a future one, an answered one.
const CANCELS: &[&[u8]] = &[
    &[0],
    &[WHOLE, 1],
    &[CANCEL, 0, 0, 0, 0],
    &[CANCEL, 0, 0, 0, 0],
    &[TURN],
    &[ANSWER, 1],
    &[CANCEL, 0, 0, 0, 0],
    &[TURN],
    &[NEXT | slot(1), 6],
    &[CANCEL | slot(1), 0, 0, 0, 0],
    &[NEXT | slot(1)],
    &[CANCEL | slot(2), 1, 0, 0, 0],
    &[TURN],
    &[WHOLE | slot(2), 1],
    &[ANSWER, 1],
    &[TURN],
];

/// The client pulls an announced response from its first packet on.
const ANNOUNCED_RESPONSES: &[&[u8]] = &[
    &[0],
    &[WHOLE, 1],
    &[AGAIN, 2],
    &[TURN],
    &[ANSWER, 7],
    &[TURN],
    &[AGAIN, 2],
    &[PULL, 1, 236, 0, 0, 0],
    &[PULL, 3, 0, 0, 0, 0],
    &[TURN],
];

const ANNOUNCEMENTS: &[&[u8]] = &[
    &[0],
    &[ACCEPTED, 0, 0, 0, 0],
    &[TURN],
    &[RETURN, 0, 0, 0, 2, 6, 0, 0, 0, 0, 0],
    &[TURN],
    &[NEXT],
    &[NEXT],
    &[NEXT],
    &[TURN],
    &[RETURN | slot(1), 0, 0, 0, 6, 2, 0, 0, 0, 0, 0],
    &[TURN],
    &[PASS, 3],
];

const CANCELLED_CALLS: &[&[u8]] = &[
    &[0],
    &[CALL | slot(1), 2],
    &[CALL, 6],
    &[TURN],
    &[LEAVE | slot(2)],
    &[LEAVE | slot(1)],
    &[TURN],
    &[ACCEPTED | slot(2), 0, 0, 0, 0],
    &[PASS, 3],
    &[PASS, 5],
    &[WHOLE | slot(2), 0],
    &[WHOLE | slot(3), 0],
    &[TURN],
];

const LATE_CALLS: &[&[u8]] = &[
    &[0],
    &[CALL | slot(2), 2],
    &[CALL | slot(3), 4],
    &[TURN],
    &[PASS, 3],
    &[PASS, 4],
    &[WHOLE | slot(2), 0],
    &[PASS, 5],
    &[PASS, 6],
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::client::HostileClients;
    use crate::fuzz::harness::{Harness, Side};
    use crate::fuzz::input::Input;
    use crate::fuzz::seed_of;
    use crate::fuzz::server::HostileServers;

    /// Checks that every step reads exactly its own bytes. A step that reads fewer has found no
    /// session or packet to use; a step that reads more uses bytes of the next step.
    fn assert_steps_are_read_as_written<S: Side>((name, steps): Conversation) {
        const NEXT_STEPS: [u8; 16] = [TURN; 16];
        let mut harness = Harness::<S>::new(seed_of(&steps.concat()), steps[0][0]);
        for (at, step) in steps.iter().enumerate().skip(1) {
            let bytes = [*step, &NEXT_STEPS].concat();
            let mut input = Input::new(&bytes);
            harness.step(&mut input);
            assert_eq!(input.len(), NEXT_STEPS.len(), "{name}, step {at}: {step:?}");
        }
    }

    #[test]
    fn every_step_reads_exactly_its_own_bytes() {
        CLIENTS.into_iter().for_each(assert_steps_are_read_as_written::<HostileClients>);
        SERVERS.into_iter().for_each(assert_steps_are_read_as_written::<HostileServers>);
    }
}
