//! `#[derive(Service)]` with generated code, also where names collide.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use erpc::service::{Mode, Routes};
use erpc::{
    Burst, CallContext, CallError, CallOptions, Code, Endpoint, EndpointConfig, Interceptor,
    Metadata, Request, Response, Server, Service, Status, Udp, UdpConfig, WorkerPool,
};
use erpc_codegen_tests::modes::{StoreEntry, StoreKey};
use erpc_codegen_tests::{client, hello, modes, odd, server};

/// The crate `erpc` at another path.
mod rpc {
    pub(crate) use erpc::{Service, service};
}

/// Answers with the request where the types allow it.
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
    fn get_with(
        &self,
        _: Request<'_, erpc::prost_types::Timestamp>,
    ) -> Result<Response<bool>, Status> {
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

/// The generated code and the derive use another path of the crate.
#[derive(Service)]
#[erpc(service = server::Greeter, crate = crate::rpc)]
struct Greeter;

impl server::Greeter for Greeter {
    fn greet(
        &self,
        request: Request<'_, server::GreetRequest>,
    ) -> Result<Response<server::GreetReply>, Status> {
        Ok(Response::new(server::GreetReply { greeting: request.into_message().name }))
    }
}

#[test]
fn every_method_is_registered_in_the_mode_of_the_attribute() {
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
    assert_eq!(hello::greeter_service::NAME, Greeter::NAME);
}

/// Returns keys, in the modes that the `.proto` file and the build script declare.
#[derive(Service)]
#[erpc(service = modes::Store)]
struct Declared;

/// The service of [`Declared`], with methods moved to other modes.
#[derive(Service)]
#[erpc(service = modes::Store, worker, dispatch(Compact))]
struct Moved;

macro_rules! store {
    ($($name:ty),*) => {
        $(impl modes::Store for $name {
            fn get(&self, request: Request<'_, StoreKey>) -> Result<Response<StoreEntry>, Status> {
                entry(request)
            }
            fn compact(&self, request: Request<'_, StoreKey>) -> Result<Response<StoreEntry>, Status> {
                entry(request)
            }
            async fn r#await(&self, request: Request<'_, StoreKey>) -> Result<Response<StoreEntry>, Status> {
                entry(request)
            }
            fn fetch(&self, request: Request<'_, StoreKey>) -> Result<Response<StoreEntry>, Status> {
                entry(request)
            }
        })*
    };
}

/// The service of [`Declared`], with options of its own: for all methods, and for two single
/// methods.
#[derive(Service)]
#[erpc(service = modes::Store, max_response = 2 * KIB, idempotent = false)]
#[erpc(
    method(Get, deadline = "20ms", max_response = 0),
    method(Await, idempotent, max_request = 8)
)]
struct Changed;

const KIB: u32 = 1_024;

/// The service of [`Declared`], with a burst hook for methods of all modes. Keeps the keys that the
/// hook has seen.
#[derive(Default, Service)]
#[erpc(service = modes::Store)]
#[erpc(burst(Get = look_ahead, Compact = look_ahead), burst(Await = look_ahead))]
struct Hooked(Mutex<Vec<String>>);

impl Hooked {
    fn look_ahead(&self, burst: Burst<'_, StoreKey>) {
        let keys = burst.iter().map(|request| request.message().key.clone());
        self.0.lock().unwrap().extend(keys);
    }
}

store!(Declared, Moved, Hooked);

impl modes::Store for Changed {
    /// Returns the time left until the deadline, in us; 0 without a deadline.
    fn get(&self, request: Request<'_, StoreKey>) -> Result<Response<StoreEntry>, Status> {
        let left = request.time_left().map_or(0, |left| left.as_micros());
        Ok(Response::new(StoreEntry { key: left.to_string(), value: Vec::new() }))
    }
    /// Returns a value of the requested size in bytes.
    fn compact(&self, request: Request<'_, StoreKey>) -> Result<Response<StoreEntry>, Status> {
        let size = request.message().key.parse().map_err(|_| Status::invalid_argument("a size"))?;
        Ok(Response::new(StoreEntry { key: String::new(), value: vec![0; size] }))
    }
    async fn r#await(
        &self,
        request: Request<'_, StoreKey>,
    ) -> Result<Response<StoreEntry>, Status> {
        entry(request)
    }
    fn fetch(&self, request: Request<'_, StoreKey>) -> Result<Response<StoreEntry>, Status> {
        entry(request)
    }
}

