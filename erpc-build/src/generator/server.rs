//! The server's half: a trait to implement, modes, registration.

use proc_macro2::{Literal, TokenStream};
use prost_build::Method;
use quote::quote;

use super::Scope;
use super::docs::{docs, docs_or};
use super::names::{ident, method_const};

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
        let name = self.trait_ident();
        let (send, sync) = (self.marker("Send"), self.marker("Sync"));
        let fallback = format!("The service `{}`, to be implemented by servers.", self.full_name());
        let docs = docs_or(&self.service.comments, &fallback, &[]);
        let functions = self.service.methods.iter().map(|method| self.trait_function(method));
        quote! {
            #docs
            pub trait #name: #send + #sync + 'static {
                #(#functions)*
            }
        }
    }

    fn trait_function(&self, method: &Method) -> TokenStream {
        let (erpc, result) = (self.erpc(), self.result());
        let name = ident(&method.name);
        let (request, response) = (self.request(method, 1), self.response(method, 1));
        let docs =
            self.method_docs(method, "Handles", &["# Errors", "The status that the caller gets."]);
        quote! {
            #docs
            fn #name(
                &self,
                request: #erpc::Request<'_, #request>,
            ) -> #result<#erpc::Response<#response>, #erpc::Status>;
        }
    }

    /// How methods run, by field, and by the names of the `.proto` file in constants.
    fn modes(&self) -> TokenStream {
        let erpc = self.erpc();
        let service = self.trait_ident();
        let copy = [docs(&[&format!("Where each method of [`{service}`] runs.")]), derives()];
        let all_docs = docs(&["All methods in one mode."]);
        let fields = self.service.methods.iter().map(|method| {
            let name = ident(&method.name);
            let docs = docs(&[&format!("The mode of `{}`.", method.proto_name)]);
            quote!(#docs pub #name: #erpc::service::Mode)
        });
        let with = self.modes_with();
        if self.service.methods.is_empty() {
            return quote! {
                #(#copy)*
                pub struct Modes {}
                impl Modes {
                    #all_docs
                    #[must_use]
                    pub const fn all(_mode: #erpc::service::Mode) -> Self {
                        Self {}
                    }
                    #with
                }
            };
        }
        let names = self.service.methods.iter().map(|method| ident(&method.name));
        quote! {
            #(#copy)*
            pub struct Modes {
                #(#fields,)*
            }
            impl Modes {
                #all_docs
                #[must_use]
                pub const fn all(mode: #erpc::service::Mode) -> Self {
                    Self { #(#names: mode,)* }
                }
                #with
            }
        }
    }

    fn modes_with(&self) -> TokenStream {
        let erpc = self.erpc();
        let docs = docs(&[
            "The same but for `method`, named as in the `.proto` file.",
            "",
            "# Panics",
            "If there is no such method. In a constant that is an error at compile time.",
        ]);
        let names: Vec<_> =
            self.service.methods.iter().map(|method| method.proto_name.as_str()).collect();
        if names.is_empty() {
            let message = format!("{} has no methods", self.full_name());
            return quote! {
                #docs
                #[must_use]
                #[track_caller]
                pub const fn with(self, _method: &str, _mode: #erpc::service::Mode) -> Self {
                    panic!(#message)
                }
            };
        }
        let message =
            format!("{} has no such method, it has: {}", self.full_name(), names.join(", "));
        let patterns = names.iter().map(|name| Literal::byte_string(name.as_bytes()));
        let fields = self.service.methods.iter().map(|method| ident(&method.name));
        quote! {
            #docs
            #[must_use]
            #[track_caller]
            pub const fn with(mut self, method: &str, mode: #erpc::service::Mode) -> Self {
                match method.as_bytes() {
                    #(#patterns => self.#fields = mode,)*
                    _ => panic!(#message),
                }
                self
            }
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
        let routes = self.service.methods.iter().map(|method| {
            let (constant, function) = (method_const(method), ident(&method.name));
            quote!(routes.unary(methods::#constant, modes.#function, service, S::#function)?;)
        });
        let [service, modes, table] = if self.service.methods.is_empty() {
            ["_service", "_modes", "_routes"].map(ident)
        } else {
            ["service", "modes", "routes"].map(ident)
        };
        quote! {
            #docs
            pub fn register<S: #name>(
                #service: &::std::sync::Arc<S>,
                #modes: Modes,
                #table: &mut #erpc::service::Routes,
            ) -> #result<(), #erpc::service::MethodCollision> {
                #(#routes)*
                Ok(())
            }
        }
    }

    fn marker(&self, name: &str) -> TokenStream {
        self.prelude(name, &quote!(::std::marker))
    }
}

fn derives() -> TokenStream {
    quote!(#[derive(Clone, Copy, PartialEq, Eq, Debug)])
}
