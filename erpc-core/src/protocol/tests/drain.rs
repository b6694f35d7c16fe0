//! A server that shuts down: running requests finish, new ones are refused, and clients are told.

use std::time::Duration;

use bytes::BufMut;

use super::pair::{CLIENT, ECHO, Pair, SERVER, connected, control, deferring, kinds, ms, pattern};
use crate::protocol::{
    CallError, Cause, ConnectError, EndpointConfig, NewCall, RejectReason, Rejected, SessionEvent,
    SessionId,
};
use crate::wire::Kind;
use crate::wire::control::Control;
use crate::wire::extension::put_extension;

const REFUSED: CallError = CallError::NotExecuted(Cause::PeerDraining);

impl Pair {
    fn drain(&mut self) {
        self.server.drain(self.now, &mut self.to_client);
        self.housekeeping();
    }

    /// Drains the server. The packets that tell the client are lost.
    fn drain_silently(&mut self) {
        self.drain();
        assert!(matches!(control(&self.take_to_client()[0]), Some(Control::GoAway { .. })));
    }

    fn knows(&self, session: SessionId) -> bool {
        self.sessions.get(&session) == Some(&SessionEvent::Draining)
    }

    /// Makes a call whose extension has this `op`.
    fn call_with_op(&mut self, session: SessionId, token: u64, op: u8) -> Result<(), Rejected> {
        let mut request = self.client.pool().alloc(100).expect("memory");
        put_extension(op, &[], &mut request);
        request.put_slice(b"frame");
        let call = NewCall { extended: true, ..NewCall::new(ECHO, request, token) };
        self.client.call(self.now, session, call, &mut self.to_server)
    }
}

#[test]
fn clients_are_told_and_running_calls_finish() {
    let (mut pair, session) = deferring();
    pair.call(session, 1, b"runs");
    pair.settle();
    pair.drain();
    let go_away = pair.take_to_client();
    let sender = pair.server_id;
    assert_eq!(
        go_away.iter().map(|bytes| control(bytes)).collect::<Vec<_>>(),
        [Some(Control::GoAway { sender })]
    );
    pair.burst_at_client(SERVER, &go_away);
    assert!(pair.knows(session));
    assert_eq!(control(&pair.to_server.packets[0].1), Some(Control::Pong));
    pair.settle();
    pair.answer(b"done");
    pair.settle();
    assert_eq!(pair.outcome().result.as_deref(), Ok(&b"done"[..]));
}

#[test]
fn a_new_request_is_refused_without_a_handler_and_its_client_learns_why() {
    for len in [0, 100, 5_000] {
        let (mut pair, session) = connected();
        pair.drain_silently();
        pair.call(session, 1, &pattern(1, len));
        pair.settle();
        assert_eq!((pair.error(), pair.executed), (REFUSED, 0), "{len} bytes");
        assert!(pair.knows(session), "the refusal tells what the lost message would have told");
        assert_eq!(pair.server.stats().refused_requests, 1);
    }
}

#[test]
fn a_request_whose_refusal_is_lost_is_refused_again_and_counted_once() {
    let (mut pair, session) = connected();
    pair.drain_silently();
    pair.call(session, 1, b"ask");
    let request = pair.take_to_server();
    pair.burst_at_server(CLIENT, &request);
    assert_eq!(kinds(&pair.take_to_client()), [Kind::Failure]);
    pair.live(ms(50));
    assert_eq!((pair.error(), pair.executed), (REFUSED, 0));
    assert_eq!(pair.server.stats().refused_requests, 1);
}

#[test]
fn a_request_with_a_deadline_is_refused_too() {
    let (mut pair, session) = connected();
    pair.drain_silently();
    pair.call_until(session, 1, b"ask", pair.now + ms(100));
    pair.settle();
    assert_eq!((pair.error(), pair.executed), (REFUSED, 0));
}

#[test]
fn a_response_from_before_the_drain_is_repeated() {
    let (mut pair, session) = connected();
    pair.call(session, 1, b"ask");
    let request = pair.take_to_server();
    pair.burst_at_server(CLIENT, &request);
    assert_eq!(kinds(&pair.take_to_client()), [Kind::Response]);
    pair.drain_silently();
    pair.live(ms(50));
    assert_eq!(pair.outcome().result.as_deref(), Ok(&b"ask"[..]));
    assert_eq!(pair.executed, 1);
}

