//! A service: a set of methods.

use std::sync::Arc;

use super::{MethodCollision, Routes};

/// The bound on a service's state. Implemented by every type that is `Send + Sync + 'static`. State
/// that changes needs a `Mutex` or atomics. Clients, channels and sessions belong to the thread of
/// an endpoint, so they cannot be state: handlers store them with
/// [`Endpoint::local`](crate::endpoint::Endpoint::local).
///
/// This is a separate trait so that compiler errors name it and lead to this explanation.
pub trait SharedByThreads: Send + Sync + 'static {}

impl<S: Send + Sync + 'static> SharedByThreads for S {}

/// A set of methods and how they are called, implemented by `#[derive(erpc::Service)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a service",
    label = "not a service",
    note = "add `#[derive(erpc::Service)]` and `#[erpc(service = path::to::Trait)]` to `{Self}`"
)]
pub trait Service: Send + Sync + 'static {
    /// The service's full name, `package.Service`.
    const NAME: &'static str;

    /// Adds the service's methods.
    ///
    /// # Errors
    /// [`MethodCollision`] if a method is already registered, or another method has its id.
    fn register(self: Arc<Self>, routes: &mut Routes) -> Result<(), MethodCollision>;
}
