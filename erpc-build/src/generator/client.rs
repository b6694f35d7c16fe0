//! The client's half: the two clients of a service, each with constructors and the functions of the
//! methods.
//!
//! The shared client belongs to no thread. The local client belongs to an endpoint and so to a
//! thread. Both have the same functions, with the types of their channels.

use proc_macro2::{Ident, TokenStream};
use prost_build::Method;
use quote::quote;

use super::Scope;
use super::docs::docs;
use super::names::{ClientNames, method_const, plain};
use crate::schema::Shape;

/// Which of the two clients of a service.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientKind {
    Shared,
    Local,
}

impl Scope<'_> {
    pub(super) fn clients(&self) -> TokenStream {
        let (shared, local) = (self.client(ClientKind::Shared), self.client(ClientKind::Local));
        quote!(#shared #local)
    }

    fn client(&self, kind: ClientKind) -> TokenStream {
        let erpc = self.erpc();
        let name = self.client_ident(kind);
        let channel = self.channel(kind);
        let shared = self.client_ident(ClientKind::Shared);
        let local = self.client_ident(ClientKind::Local);
        let first = match kind {
            ClientKind::Shared => {
                format!("Calls `{}` from any thread and any async runtime.", self.full_name())
            }
            ClientKind::Local => {
                format!("Calls `{}` from the thread of an endpoint.", self.full_name())
            }
        };
        let second = match kind {
            ClientKind::Shared => format!(
                "A call is sent immediately and returns a future, which any runtime can await. \
                 Endpoints on threads of their own make the calls. [`{local}`] makes them on its own \
                 thread, and is faster."
            ),
            ClientKind::Local => format!(
                "A call is sent in the endpoint's turn or its next one, and returns a future; the function whose \
                 name ends with `_with` takes a callback instead. The client stays on the endpoint's \
                 thread: for other threads and for `Send` futures, use [`{shared}`]."
            ),
        };
        let docs = docs(&[&first, "", &second]);
        let attributes = self.generator.clients.of(&self.full_name());
        let connect = match kind {
            ClientKind::Shared => self.connect_shared(&name),
            ClientKind::Local => self.connect_local(&name),
        };
        let constructors = self.constructors(&channel);
        let traits = self.client_traits(&name);
        let calls = self
            .service
            .methods
            .iter()
            .zip(&self.names.client)
            .map(|(method, names)| self.call(kind, method, names));
        quote! {
            #docs
            #attributes
            pub struct #name<T: #erpc::Transport = #erpc::Udp> {
                channel: #channel,
            }
            #connect
            impl<T: #erpc::Transport> #name<T> {
                #constructors
                #(#calls)*
            }
            #traits
        }
    }

    /// The type of a client's channel.
    fn channel(&self, kind: ClientKind) -> TokenStream {
        let erpc = self.erpc();
        match kind {
            ClientKind::Shared => quote!(#erpc::SharedChannel<T>),
            ClientKind::Local => quote!(#erpc::Channel<T>),
        }
    }

    fn connect_shared(&self, name: &Ident) -> TokenStream {
        let (erpc, result) = (self.erpc(), self.result());
        let docs = docs(&[
            "Connects to `server`, a name or an address with a port, such as `\"10.0.0.7:31850\"`. Calls \
             are spread over all addresses of the name.",
            "",
            "# Errors",
            "If the name cannot be resolved, or no server answers there.",
        ]);
        quote! {
            impl #name {
                #docs
                pub async fn connect(
                    server: impl ::std::fmt::Display,
                ) -> #result<Self, #erpc::ConnectFailed> {
                    #erpc::SharedChannel::connect(server).await.map(Self::new)
                }
            }
        }
    }

    fn connect_local(&self, name: &Ident) -> TokenStream {
        let (erpc, result) = (self.erpc(), self.result());
        let docs = docs(&[
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
        quote! {
            impl<T: #erpc::Transport> #name<T> {
                #docs
                pub fn connect(
                    endpoint: &#erpc::Endpoint<T>,
                    server: impl #erpc::Target<T::Route>,
                ) -> #result<Self, #erpc::ConnectFailed> {
                    #erpc::Channel::connect(endpoint, server).map(Self::new)
                }
            }
        }
    }

    fn constructors(&self, channel: &TokenStream) -> TokenStream {
        let erpc = self.erpc();
        let into = self.prelude("Into", &quote!(::std::convert));
        let new_docs = docs(&["A client on a channel. Several clients can share one channel."]);
        let channel_docs = docs(&["The channel that the calls use."]);
        let with_docs = docs(&["A client on the same channel whose calls have these options."]);
        quote! {
            #new_docs
            #[must_use]
            pub fn new(channel: impl #into<#channel>) -> Self {
                Self { channel: channel.into() }
            }
            #channel_docs
            #[must_use]
            pub fn channel(&self) -> &#channel {
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
    fn client_traits(&self, name: &Ident) -> TokenStream {
        let erpc = self.erpc();
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
    fn call(&self, kind: ClientKind, method: &Method, names: &ClientNames) -> TokenStream {
        let erpc = self.erpc();
        let call = &names.call;
        let method_const = method_const(method);
        let (request, response) = (self.request(method, 1), self.response(method, 1));
        let docs = self.method_docs(method, "Calls", &[]);
        let deprecated = method.options.deprecated().then(|| quote!(#[deprecated]));
        let argument = quote!(request: impl #erpc::service::Encodes<#request>);
        let types = match kind {
            ClientKind::Shared => CallTypes {
                incoming: quote!(#erpc::SharedIncoming<#response>),
                outgoing: quote!(#erpc::SharedOutgoing<#request>),
                upload: quote!(#erpc::SharedUpload<#request, #response>),
                call: quote!(#erpc::SharedCall<#response, T>),
            },
            ClientKind::Local => CallTypes {
                incoming: quote!(#erpc::Incoming<#response>),
                outgoing: quote!(#erpc::Outgoing<#request>),
                upload: quote!(#erpc::Upload<#request, #response>),
                call: quote!(#erpc::Call<#response, T>),
            },
        };
        let CallTypes { incoming, outgoing, upload, call: future } = types;
        let (argument, output, body) = match self.plan(method).shape {
            Shape::Dispatch | Shape::Worker | Shape::Async => {
                (Some(argument), future, quote!(call(&methods::#method_const, &request)))
            }
            Shape::ServerStreaming => (
                Some(argument),
                incoming,
                quote!(server_streaming(&methods::#method_const, &request)),
            ),
            Shape::ClientStreaming => {
                (None, upload, quote!(client_streaming(&methods::#method_const)))
            }
            Shape::Bidirectional => (
                None,
                quote!((#outgoing, #incoming)),
                quote!(bidi_streaming(&methods::#method_const)),
            ),
        };
        let with = names.call_with.as_ref().filter(|_| kind == ClientKind::Local);
        let with = with.map(|name| self.call_with(method, call, name));
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
        let (request, response) = (self.request(method, 1), self.replied(method));
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
                request: impl #erpc::service::Encodes<#request>,
                done: impl #fn_once(#result<#response, #erpc::CallError>) + 'static,
            ) {
                self.channel.call_with(&methods::#method_const, &request, done);
            }
        }
    }
}

/// The types that a client's functions return.
struct CallTypes {
    incoming: TokenStream,
    outgoing: TokenStream,
    upload: TokenStream,
    call: TokenStream,
}
