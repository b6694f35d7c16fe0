//! Properties that all calls of a method share.

use std::sync::Arc;
use std::time::Duration;

use super::{Interceptor, Method};
use crate::time::Instant;

/// A method's name, limits and interceptors, without its handler.
#[derive(Clone)]
pub(super) struct MethodInfo {
    full_name: &'static str,
    max_request: u32,
    max_response: u32,
    idempotent: bool,
    /// Deadline of calls that arrive without one.
    deadline: Option<Duration>,
    interceptors: Vec<Arc<dyn Interceptor>>,
}

impl MethodInfo {
    pub(super) fn new<Req, Resp, C, D>(
        method: &Method<Req, Resp, C, D>,
        interceptors: &[Arc<dyn Interceptor>],
    ) -> Self {
        Self {
            full_name: method.full_name(),
            max_request: method.request_limit(),
            max_response: method.response_limit(),
            idempotent: method.is_idempotent(),
            deadline: method.server_deadline(),
            interceptors: interceptors.to_vec(),
        }
    }

    #[inline]
    pub(super) fn full_name(&self) -> &'static str {
        self.full_name
    }

    #[inline]
    pub(super) fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    /// Whether the method has its own deadline for calls that arrive without one.
    #[inline]
    pub(super) fn has_deadline(&self) -> bool {
        self.deadline.is_some()
    }

    /// The deadline of a call that arrived with deadline `carried`: `carried`, or if that is never,
    /// the method's own deadline. Calls `now` only if it needs the method's own deadline.
    pub(super) fn due(&self, carried: Instant, now: impl FnOnce() -> Instant) -> Instant {
        match self.deadline {
            Some(within) if carried == Instant::NEVER => now() + within,
            _ => carried,
        }
    }

    #[inline]
    pub(super) fn max_request(&self) -> u32 {
        self.max_request
    }

    #[inline]
    pub(super) fn max_response(&self) -> u32 {
        self.max_response
    }

    #[inline]
    pub(super) fn interceptors(&self) -> &[Arc<dyn Interceptor>] {
        &self.interceptors
    }

    /// Adds an interceptor, which the existing ones wrap.
    pub(super) fn intercept(&mut self, interceptor: Arc<dyn Interceptor>) {
        self.interceptors.push(interceptor);
    }
}
