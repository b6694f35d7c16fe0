//! The parameters that both sides agree on when a session opens.

use super::craft::{PARAMETERS, emit};
use super::pair::{CLIENT, Pair, SERVER, STRANGER, Side, acceptor, control, header, ms, pattern};
use crate::protocol::{
    CallError, Cause, ConnectError, DropReason, EndpointConfig, RejectReason, SessionEvent,
};
use crate::transport::{ChargeModel, MIN_DATAGRAM};
use crate::wire::ConnectionId;
use crate::wire::control::{Control, Parameters, Refusal};

fn both(client: Side, server: Side) -> (Pair, Parameters) {
    let (pair, _) = Pair::of(client, server).and_connected();
    let terms = pair.terms;
    (pair, terms)
}

#[test]
fn the_smaller_datagram_applies() {
    for (client, server) in [(1_472, 9_000), (9_000, 1_472)] {
        let (_, terms) = both(Side::new(client), Side::new(server));
        assert_eq!(terms.max_datagram, 1_472);
    }
}

#[test]
fn calls_work_between_sides_of_different_datagrams() {
    for (client, server) in [(MIN_DATAGRAM, 9_000), (9_000, MIN_DATAGRAM)] {
        let (mut pair, session) = Pair::of(Side::new(client), Side::new(server)).and_connected();
        let message = pattern(1, 50_000);
        pair.call(session, 1, &message);
        pair.settle();
        assert_eq!(pair.outcome().result, Ok(message));
    }
}

#[test]
fn the_lower_number_of_credits_applies() {
    let (few, many) = (
        EndpointConfig::new().credits(3).max_credits(3),
        EndpointConfig::new().credits(40).max_credits(40),
    );
    for (client, server) in [(&few, &many), (&many, &few)] {
        let side = Side::new(1_472);
        let (mut pair, terms) =
            both(side.clone().config(client.clone()), side.config(server.clone()));
        assert_eq!(terms.credits, 3);
        let session = *pair.sessions.keys().next().expect("one session");
        let message = pair.message(10);
        pair.call(session, 1, &message);
        assert_eq!(pair.take_to_server().len(), 3);
    }
}

#[test]
fn a_request_larger_than_the_servers_limit_is_rejected_by_call() {
    let side = Side::new(1_472);
    let server = side.clone().config(EndpointConfig::new().max_message(10_000));
    let (mut pair, session) = Pair::of(side, server).and_connected();
    let rejected = pair.try_call(session, 1, &pattern(1, 10_001)).expect_err("too large");
    assert_eq!(rejected.reason, RejectReason::TooLarge { size: 10_001, limit: 10_000 });
    assert_eq!(
        rejected.request.as_slice(),
        pattern(1, 10_001),
        "the request must be returned unchanged"
    );
    pair.call(session, 2, &pattern(1, 10_000));
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(pattern(1, 10_000)));
}

#[test]
fn a_queued_request_fails_when_the_servers_limit_becomes_known() {
    let side = Side::new(1_472);
    let server = side.clone().config(EndpointConfig::new().max_message(10_000));
    let mut pair = Pair::of(side, server);
    let session = pair.connect();
    for (token, len) in [(1, 10_001), (2, 10_000), (3, 20_000)] {
        pair.call(session, token, &pattern(token, len));
    }
    pair.settle();
    let error = |size| Err(CallError::NotExecuted(Cause::RequestTooLarge(size)));
    let outcomes: Vec<_> =
        pair.outcomes.iter().map(|outcome| (outcome.token, outcome.result.clone())).collect();
    assert_eq!(outcomes, [(1, error(10_001)), (3, error(20_000)), (2, Ok(pattern(2, 10_000)))]);
}

#[test]
fn a_response_larger_than_the_clients_limit_fails_at_the_server() {
    let side = Side::new(1_472);
    let client = side.clone().config(EndpointConfig::new().max_message(10_000));
    let (mut pair, session) = Pair::of(client, side).and_connected();
    pair.echo = false;
    pair.call(session, 1, b"ask");
    pair.settle();
    pair.answer(&pattern(1, 10_001));
    pair.settle();
    let CallError::Status(status) = pair.error() else { panic!("not a status") };
    assert_eq!(status.code(), crate::status::Code::OutOfRange);
    assert_eq!(
        status.message(),
        "the response has 10001 bytes, the client takes at most 10000: see the client's `EndpointConfig::max_message`"
    );
}

#[test]
fn the_first_packet_of_a_response_has_the_clients_eager_size() {
    let side = Side::new(9_000);
    let client = side.clone().config(EndpointConfig::new().eager(2_000));
    let (mut pair, session) = Pair::of(client, side).and_connected();
    pair.call(session, 1, &pattern(1, 8_000));
    let request = pair.take_to_server();
    pair.burst_at_server(CLIENT, &request);
    let response = pair.take_to_client();
    assert_eq!((response.len(), response[0].len()), (1, 24 + 2_000));
    pair.burst_at_client(SERVER, &response);
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(pattern(1, 8_000)));
}

