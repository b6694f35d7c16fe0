//! The service `erpc.health.v1.Health`: whether a server's services serve.
//!
//! [`HealthReporter`] is the server's half. Channels use the service if
//! [`ChannelBuilder::health_check`](crate::client::ChannelBuilder::health_check) asks for it. The
//! definition is in `proto/erpc/health/v1/health.proto`; the messages are those of gRPC's health
//! protocol.

#![forbid(unsafe_code)]

mod reporter;

use crate::service::Method;

pub use reporter::HealthReporter;

/// Names a service.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct HealthCheckRequest {
    /// The full name, such as `pkg.Service`. Empty: the server as a whole.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// The status of a service.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct HealthCheckResponse {
    /// The status.
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub status: i32,
}

/// Whether a service serves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum ServingStatus {
    /// Never sent.
    Unknown = 0,
    /// The service serves.
    Serving = 1,
    /// The service does not serve, or the server shuts down.
    NotServing = 2,
    /// The server does not know the service. Sent only by [`WATCH`].
    ServiceUnknown = 3,
}

/// The status of a service now. [`Code::NotFound`](crate::status::Code::NotFound) if the server
/// does not know the service.
pub const CHECK: Method<HealthCheckRequest, HealthCheckResponse> =
    Method::new("erpc.health.v1.Health/Check").idempotent();

/// A stream of the status of a service: now, and each time it changes. The stream ends when the
/// server shuts down.
pub const WATCH: Method<HealthCheckRequest, HealthCheckResponse> =
    Method::new("erpc.health.v1.Health/Watch");
