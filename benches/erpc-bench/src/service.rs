//! The server of the benchmarks: the methods of the raw layer, and the typed service.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BufMut;
use erpc::raw::{App, Body, ClientStats, Context, MsgBuf, RequestHandle, ResponseBuffer};
use erpc::service::{MethodCollision, Routes};
use erpc::{LoopGaps, Service as _};
use erpc::{Request, Response, Status, Transport};
use erpc_core::service::{CallHost, Encoded, HandlerOutcome, ReplySink};

use crate::machine;
use crate::methods::{self, Control, ServerState};
use crate::payload;
use crate::values::{VALUE, is_there, value};

/// Code that `erpc-build` generates from `proto/bench.proto`.
pub(crate) mod proto {
    erpc::include_proto!("bench.v1");
}

/// A store with a value of 64 bytes for each key. For multiples of 16, the answer's flag says that
/// the key is missing.
#[derive(erpc::Service)]
#[erpc(service = proto::Bench)]
pub(crate) struct Store {
    values: Vec<[u8; VALUE]>,
}

impl Store {
    fn new() -> Self {
        Self { values: (0..=u8::MAX).map(|key| value(key.into())).collect() }
    }
}

impl proto::Bench for Store {
    fn get(
        &self,
        request: Request<'_, proto::GetRequestView>,
    ) -> Result<Response<proto::GetResponse>, Status> {
        let key = request.message().key;
        let value = &self.values[key as u8 as usize];
        request.answer(&proto::GetResponseView { value, found: is_there(key) })
    }
}

/// If corruption is on, one answer in this many is corrupted.
const DAMAGE_EVERY: u64 = 61;

/// The application of a server endpoint.
pub(crate) struct Answerer {
    routes: Routes,
    sink: Arc<dyn ReplySink>,
    damages: bool,
    answers: u64,
    /// How long the endpoint's thread must sleep, because a client needs the thread's processor
    /// core. `None` if no client has asked, and once the thread has taken the value.
    park: Option<Duration>,
}

impl Answerer {
    /// Answers all methods. If `damages`, one answer in [`DAMAGE_EVERY`] has a wrong bit. Answers
    /// to control calls are always right.
    pub(crate) fn new(damages: bool) -> Result<Self, MethodCollision> {
        let mut routes = Routes::new();
        Arc::new(Store::new()).register(&mut routes)?;
        Ok(Self { routes, sink: Arc::new(NoDeferral), damages, answers: 0, park: None })
    }

    /// Takes the time for which the endpoint's thread must sleep. The thread calls this after it
    /// has sent the answer.
    pub(crate) fn take_park(&mut self) -> Option<Duration> {
        self.park.take()
    }

    #[inline]
    fn damage(&mut self, answer: &mut [u8]) {
        self.answers += 1;
        if self.damages && !answer.is_empty() && self.answers.is_multiple_of(DAMAGE_EVERY) {
            let at = self.answers as usize % answer.len();
            answer[at] ^= 0x20;
        }
    }

    fn control(&mut self, gaps: LoopGaps, request: &[u8]) -> Option<[u8; ServerState::LEN]> {
        match Control::from_bytes(request)? {
            Control::State => {}
            Control::Park(time) => self.park = Some(time),
        }
        let core = rustix::thread::sched_getcpu() as u32;
        Some(
            ServerState { cpu_time: machine::cpu_time(), gaps, core, boot_id: machine::boot_id() }
                .to_bytes(),
        )
    }

    fn typed<T: Transport>(
        &self,
        cx: &mut Context<'_, T>,
        method: u32,
        handle: RequestHandle,
        kept: Option<ResponseBuffer>,
        body: &[u8],
    ) -> Result<Option<MsgBuf>, Status> {
        let entry =
            self.routes.get(method).ok_or_else(|| Status::unimplemented("no such method"))?;
        let host = Host { cx: RefCell::new(cx), buffer: Cell::new(kept), sink: &self.sink };
        match entry.call(&entry.context(handle, &host), body) {
            HandlerOutcome::Reply(reply) => Ok(Some(reply.bytes)),
            HandlerOutcome::Failed(status) => Err(status),
            HandlerOutcome::Deferred => Ok(None),
        }
    }

    /// Answers a mirror request. This function has no statuses and no dispatch, because its calls
    /// are measured to the nanosecond. `false` if no buffer for the answer is available.
    #[inline(always)]
    fn mirror<T: Transport>(
        &mut self,
        cx: &mut Context<'_, T>,
        handle: RequestHandle,
        kept: Option<ResponseBuffer>,
        body: &[u8],
    ) -> bool {
        let Ok(mut answer) = cx.response_buffer(kept, body.len()) else { return false };
        answer.put_slice(body);
        if self.damages {
            self.damage(answer.as_mut_slice());
        }
        cx.respond(handle, answer, false);
        true
    }

