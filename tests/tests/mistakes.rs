//! The first mistakes of new users, and the exact texts that they read.
//!
//! The compiler's texts about mistakes in the code of a service are in `tests/codegen/tests/ui`.

use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use erpc::service::Method;
use erpc::{
    CallError, Channel, Code, ConnectFailed, Endpoint, EndpointConfig, Lookup, RejectReason,
    Server, ServerHandle, Status,
};
use erpc_test_tools::limit::{millis, secs, within};
use erpc_tests::lab::{LabService, client, loopback};
use erpc_tests::proto::*;

/// What a process prints if `main` returns this error.
fn printed_by_main(error: impl std::error::Error) -> String {
    format!("Error: {error:?}")
}

const COUNT: CountRequest = CountRequest { number: 7 };

const NO_ANSWER: &str = "no answer within the connect timeout, and no error from the network: a firewall drops UDP, \
    the host is down, or the server's event loop is busy, for example with a handler that blocks it";

fn serve() -> ServerHandle {
    let server = Server::builder().add_service(LabService::default()).udp(loopback());
    server.spawn("127.0.0.1:0").expect("the server starts")
}

fn impatient() -> Endpoint {
    client(EndpointConfig::new().connect_timeout(millis(50)))
}

/// The errors of the generated clients of both kinds when they connect to `server`.
fn clients_without(server: &str) -> [ConnectFailed; 2] {
    let local = LocalLabClient::connect(&impatient(), server).expect_err("no server's address");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let shared = runtime.block_on(LabClient::connect(server)).expect_err("no server's address");
    [local, shared]
}

/// A socket that receives and does not answer, as a server whose event loop is busy.
fn silent() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("the socket opens");
    let address = socket.local_addr().expect("the socket has an address");
    (socket, address)
}

/// The system's reason why this name has no address.
fn systems_reason(name: &str) -> String {
    name.to_socket_addrs().expect_err("the name does not exist").to_string()
}

const NO_SUCH_NAME: &str = "no-such-name.invalid:31850";

#[test]
fn a_port_in_use() {
    let first = serve();
    let address = first.local_addr();
    let server = Server::builder().add_service(LabService::default()).udp(loopback());
    let error = server.spawn(address).expect_err("the port is in use");
    assert_eq!(
        printed_by_main(error),
        format!(
            "Error: cannot serve: {address} is in use; stop the process that uses it (`ss -ulpn` lists it) or choose \
             another port"
        )
    );
}

#[test]
fn a_setting_out_of_range() {
    let config = EndpointConfig::new().credits(0);
    let error = Endpoint::udp_with(&loopback(), config).expect_err("credits are 1 to 1,024");
    assert_eq!(
        printed_by_main(error),
        "Error: cannot open an endpoint: credits must be 1 to 1,024"
    );
}

#[test]
fn a_server_that_does_not_answer() {
    let (_silent, address) = silent();
    let endpoint = impatient();
    let error = endpoint.connect(address).expect_err("the server is silent");
    assert_eq!(error.address(), address.to_string());
    let text = format!("Error: cannot connect to {address}: {NO_ANSWER}");
    assert_eq!(printed_by_main(error), text);
    let error = LocalLabClient::connect(&endpoint, address).expect_err("the server is silent");
    assert_eq!(printed_by_main(error), text);
}

#[test]
fn servers_of_a_channel_that_do_not_answer() {
    within(secs(20), || {
        let ((_one, first), (_other, second)) = (silent(), silent());
        let endpoint = impatient();
        let servers = vec![first.into(), second.into()];
        let lab = LocalLabClient::new(Channel::to(&endpoint, servers).build());
        let error = endpoint.block_on(lab.count(COUNT)).expect_err("the servers are silent");
        assert_eq!(error.code(), Code::Unavailable);
        let text = format!(
            "cannot connect to {first}, {second}: {NO_ANSWER}; the call was not executed and may be retried"
        );
        assert_eq!(printed_by_main(error.clone()), format!("Error: {text}"));
        // A handler that fails with this error passes the text on to its caller.
        assert_eq!(Status::from(error).message(), text);
    });
}

#[test]
fn a_url_instead_of_an_address() {
    let url = "http://127.0.0.1:50051";
    for error in clients_without(url) {
        assert_eq!(error.address(), url);
        assert_eq!(
            printed_by_main(error),
            "Error: cannot look up the server's address `http://127.0.0.1:50051`: `http://` belongs to a URL, and erpc \
             is not HTTP; write 127.0.0.1:50051"
        );
    }
}

#[test]
fn an_address_without_a_port() {
    for error in clients_without("localhost") {
        assert_eq!(
            printed_by_main(error),
            "Error: cannot look up the server's address `localhost`: it has no port number; write localhost:PORT"
        );
    }
}

#[test]
fn a_port_above_the_largest() {
    for error in clients_without("127.0.0.1:99999") {
        assert_eq!(
            printed_by_main(error),
            "Error: cannot look up the server's address `127.0.0.1:99999`: port 99999 is above 65535; write \
             127.0.0.1:PORT"
        );
    }
}

#[test]
fn an_empty_address() {
    for error in clients_without("") {
        assert_eq!(
            printed_by_main(error),
            "Error: cannot look up the server's address: it is empty; write HOST:PORT"
        );
    }
}

