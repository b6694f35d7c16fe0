//! `#[derive(Service)]` and `#[derive(FixedLayout)]`, re-exported and explained by the crate `erpc`.

mod attributes;
mod expand;
mod fixed_layout;
mod service_path;
mod settings;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Makes a type that implements a generated trait something a server can serve: implements
/// `erpc::Service`.
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
/// All in `#[erpc(..)]`, in one or several:
///
/// * `service = proto::Kv`: the path of the trait that `erpc-build` generated. Required. What else was
///   generated for the service is found next to it, in the module `proto::kv_service`; so name the trait
///   by a path through its package's module, or bring `kv_service` into scope as well.
/// * `worker(Scan, ..)`: these methods, named as in the `.proto` file, run on worker threads.
/// * `worker`: all methods do, but those of `dispatch(..)`.
/// * `dispatch(Get, ..)`: these methods run in the event loop.
/// * `method(Get, deadline = "20ms", max_request = 4096)`: what is said of a method in place of the `.proto`
///   file, see below.
/// * `deadline = "1s"`, `max_request = ..`, ..: the same of all methods, but for what `method(..)` says.
/// * `crate = my::erpc`: where the crate `erpc` is, if not at `::erpc`.
///
/// Methods that are not named run as the `.proto` file declares, in the event loop if it says nothing.
/// Those whose handlers are asynchronous always run there: the trait says which, so they are named in
/// the `.proto` file or in the build script, not here.
///
/// # Options of methods
///
/// They hold for this server, whatever its clients were built from:
///
/// | | what it does |
/// |---|---|
/// | `deadline = "20ms"` | how long a call may take that comes without a deadline; one that has its own keeps it. A handler that has not begun by then does not; one that runs is told, and dropped where it waits if it is asynchronous, and the caller gets `DEADLINE_EXCEEDED`. Units are `us`, `ms` and `s`. |
/// | `max_request = 4096` | larger requests, in encoded bytes, are answered `INVALID_ARGUMENT`; 0: what sessions take |
/// | `max_response = 4096` | larger responses are replaced by `OUT_OF_RANGE`; 0: what sessions take |
/// | `idempotent`, `idempotent = false` | what interceptors are told by `CallContext::is_idempotent` |
///
/// Values may be constants: `deadline = Duration::from_millis(20)`, `max_request = 16 * KIB`. Of a method
/// that streams, sizes are those of each message; a handler is told that its own is too large, and `?` makes
/// `OUT_OF_RANGE` of that.
///
/// What a client does, it decides by its own `.proto` file: which deadline it sends, whether it tries again,
/// and what is too large to be sent. `erpc_build::Builder` has settings for those, as have the options of
/// calls.
///
/// A method that the service does not have is an error at compile time, which lists those it has.
///
/// # Generics
///
/// `struct Store<B>` is a service for each `B` for which it implements the trait; no bounds are to be
/// repeated.
#[proc_macro_derive(Service, attributes(erpc))]
pub fn derive_service(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a struct a message that is its own bytes: implements `erpc::FixedLayout`.
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
/// The struct must be the same bytes on every machine and at every address: `#[repr(C)]`, and fields of
/// `u8`, arrays, other such structs and the numbers of `erpc::zerocopy::little_endian`. What is not is an
/// error that says what to write in its place. `zerocopy`'s own derives prove it, so they stand beside
/// this one.
///
/// `#[erpc(crate = my::erpc)]` says where the crate `erpc` is, if not at `::erpc`.
#[proc_macro_derive(FixedLayout, attributes(erpc))]
pub fn derive_fixed_layout(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    fixed_layout::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
