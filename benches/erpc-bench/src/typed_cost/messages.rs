//! The messages of the measured call, the store that answers them, and the check of answers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use erpc::service::{Borrowed, Codec, Fixed, Method, MethodCollision, Mode, Prost, Routes};
use erpc::zerocopy::little_endian::U64;
use erpc::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use erpc::{Burst, FixedLayout, Request, Response, Status};

pub(super) use crate::service::proto::{GetRequest, GetRequestView, GetResponse, GetResponseView};

/// Bytes of a value.
pub(super) const VALUE: usize = 64;
/// Bytes of a raw request: the key.
pub(super) const REQUEST: usize = 8;
/// Bytes of a raw answer: value and flag.
pub(super) const ANSWER: usize = VALUE + 1;

/// A method with the types of its messages. The method is a constant, as in generated code.
pub(super) trait Called: 'static {
    type Req: Keyed;
    type Resp: Checked + 'static;
    type Codec: Codec<Self::Req>;
    type Answers: Codec<Self::Resp>;
    const METHOD: Method<Self::Req, Self::Resp, Self::Codec, Self::Answers>;
}

/// The method with protocol buffers.
pub(super) enum Get {}

impl Called for Get {
    type Req = GetRequest;
    type Resp = GetResponse;
    type Codec = Prost;
    type Answers = Prost;
    const METHOD: Method<GetRequest, GetResponse> = Method::new("bench.v1.Cost/Get");
}

/// As [`Get`], but the handler gets a view of the packet and answers with a view of what the store has,
/// and a callback gets a view of the packet.
pub(super) enum GetView {}

impl Called for GetView {
    type Req = GetRequest;
    type Resp = GetResponse;
    type Codec = Borrowed;
    type Answers = Borrowed;
    const METHOD: Method<GetRequest, GetResponse, Borrowed> = Method::new("bench.v1.Cost/GetView");
}

/// As [`Get`], with a deadline for each call.
pub(super) enum GetTimed {}

impl Called for GetTimed {
    type Req = GetRequest;
    type Resp = GetResponse;
    type Codec = Prost;
    type Answers = Prost;
    const METHOD: Method<GetRequest, GetResponse> = Get::METHOD.deadline(Duration::from_secs(1));
}

/// The method with protocol buffers and an asynchronous handler.
pub(super) enum GetAsync {}

impl Called for GetAsync {
    type Req = GetRequest;
    type Resp = GetResponse;
    type Codec = Prost;
    type Answers = Prost;
    const METHOD: Method<GetRequest, GetResponse> = Method::new("bench.v1.Cost/GetAsync");
}

/// The method with messages of a fixed layout.
pub(super) enum GetFixed {}

impl Called for GetFixed {
    type Req = FixedRequest;
    type Resp = FixedResponse;
    type Codec = Fixed;
    type Answers = Fixed;
    const METHOD: Method<FixedRequest, FixedResponse, Fixed> =
        Method::new("bench.v1.Cost/GetFixed");
}

/// The method with messages of a fixed layout, and a burst hook.
pub(super) enum GetHooked {}

impl Called for GetHooked {
    type Req = FixedRequest;
    type Resp = FixedResponse;
    type Codec = Fixed;
    type Answers = Fixed;
    const METHOD: Method<FixedRequest, FixedResponse, Fixed> =
        Method::new("bench.v1.Cost/GetHooked");
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[zerocopy(crate = "erpc::zerocopy")]
#[repr(C)]
pub(super) struct FixedRequest {
    pub(super) key: U64,
}

impl FixedLayout for FixedRequest {}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[zerocopy(crate = "erpc::zerocopy")]
#[repr(C)]
pub(super) struct FixedResponse {
    pub(super) value: [u8; VALUE],
    pub(super) found: u8,
}

impl FixedLayout for FixedResponse {}

/// A request for a key.
pub(super) trait Keyed: 'static {
    fn of(key: u64) -> Self;
}

/// An answer that can be checked.
pub(super) trait Checked {
    fn is_answer(&self, key: u64) -> bool;
}

impl Keyed for GetRequest {
    #[inline]
    fn of(key: u64) -> Self {
        Self { key }
    }
}