/// A server reads its address as a client does, and repeats it.
#[test]
fn a_listening_address_that_is_none() {
    let name = systems_reason(NO_SUCH_NAME);
    for (address, flaw) in [
        (
            "http://127.0.0.1:31850",
            " `http://127.0.0.1:31850`: `http://` belongs to a URL, and erpc is not HTTP; write 127.0.0.1:31850",
        ),
        ("127.0.0.1", " `127.0.0.1`: it has no port number; write 127.0.0.1:PORT"),
        ("127.0.0.1:99999", " `127.0.0.1:99999`: port 99999 is above 65535; write 127.0.0.1:PORT"),
        (":31850", " `:31850`: it has no host; write HOST:31850"),
        ("", ": it is empty; write HOST:PORT"),
        (NO_SUCH_NAME, &format!(" `{NO_SUCH_NAME}`: {name}")),
    ] {
        let server = Server::builder().add_service(LabService::default()).udp(loopback());
        let error = server.spawn(address).expect_err("no address");
        assert_eq!(
            printed_by_main(error),
            format!("Error: cannot serve: cannot look up the listening address{flaw}")
        );
    }
}

#[test]
fn a_name_that_does_not_exist() {
    let reason = systems_reason(NO_SUCH_NAME);
    for error in clients_without(NO_SUCH_NAME) {
        assert_eq!(error.address(), NO_SUCH_NAME);
        assert_eq!(
            printed_by_main(error),
            format!("Error: cannot look up the server's address `{NO_SUCH_NAME}`: {reason}")
        );
    }
}

#[test]
fn a_name_of_a_channel_that_does_not_exist() {
    within(secs(60), || {
        let endpoint = impatient();
        let channel = Channel::to(&endpoint, Lookup::new(NO_SUCH_NAME)).build();
        let lab = LocalLabClient::new(channel.clone());
        let error = endpoint.block_on(lab.count(COUNT)).expect_err("the name does not exist");
        let reason = systems_reason(NO_SUCH_NAME);
        let text = format!("cannot look up the server's address `{NO_SUCH_NAME}`: {reason}");
        assert_eq!(
            printed_by_main(error),
            format!("Error: {text}; the call was not executed and may be retried")
        );
        let error = endpoint.block_on(channel.ready()).expect_err("the name does not exist");
        assert_eq!(error.address(), NO_SUCH_NAME);
        assert_eq!(error.to_string(), text);
    });
}

/// As if field 1 had another type in the client's `.proto` file.
#[test]
fn a_response_of_another_type() {
    let server = serve();
    let endpoint = impatient();
    let lab = LocalLabClient::connect(&endpoint, server.local_addr()).expect("the server answers");
    let confused = Method::<CountRequest, EchoReply>::new("test.v1.Lab/Count");
    let error = endpoint.block_on(lab.channel().call(&confused, &COUNT)).expect_err("no reply");
    assert_eq!(
        printed_by_main(error),
        "Error: the response does not decode as the method's type (are both sides built from the same .proto file?); \
         the call was executed"
    );
}

#[test]
fn a_handler_that_panics() {
    let server = serve();
    let endpoint = impatient();
    let lab = LocalLabClient::connect(&endpoint, server.local_addr()).expect("the server answers");
    let panics = FailRequest { panic: true, ..FailRequest::default() };
    for (call, method) in [(lab.fail(&panics), "Fail"), (lab.fail_slowly(&panics), "FailSlowly")] {
        let error = endpoint.block_on(call).expect_err("the handler panics");
        assert_eq!(
            printed_by_main(error),
            format!("Error: Internal: the handler of test.v1.Lab/{method} panicked")
        );
    }
}

#[test]
fn a_failed_call() {
    let server = serve();
    let endpoint = client(EndpointConfig::new());
    let lab = LocalLabClient::connect(&endpoint, server.local_addr()).expect("the server answers");
    let missing = endpoint.block_on(lab.get(GetRequest { key: "x".into() }));
    assert_eq!(
        printed_by_main(missing.expect_err("there is no such key")),
        "Error: NotFound: there is no such key"
    );
    let full = CallError::Rejected(RejectReason::QueueFull);
    assert_eq!(
        printed_by_main(full),
        "Error: the session's queue is full; wait for replies before calling again; nothing was sent"
    );
}

/// A client that makes a call now and then: its endpoint's loop runs only during the calls.
#[test]
fn an_idle_client_whose_loop_does_not_run() {
    within(secs(30), || {
        let config =
            || EndpointConfig::new().ping_interval(millis(40)).liveness_timeout(millis(120));
        let server = Server::builder().add_service(LabService::default()).udp(loopback());
        let server = server.config(config()).spawn("127.0.0.1:0").expect("the server starts");
        let endpoint = client(config());
        let lab =
            LocalLabClient::connect(&endpoint, server.local_addr()).expect("the server answers");
        for round in 0..5 {
            let reply = endpoint.block_on(lab.count(CountRequest { number: round }));
            assert_eq!(reply, Ok(CountReply { number: round }));
            while server.stats().server_sessions > 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let reply = endpoint.block_on(lab.put(PutRequest { key: "x".into(), value: "y".into() }));
        assert_eq!(reply, Ok(PutReply { replaced: false }), "executed exactly once");
        let stats = server.stats();
        assert_eq!(stats.protocol.requests, 6, "each call was executed once");
    });
}