#[test]
fn a_request_that_has_begun_to_arrive_is_executed() {
    let (mut pair, session) = connected();
    pair.call(session, 1, &pattern(1, 5_000));
    let packets = pair.take_to_server();
    pair.at_server(CLIENT, &packets[0]);
    pair.drain();
    pair.burst_at_server(CLIENT, &packets[1..]);
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(pattern(1, 5_000)));
}

#[test]
fn calls_of_which_nothing_was_sent_end_when_the_client_is_told() {
    let (mut pair, session) = deferring();
    for token in 0..20 {
        pair.call(session, token, b"ask");
    }
    pair.settle();
    assert_eq!(pair.asked.len(), 8);
    pair.drain();
    pair.settle();
    assert_eq!(pair.outcomes.len(), 12);
    assert!(pair.outcomes.drain(..).all(|outcome| outcome.result == Err(REFUSED)));
    for _ in 0..8 {
        pair.answer(b"done");
    }
    pair.settle();
    assert!(pair.outcomes.iter().all(|outcome| outcome.result.is_ok()));
    assert_eq!((pair.outcomes.len(), pair.executed), (8, 8));
}

#[test]
fn only_calls_that_continue_a_stream_are_taken() {
    let (mut pair, session) = connected();
    pair.drain();
    pair.settle();
    let rejected = pair.try_call(session, 1, b"plain").expect_err("the server drains");
    assert_eq!(rejected.reason, RejectReason::PeerDraining);
    for op in [0, 1, 0x81] {
        let rejected = pair.call_with_op(session, 1, op).expect_err("the server drains");
        assert_eq!(rejected.reason, RejectReason::PeerDraining, "op {op:#04x}");
    }
    for op in [2, 3, 0x83, 4] {
        pair.call_with_op(session, 2, op).expect("it continues a stream");
        pair.settle();
        assert!(pair.outcome().result.is_ok(), "op {op:#04x}");
    }
    assert_eq!(pair.executed, 4);
}

#[test]
fn a_server_refuses_the_first_call_of_a_stream_and_takes_the_others() {
    let (mut pair, session) = connected();
    pair.drain_silently();
    pair.call_with_op(session, 1, 3).expect("accepted");
    pair.call_with_op(session, 2, 1).expect("accepted");
    pair.settle();
    let of = |token| pair.outcomes.iter().find(|outcome| outcome.token == token).unwrap();
    assert!(of(1).result.is_ok());
    assert_eq!(of(2).result, Err(REFUSED));
}

#[test]
fn new_sessions_are_refused_at_both_steps_of_the_handshake() {
    let (mut pair, _) = connected();
    let late = pair.connect();
    let (_, open) = pair.challenged();
    pair.drain_silently();
    pair.at_server(CLIENT, &open);
    let early = pair.connect();
    pair.settle();
    let refused = Some(Cause::Connect(ConnectError::Draining));
    assert_eq!((pair.closed(late), pair.closed(early)), (refused, refused));
    assert_eq!(pair.server.sessions(), (0, 1));
}

#[test]
fn a_handshake_that_waits_for_its_path_is_refused() {
    let (mut pair, _) = connected();
    let late = pair.connect();
    let (_, open) = pair.challenged();
    let packet = crate::transport::RxPacket { route: CLIENT, bytes: &open, marked: false };
    let none = |_: &mut _, _: &mut _, _: crate::protocol::Event<'_, _>| {};
    pair.server.receive(pair.now, pair.server_wait, packet, &mut pair.to_client, none);
    pair.drain();
    pair.settle();
    assert_eq!(pair.closed(late), Some(Cause::Connect(ConnectError::Draining)));
}

#[test]
fn the_drain_is_over_when_the_clients_have_closed_their_sessions() {
    let (mut pair, session) = deferring();
    pair.call(session, 1, b"runs");
    pair.settle();
    pair.drain();
    pair.settle();
    pair.disconnect(session);
    pair.live(ms(300));
    assert_eq!(pair.server.sessions(), (0, 1), "a request runs");
    pair.answer(b"done");
    pair.settle();
    assert_eq!(pair.server.sessions(), (0, 0));
    assert!(pair.outcome().result.is_ok());
    assert_eq!(pair.told, ["Opened", "Draining", "Closed(Disconnected)"]);
}

