//! The client's half: constructors, and one or two functions per method.

use proc_macro2::TokenStream;
use prost_build::Method;
use quote::quote;

use super::Scope;
use super::docs::docs;
use super::names::{ClientNames, method_const, plain};
use crate::schema::Shape;

impl Scope<'_> {
    pub(super) fn client(&self) -> TokenStream {
        let erpc = self.erpc();
        let name = self.client_ident();
        let text = format!("Calls `{}`.", self.full_name());
        let docs = docs(&[
            &text,
            "",
            "A call is sent immediately and returns a future; the function whose name ends with `_with` \
             takes a callback instead.",
            "",
            "A client stays on the thread of its endpoint. Other threads send their work there: with a `Handle`, or \
             from tasks of tokio with a `tokio::Remote`.",
        ]);
        let attributes = self.generator.clients.of(&self.full_name());
        let constructors = self.constructors();
        let traits = self.client_traits();
        let calls = self
            .service
            .methods
            .iter()
            .zip(&self.names.client)
            .map(|(method, names)| self.call(method, names));
        quote! {
            #docs
            #attributes
            pub struct #name<T: #erpc::Transport = #erpc::Udp> {
                channel: #erpc::Channel<T>,
            }
            impl<T: #erpc::Transport> #name<T> {
                #constructors
                #(#calls)*
            }
            #traits
        }
    }

    fn constructors(&self) -> TokenStream {
        let (erpc, result) = (self.erpc(), self.result());
        let into = self.prelude("Into", &quote!(::std::convert));
        let connect_docs = docs(&[
            "Connects to `server`, an address such as `\"10.0.0.7:31850\"`. Runs `endpoint` until the server \
             answers.",
            "",
            "# Errors",
            "If the address is not known, or no server answers there.",
            "",
            "# Panics",
            "Within a handler or callback, because the endpoint runs already. In handlers, callbacks and code \
             that must not wait, use `new(Channel::to(&endpoint, ..).build())`, which connects with the first call.",
        ]);
        let new_docs = docs(&[
            "A client on a channel or a session. Several clients can share one channel or session.",
        ]);
        let channel_docs = docs(&["The channel that the calls use."]);
        let with_docs = docs(&["A client on the same channel whose calls have these options."]);
        quote! {
            #connect_docs
            pub fn connect(
                endpoint: &#erpc::Endpoint<T>,
                server: impl #erpc::Target<T::Route>,
            ) -> #result<Self, #erpc::ConnectFailed> {
                #erpc::Channel::connect(endpoint, server).map(Self::new)
            }
            #new_docs
            #[must_use]
            pub fn new(channel: impl #into<#erpc::Channel<T>>) -> Self {
                Self { channel: channel.into() }
            }
            #channel_docs
            #[must_use]
            pub fn channel(&self) -> &#erpc::Channel<T> {
                &self.channel
            }
            #with_docs
            #[must_use]
            pub fn with(&self, options: #erpc::CallOptions) -> Self {
                Self::new(self.channel.with(options))
            }
        }
    }

    /// `Clone` and `Debug` are written out, because a derive would require the same traits of the
    /// transport `T`.
    fn client_traits(&self) -> TokenStream {
        let erpc = self.erpc();
        let name = self.client_ident();
        let text = name.to_string();
        quote! {
            impl<T: #erpc::Transport> ::std::clone::Clone for #name<T> {
                fn clone(&self) -> Self {
                    Self::new(self.channel.clone())
                }
            }
            impl<T: #erpc::Transport> ::std::fmt::Debug for #name<T> {
                fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                    f.debug_struct(#text).field("channel", &self.channel).finish()
                }
            }
        }
    }

    /// The functions for one method.
    fn call(&self, method: &Method, names: &ClientNames) -> TokenStream {
        let erpc = self.erpc();
        let call = &names.call;
        let method_const = method_const(method);
        let (request, response) = (self.request(method, 1), self.response(method, 1));
        let docs = self.method_docs(method, "Calls", &[]);
        let deprecated = method.options.deprecated().then(|| quote!(#[deprecated]));
        let argument = quote!(request: impl ::std::borrow::Borrow<#request>);
        let incoming = quote!(#erpc::Incoming<#response>);
        let (argument, output, body) = match self.plan(method).shape {
            Shape::Dispatch | Shape::Worker | Shape::Async => (
                Some(argument),
                quote!(#erpc::Call<#response, T>),
                quote!(call(&methods::#method_const, request.borrow())),
            ),
            Shape::ServerStreaming => (
                Some(argument),
                incoming,
                quote!(server_streaming(&methods::#method_const, request.borrow())),
            ),
            Shape::ClientStreaming => (
                None,
                quote!(#erpc::Upload<#request, #response>),
                quote!(client_streaming(&methods::#method_const)),
            ),
            Shape::Bidirectional => (
                None,
                quote!((#erpc::Outgoing<#request>, #incoming)),
                quote!(bidi_streaming(&methods::#method_const)),
            ),
        };
        let with = names.call_with.as_ref().map(|name| self.call_with(method, call, name));
        // A bidirectional call returns a tuple. The types that other calls return are `#[must_use]`
        // themselves.
        let must_use =
            (self.plan(method).shape == Shape::Bidirectional).then(|| quote!(#[must_use]));
        quote! {
            #docs
            #deprecated
            #must_use
            pub fn #call(&self, #argument) -> #output {
                self.channel.#body
            }
            #with
        }
    }

    /// The function that takes a callback.
    fn call_with(
        &self,
        method: &Method,
        call: &proc_macro2::Ident,
        name: &proc_macro2::Ident,
    ) -> TokenStream {
        let (erpc, result) = (self.erpc(), self.result());
        let fn_once = self.prelude("FnOnce", &quote!(::std::ops));
        let method_const = method_const(method);
        let (request, response) = (self.request(method, 1), self.response(method, 1));
        let docs = docs(&[&format!(
            "Like `{}`, but passes the result to `done`.",
            plain(&call.to_string())
        )]);
        let deprecated = method.options.deprecated().then(|| quote!(#[deprecated]));
        quote! {
            #docs
            #deprecated
            pub fn #name(
                &self,
                request: impl ::std::borrow::Borrow<#request>,
                done: impl #fn_once(#result<#response, #erpc::CallError>) + 'static,
            ) {
                self.channel.call_with(&methods::#method_const, request.borrow(), done);
            }
        }
    }
}