impl Keyed for FixedRequest {
    #[inline]
    fn of(key: u64) -> Self {
        Self { key: key.into() }
    }
}

impl Checked for GetResponse {
    #[inline]
    fn is_answer(&self, key: u64) -> bool {
        is_answer(&self.value, self.found, key)
    }
}

impl Checked for GetResponseView<'_> {
    #[inline]
    fn is_answer(&self, key: u64) -> bool {
        is_answer(self.value, self.found, key)
    }
}

impl Checked for FixedResponse {
    #[inline]
    fn is_answer(&self, key: u64) -> bool {
        is_answer(&self.value, self.found != 0, key)
    }
}

impl Checked for &FixedResponse {
    #[inline]
    fn is_answer(&self, key: u64) -> bool {
        (*self).is_answer(key)
    }
}

/// A value for every key. For multiples of 16, the answer's flag says that the key is missing.
pub(super) struct Store {
    values: Vec<[u8; VALUE]>,
    shared: Vec<Bytes>,
}

#[inline]
fn value(key: u64) -> [u8; VALUE] {
    std::array::from_fn(|at| (key as u8).wrapping_add(at as u8))
}

fn is_there(key: u64) -> bool {
    !key.is_multiple_of(16)
}

/// Whether `bytes` and `found` are the store's value and flag for `key`.
#[inline]
pub(super) fn is_answer(bytes: &[u8], found: bool, key: u64) -> bool {
    found == is_there(key) && *bytes == value(key)
}

impl Store {
    pub(super) fn new() -> Self {
        let values: Vec<_> = (0..=u8::MAX).map(|key| value(key.into())).collect();
        let shared = values.iter().map(|value| Bytes::copy_from_slice(value)).collect();
        Self { values, shared }
    }

    #[inline]
    pub(super) fn get(&self, key: u64) -> (&[u8; VALUE], bool) {
        (&self.values[key as u8 as usize], is_there(key))
    }

    fn get_prost(&self, request: Request<'_, GetRequest>) -> Result<Response<GetResponse>, Status> {
        let key = request.message().key;
        let value = self.shared[key as u8 as usize].clone();
        Ok(Response::new(GetResponse { value, found: is_there(key) }))
    }

    fn get_view(
        &self,
        request: Request<'_, GetRequestView>,
    ) -> Result<Response<GetResponse>, Status> {
        let (value, found) = self.get(request.message().key);
        request.answer(&GetResponseView { value, found })
    }

    fn get_fixed(
        &self,
        request: Request<'_, &FixedRequest>,
    ) -> Result<Response<FixedResponse>, Status> {
        let (value, found) = self.get(request.message().key.get());
        Ok(Response::new(FixedResponse { value: *value, found: found.into() }))
    }

    /// Leaves the place of each value for its handler.
    fn look_ahead(&self, burst: Burst<'_, &FixedRequest>) {
        for request in &burst {
            request.set_note(request.message().key.get() & 0xFF);
        }
    }

    fn get_noted(
        &self,
        request: Request<'_, &FixedRequest>,
    ) -> Result<Response<FixedResponse>, Status> {
        let place = request.note().ok_or_else(|| Status::internal("the hook did not run"))?;
        let found = is_there(request.message().key.get());
        let value = self.values[place as usize];
        Ok(Response::new(FixedResponse { value, found: found.into() }))
    }

    async fn get_async(
        &self,
        request: Request<'_, GetRequest>,
    ) -> Result<Response<GetResponse>, Status> {
        self.get_prost(request)
    }

    pub(super) fn routes() -> Result<Routes, MethodCollision> {
        let mut routes = Routes::new();
        let store = Arc::new(Self::new());
        routes.unary(Get::METHOD, Mode::Dispatch, &store, Self::get_prost)?;
        routes.unary(GetView::METHOD, Mode::Dispatch, &store, Self::get_view)?;
        routes.unary(GetFixed::METHOD, Mode::Dispatch, &store, Self::get_fixed)?;
        routes.unary(GetHooked::METHOD, Mode::Dispatch, &store, Self::get_noted)?;
        routes.on_burst(GetHooked::METHOD, &store, Self::look_ahead);
        routes.unary_async(GetAsync::METHOD, &store, Self::get_async)?;
        Ok(routes)
    }
}
