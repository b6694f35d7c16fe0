//! The client's half.

use proc_macro2::TokenStream;
use prost_build::Method;
use quote::quote;

use super::Scope;
use super::docs::docs;
use super::names::{ClientNames, method_const};

impl Scope<'_> {
    pub(super) fn client(&self) -> TokenStream {
        let erpc = self.erpc();
        let name = self.client_ident();
        let text = format!("Calls `{}` over a session.", self.full_name());
        let docs = docs(&[
            &text,
            "",
            "Each method has two functions: one returns a future, the other takes a callback. Both send at once.",
        ]);
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
            pub struct #name<T: #erpc::Transport = #erpc::Udp> {
                session: #erpc::Session<T>,
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
        let connect_docs = docs(&[
            "Opens a session to `server`, an address such as `\"10.0.0.7:31850\"`, and runs `endpoint` until it is open.",
            "",
            "# Errors",
            "If the address is not known, or no server answers there.",
        ]);
        let new_docs =
            docs(&["A client that calls over `session`, which may serve several clients."]);
        let session_docs = docs(&["The session that calls go over."]);
        quote! {
            #connect_docs
            pub fn connect(
                endpoint: &#erpc::Endpoint<T>,
                server: impl #erpc::Target<T::Route>,
            ) -> #result<Self, #erpc::ConnectFailed> {
                endpoint.connect(server).map(Self::new)
            }
            #new_docs
            #[must_use]
            pub fn new(session: #erpc::Session<T>) -> Self {
                Self { session }
            }
            #session_docs
            #[must_use]
            pub fn session(&self) -> &#erpc::Session<T> {
                &self.session
            }
        }
    }

    /// Written out, because derives would ask them of the transport, too.
    fn client_traits(&self) -> TokenStream {
        let erpc = self.erpc();
        let name = self.client_ident();
        let text = name.to_string();
        quote! {
            impl<T: #erpc::Transport> ::std::clone::Clone for #name<T> {
                fn clone(&self) -> Self {
                    Self::new(self.session.clone())
                }
            }
            impl<T: #erpc::Transport> ::std::fmt::Debug for #name<T> {
                fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                    f.debug_struct(#text).field("session", &self.session).finish()
                }
            }
        }
    }

    fn call(&self, method: &Method, names: &ClientNames) -> TokenStream {
        let (erpc, result) = (self.erpc(), self.result());
        let ClientNames { call, call_with } = names;
        let constant = method_const(method);
        let (request, response) = (self.request(method, 1), self.response(method, 1));
        let docs_call = self.method_docs(method, "Calls", &[]);
        let docs_with = docs(&[&format!("As `{call}`, and gives the result to `done`.")]);
        quote! {
            #docs_call
            pub fn #call(&self, request: impl ::std::borrow::Borrow<#request>) -> #erpc::Call<#response, T> {
                self.session.call(&methods::#constant, request.borrow())
            }
            #docs_with
            pub fn #call_with(
                &self,
                request: impl ::std::borrow::Borrow<#request>,
                done: impl FnOnce(#result<#response, #erpc::CallError>) + 'static,
            ) {
                self.session.call_with(&methods::#constant, request.borrow(), done);
            }
        }
    }
}