#[test]
fn by_default_256_eager_responses_fit_the_room_for_replies() {
    for capacity in [212_992, 1 << 20, 4 << 20] {
        let client = Side::new(9_000).queue(ChargeModel::LinuxUdp, capacity);
        let (_, terms) = both(client, Side::new(9_000));
        let charge = |eager: u32| ChargeModel::LinuxUdp.charge(28 + eager as usize);
        assert!(
            terms.eager == 1_024 || charge(terms.eager) <= capacity / 256,
            "{capacity}: {}",
            terms.eager
        );
        assert!(
            terms.eager == 8_976 || charge(terms.eager + 1) > capacity / 256,
            "the eager limit must be as large as possible"
        );
    }
}

#[test]
fn a_client_without_a_common_version_is_refused_with_the_servers_versions() {
    for (low, high) in [(0, 0), (2, 3), (3, 1)] {
        let mut pair = Pair::new(1_472, EndpointConfig::new());
        let client = ConnectionId::new(0, false, 3, 99);
        let reply = pair.ask_server(
            STRANGER,
            ConnectionId::endpoint(0),
            Control::Hello { client, low, high },
        );
        let refused = Control::Refused { reason: Refusal::Version, low: 1, high: 1 };
        assert_eq!((control(&reply[0]), header(&reply[0]).connection), (Some(refused), client));
    }
}

#[test]
fn a_hello_in_another_versions_header_is_refused_in_that_version() {
    let mut pair = Pair::new(1_472, EndpointConfig::new());
    let client = ConnectionId::new(0, false, 3, 99);
    let mut hello = emit(ConnectionId::endpoint(0), Control::Hello { client, low: 2, high: 2 });
    hello[8] = hello[8] & !0b11 | 2;
    pair.server_drops(STRANGER, &hello, DropReason::Version);
    let mut reply = pair.take_to_client();
    assert_eq!(reply[0][8] & 0b11, 2, "the answer must have the version of the Hello");
    reply[0][8] = hello[8] & !0b11 | 1;
    assert_eq!(
        control(&reply[0]),
        Some(Control::Refused { reason: Refusal::Version, low: 1, high: 1 })
    );
}

#[test]
fn a_client_reports_the_versions_that_the_server_supports() {
    let mut pair = Pair::new(1_472, EndpointConfig::new());
    let session = pair.connect();
    let hello = pair.take_to_server();
    let Some(Control::Hello { client, .. }) = control(&hello[0]) else { panic!("no hello") };
    let refused = emit(client, Control::Refused { reason: Refusal::Version, low: 2, high: 3 });
    pair.at_client(SERVER, &refused);
    assert_eq!(pair.closed(session), Some(Cause::Connect(ConnectError::Version(2, 3))));
}

#[test]
fn each_side_gets_bundles_only_if_it_takes_them() {
    for (client, server) in [(false, false), (false, true), (true, false), (true, true)] {
        let side = |bundles| Side::new(1_472).bundles(bundles);
        let (mut pair, session) = Pair::of(side(client), side(server)).and_connected();
        // A repeated request is never bundled.
        for lost in [false, false, true] {
            let message = pattern(1, 32);
            pair.call(session, 1, &message);
            if lost {
                pair.take_to_server();
                pair.pass(ms(1_000));
            }
            pair.settle();
            assert_eq!(pair.outcome().result, Ok(message));
        }
        let (requests, responses) = (&pair.to_server.takes_bundles, &pair.to_client.takes_bundles);
        assert_eq!(*requests, [server; 3], "client {client}, server {server}");
        assert_eq!(*responses, [client; 3], "client {client}, server {server}");
    }
}

#[test]
fn invalid_parameters_are_refused() {
    let lies = [
        Parameters { max_datagram: MIN_DATAGRAM as u32 - 1, ..PARAMETERS },
        Parameters { max_datagram: 0, ..PARAMETERS },
        Parameters { eager: 1_023, ..PARAMETERS },
        Parameters { eager: 0, ..PARAMETERS },
        Parameters { credits: 0, ..PARAMETERS },
        Parameters { max_message: 0, ..PARAMETERS },
        Parameters { charge_model: 2, ..PARAMETERS },
        Parameters { slots: 0, ..PARAMETERS },
        Parameters { slots: 12, ..PARAMETERS },
        Parameters { slots: 128, ..PARAMETERS },
    ];
    for parameters in lies {
        let mut pair = Pair::new(1_472, EndpointConfig::new());
        let client = ConnectionId::new(0, false, 3, 99);
        let reply = pair.ask_for_session(STRANGER, client, parameters);
        let refused = Control::Refused { reason: Refusal::Parameters, low: 1, high: 1 };
        assert_eq!(reply, Some(refused), "{parameters:?}");
        assert_eq!((pair.server.sessions(), pair.server.stats().refused), ((0, 0), 1));
    }
}