fn entry(request: Request<'_, StoreKey>) -> Result<Response<StoreEntry>, Status> {
    Ok(Response::new(StoreEntry { key: request.into_message().key, value: Vec::new() }))
}

#[test]
fn methods_run_as_declared_unless_they_are_moved() {
    let of = |name| format!("modes.v1.Store/{name}");
    let modes = |register: &dyn Fn(&mut Routes)| {
        let mut routes = Routes::new();
        register(&mut routes);
        let entries: Vec<_> =
            routes.entries().map(|entry| (entry.full_name().to_owned(), entry.mode())).collect();
        entries
    };
    let declared = modes(&|routes| Arc::new(Declared).register(routes).unwrap());
    let expected = [
        (of("Get"), Some(Mode::Dispatch)),
        (of("Compact"), Some(Mode::Worker)),
        (of("Await"), None),
        (of("Fetch"), Some(Mode::Worker)),
    ];
    assert_eq!(declared, expected);
    let moved = modes(&|routes| Arc::new(Moved).register(routes).unwrap());
    let expected = [
        (of("Get"), Some(Mode::Worker)),
        (of("Compact"), Some(Mode::Dispatch)),
        (of("Await"), None),
        (of("Fetch"), Some(Mode::Worker)),
    ];
    assert_eq!(moved, expected);
}

