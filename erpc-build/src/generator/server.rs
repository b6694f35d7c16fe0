//! The server's half: a trait to implement, modes, registration.

use proc_macro2::{Literal, TokenStream};
use prost_build::Method;
use quote::{ToTokens, quote};

use super::Scope;
use super::docs::{docs, docs_or};
use super::names::{ident, method_const};
use crate::schema::Shape;

impl Scope<'_> {
    pub(super) fn server(&self) -> TokenStream {
        let service_trait = self.service_trait();
        let modes = self.modes();
        let register = self.register();
        quote! {
            #service_trait
            #modes
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
        let shape = self.plan(method).shape;
        let runs = match shape {
            Shape::Dispatch => "Runs in the event loop.",
            Shape::Worker => "Runs on a worker thread.",
            _ => "An `async fn`, in the event loop.",
        };
        let errors = "The status that the caller gets.";
        let docs = self.method_docs(method, "Handles", &[runs, "", "# Errors", errors]);
        let out = quote!(out: #erpc::Outgoing<#response>);
        let one = quote!(#result<#erpc::Response<#response>, #erpc::Status>);
        let ended = quote!(#result<(), #erpc::Status>);
        let later = |output| quote!(impl ::std::future::Future<Output = #output>);
        let incoming = quote!(#erpc::Incoming<#request>);
        let (request, out, output) = match shape {
            Shape::Dispatch | Shape::Worker => (request, None, one),
            Shape::Async => (request, None, later(one)),
            Shape::ServerStreaming => (request, Some(out), later(ended)),
            Shape::ClientStreaming => (incoming, None, later(one)),
            Shape::Bidirectional => (incoming, Some(out), later(ended)),
        };
        quote! {
            #docs
            fn #name(&self, request: #erpc::Request<'_, #request>, #out) -> #output;
        }
    }

    /// How methods run that could run elsewhere, in the service's order.
    fn modes(&self) -> TokenStream {
        let erpc = self.erpc();
        let mode = quote!(#erpc::service::Mode);
        let type_docs = docs(&["Modes of the methods that have one to choose."]);
        let docs = docs(&[
            "Where each method runs, unless `#[erpc(worker(..), dispatch(..))]` says otherwise.",
        ]);
        let names: Vec<_> =
            self.service.methods.iter().map(|method| method.proto_name.as_str()).collect();
        let unknown = match &names[..] {
            [] => format!("{} has no methods", self.full_name()),
            names => {
                format!("{} has no such method; it has: {}", self.full_name(), names.join(", "))
            }
        };
        let mut sync = Vec::new();
        let mut other = Vec::new();
        for method in &self.service.methods {
            let name = &method.proto_name;
            match self.plan(method).shape {
                Shape::Dispatch => sync.push(quote!((#name, #mode::Dispatch))),
                Shape::Worker => sync.push(quote!((#name, #mode::Worker))),
                _ => other.push(name),
            }
        }
        let count = Literal::usize_unsuffixed(sync.len());
        quote! {
            #type_docs
            pub type Modes = #erpc::service::Modes<#count>;
            #docs
            pub const MODES: Modes = Modes::new(#unknown, [#(#sync),*], &[#(#other),*]);
        }
    }

    fn register(&self) -> TokenStream {
        let (erpc, result) = (self.erpc(), self.result());
        let name = self.trait_ident();
        let docs = docs(&[
            "Adds the methods of `service` to a server's table. `#[derive(Service)]` calls this.",
            "",
            "# Errors",
            "If a method is there already, or another has its id.",
        ]);
        let mut modes = 0_usize..;
        let routes: Vec<_> = self
            .service
            .methods
            .iter()
            .map(|method| {
                let (constant, function) = (method_const(method), ident(&method.name));
                let arguments = quote!(service, S::#function);
                match self.plan(method).shape {
                    Shape::Dispatch | Shape::Worker => {
                        let index = modes.next().map(Literal::usize_unsuffixed);
                        quote!(routes.unary(methods::#constant, modes.at(#index), #arguments)?;)
                    }
                    Shape::Async => quote!(routes.unary_async(methods::#constant, #arguments)?;),
                    Shape::ServerStreaming => {
                        quote!(routes.server_streaming(methods::#constant, #arguments)?;)
                    }
                    Shape::ClientStreaming => {
                        quote!(routes.client_streaming(methods::#constant, #arguments)?;)
                    }
                    Shape::Bidirectional => {
                        quote!(routes.bidi_streaming(methods::#constant, #arguments)?;)
                    }
                }
            })
            .collect();
        let used = |used: bool, name: &str| {
            if used { ident(name) } else { ident(&format!("_{name}")) }.into_token_stream()
        };
        let service = used(!routes.is_empty(), "service");
        let table = used(!routes.is_empty(), "routes");
        let modes = used(modes.start > 0, "modes");
        quote! {
            #docs
            pub fn register<S: self::#name>(
                #service: &::std::sync::Arc<S>,
                #modes: Modes,
                #table: &mut #erpc::service::Routes,
            ) -> #result<(), #erpc::service::MethodCollision> {
                #(#routes)*
                Ok(())
            }
        }
    }
}
