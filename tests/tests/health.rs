//! The health service of a server, called by a client that is generated from its definition.

use erpc::health::{HealthReporter, ServingStatus};
use erpc::{CallError, Cause, Channel, Code, EndpointConfig, Server, SharedChannel};
use erpc_test_tools::limit::{secs, within};
use erpc_tests::lab::{LabService, client, loopback};
use erpc_tests::proto::{CountRequest, LabClient, LocalLabClient};

/// The generated code of `erpc.health.v1`.
mod proto {
    erpc::include_proto!("erpc.health.v1");
}

use proto::health_check_response::ServingStatus as Status;
use proto::{HealthCheckRequest, LocalHealthClient};

fn about(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.into() }
}

#[test]
fn a_generated_client_reads_the_reports_and_a_channel_heeds_them() {
    within(secs(30), || {
        let health = HealthReporter::new();
        let server = Server::builder().add_service(LabService::default()).health(&health);
        let server = server.udp(loopback()).threads(2).spawn("127.0.0.1:0").expect("it starts");
        let endpoint = client(EndpointConfig::new());
        let session = endpoint.connect(server.local_addr()).expect("the server answers");
        let client = LocalHealthClient::new(session);
        let check = |service| endpoint.block_on(client.check(about(service)));
        for service in ["", "test.v1.Lab", "erpc.health.v1.Health"] {
            assert_eq!(check(service).map(|report| report.status()), Ok(Status::Serving));
        }
        let unknown = check("test.v1.Other").expect_err("the server does not have it");
        assert_eq!(unknown.code(), Code::NotFound);

        let mut reports = client.watch(about("test.v1.Lab"));
        let mut next = || {
            let report = endpoint.block_on(reports.next()).expect("the stream goes on");
            report.map(|report| report.status())
        };
        assert_eq!(next(), Some(Status::Serving));
        let channel = Channel::to(&endpoint, vec![server.local_addr().into()]);
        let lab = LocalLabClient::new(channel.health_check("test.v1.Lab").build());
        let count = || endpoint.block_on(lab.count(CountRequest { number: 1 }));
        assert!(count().is_ok());
        health.set("test.v1.Lab", ServingStatus::NotServing);
        assert_eq!(next(), Some(Status::NotServing));
        while count().is_ok() {}
        health.set("test.v1.Lab", ServingStatus::Serving);
        assert_eq!(next(), Some(Status::Serving));
        while count().is_err() {}

        let draining = std::thread::spawn(move || server.drain(secs(20)));
        assert_eq!(next(), Some(Status::NotServing));
        assert_eq!(next(), None);
        endpoint.run_until(|| draining.is_finished());
        assert_eq!(draining.join().expect("no panic"), 0);
    });
}

#[test]
fn a_shared_channel_heeds_the_reports() {
    within(secs(30), || {
        let health = HealthReporter::new();
        let server = Server::builder().add_service(LabService::default()).health(&health);
        let server = server.udp(loopback()).spawn("127.0.0.1:0").expect("it starts");
        health.set("test.v1.Lab", ServingStatus::NotServing);
        let channel = SharedChannel::to(vec![server.local_addr().into()]);
        let channel = channel.health_check("test.v1.Lab").build();
        let lab = LabClient::new(channel.expect("the default threads run"));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let count = || runtime.block_on(lab.count(CountRequest { number: 1 }));
        let error = count().expect_err("no server serves");
        assert!(
            matches!(&error, CallError::NoServer(why) if why.cause() == Cause::NotServing),
            "{error}"
        );
        health.set("test.v1.Lab", ServingStatus::Serving);
        while count().is_err() {}
    });
}
