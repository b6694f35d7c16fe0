//! Names of functions and constants, without collisions.

use std::collections::HashSet;

use heck::ToShoutySnakeCase;
use proc_macro2::{Ident, Span};
use prost_build::{Method, Service};
use quote::format_ident;

/// Functions that every client has.
const CLIENT_RESERVED: [&str; 4] = ["new", "connect", "channel", "with"];

/// The names of a client's functions, in the order of the service's methods.
pub(super) struct Names {
    pub(super) client: Vec<ClientNames>,
}

/// The functions that a client has for a method.
pub(super) struct ClientNames {
    /// The function that returns a future or streams.
    pub(super) call: Ident,
    /// The function that takes a callback; `None` for streaming methods.
    pub(super) call_with: Option<Ident>,
}

impl Names {
    /// The function for a call has the name of its method, in snake case; the function with a
    /// callback also ends with `_with`. If another function of the client has that name,
    /// underscores follow.
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

/// The name, with underscores at its end until it is not in `taken`. Adds it to `taken`.
pub(super) fn free(name: &str, taken: &mut HashSet<String>) -> Ident {
    let mut name = name.to_owned();
    while !taken.insert(name.clone()) {
        name = format!("{}_", plain(&name));
    }
    ident(&name)
}

/// The name without the `r#` of a raw identifier.
pub(super) fn plain(name: &str) -> &str {
    name.trim_start_matches("r#")
}

/// An identifier; raw if the name starts with `r#`, which `prost` writes before keywords.
pub(super) fn ident(name: &str) -> Ident {
    match name.strip_prefix("r#") {
        Some(keyword) => Ident::new_raw(keyword, Span::call_site()),
        None => Ident::new(name, Span::call_site()),
    }
}

/// The name of a method's constant. Always a valid identifier: no keyword is in upper case, and
/// names in `.proto` files cannot start with a digit.
pub(super) fn method_const(method: &Method) -> Ident {
    format_ident!("{}", method.proto_name.to_shouty_snake_case())
}
