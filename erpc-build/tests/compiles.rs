//! Generated code compiles, also where names meet, and `#[derive(Service)]` finds its way in it.

#![expect(unreachable_pub, reason = "generated code is public")]

use std::sync::Arc;

use erpc::service::{Mode, Routes};
use erpc::{Request, Response, Service, Status, Udp};

mod plain {
    include!("golden/plain/hello.v1.rs");
}

mod odd {
    pub mod imported {
        include!("golden/odd/odd.imported.rs");
    }
    #[expect(
        clippy::wrong_self_convention,
        clippy::new_ret_no_self,
        reason = "the service has a method `New`"
    )]
    pub mod names {
        include!("golden/odd/odd.names.rs");
    }
}

/// Generated with another path for the crate.
mod other_path {
    include!("golden/server/hello.v1.rs");
}

/// What that path leads to.
mod rpc {
    pub use erpc::{Request, Response, Status, service};
}

/// Answers with what it was asked, where it can.
#[derive(Service)]
#[erpc(service = odd::names::Result, worker, dispatch(async, HTTPGet2))]
struct Odd;

impl odd::names::Result for Odd {
    fn new(
        &self,
        request: Request<'_, odd::names::Holder>,
    ) -> Result<Response<odd::names::Holder>, Status> {
        Ok(Response::new(request.into_message()))
    }
    fn connect(
        &self,
        _: Request<'_, odd::names::holder::Inner>,
    ) -> Result<Response<odd::imported::Thing>, Status> {
        Err(Status::unimplemented("nothing to connect to"))
    }
    fn get(&self, _: Request<'_, ()>) -> Result<Response<String>, Status> {
        Ok(Response::new(String::new()))
    }
    fn get_with(&self, _: Request<'_, prost_types::Timestamp>) -> Result<Response<bool>, Status> {
        Ok(Response::new(true))
    }
    fn r#async(
        &self,
        request: Request<'_, odd::names::Holder>,
    ) -> Result<Response<odd::names::Holder>, Status> {
        Ok(Response::new(request.into_message()))
    }
    fn http_get2(
        &self,
        request: Request<'_, odd::names::Holder>,
    ) -> Result<Response<odd::names::Holder>, Status> {
        Ok(Response::new(request.into_message()))
    }
}

/// A service whose trait is not re-exported, with a generic state.
#[derive(Service)]
#[erpc(service = odd::names::holder_service::Holder)]
struct Keeper<K>(K);

impl<K: Into<bool> + Copy + Send + Sync + 'static> odd::names::holder_service::Holder
    for Keeper<K>
{
    fn keep(
        &self,
        request: Request<'_, odd::names::Holder>,
    ) -> Result<Response<odd::names::Holder>, Status> {
        match self.0.into() {
            true => Ok(Response::new(request.into_message())),
            false => Err(Status::not_found("not kept")),
        }
    }
}

#[derive(Service)]
#[erpc(service = odd::names::Nothing, worker)]
struct Nothing;

impl odd::names::Nothing for Nothing {}

/// Two services of one name from two files, by the crate's other path.
#[derive(Service)]
#[erpc(service = other_path::Greeter, crate = crate::rpc_with_trait)]
struct Greeter;

mod rpc_with_trait {
    pub use erpc::{Service, service};
}

impl other_path::Greeter for Greeter {
    fn greet(
        &self,
        request: Request<'_, other_path::GreetRequest>,
    ) -> Result<Response<other_path::GreetReply>, Status> {
        Ok(Response::new(other_path::GreetReply { greeting: request.into_message().name }))
    }
}

#[test]
fn every_service_is_registered_in_the_modes_that_were_asked_for() {
    let mut routes = Routes::new();
    Arc::new(Odd).register(&mut routes).unwrap();
    Arc::new(Keeper(true)).register(&mut routes).unwrap();
    Arc::new(Nothing).register(&mut routes).unwrap();
    Arc::new(Greeter).register(&mut routes).unwrap();
    let registered: Vec<_> =
        routes.entries().map(|entry| (entry.full_name(), entry.mode())).collect();
    let expected = [
        ("odd.names.Result/New", Some(Mode::Worker)),
        ("odd.names.Result/Connect", Some(Mode::Worker)),
        ("odd.names.Result/Get", Some(Mode::Worker)),
        ("odd.names.Result/GetWith", Some(Mode::Worker)),
        ("odd.names.Result/async", Some(Mode::Dispatch)),
        ("odd.names.Result/HTTPGet2", Some(Mode::Dispatch)),
        ("odd.names.Holder_/Keep", Some(Mode::Dispatch)),
        ("hello.v1.Greeter/Greet", Some(Mode::Dispatch)),
    ];
    assert_eq!(registered, expected);
    assert_eq!(Odd::NAME, "odd.names.Result");
    assert_eq!(plain::greeter_service::NAME, Greeter::NAME);
}

#[test]
fn a_service_is_registered_once() {
    let mut routes = Routes::new();
    Arc::new(Greeter).register(&mut routes).unwrap();
    let collision = Arc::new(Greeter).register(&mut routes).unwrap_err();
    assert_eq!(
        collision.to_string(),
        "hello.v1.Greeter/Greet is registered twice; add each service to a server once"
    );
}

#[test]
fn clients_have_a_function_for_each_method() {
    let request = || Box::<odd::names::Holder>::default();
    // Type-checks; nothing is sent.
    let _calls = |client: odd::names::ResultClient<Udp>| {
        drop(client.new_(*request()));
        drop(client.connect_(odd::names::holder::Inner::default()));
        drop(client.get(()));
        drop(client.get_with(prost_types::Timestamp::default()));
        client.get_with_((), |_| ());
        drop(client.r#async(request()));
        client.async_with(*request(), |_| ());
        client.http_get2_with(*request(), |_| ());
    };
}
