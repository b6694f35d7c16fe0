//! Names of functions and constants, kept apart from each other.

use std::collections::HashSet;

use heck::ToShoutySnakeCase;
use proc_macro2::{Ident, Span};
use prost_build::{Method, Service};
use quote::format_ident;

/// What every client has already.
const CLIENT_RESERVED: [&str; 4] = ["new", "connect", "channel", "with"];

/// What a client calls a service's methods, in the service's order.
pub(super) struct Names {
    pub(super) client: Vec<ClientNames>,
}

/// The functions that a client has for a method.
pub(super) struct ClientNames {
    /// Returns a future, or streams.
    pub(super) call: Ident,
    /// Takes a callback; `None` for methods that stream.
    pub(super) call_with: Option<Ident>,
}

impl Names {
    /// A method is called what the `.proto` file calls it, in snake case; an underscore follows where
    /// that is taken, by a function of the client or by another method's.
    pub(super) fn new(service: &Service) -> Self {
        let mut taken: HashSet<String> = CLIENT_RESERVED.into_iter().map(String::from).collect();
        let calls: Vec<_> =
            service.methods.iter().map(|method| free(&method.name, &mut taken)).collect();
        let with = |method: &Method| {
            let unary = !method.client_streaming && !method.server_streaming;
            unary.then(|| {
                free(&format!("{}_with", plain(&method.name).trim_end_matches('_')), &mut taken)
            })
        };
        let calls_with: Vec<_> = service.methods.iter().map(with).collect();
        let client = calls
            .into_iter()
            .zip(calls_with)
            .map(|(call, call_with)| ClientNames { call, call_with });
        Self { client: client.collect() }
    }
}

/// The name, with as many underscores as it takes to be none of `taken`.
pub(super) fn free(name: &str, taken: &mut HashSet<String>) -> Ident {
    let mut name = name.to_owned();
    while !taken.insert(name.clone()) {
        name = format!("{}_", plain(&name));
    }
    ident(&name)
}

/// The name without the mark of a raw identifier.
pub(super) fn plain(name: &str) -> &str {
    name.trim_start_matches("r#")
}

/// An identifier; `r#`, as `prost` writes it before keywords, makes it a raw one.
pub(super) fn ident(name: &str) -> Ident {
    match name.strip_prefix("r#") {
        Some(keyword) => Ident::new_raw(keyword, Span::call_site()),
        None => Ident::new(name, Span::call_site()),
    }
}

/// The name of a method's constant. No keyword is in upper case; digits cannot come first, because
/// they cannot in the `.proto` file either.
pub(super) fn method_const(method: &Method) -> Ident {
    format_ident!("{}", method.proto_name.to_shouty_snake_case())
}
