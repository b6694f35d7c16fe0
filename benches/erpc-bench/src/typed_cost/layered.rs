//! The call of workload w4 through the raw layer's loop, with typed messages and a typed handler.
//! It shows the cost of the service layer alone.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use erpc::raw::{App, Body, Context, MsgBuf, Request};
use erpc::service::{Codec, Method, Routes};
use erpc::{Status, Transport};
use erpc_core::service::{Encoded, HandlerOutcome, ReplySink, encode_into};

use super::closed_loop::{ClosedLoop, Messages};
use super::messages::{Checked, Keyed, Store};
use super::{Setup, Subject};
use crate::failure::Failure;
use crate::service::{Host, NoDeferral};

/// A closed loop that calls `method`.
pub(super) fn subject<Req, Resp, C, D>(
    setup: &Setup,
    method: Method<Req, Resp, C, D>,
) -> Result<Box<dyn Subject>, Failure>
where
    Req: Keyed,
    Resp: 'static,
    C: Codec<Req>,
    D: Codec<Resp>,
    for<'a> D::View<'a>: Checked,
{
    let routes = Store::routes().map_err(Failure::of("the service does not register"))?;
    let app = StoreServer { routes, sink: Arc::new(NoDeferral) };
    Ok(Box::new(ClosedLoop::new(setup, method, app)?))
}

impl<Req, Resp, C, D> Messages for Method<Req, Resp, C, D>
where
    Req: Keyed,
    C: Codec<Req>,
    D: Codec<Resp>,
    for<'a> D::View<'a>: Checked,
{
    fn room(&self) -> usize {
        0
    }

    #[inline(always)]
    fn method(&self) -> u32 {
        self.id()
    }

    #[inline(always)]
    fn write(&self, key: u64, request: &mut MsgBuf) {
        encode_into::<C, Req>(&Req::of(key), request);
    }

    #[inline(always)]
    fn is_answer(&self, answer: &[u8], key: u64) -> bool {
        D::view(answer).is_ok_and(|answer| answer.is_answer(key))
    }
}

/// The server.
struct StoreServer {
    routes: Routes,
    sink: Arc<dyn ReplySink>,
}

impl<T: Transport> App<T> for StoreServer {
    #[inline(always)]
    fn on_request(&mut self, cx: &mut Context<'_, T>, request: Request<'_, T::Route>) {
        let handle = request.handle;
        let outcome = match self.routes.get(request.method) {
            Some(entry) => {
                let buffer = Cell::new(request.buffer);
                let host = Host { cx: RefCell::new(cx), buffer, sink: &self.sink };
                entry.call(&entry.context(handle, &host), request.body.as_slice())
            }
            None => HandlerOutcome::Failed(Status::unimplemented("no such method")),
        };
        if let Body::Message(message) = request.body {
            cx.recycle(message);
        }
        match outcome {
            HandlerOutcome::Reply(Encoded { bytes, extended }) => {
                cx.respond(handle, bytes, extended)
            }
            HandlerOutcome::Failed(status) => cx.respond_status(handle, &status),
            HandlerOutcome::Deferred => {}
        }
    }
}
