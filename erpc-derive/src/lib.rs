//! `#[derive(Service)]`, re-exported and explained by the crate `erpc`.

mod attributes;
mod expand;
mod service_path;

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
/// * `dispatch(Get, ..)`: these methods run in the event loop, as all do unless `worker` says otherwise.
/// * `crate = my::erpc`: where the crate `erpc` is, if not at `::erpc`.
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