#[test]
fn an_idle_client_that_was_not_told_is_told_again() {
    let (mut pair, session) = connected();
    pair.drain_silently();
    pair.pass_slowly(ms(24));
    assert!(pair.take_to_client().is_empty());
    pair.live(ms(8));
    assert!(pair.knows(session));
}

#[test]
fn idle_clients_are_told_again_at_different_times() {
    let mut pair = Pair::new(1_472, EndpointConfig::new());
    let sessions: Vec<_> = (0..64).map(|_| pair.open()).collect();
    pair.drain_silently();
    let (mut copies, mut most) = (0, 0);
    while copies < sessions.len() {
        pair.pass(pair.server.next_deadline() - pair.now);
        let told = pair.take_to_client().len();
        (copies, most) = (copies + told, most.max(told));
    }
    assert!(most <= 8, "{most} copies at once");
}

#[test]
fn a_client_that_keeps_its_session_open_is_told_ever_more_rarely() {
    let (mut pair, _) = connected();
    pair.drain();
    let (mut told, mut at) = (Vec::new(), pair.now);
    let end = pair.now + Duration::from_secs(10);
    while pair.now < end {
        let packets = pair.take_to_client();
        if packets.iter().any(|packet| matches!(control(packet), Some(Control::GoAway { .. }))) {
            told.push(pair.now - at);
            at = pair.now;
        }
        pair.burst_at_client(SERVER, &packets);
        let answers = pair.take_to_server();
        pair.burst_at_server(CLIENT, &answers);
        let next = pair.client.next_deadline().min(pair.server.next_deadline());
        pair.pass(next - pair.now);
    }
    assert!((12..=18).contains(&told.len()), "{told:?}");
    assert!(told.is_sorted() && *told.last().unwrap() <= ms(1_250), "{told:?}");
}

#[test]
fn the_idle_session_of_a_silent_client_ends_after_half_a_second() {
    let (mut pair, session) = connected();
    pair.pass(ms(1));
    pair.drain();
    pair.pass_slowly(ms(470));
    assert_eq!(pair.server.sessions(), (0, 1));
    pair.pass_slowly(ms(125));
    assert_eq!(pair.server.sessions(), (0, 0));
    let said = pair.take_to_client();
    assert_eq!(said.len(), 11, "ten copies and `Close`");
    pair.burst_at_client(SERVER, &said);
    assert_eq!(pair.closed(session), Some(Cause::PeerClosed));
}

#[test]
fn a_session_whose_request_runs_is_not_ended_though_its_client_is_silent() {
    let (mut pair, session) = deferring();
    pair.call(session, 1, b"runs");
    pair.settle();
    pair.drain();
    let told = pair.take_to_client();
    pair.pass_slowly(ms(1_000));
    assert_eq!(pair.server.sessions(), (0, 1));
    pair.take_to_client();
    pair.burst_at_client(SERVER, &told);
    pair.answer(b"done");
    pair.settle();
    assert!(pair.outcome().result.is_ok());
}

#[test]
fn a_client_that_keeps_its_session_open_is_not_ended() {
    let (mut pair, session) = connected();
    pair.drain();
    pair.live(ms(2_000));
    assert_eq!((pair.server.sessions(), pair.knows(session)), ((0, 1), true));
}

#[test]
fn a_request_that_was_accepted_but_never_run_can_be_refused() {
    let (mut pair, session) = deferring();
    pair.call(session, 1, b"waits for a worker");
    pair.live(ms(50));
    assert_eq!(pair.server.stats().refused_requests, 0);
    pair.drain_silently();
    let asked = pair.asked.pop_front().expect("a request waits");
    pair.server.refuse(pair.now, asked.handle, &mut pair.to_client);
    pair.settle();
    assert_eq!(pair.error(), REFUSED);
}

#[test]
fn a_second_drain_does_nothing() {
    let (mut pair, _) = connected();
    assert!(!pair.server.is_draining());
    pair.drain_silently();
    pair.drain();
    assert!(pair.server.is_draining() && pair.take_to_client().is_empty());
}

#[test]
fn a_forged_message_of_another_session_has_no_effect() {
    use super::craft::emit;
    use crate::protocol::DropReason;
    use crate::wire::ConnectionId;
    let (mut pair, session) = connected();
    let other = ConnectionId::new(0, true, 5, 99);
    let forged = emit(pair.client_id, Control::GoAway { sender: other });
    pair.client_drops(SERVER, &forged, DropReason::Handshake);
    assert!(!pair.knows(session));
}