#[test]
fn extreme_parameters_are_limited_to_the_servers_own() {
    let mut pair = Pair::new(1_472, EndpointConfig::new());
    let client = ConnectionId::new(0, false, 3, 99);
    let endpoint = ConnectionId::endpoint(0);
    let challenge =
        pair.ask_server(STRANGER, endpoint, Control::Hello { client, low: 0, high: u16::MAX });
    let Some(Control::Challenge { cookie, .. }) = control(&challenge[0]) else {
        panic!("not challenged")
    };
    let parameters = Parameters {
        max_datagram: u32::MAX,
        max_message: u32::MAX,
        eager: u32::MAX,
        window: u32::MAX,
        credits: u16::MAX,
        charge_model: 1,
        integrity: false,
        bundles: false,
        slots: 64,
    };
    let reply = pair.ask_server(STRANGER, endpoint, Control::Open { client, cookie, parameters });
    let Some(Control::Opened { parameters: terms, .. }) = control(&reply[0]) else {
        panic!("not opened")
    };
    assert_eq!((terms.max_datagram, terms.eager, terms.credits), (1_472, 1_448, 16_384));
    assert_eq!(terms.slots, 8);
}

#[test]
fn a_server_that_grants_more_than_was_requested_is_rejected() {
    let honest = Parameters { max_datagram: 1_472, credits: 32, ..PARAMETERS };
    let lies = [
        Parameters { max_datagram: 1_473, ..honest },
        Parameters { max_datagram: MIN_DATAGRAM as u32 - 1, ..honest },
        Parameters { max_datagram: 0, ..honest },
        Parameters { credits: 16_385, ..honest },
        Parameters { credits: 0, ..honest },
        Parameters { max_message: 0, ..honest },
        Parameters { eager: 0, ..honest },
        Parameters { eager: 1_023, ..honest },
        Parameters { eager: 1_449, ..honest },
        Parameters { charge_model: 9, ..honest },
        Parameters { slots: 16, ..honest },
        Parameters { slots: 7, ..honest },
        Parameters { slots: 0, ..honest },
    ];
    for parameters in lies {
        let mut pair = Pair::new(1_472, EndpointConfig::new());
        let session = pair.connect();
        let (client, _) = pair.challenged();
        let server = ConnectionId::new(0, true, 0, 1);
        let opened = emit(client, Control::Opened { server, parameters });
        pair.at_client(SERVER, &opened);
        let refused = Cause::Connect(ConnectError::Parameters);
        assert_eq!(pair.closed(session), Some(refused), "{parameters:?}");
    }
}

#[test]
fn a_window_of_zero_still_lets_one_packet_at_a_time_through() {
    let mut pair = Pair::new(1_472, EndpointConfig::new());
    let session = pair.connect();
    let (client, open) = pair.challenged();
    pair.at_server(CLIENT, &open);
    let Some(Control::Opened { server, parameters }) = control(&pair.take_to_client()[0]) else {
        panic!("not opened")
    };
    let stingy = Control::Opened { server, parameters: Parameters { window: 0, ..parameters } };
    pair.at_client(SERVER, &emit(client, stingy));
    let message = pair.message(5);
    pair.call(session, 1, &message);
    assert_eq!(pair.to_server.packets.len(), 1);
    pair.settle();
    assert_eq!(pair.outcome().result, Ok(message));
}

#[test]
fn a_client_that_starts_to_listen_during_the_handshake_still_opens_the_session() {
    let side = Side::new(9_000).queue(ChargeModel::LinuxUdp, 16 << 20);
    let mut pair = Pair::of(side.clone(), side);
    let session = pair.connect();
    let (_, open) = pair.challenged();
    pair.at_server(CLIENT, &open);
    assert!(
        matches!(control(&pair.take_to_client()[0]), Some(Control::Opened { .. })),
        "the server answers `Opened`, which is lost"
    );
    // An endpoint that listens keeps a part of its receive queue for requests. So from here on the
    // client has less room for replies.
    pair.client.listen(acceptor());
    // For 400 ms no packet is delivered, so the client's `Open`s stay unanswered and the client
    // asks for another cookie. Then it sends an `Open` with new parameters.
    pair.pass_slowly(ms(400));
    pair.live(ms(400));
    assert_eq!(pair.sessions.get(&session), Some(&SessionEvent::Opened));
}
