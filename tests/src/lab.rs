//! The service that the tests call.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use erpc::service::Routes;
use erpc::transport::fault::Faulty;
use erpc::transport::mem::{MemRoute, MemTransport};
use erpc::transport::udp::UdpRoute;
use erpc::{
    CallError, Code, Endpoint, EndpointConfig, Handle, Request, Responder, Response, Service,
    Session, Status, Transport, Udp, UdpConfig,
};

use crate::proto::*;
use erpc_test_tools::data::{bytes_of, digest};

/// `SO_RCVBUF` for a receive buffer of 212,992 bytes, the limit of an unprivileged process with the
/// kernel's default settings. The kernel doubles the requested value.
pub const DEFAULT_RECV_BUFFER: usize = 212_992 / 2;

/// UDP on 127.0.0.1, with a port of the kernel's choice and the default receive buffer.
#[must_use]
pub fn loopback() -> UdpConfig {
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    UdpConfig::new().address(any_port).recv_buffer(DEFAULT_RECV_BUFFER)
}

/// A client endpoint over [`loopback`].
///
/// # Panics
/// If the system refuses the socket, or the configuration is wrong.
pub fn client(config: EndpointConfig) -> Endpoint {
    Endpoint::udp_with(&loopback(), config).expect("the client endpoint opens")
}

/// The function that a [`LabService`] calls with the id of each executed piece of work.
type ExecutionLog = dyn Fn(u64) + Send + Sync;

/// A transport whose addresses can be written in a request.
pub trait Reachable: Transport {
    /// The route that `text` names, as [`Display`](std::fmt::Display) writes it.
    fn parse(text: &str) -> Option<Self::Route>;
}

impl Reachable for Udp {
    fn parse(text: &str) -> Option<UdpRoute> {
        text.parse::<SocketAddr>().ok().map(UdpRoute::from)
    }
}

impl Reachable for MemTransport {
    fn parse(text: &str) -> Option<MemRoute> {
        text.strip_prefix("mem:")?.parse().ok().map(MemRoute::new)
    }
}

#[cfg(feature = "dpdk")]
impl Reachable for erpc::transport::dpdk::DpdkTransport {
    fn parse(text: &str) -> Option<UdpRoute> {
        Udp::parse(text)
    }
}

impl<D: erpc::transport::verbs::Device> Reachable for erpc::transport::verbs::VerbsTransport<D> {
    fn parse(text: &str) -> Option<UdpRoute> {
        Udp::parse(text)
    }
}

impl<T: Reachable> Reachable for Faulty<T> {
    fn parse(text: &str) -> Option<T::Route> {
        T::parse(text)
    }
}

/// The service. All threads of a server share it. Its handlers forward calls over `T`, the server's
/// own transport.
#[derive(erpc::Service)]
#[erpc(service = crate::proto::Lab, worker(Scan, Nap, FailSlowly, ForwardSlowly))]
pub struct LabService<T: Reachable = Udp> {
    values: Mutex<BTreeMap<String, Bytes>>,
    waiting: Mutex<HashMap<u64, Vec<Responder<AwaitReply>>>>,
    witness: Box<ExecutionLog>,
    transport: PhantomData<fn(T)>,
}

fn locked<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LabService {
    /// A service over UDP that calls `witness` with the id of each piece of [`work`](Lab::work),
    /// before it answers.
    pub fn new(witness: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self::over(witness)
    }
}

impl<T: Reachable> LabService<T> {
    /// Like [`LabService::new`], over any transport.
    pub fn over(witness: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self {
            values: Mutex::default(),
            waiting: Mutex::default(),
            witness: Box::new(witness),
            transport: PhantomData,
        }
    }

    /// The methods of the service, for endpoints that serve without a [`Server`](erpc::Server).
    ///
    /// # Panics
    /// Never: the methods of one service do not collide.
    #[must_use]
    pub fn routes(self) -> Arc<Routes> {
        let mut routes = Routes::new();
        Arc::new(self).register(&mut routes).expect("the methods of one service do not collide");
        Arc::new(routes)
    }
}

impl Default for LabService {
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl<T: Reachable> std::fmt::Debug for LabService<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LabService")
    }
}

/// The request for piece of work `id`, and the right answer. `body_len` and `reply_len` are in
/// bytes.
#[must_use]
pub fn work(id: u64, body_len: usize, reply_len: usize) -> (WorkRequest, WorkReply) {
    let body = bytes_of(id, body_len);
    let reply = WorkReply { id, digest: digest(&body), body: bytes_of(!id, reply_len) };
    (WorkRequest { id, body, reply_len: reply_len as u32 }, reply)
}

impl<T: Reachable> Lab for LabService<T> {
    fn echo(&self, request: Request<'_, EchoRequest>) -> Result<Response<EchoReply>, Status> {
        Ok(Response::new(EchoReply { body: request.into_message().body }))
    }