#[test]
fn a_burst_hook_of_the_service_sees_the_requests_of_its_methods() {
    let service = Arc::new(Hooked::default());
    let mut routes = Routes::new();
    Arc::clone(&service).register(&mut routes).unwrap();
    let (workers, routes) = (WorkerPool::new(1, 16).unwrap(), Arc::new(routes));
    let udp = UdpConfig::new().address(([127, 0, 0, 1], 0).into());
    let server = Endpoint::udp_with(&udp, EndpointConfig::new()).unwrap();
    server.listen();
    server.serve(routes, Some(&workers));
    // The same loop runs both sides.
    let store = modes::LocalStoreClient::new(server.open(server.local_route().unwrap()));
    let key = |key: &str| StoreKey { key: key.to_owned() };
    let calls = [store.get(key("get")), store.compact(key("compact")), store.r#await(key("await"))];
    for call in calls {
        server.block_on(call).unwrap();
    }
    assert_eq!(*service.0.lock().unwrap(), ["get", "compact", "await"]);
}

/// Fails calls that have the metadata `tell`. The message of the status says whether the method is
/// idempotent.
struct Idempotent;

impl Interceptor for Idempotent {
    fn before(&self, call: &CallContext<'_>) -> Result<(), Status> {
        match call.metadata().get("tell") {
            None => Ok(()),
            Some(_) => Err(Status::aborted(call.is_idempotent().to_string())),
        }
    }
}

#[test]
fn the_server_overrides_the_options_of_methods() {
    let server = Server::builder().add_service(Changed).intercept(Idempotent).workers(1);
    let server = server.spawn("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::udp().unwrap();
    let store = modes::LocalStoreClient::connect(&endpoint, server.local_addr()).unwrap();
    let key = |key: &str| StoreKey { key: key.to_owned() };
    let code = |outcome: Result<StoreEntry, CallError>| outcome.map_err(|error| error.code());

    let endless = store.with(CallOptions::new().no_deadline());
    let left = endpoint.block_on(endless.get(key("k"))).unwrap().key.parse::<u64>().unwrap();
    assert!((1..=20_000).contains(&left), "{left} us of the server's 20 ms");

    assert!(endpoint.block_on(store.compact(key("2000"))).is_ok());
    assert_eq!(code(endpoint.block_on(store.compact(key("2048")))), Err(Code::OutOfRange));
    assert!(endpoint.block_on(store.r#await(key("short"))).is_ok());
    let long = endpoint.block_on(store.r#await(key("too long")));
    assert_eq!(code(long), Err(Code::InvalidArgument));

    let mut metadata = Metadata::new();
    metadata.insert("tell", "").unwrap();
    let told = store.with(CallOptions::new().metadata(metadata));
    let is_idempotent = |outcome: Result<StoreEntry, CallError>| match outcome {
        Err(CallError::Status(status)) => status.message().to_owned(),
        other => panic!("{other:?}"),
    };
    let calls = [told.get(key("")), told.compact(key("")), told.r#await(key(""))];
    let outcomes = calls.map(|call| is_idempotent(endpoint.block_on(call)));
    assert_eq!(outcomes, ["false", "false", "true"]);
}

#[test]
fn methods_have_their_declared_options() {
    use modes::store_service::methods::{AWAIT, COMPACT, GET};
    assert!(GET.is_idempotent() && AWAIT.is_idempotent() && !COMPACT.is_idempotent());
    assert_eq!(GET.default_deadline(), Some(Duration::from_millis(5)));
    assert_eq!((GET.request_limit(), GET.response_limit()), (4_096, 65_536));
    assert_eq!(COMPACT.default_deadline(), None);
}

/// A service with the name of a type parameter, and messages with names of the prelude.
#[derive(Service)]
#[erpc(service = odd::keywords::S)]
struct Short;

impl odd::keywords::S for Short {
    fn t(
        &self,
        request: Request<'_, odd::keywords::ResultView<'_>>,
    ) -> Result<Response<odd::keywords::Result>, Status> {
        let view = request.message();
        Ok(Response::new(odd::keywords::Result {
            self_: view.self_,
            view: view.view.to_vec(),
            fields: view.fields,
            field: view.field,
        }))
    }
}

#[derive(Service)]
#[erpc(service = odd::keywords::Self_)]
struct Own;

impl odd::keywords::Self_ for Own {
    fn self_(
        &self,
        _: Request<'_, odd::keywords::ResultView<'_>>,
    ) -> Result<Response<odd::keywords::Result>, Status> {
        Err(Status::unimplemented("nothing"))
    }
}

#[test]
fn a_service_can_have_any_name() {
    let mut routes = Routes::new();
    Arc::new(Short).register(&mut routes).unwrap();
    Arc::new(Own).register(&mut routes).unwrap();
    let names: Vec<_> = routes.entries().map(|entry| entry.full_name()).collect();
    assert_eq!(names, ["odd.type.match.S/T", "odd.type.match.Self/Self"]);
    // Only type-checked; the closure is never called.
    let _calls = |client: odd::keywords::LocalSendClient| {
        drop(client.with_(odd::keywords::Option::default()));
        drop(client.channel_(odd::keywords::Option::default()));
        drop(client.self_(odd::keywords::Option::default()));
        client.self_with(odd::keywords::Option::default(), |_| ());
    };
}

#[test]
fn a_service_cannot_be_registered_twice() {
    let mut routes = Routes::new();
    Arc::new(Greeter).register(&mut routes).unwrap();
    let collision = Arc::new(Greeter).register(&mut routes).unwrap_err();
    assert_eq!(
        collision.to_string(),
        "hello.v1.Greeter/Greet is registered twice; add each service to a server once"
    );
}

#[test]
fn a_client_has_a_function_for_each_method() {
    let request = || Box::<odd::names::Holder>::default();
    // Only type-checked; the closure is never called.
    let _calls = |client: odd::names::LocalResultClient<Udp>| {
        drop(client.new_(*request()));
        drop(client.connect_(odd::names::holder::Inner::default()));
        drop(client.get(()));
        drop(client.get_with(erpc::prost_types::Timestamp::default()));
        client.get_with_((), |_| ());
        drop(client.r#async(*request()));
        client.async_with(*request(), |_| ());
        client.http_get2_with(*request(), |_| ());
    };
    let _other = |session: erpc::Session, options: erpc::CallOptions| {
        client::LocalGreeterClient::new(session).with(options).channel().clone()
    };
}
