//! `#[derive(Service)]` and `#[derive(FixedLayout)]`. The crate `erpc` re-exports and explains
//! them.

mod attributes;
mod expand;
mod fixed_layout;
mod service_path;
mod settings;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Implements `erpc::Service` for a type that implements a generated trait, so that a server can
/// serve it.
///
/// ```ignore
/// #[derive(erpc::Service)]
/// #[erpc(service = proto::Kv, worker(Scan))]
/// struct Store { .. }
///
/// impl proto::Kv for Store { .. }
/// ```
///
/// # Attribute
///
/// All keys are in one or several `#[erpc(..)]`:
///
/// * `service = proto::Kv`: the path of the trait that `erpc-build` generated. Required. The derive
///   looks for the other generated items of the service next to the trait, in the module
///   `proto::kv_service`. So use a path through the module of the package, or bring `kv_service`
///   into scope as well.
/// * `worker(Scan, ..)`: these methods, with their names in the `.proto` file, run on worker
///   threads.
/// * `dispatch(Get, ..)`: these methods run in the event loop.
/// * `default_mode = worker`, or short `worker`: all methods run on worker threads, except those in
///   `dispatch(..)`. `default_mode = dispatch`: all run in the event loop, except those in
///   `worker(..)`.
/// * `burst(Get = look_ahead, ..)`: the burst hook of this method is `Self::look_ahead`, which the
///   event loop calls with the requests of a receive burst for the method, before their handlers
///   run: `fn look_ahead(&self, burst: Burst<'_, GetRequest>)`, where the message has the
///   type that a plain handler's request has. See `erpc::Burst`.
/// * `method(Get, deadline = "20ms", max_request = 4096)`: overrides options of the `.proto` file
///   for one method; see below.
/// * `deadline = "1s"`, `max_request = ..`, ..: overrides these options for all methods;
///   `method(..)` takes precedence.
/// * `crate = my::erpc`: the path of the crate `erpc`, if it is not `::erpc`.
///
/// All other methods run as the `.proto` file declares; the default is the event loop. Whether a
/// handler is asynchronous, and whether it then runs in the event loop or in tokio, is part of the
/// trait. So it is declared in the `.proto` file or in the build script, such as
/// `.default_mode(erpc_build::Mode::Tokio)`, not here.
///
/// # Options of methods
///
/// These options apply to this server, independent of how its clients were built:
///
/// | option | effect |
/// |---|---|
/// | `deadline = "20ms"` | the deadline of calls that arrive without one; a call with a deadline keeps it. After the deadline, a handler that has not started does not start, a running handler learns that its call has ended, an asynchronous handler is dropped at its `await`, and the caller gets `DEADLINE_EXCEEDED`. Units are `us`, `ms` and `s`. |
/// | `max_request = 4096` | larger requests, in encoded bytes, get `INVALID_ARGUMENT`; 0: the limit of the session |
/// | `max_response = 4096` | larger responses, in encoded bytes, are replaced by `OUT_OF_RANGE`; 0: the limit of the session |
/// | `idempotent`, `idempotent = false` | the value of `CallContext::is_idempotent` for interceptors |
///
/// Values can be constants: `deadline = Duration::from_millis(20)`, `max_request = 16 * KIB`. For a
/// streaming method the sizes apply to each message. If a handler sends a message that is too
/// large, it gets an error, which `?` turns into `OUT_OF_RANGE`.
///
/// A client uses its own `.proto` file to decide which deadline it sends, whether it retries, and
/// which messages are too large to send. `erpc_build::Builder` and the options of calls have
/// settings for these.
///
/// A method that the service does not have is an error at compile time. The error lists the methods
/// of the service.
///
/// # Generics
///
/// `struct Store<B>` is a service for each `B` for which it implements the trait. No bounds need to
/// be repeated, except those that a burst hook needs: write these at the struct.
#[proc_macro_derive(Service, attributes(erpc))]
pub fn derive_service(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Implements `erpc::FixedLayout`: a message whose bytes in memory are its encoding.
///
/// ```ignore
/// use erpc::zerocopy::little_endian::{F64, U64};
/// use erpc::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
///
/// #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, erpc::FixedLayout)]
/// #[zerocopy(crate = "erpc::zerocopy")]
/// #[repr(C)]
/// struct Quote {
///     number: U64,
///     price: F64,
///     symbol: [u8; 8],
/// }
///
/// const QUOTE: Method<Quote, Quote, Fixed> = Method::new("market.v1.Market/Quote");
/// ```
///
/// The struct must be the same bytes on every machine and at every address: it needs `#[repr(C)]`
/// or `#[repr(transparent)]`, and its fields must be `u8`, `i8`, arrays, other such structs, or the
/// numbers of `erpc::zerocopy::little_endian`. For other numbers, references and common types such
/// as `String`, an error says what to write instead. The derives of `zerocopy` prove these
/// properties, so they are required, too.
///
/// `#[erpc(crate = my::erpc)]` sets the path of the crate `erpc`, if it is not `::erpc`.
#[proc_macro_derive(FixedLayout, attributes(erpc))]
pub fn derive_fixed_layout(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    fixed_layout::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