    /// Like `mirror`, for answers of another length. Also `false` if the request is not an echo.
    #[inline]
    fn echo<T: Transport>(
        &mut self,
        cx: &mut Context<'_, T>,
        handle: RequestHandle,
        kept: Option<ResponseBuffer>,
        body: &[u8],
    ) -> bool {
        let Some(len) = payload::wanted(body) else { return false };
        let Ok(mut answer) = cx.response_buffer(kept, len) else { return false };
        answer.resize(len);
        let bytes = answer.as_mut_slice();
        payload::answer_echo(body, bytes);
        self.damage(bytes);
        cx.respond(handle, answer, false);
        true
    }

    /// Like `echo`, for large answers: see [`payload::source`].
    fn source<T: Transport>(
        &mut self,
        cx: &mut Context<'_, T>,
        handle: RequestHandle,
        kept: Option<ResponseBuffer>,
        body: &[u8],
    ) -> bool {
        let Some(len) = payload::wanted(body) else { return false };
        let Ok(mut answer) = cx.response_buffer(kept, len) else { return false };
        answer.resize(len);
        payload::source(answer.as_mut_slice(), payload::number_of(body));
        self.damage(answer.as_mut_slice());
        cx.respond(handle, answer, false);
        true
    }

    fn answer<T: Transport>(
        &mut self,
        cx: &mut Context<'_, T>,
        method: u32,
        handle: RequestHandle,
        kept: Option<ResponseBuffer>,
        body: &[u8],
    ) -> Result<Option<MsgBuf>, Status> {
        let bad = || Status::invalid_argument("not a request of this benchmark");
        let mut answer = match method {
            methods::ECHO | methods::MIRROR | methods::SOURCE => return Err(bad()),
            methods::SINK => filled(cx, kept, &payload::answer_sink(body))?,
            methods::CONTROL => {
                let state = self.control(cx.loop_gaps(), body).ok_or_else(bad)?;
                return filled(cx, kept, &state).map(Some);
            }
            _ => match self.typed(cx, method, handle, kept, body)? {
                Some(answer) => answer,
                None => return Ok(None),
            },
        };
        self.damage(answer.as_mut_slice());
        Ok(Some(answer))
    }
}

impl<T: Transport> App<T> for Answerer {
    #[inline(always)]
    fn on_request(&mut self, cx: &mut Context<'_, T>, request: erpc::raw::Request<'_, T::Route>) {
        let (method, body) = (request.method, request.body.as_slice());
        let mut kept = request.buffer;
        let is_answered = match method {
            methods::MIRROR => self.mirror(cx, request.handle, kept.take(), body),
            methods::ECHO => self.echo(cx, request.handle, kept.take(), body),
            methods::SOURCE => self.source(cx, request.handle, kept.take(), body),
            _ => false,
        };
        if !is_answered {
            match self.answer(cx, method, request.handle, kept, body) {
                Ok(Some(answer)) => cx.respond(request.handle, answer, false),
                Ok(None) => {}
                Err(status) => cx.respond_status(request.handle, &status),
            }
        }
        if let Body::Message(message) = request.body {
            cx.recycle(message);
        }
    }
}

fn buffer<T: Transport>(
    cx: &mut Context<'_, T>,
    kept: Option<ResponseBuffer>,
    len: usize,
) -> Result<MsgBuf, Status> {
    cx.response_buffer(kept, len).map_err(|error| Status::resource_exhausted(error.to_string()))
}

fn filled<T: Transport>(
    cx: &mut Context<'_, T>,
    kept: Option<ResponseBuffer>,
    bytes: &[u8],
) -> Result<MsgBuf, Status> {
    let mut answer = buffer(cx, kept, bytes.len())?;
    answer.resize(bytes.len());
    answer.as_mut_slice().copy_from_slice(bytes);
    Ok(answer)
}

/// The host of typed handlers. A response is encoded into the slot's own buffer if that is large
/// enough, otherwise into a new one.
pub(crate) struct Host<'a, 'c, T: Transport> {
    pub(crate) cx: RefCell<&'a mut Context<'c, T>>,
    /// The buffer that came with the request.
    pub(crate) buffer: Cell<Option<ResponseBuffer>>,
    pub(crate) sink: &'a Arc<dyn ReplySink>,
}

impl<T: Transport> CallHost for Host<'_, '_, T> {
    #[inline]
    fn buffer(&self, len: usize) -> Result<MsgBuf, Status> {
        buffer(&mut self.cx.borrow_mut(), self.buffer.take(), len)
    }

    fn peer(&self) -> Option<SocketAddr> {
        None
    }

    fn session_stats(&self, call: &RequestHandle) -> Option<ClientStats> {
        self.cx.borrow().client_stats(call.client())
    }

    fn is_cancelled(&self) -> bool {
        false
    }

    fn sink(&self) -> Arc<dyn ReplySink> {
        Arc::clone(self.sink)
    }
}

/// The sink of deferred answers. It drops them, because the store never defers an answer.
pub(crate) struct NoDeferral;

impl ReplySink for NoDeferral {
    fn reply(&self, _: RequestHandle, _: Result<Encoded, Status>) {}
}
