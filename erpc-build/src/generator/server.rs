//! The server's half: a trait to implement, options, registration.

use proc_macro2::{Ident, Literal, TokenStream};
use prost_build::Method;
use quote::quote;

use super::Scope;
use super::docs::{docs, docs_or};
use super::names::{ident, method_const};
use crate::schema::Shape;

/// How to make a handler of a plain `fn` an `async fn`; a line of the documentation.
/// [`crate::finish`] repeats it where the compiler's error shows it.
pub(crate) const ASYNC_HINT: &str = "For an `async fn`, set `default_mode(Mode::Tokio)` in the build script, or \
                                     `option (erpc.method) = { mode: TOKIO };` in the `.proto` file; `ASYNC` is \
                                     without tokio.";

impl Scope<'_> {
    pub(super) fn server(&self) -> TokenStream {
        let service_trait = self.service_trait();
        let options = self.options();
        let register = self.register();
        quote! {
            #service_trait
            #options
            #register
        }
    }

    fn service_trait(&self) -> TokenStream {
        let (erpc, name) = (self.erpc(), self.trait_ident());
        let fallback = format!("The service `{}`, to be implemented by servers.", self.full_name());
        let docs = docs_or(&self.service.comments, &fallback, &[]);
        let attributes = self.generator.traits.of(&self.full_name());
        let functions = self.service.methods.iter().map(|method| self.trait_function(method));
        quote! {
            #docs
            #attributes
            pub trait #name: #erpc::service::SharedByThreads {
                #(#functions)*
            }
        }
    }

    fn trait_function(&self, method: &Method) -> TokenStream {
        let (erpc, result) = (self.erpc(), self.result());
        let name = ident(&method.name);
        let (request, response) = (self.received(method), self.response(method, 1));
        let (shape, in_tokio) = (self.plan(method).shape, self.plan(method).in_tokio);
        let runs = match shape {
            Shape::Dispatch => "Runs in the event loop.",
            Shape::Worker => "Runs on a worker thread.",
            _ if in_tokio => "An `async fn` that runs in the server's tokio runtime.",
            _ => "An `async fn` that runs in the event loop.",
        };
        let errors = "The caller gets this status.";
        // If a user writes an `async fn` in place of a plain function, the compiler's error does
        // not say what to do. So the documentation says it.
        let hint = match shape {
            Shape::Dispatch | Shape::Worker => Some(ASYNC_HINT),
            _ => None,
        };
        let lines: Vec<_> =
            [runs].into_iter().chain(hint).chain(["", "# Errors", errors]).collect();
        let docs = self.method_docs(method, "Handles", &lines);
        let (outgoing, incoming) = match in_tokio {
            true => (quote!(SharedOutgoing), quote!(SharedIncoming)),
            false => (quote!(Outgoing), quote!(Incoming)),
        };
        let out = quote!(out: #erpc::#outgoing<#response>);
        let one = quote!(#result<#erpc::Response<#response>, #erpc::Status>);
        let ended = quote!(#result<(), #erpc::Status>);
        let send = in_tokio.then(|| quote!(+ ::std::marker::Send));
        let later = |output| quote!(impl ::std::future::Future<Output = #output> #send);
        let incoming = quote!(#erpc::#incoming<#request>);
        let (request, out, output) = match shape {
            Shape::Dispatch | Shape::Worker => (request, None, one),
            Shape::Async => (request, None, later(one)),
            Shape::ServerStreaming => (request, Some(out), later(ended)),
            Shape::ClientStreaming => (incoming, None, later(one)),
            Shape::Bidirectional => (incoming, Some(out), later(ended)),
        };
        let request = match in_tokio {
            true => quote!(#erpc::SharedRequest<#request>),
            false => quote!(#erpc::Request<'_, #request>),
        };
        quote! {
            #docs
            fn #name(&self, request: #request, #out) -> #output;
        }
    }

    /// The constant with the method names and default modes, which the derive can override.
    fn options(&self) -> TokenStream {
        let erpc = self.erpc();
        let docs = docs(&["How each method is served, unless `#[erpc(..)]` says otherwise."]);
        let methods = &self.service.methods;
        let names: Vec<_> = methods.iter().map(|method| method.proto_name.as_str()).collect();
        let unknown = match &names[..] {
            [] => format!("{} has no methods", self.full_name()),
            names => {
                format!("{} has no such method; it has: {}", self.full_name(), names.join(", "))
            }
        };
        let served = methods.iter().map(|method| {
            let name = &method.proto_name;
            let mode = match self.plan(method).shape {
                Shape::Dispatch => quote!(Some(#erpc::service::Mode::Dispatch)),
                Shape::Worker => quote!(Some(#erpc::service::Mode::Worker)),
                _ => quote!(None),
            };
            quote!((#name, #mode))
        });
        let streaming: Vec<_> = methods
            .iter()
            .filter(|method| method.client_streaming || method.server_streaming)
            .map(|method| &method.proto_name)
            .collect();
        let streaming = (!streaming.is_empty()).then(|| quote!(.streaming(&[#(#streaming),*])));
        let count = Literal::usize_unsuffixed(methods.len());
        let name = quote!(#erpc::service::ServiceOptions);
        quote! {
            #docs
            pub const OPTIONS: #name<#count> = #name::new(#unknown, [#(#served),*]) #streaming;
        }
    }

    fn register(&self) -> TokenStream {
        let (erpc, result) = (self.erpc(), self.result());
        let name = self.trait_ident();
        let docs = docs(&[
            "Adds the methods of `service` to a server's table. `#[derive(Service)]` calls this.",
            "",
            "# Errors",
            "If a method is registered already, or another method has the same id.",
        ]);
        let methods = &self.service.methods;
        let routes = methods.iter().enumerate().map(|(index, method)| {
            let (constant, function) = (method_const(method), ident(&method.name));
            let index = Literal::usize_unsuffixed(index);
            let served = quote!(options.method(#index, methods::#constant));
            let plan = self.plan(method);
            if plan.in_tokio {
                return in_tokio(plan.shape, &served, &function);
            }
            let arguments = quote!(service, S::#function);
            match plan.shape {
                Shape::Dispatch | Shape::Worker => {
                    quote!(routes.unary(#served, options.mode(#index), #arguments)?;)
                }
                Shape::Async => quote!(routes.unary_async(#served, #arguments)?;),
                Shape::ServerStreaming => quote!(routes.server_streaming(#served, #arguments)?;),
                Shape::ClientStreaming => quote!(routes.client_streaming(#served, #arguments)?;),
                Shape::Bidirectional => quote!(routes.bidi_streaming(#served, #arguments)?;),
            }
        });
        let used = |name: &str| match &methods[..] {
            [] => ident(&format!("_{name}")),
            _ => ident(name),
        };
        let (service, options, table) = (used("service"), used("options"), used("routes"));
        let count = Literal::usize_unsuffixed(methods.len());
        quote! {
            #docs
            pub fn register<S: self::#name>(
                #service: &::std::sync::Arc<S>,
                #options: #erpc::service::ServiceOptions<#count>,
                #table: &mut #erpc::service::Routes,
            ) -> #result<(), #erpc::service::MethodCollision> {
                #(#routes)*
                Ok(())
            }
        }
    }
}

/// The registration of a handler that runs in tokio. The future holds the service.
fn in_tokio(shape: Shape, served: &TokenStream, function: &Ident) -> TokenStream {
    let (routes, out) = match shape {
        Shape::ServerStreaming => ("server_streaming_tokio", Some(quote!(, out))),
        Shape::ClientStreaming => ("client_streaming_tokio", None),
        Shape::Bidirectional => ("bidi_streaming_tokio", Some(quote!(, out))),
        _ => ("unary_tokio", None),
    };
    let routes = ident(routes);
    quote! {
        routes.#routes(#served, service, async |service, request #out| {
            S::#function(&service, request #out).await
        })?;
    }
}
