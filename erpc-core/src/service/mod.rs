//! The interface for generated code and handlers: services, methods, typed requests.
//!
//! A server is a table of type-erased handlers, [`Routes`], to which services add their methods.
//! The runtime looks up a request's method id and calls the handler: one indirect call per request.
//!
//! ```text
//!   packet -> Routes::get(id) -> decode -> your handler -> encode into the slot's buffer -> packet
//! ```
//!
//! The method's [`Mode`] decides whether this happens in the event loop or on a worker thread. A
//! handler that cannot answer yet defers ([`Request::defer`]) and answers later from any thread.

#![forbid(unsafe_code)]

mod arrival;
mod burst;
mod codec;
mod context;
mod detached;
mod fields;
mod handler;
mod info;
mod interceptor;
mod metadata;
mod method;
mod options;
mod panics;
pub mod protobuf;
mod reply;
mod request;
mod responder;
mod response;
mod routes;
mod runtime;
mod streaming;
mod task;

pub(crate) use arrival::Arrival;
pub(crate) use burst::Gathered;
pub use burst::{Burst, BurstRequest, BurstRequests};
#[doc(no_inline)]
pub use bytes::BufMut;
pub(crate) use codec::encode_sized;
pub use codec::{
    Borrowed, Codec, DecodeError, Encodes, FieldSink, Fixed, FixedLayout, Prost, Viewable,
    encode_into, encode_view, view_len,
};
pub use context::{CallContext, CallHost};
pub use fields::Fields;
pub use interceptor::Interceptor;
pub(crate) use interceptor::late;
pub use metadata::{MAX_METADATA, Metadata, MetadataError, MetadataRef};
pub use method::{Method, Mode, method_id};
pub use options::{MethodOptions, ServiceOptions};
pub use reply::{Encoded, HandlerOutcome, ReplySink};
pub use request::Request;
pub use responder::Responder;
pub use response::Response;
pub(crate) use routes::FastPath;
pub use routes::{MethodCollision, RouteEntry, Routes, Service, SharedByThreads};
pub(crate) use runtime::EndpointRuntime;
pub use runtime::SharedRequest;
pub(crate) use streaming::handler::{ServerStream, StreamMethod};
pub(crate) use streaming::pipe::{
    InPipe, InPump, OutPipe, OutPump, Reader, is_of_item, malformed_item,
};
pub(crate) use streaming::shared::Keeper;
pub use streaming::shared::{SharedIncoming, SharedOutgoing, SharedUpload};
pub use streaming::{Incoming, Outgoing, Upload};
pub(crate) use streaming::{Sink, Source};
pub(crate) use task::{CallTask, TaskMethod, TaskPort, Timer};