    fn count(&self, request: Request<'_, CountRequest>) -> Result<Response<CountReply>, Status> {
        Ok(Response::new(CountReply { number: request.message().number }))
    }

    fn put(&self, request: Request<'_, PutRequest>) -> Result<Response<PutReply>, Status> {
        let PutRequest { key, value } = request.into_message();
        let replaced = locked(&self.values).insert(key, value).is_some();
        Ok(Response::new(PutReply { replaced }))
    }

    fn get(&self, request: Request<'_, GetRequest>) -> Result<Response<GetReply>, Status> {
        let value = locked(&self.values).get(&request.message().key).cloned();
        let value = value.ok_or_else(|| Status::not_found("there is no such key"))?;
        Ok(Response::new(GetReply { value }))
    }

    fn scan(&self, request: Request<'_, ScanRequest>) -> Result<Response<ScanReply>, Status> {
        let ScanRequest { prefix } = request.message();
        let values = locked(&self.values);
        let keys = values.keys().filter(|key| key.starts_with(prefix)).cloned().collect();
        Ok(Response::new(ScanReply { keys }))
    }

    fn work(&self, request: Request<'_, WorkRequest>) -> Result<Response<WorkReply>, Status> {
        let WorkRequest { id, body, reply_len } = request.into_message();
        (self.witness)(id);
        Ok(Response::new(WorkReply {
            id,
            digest: digest(&body),
            body: bytes_of(!id, reply_len as usize),
        }))
    }

    fn nap(&self, request: Request<'_, NapRequest>) -> Result<Response<NapReply>, Status> {
        thread::sleep(Duration::from_millis(request.message().millis.into()));
        Ok(Response::new(NapReply {}))
    }

    fn fail(&self, request: Request<'_, FailRequest>) -> Result<Response<FailReply>, Status> {
        let FailRequest { code, message, details, panic } = request.into_message();
        assert!(!panic, "the request asks for a panic: {message}");
        Err(Status::new(Code::from_u32(code), message).with_details(&details))
    }

    fn fail_slowly(
        &self,
        request: Request<'_, FailRequest>,
    ) -> Result<Response<FailReply>, Status> {
        self.fail(request)
    }

    fn r#await(&self, request: Request<'_, AwaitRequest>) -> Result<Response<AwaitReply>, Status> {
        Ok(request.defer(|AwaitRequest { key }, responder| {
            locked(&self.waiting).entry(key).or_default().push(responder);
        }))
    }

    fn release(
        &self,
        request: Request<'_, ReleaseRequest>,
    ) -> Result<Response<ReleaseReply>, Status> {
        let waited = locked(&self.waiting).remove(&request.message().key).unwrap_or_default();
        let released = waited.len() as u32;
        for responder in waited {
            responder.send(&AwaitReply {});
        }
        Ok(Response::new(ReleaseReply { released }))
    }

    fn forward(
        &self,
        request: Request<'_, ForwardRequest>,
    ) -> Result<Response<ForwardReply>, Status> {
        let endpoint = Endpoint::<T>::current()
            .ok_or_else(|| Status::internal("the handler does not run in an event loop"))?;
        Ok(request.defer(|message, responder| forward(&endpoint, message, responder)))
    }

    fn forward_slowly(
        &self,
        request: Request<'_, ForwardRequest>,
    ) -> Result<Response<ForwardReply>, Status> {
        let handle =
            Handle::<T>::current().ok_or_else(|| Status::internal("the worker has no endpoint"))?;
        Ok(request.defer(|message, responder| {
            // `submit` fails if the endpoint is closed. Then the responder is dropped with the job,
            // and the caller's session is closed, too.
            handle.submit(move |endpoint| forward(endpoint, message, responder)).unwrap_or(());
        }))
    }
}

/// The sessions of one endpoint to other servers.
struct Backends<T: Transport>(RefCell<HashMap<T::Route, Session<T>>>);

/// Calls the other server from the loop of `endpoint`, and forwards the answer to `responder`.
fn forward<T: Reachable>(
    endpoint: &Endpoint<T>,
    request: ForwardRequest,
    responder: Responder<ForwardReply>,
) {
    let Some(address) = T::parse(&request.server) else {
        return responder.fail(Status::invalid_argument("`server` is not an address"));
    };
    let backends = endpoint.local(|_| Backends::<T>(RefCell::default()));
    let session =
        backends.0.borrow_mut().entry(address).or_insert_with(|| endpoint.open(address)).clone();
    LocalLabClient::new(session).echo_with(
        EchoRequest { body: request.body },
        |reply| match reply {
            Ok(reply) => responder.send(&ForwardReply { body: reply.body }),
            Err(CallError::Status(status)) => responder.fail(status),
            Err(error) => responder.fail(Status::unavailable(error.to_string())),
        },
    );
}
