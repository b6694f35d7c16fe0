//! A network in virtual time, for tests of services.
//!
//! A [`VirtualNetwork`] connects endpoints of one thread. Time passes only while no endpoint has
//! work: then the clock jumps to the next packet or timer. So a test of an hour's silence takes
//! milliseconds. The network loses, delays, duplicates and reorders packets as
//! [`Faults`](crate::transport::fault::Faults) say, and its servers can be killed, cut off and
//! restarted. A test with the same seed repeats exactly, unless its own code does not: threads, the
//! system's clock and the order of a `HashMap` differ from run to run.
//!
//! ```text
//!   endpoint.block_on(..)              VirtualNetwork                   VirtualServer
//!     turn: sends packets  -------->  faults, delay  ---------------->  its port
//!     no work: wait()      -------->  runs the others' turns  ------->  turn: handlers, tasks
//!                                     sets the clock
//! ```
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use erpc_core::service::{Method, MethodCollision, Request, Response, Routes, Service};
//! use erpc_core::status::Status;
//! use erpc_core::testing::VirtualNetwork;
//! use erpc_core::transport::fault::Faults;
//!
//! const DOUBLE: Method<u32, u32> = Method::new("math.v1.Math/Double");
//!
//! struct Math;
//!
//! impl Math {
//!     async fn double(&self, request: Request<'_, u32>) -> Result<Response<u32>, Status> {
//!         erpc_core::endpoint::sleep(Duration::from_secs(60)).await;
//!         Ok(Response::new(2 * request.message()))
//!     }
//! }
//!
//! impl Service for Math {
//!     const NAME: &'static str = "math.v1.Math";
//!
//!     fn register(self: Arc<Self>, routes: &mut Routes) -> Result<(), MethodCollision> {
//!         routes.unary_async(DOUBLE, &self, async |math: &Self, request| math.double(request).await)
//!     }
//! }
//!
//! let network = VirtualNetwork::new(7);
//! network.set_faults(Faults::none().drop(0.3));
//! let server = network.serve(Math);
//! let client = network.endpoint();
//! let session = client.connect(server.route())?;
//! assert_eq!(client.block_on(session.call(&DOUBLE, &21))?, 42);
//! assert!(network.elapsed() > Duration::from_secs(60));
//! assert!(network.fault_counts().dropped > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod network;
mod port;
mod server;
#[cfg(test)]
mod tests;
mod world;

pub use network::VirtualNetwork;
pub use port::{VirtualRoute, VirtualRx, VirtualTransport, VirtualTx};
pub use server::VirtualServer;
